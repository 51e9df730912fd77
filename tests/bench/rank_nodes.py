"""Nodes of ``tests.bench.ranks``: started here, and each a process of this module.

    python -m tests.bench.rank_nodes FIRST COUNT PROGRAM

That process starts the ranks of its node. What a rank leaves behind, as it does its sidecar,
becomes its child, so that the kernel says what that and all that it started took.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

__all__ = ["PER_NODE", "makes_nodes", "run_nodes"]

PER_NODE = 8
"""Ranks of a node."""

_ROOT = Path(__file__).resolve().parents[2]
_PR_SET_CHILD_SUBREAPER = 36
_UNSHARED = ("unshare", "--mount", "--uts", "sh", "-c")
_OF_ITS_OWN = """
mount --bind "$1" /proc/sys/kernel/random/boot_id && mount -t tmpfs none /dev/shm || exit
hostname "$2" && shift 2 && exec "$@"
"""


@cache
def makes_nodes() -> bool:
    """Whether this user may give a process names and mounts of its own."""
    command = [*_UNSHARED, _OF_ITS_OWN, "sh", "/proc/sys/kernel/random/boot_id", "node", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def run_nodes(
    scratch: Path, program: str, ranks: int, at_once: int, environ: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Run ``program`` as each of ``ranks`` ranks; what the nodes say when all is over.

    Args:
        scratch: Where the nodes have their disks; one for all where the user may make no nodes.
        program: Python code.
        ranks: How many there are.
        at_once: Most of them at a time, two nodes at least: the first stays to the end.
        environ: Their environment, to which what torchrun sets is added.
    """
    whole = {"WORLD_SIZE": ranks, "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "node-0"}
    environ = {**environ, **{name: str(value) for name, value in whole.items()}}
    run = partial(_run_node, scratch, program, ranks, environ)
    with ThreadPoolExecutor(max(2, at_once // PER_NODE)) as pool:
        return list(pool.map(run, range(-(-ranks // PER_NODE))))


def _run_node(
    scratch: Path, program: str, ranks: int, environ: Mapping[str, str], number: int
) -> dict[str, Any]:
    disk = scratch / f"node-{number if makes_nodes() else 0}"
    disk.mkdir(exist_ok=True)
    command = [sys.executable, "-m", __name__, str(number * PER_NODE)]
    command += [str(min(PER_NODE, ranks - number * PER_NODE)), program]
    if makes_nodes():
        boot = disk / "boot_id"
        boot.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        command = [*_UNSHARED, _OF_ITS_OWN, "sh", str(boot), f"node-{number}", *command]
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env={**environ, "RLVR_PROBE_SPOOL": str(disk), "GROUP_RANK": str(number)},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _be_node(first: int, count: int, program: str) -> dict[str, Any]:
    """Run the ranks from ``first`` on, and wait until nothing of them is left.

    Returns:
        ``failed``, how many ranks did; ``cpu_s`` and ``memory_b``, the peak of one process, of the
        sidecar and all that it started.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ranks = {_start(first + local, local, count, program) for local in range(count)}
    found = {"failed": 0, "cpu_s": 0.0, "memory_b": 0}
    while True:
        try:
            pid, status, used = os.wait4(-1, 0)
        except ChildProcessError:
            return found
        if pid in ranks:
            found["failed"] += status != 0
        else:
            found["cpu_s"] += used.ru_utime + used.ru_stime
            found["memory_b"] = max(found["memory_b"], used.ru_maxrss * 1024)


def _start(rank: int, local: int, count: int, program: str) -> int:
    own = {"RANK": rank, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": count}
    environ = os.environ | {name: str(number) for name, number in own.items()}
    return os.posix_spawn(sys.executable, [sys.executable, "-c", program], environ)


if __name__ == "__main__":
    print(json.dumps(_be_node(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
