"""Who this process is, and which run and which launch of it the process belongs to.

Nothing here writes, starts or changes anything. Two jobs must never share a run id, so an id is
derived only from what every process of one job shares and no other job has; without that, a process
gets an id of its own.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rlvr_probe.config import Config

__all__ = [
    "NODE_DIGITS",
    "boot_id",
    "host",
    "ids",
    "job_key",
    "local_rank",
    "process_key",
    "process_start_ticks",
    "rank",
    "run_id",
    "slurm_rank",
    "world_size",
]

NODE_DIGITS: Final = 4
"""Digits of a process key that are the same for all processes of a node."""

_IDS: Final = {
    "slurm_job_id": "SLURM_JOB_ID",
    "slurm_step_id": "SLURM_STEP_ID",
    "slurm_restart_count": "SLURM_RESTART_COUNT",
    "slurm_node_id": "SLURM_NODEID",
    "ray_job_id": "RAY_JOB_ID",
    "wandb_run_id": "WANDB_RUN_ID",
    "mlflow_run_id": "MLFLOW_RUN_ID",
    "torchelastic_run_id": "TORCHELASTIC_RUN_ID",
    "torchelastic_restart_count": "TORCHELASTIC_RESTART_COUNT",
    "group_rank": "GROUP_RANK",
}
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

# Slurm numbers real steps from 0; batch, extern, interactive and pending steps lie above this.
_SLURM_STEP_MAX: Final = 0xFFFF0000


def boot_id() -> str | None:
    """Id of this boot of the kernel, whose CLOCK_MONOTONIC is one clock; None if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None


