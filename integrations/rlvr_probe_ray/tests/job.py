"""A user's Ray programs, one per way into a cluster. Knows of the probe only where it attaches.

``python job.py WAY FOLDER [ADDRESS]`` prints one JSON line: ``results``, which are the same with
and without a probe, ``driver``, its process, ``variables``, those of the job's environment, and
``workers``, the title of every worker process that the raylet has at the end.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.job_config import JobConfig
from ray.runtime_env import RuntimeEnv

WRITTEN_S = 2.0
"""Many times as long as a record may take to reach the disk."""
MARK = "import rlvr_probe\nrlvr_probe.attach()\nwith rlvr_probe.span('child'): pass"


class Counter:
    """An actor; it is killed in some of the ways."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, more: int) -> int:
        self.value += more
        return self.value

    def raylet(self) -> int:
        return os.getppid()

    def pid(self) -> int:
        return os.getpid()

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def mark(self) -> None:
        """A span of the user's, where there is a probe."""
        if os.environ.get("RLVR_PROBE"):
            from rlvr_probe import span

            with span("before the end"):
                pass

    def child(self) -> int:
        """A Python process of its own."""
        code = MARK if os.environ.get("RLVR_PROBE") else "pass"
        return subprocess.run([sys.executable, "-c", code], check=True).returncode

    def waits(self) -> None:
        time.sleep(600)

    def notes_its_end(self, path: str) -> None:
        """Writes an empty file if the process exits, and is not killed before."""
        atexit.register(Path(path).touch)

    def fails(self) -> None:
        raise ValueError("of the user")


class Parent:
    """An actor that starts others."""

    def __init__(self) -> None:
        env = {"env_vars": {"MINE": "1", "RLVR_PROBE_FLUSH_S": "0.05"}}
        self.counters = [
            remote(Counter).options(runtime_env=env).remote(10),
            remote(Counter).options(runtime_env=RuntimeEnv(env_vars={"MINE": "2"})).remote(20),
        ]

    def ask(self) -> list[Any]:
        asked = [
            (counter.add.remote(1), counter.variable.remote("MINE")) for counter in self.counters
        ]
        return [ray.get(list(actor)) for actor in asked]


def remote(kind: type) -> Any:
    return ray.remote(num_cpus=0)(kind)


@ray.remote(num_cpus=0)
def double(value: int) -> int:
    return 2 * value


def failure(call: Callable[[], Any]) -> list[str]:
    """What the user sees of an error in a worker."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error.__cause__ or error).strip().splitlines()[-1]]
    return []


def end_of(actor: Any) -> list[str]:
    """The error of a call of a dead actor, once Ray knows that it is dead."""
    while (said := failure(lambda: ray.get(actor.add.remote(1)))[:1]) == ["ActorUnavailableError"]:
        time.sleep(0.2)
    return said


def everything() -> tuple[list[Any], Any]:
    """Actors of every kind that a runtime environment can make, and one that is killed by each."""
    parent = remote(Parent).remote()
    plain = remote(Counter).options(name="plain", get_if_exists=True).remote(1)
    same = remote(Counter).options(name="plain", get_if_exists=True).remote(1)
    killed, struck = remote(Counter).remote(5), remote(Counter).remote(6)
    off = {"env_vars": {"RLVR_PROBE_DISABLED": "1"}}
    unwanted = remote(Counter).options(runtime_env=off).remote(7)
    results = [
        ray.get(parent.ask.remote()),
        ray.get([plain.add.remote(1), same.add.remote(1), double.remote(4)]),
        ray.get([unwanted.add.remote(1), plain.child.remote()]),
        failure(lambda: ray.get(plain.fails.remote())),
        ray.get([actor.variable.remote("SET_UP_BY_USER") for actor in (plain, unwanted)]),
    ]
    ray.get([killed.mark.remote(), struck.mark.remote()])
    pid = ray.get(struck.pid.remote())
    time.sleep(WRITTEN_S)
    ray.kill(killed)
    os.kill(pid, signal.SIGKILL)
    results.append(end_of(struck))
    return results, (parent, plain, unwanted)


def starts(folder: Path, address: str) -> tuple[list[Any], Any]:
    """Ray is started by the driver, with a set-up hook of the user's."""
    env: dict[str, Any] = {
        "env_vars": {"THEIRS": "3"},
        "worker_process_setup_hook": "setup_hook.setup",
    }
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=str(folder), runtime_env=env)
    results, kept = everything()
    assert not [name for name in env["env_vars"] if name.startswith("RLVR")]
    return results, kept


def few() -> tuple[list[Any], Any]:
    counter = remote(Counter).remote(1)
    return ray.get([counter.add.remote(1), counter.variable.remote("THEIRS"), double.remote(2)]), (
        counter,
    )


def joins(folder: Path, address: str) -> tuple[list[Any], Any]:
    """A cluster that runs already, with an object for the environment."""
    ray.init(address=address, runtime_env=RuntimeEnv(env_vars={"THEIRS": "4"}))
    return few()


def configured(folder: Path, address: str) -> tuple[list[Any], Any]:
    """The environment is in a configuration of the job."""
    config = JobConfig(runtime_env={"env_vars": {"THEIRS": "5"}})
    ray.init(address=address, job_config=config)
    results, kept = few()
    assert "RLVR_PROBE" not in config.runtime_env["env_vars"]
    return results, kept


