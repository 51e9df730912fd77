"""What frameworks load as their own plugin: it arms where the start-up hook could not, or nothing.

Loaded as a framework does it: by its group, from the metadata of what is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

from tests.surroundings import surroundings

GROUPS = {"vllm.general_plugins": ["rlvr_probe"]}
"""Groups of frameworks that we are in, with our names there."""

LOAD = """
import os, sys
from importlib.metadata import entry_points
before = dict(os.environ), set(sys.modules)
[plugin] = [one for one in entry_points(group="vllm.general_plugins") if one.name == "rlvr_probe"]
plugin.load()()
plugin.load()()
"""
ARMED = "print(sorted(set(os.environ) - set(before[0])))"
ALONE = "print(sorted(name for name in set(sys.modules) - before[1] if 'rlvr_probe' in name))"


def run(code: str, *options: str, **environment: str) -> str:
    environ = surroundings()
    # Without site, and so without the start-up hook: its folders are what it would have added.
    path = os.pathsep.join(sys.path) if "-S" in options else ""
    environ |= {"PYTHONPATH": path, "RLVR_PROBE_SIDECAR": "0"}
    environ |= environment
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_these_are_the_plugins_of_frameworks_that_we_are() -> None:
    found = dict[str, list[str]]()
    for entry in metadata.distribution("rlvr-probe").entry_points:
        if not entry.group.startswith(("rlvr_probe.", "console_scripts")):
            found.setdefault(entry.group, []).append(entry.name)
    assert found == GROUPS


def test_a_process_without_the_start_up_hook_is_armed() -> None:
    told = run(LOAD + ARMED, "-S", RLVR_PROBE="1")
    assert "RLVR_PROBE_RUN_ID" in told


def test_a_process_that_is_not_recorded_loads_no_more_than_the_hook() -> None:
    for options in ((), ("-S",)):
        assert run(LOAD + ARMED, *options) == "[]"
        assert run(LOAD + ALONE, *options) == "['rlvr_probe', 'rlvr_probe._boot']"
    assert run(LOAD + ARMED, RLVR_PROBE="1", RLVR_PROBE_DISABLED="1") == "[]"


def test_a_probe_that_was_detached_stays_so() -> None:
    detached = "import rlvr_probe; rlvr_probe.attach(); rlvr_probe.detach()\n"
    assert run(detached + LOAD + ARMED) == "[]"


def test_a_process_that_was_armed_when_it_started_is_left_as_it_is() -> None:
    """The hook armed it at the framework's import, and the user detached it then."""
    code = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ !="
    told = run(f"{code} 'Watcher']\n{LOAD}{ARMED}", RLVR_PROBE="1")
    assert told == "[]"


def test_an_error_of_ours_does_not_reach_the_framework() -> None:
    broken = "import rlvr_probe._boot as b\ndef fail(): raise RuntimeError\nb._arm = fail\n"
    counted = "from rlvr_probe import guard; print(guard.faults())"
    told = run(broken + LOAD + counted, RLVR_PROBE="1")
    assert told == "{('boot', 'RuntimeError'): 1}"
