"""Shared fixtures: errors of the probe are raised here, and no test leaves the probe attached."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rlvr_probe
from rlvr_probe import guard, hooks
from rlvr_probe.config import Config
from rlvr_probe.recorder import Recorder

# No process of a test gets a sidecar, unless the test wants one. Modules of tests copy this.
os.environ["RLVR_PROBE_SIDECAR"] = "0"


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Swallowed errors fail the test; the environment starts without the probe's variables."""
    for name in [name for name in os.environ if name.startswith("RLVR_PROBE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RLVR_PROBE_SIDECAR", "0")
    guard.reset()
    guard.set_strict(True)
    yield
    guard.set_strict(False)
    rlvr_probe.detach()
    hooks.activate(None)
    guard.reset()


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """Make recorders into ``tmp_path/runs`` that are closed after the test."""
    made: list[Recorder] = []

    def make(**settings: object) -> Recorder:
        given = {"out": tmp_path / "runs", "flush_s": 0.01, "sidecar": False, **settings}
        config = Config.from_environ({}, **given)
        made.append(Recorder(config, "run"))
        return made[-1]

    yield make
    for recorder in made:
        recorder.close("exit")