def submitted(folder: Path, address: str) -> tuple[list[Any], Any]:
    """As `ray job submit` starts a driver, with variables of ours in the job's environment."""
    ours = {name: value for name, value in os.environ.items() if name == "RLVR_PROBE"}
    config = {"runtime_env": {"env_vars": {**ours, "THEIRS": "6"}}, "metadata": {}}
    os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps(config)
    ray.init(address=address, runtime_env={"env_vars": {"OTHER": "1"}})
    return few()


def environment_hook(runtime_env: Any) -> dict[str, Any]:
    """What RAY_RUNTIME_ENV_HOOK names, as the one of `uv run` works."""
    given = dict(runtime_env or {})
    return {**given, "env_vars": {**given.get("env_vars", {}), "THEIRS": "7"}}


def hooked(folder: Path, address: str) -> tuple[list[Any], Any]:
    """A hook makes the environment of the job."""
    os.environ["RAY_RUNTIME_ENV_HOOK"] = "job.environment_hook"
    ray.init(address=address)
    return few()


def late(folder: Path, address: str) -> tuple[list[Any], Any]:
    """The probe comes when Ray is there already."""
    ray.init(address=address, runtime_env={"env_vars": {"THEIRS": "8"}})
    before = remote(Counter).remote(3)
    early = ray.get(before.add.remote(1))
    if os.environ.get("ATTACH"):
        import rlvr_probe

        rlvr_probe.attach(out=os.environ["ATTACH"])
    results, kept = few()
    parent = remote(Parent).remote()
    results += [early, ray.get(parent.ask.remote()), ray.get(before.add.remote(1))]
    return results, (*kept, parent, before)


def elsewhere(folder: Path, address: str) -> tuple[list[Any], Any]:
    """A worker in an environment without the package."""
    ray.init(address=address, runtime_env={"env_vars": {"THEIRS": "9"}})
    bare = {"py_executable": os.environ["BARE_PYTHON"]}
    counter = remote(Counter).options(runtime_env=bare).remote(1)
    from rlvr_probe.adapter import HookPoint
    from rlvr_probe.probe.hooks import Hook, wrap

    # As an integration hooks a class that goes by value.
    hooked = type("Hooked", (Counter,), {"add": wrap(Counter.add, Hook(HookPoint("add")))})
    hooked.__module__ = "__main__"
    other = remote(hooked).options(runtime_env=bare).remote(1)
    results, kept = few()
    results += [ray.get(counter.add.remote(1)), ray.get(other.add.remote(1))]
    return results, (*kept, counter, other)


def client(folder: Path, address: str) -> tuple[list[Any], Any]:
    """Through a Ray Client."""
    ray.init(address=address, runtime_env={"env_vars": {"THEIRS": "10"}})
    return few()


def held(folder: Path, address: str) -> tuple[list[Any], Any]:
    """Works until the file STOP is there, and shuts Ray down by itself."""
    own = {"num_cpus": 2, "include_dashboard": False, "_temp_dir": str(folder)}
    ray.init(**(own if address == "-" else {"address": address}))
    counter = remote(Counter).remote(1)
    while not os.path.exists(os.environ["STOP"]):
        ray.get(counter.mark.remote())
        time.sleep(0.1)
    endpoint = counter.variable.remote("OTEL_EXPORTER_OTLP_ENDPOINT")
    results = ray.get([counter.add.remote(1), endpoint])
    said = {"results": results, "variables": ray.get_runtime_context().runtime_env["env_vars"]}
    ray.shutdown()
    print(json.dumps(said), flush=True)
    sys.exit()


def interrupted(folder: Path, address: str) -> tuple[list[Any], Any]:
    """Ctrl-C, some time after one of the actors died by itself; two of them share a GPU."""
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, _temp_dir=str(folder))
    half, whole = (ray.remote(num_cpus=0, num_gpus=share)(Counter) for share in (0.5, 1))
    other, none = whole.remote(3), remote(Counter).remote(4)
    ray.get(other.add.remote(1))  # else the halves may be of two
    counter, struck = half.remote(1), half.remote(2)
    pids = ray.get([process.pid.remote() for process in (counter, struck, other, none)])
    time.sleep(WRITTEN_S)
    os.kill(pids[1], signal.SIGKILL)
    end_of(struck)
    time.sleep(WRITTEN_S)
    said = dict(zip(("actor", "struck", "other", "none"), pids, strict=True))
    noted = {"actor": counter, "other": other, "none": none}
    ray.get([actor.notes_its_end.remote(os.path.abspath(name)) for name, actor in noted.items()])
    print(json.dumps({**said, "driver": os.getpid()}), flush=True)
    # What a shell starts in its background ignores Ctrl-C, and all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    ray.get(counter.waits.remote())
    return [], counter


WAYS = (held, interrupted, starts, joins, configured, submitted, hooked, late, elsewhere, client)


def workers(raylet: int) -> dict[int, str]:
    """Title of every worker process of a raylet, by its pid."""
    result = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        if parent == raylet and title.startswith("ray::"):
            result[int(folder.name)] = title
    return result


def main() -> None:
    way, folder, address = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    results, kept = next(actor for actor in WAYS if actor.__name__ == way)(folder, address)
    # Without a handle of it Ray would end it while its process is looked for.
    last = remote(Counter).options(name="last").remote()
    raylet = ray.get(last.raylet.remote())
    time.sleep(WRITTEN_S)
    ours = workers(raylet) if way == "starts" else {}
    # A Ray Client does not say.
    environment = {} if way == "client" else ray.get_runtime_context().runtime_env
    variables = sorted(environment.get("env_vars", {}))
    said = {"results": results, "driver": os.getpid(), "workers": ours, "variables": variables}
    print(json.dumps(said), flush=True)
    del kept, last


if __name__ == "__main__":
    main()