def process_start_ticks(pid: int) -> int | None:
    """Start of process ``pid`` in clock ticks since boot; None if it is gone or cannot be read.

    Together with the pid it names a process for as long as the kernel is up: pids are used again.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # Field 2 is the command in parentheses and may itself hold spaces and parentheses.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def process_key() -> str:
    """16 hex digits for this process start: a tag of the node, then random ones.

    Two nodes in 65,536 share a tag; it only selects the files to look at.
    """
    node = zlib.crc32((boot_id() or host()).encode()) & 0xFFFF
    return f"{node:0{NODE_DIGITS}x}{os.urandom(6).hex()}"


def host() -> str:
    """Name of this node."""
    return os.uname().nodename


def rank(environ: Mapping[str, str]) -> int | None:
    """``RANK``, or None if there is none."""
    return _int(environ.get("RANK"))


def local_rank(environ: Mapping[str, str]) -> int | None:
    """``LOCAL_RANK``, or None if there is none."""
    return _int(environ.get("LOCAL_RANK"))


def world_size(environ: Mapping[str, str]) -> int | None:
    """``WORLD_SIZE``, or None if there is none."""
    return _int(environ.get("WORLD_SIZE"))


def slurm_rank(environ: Mapping[str, str]) -> int | None:
    """Task number in the Slurm step, or None outside of one; a launcher is often one of them."""
    return None if _slurm_step(environ) is None else _int(environ.get("SLURM_PROCID"))


def ids(environ: Mapping[str, str]) -> dict[str, str]:
    """Ids other tools gave this job, by allow-list; nothing else of ``environ`` is looked at.

    A value that does not look like an id is dropped: it might hold anything.
    """
    found = {name: environ.get(variable, "") for name, variable in _IDS.items()}
    return {name: value for name, value in found.items() if _ID.fullmatch(value)}


def run_id(config: Config, environ: Mapping[str, str]) -> str:
    """The id of the run this process belongs to: a folder name.

    The first of these that applies: ``config.run_id``; the Slurm step; the Ray job; the torchrun id
    if several nodes share it; the parent process, which the ranks of one node share; a random id
    that starts with the local date and time. Only the last differs from call to call.
    """
    if config.run_id is not None:
        return config.run_id
    step = _slurm_step(environ)
    if step is not None:
        return "slurm-" + _folder_name(step)
    if environ.get("RAY_JOB_ID"):
        cluster = _digest("ray", *_raylet(environ))
        return f"ray-{_folder_name(environ['RAY_JOB_ID'])}-{cluster[:8]}"
    rendezvous = _rendezvous(environ)
    if rendezvous is not None:
        return "torchrun-" + _folder_name(rendezvous)
    if (world_size(environ) or 1) > 1:
        return "job-" + _digest("run", *_parent())[:12]
    return time.strftime("%Y%m%d-%H%M%S-") + os.urandom(3).hex()


def job_key(environ: Mapping[str, str]) -> str:
    """16 hex digits that name one launch (an attempt) of the job.

    The same on all ranks of a launch, another one at every relaunch. Not a folder name: a run that
    is resumed keeps its run id and gets a new job key.
    """
    restarts = (environ.get("TORCHELASTIC_RESTART_COUNT"), environ.get("SLURM_RESTART_COUNT"))
    slurm = (environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID"))
    rendezvous = _rendezvous(environ)
    launch: tuple[object, ...]
    if environ.get("RAY_JOB_ID"):
        # Its parent, and the Slurm step, are those of every driver's workers; the process that
        # started this one joins the nodes.
        launch = ("ray", environ["RAY_JOB_ID"], *_raylet(environ))
    elif rendezvous is not None:
        # An id given by hand comes back at the next launch; the address rank 0 opened rarely does.
        master = (environ.get("MASTER_ADDR"), environ.get("MASTER_PORT"))
        launch = ("torchrun", rendezvous, *slurm, *master)
    elif _slurm_step(environ) is not None and _int(environ.get("SLURM_STEP_NUM_TASKS")) != 1:
        launch = ("slurm", *slurm)
    elif (world_size(environ) or 1) > 1:
        launch = ("parent", *_parent())
    else:
        launch = ("process", *_process(os.getpid()))
    return _digest("launch", *restarts, *launch)


def _slurm_step(environ: Mapping[str, str]) -> str | None:
    """``job.step`` where all processes of the step are one job.

    Not in a batch script or an allocation's shell without srun, nor in a shell that srun opened on
    a terminal: there somebody may start one job after another, or two at once.
    """
    job, step = environ.get("SLURM_JOB_ID"), _int(environ.get("SLURM_STEP_ID"), 10)
    if not job or step is None or step >= _SLURM_STEP_MAX or environ.get("SLURM_PTY_PORT"):
        return None
    return f"{job}.{step}"


def _rendezvous(environ: Mapping[str, str]) -> str | None:
    """The torchrun id if several nodes share it; on one node it may be anybody's."""
    name = environ.get("TORCHELASTIC_RUN_ID", "none")
    world, local = world_size(environ), _int(environ.get("LOCAL_WORLD_SIZE"))
    several = world is not None and local is not None and world > local
    return name if several and name not in ("", "none") else None


def _raylet(environ: Mapping[str, str]) -> tuple[object, ...]:
    """Node of this Ray cluster, which distinguishes it: all clusters count their jobs from 1."""
    raylet = _int(environ.get("RAY_RAYLET_PID"))
    return boot_id(), raylet, raylet and process_start_ticks(raylet)


def _parent() -> tuple[object, ...]:
    return _process(os.getppid())


def _process(pid: int) -> tuple[object, ...]:
    """What names process ``pid`` among all of all nodes and containers."""
    try:
        # Containers share the boot id, and each may have a pid 1 started in the same tick.
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = host()
    return boot_id() or host(), namespace, pid, process_start_ticks(pid)


def _digest(*parts: object) -> str:
    # Costs a millisecond to import, and the launcher mostly needs no hash.
    from hashlib import sha256

    return sha256(repr(parts).encode()).hexdigest()[:16]


def _folder_name(text: str) -> str:
    """``text`` as part of a folder name; what had to be changed is told apart by a digest."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:80]
    return name if name == text else f"{name}-{_digest('name', text)[:6]}"


def _int(text: str | None, digits: int = 9) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > digits:
        return None
    return int(text)
