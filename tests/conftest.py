"""Shared fixtures: errors of the probe are raised here, and no test leaves the probe attached."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rlvr_probe
from rlvr_probe import guard
from rlvr_probe.config import Config
from rlvr_probe.probe import hooks
from rlvr_probe.probe.recorder import Recorder
from tests import today
from tests.surroundings import ROOMY

_READ = ("RLVR_PROBE", "OTEL_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Of the machine that the tests run on, these would be in what they record, or send it away. Tests
of TRL, which are collected into the same process, set one of them."""

for _name in [name for name in os.environ if name.startswith(_READ)]:
    del os.environ[_name]

GIVEN = {"RLVR_PROBE_SIDECAR": "0", **ROOMY}
"""No process of a test gets a sidecar, or records less because the disk is nearly full, unless the
test wants that. Modules of tests copy this."""

os.environ.update(GIVEN)

os.environ[today.VARIABLE] = str(today.number())  # workers that start after midnight, too


def pytest_collection_finish() -> None:
    """Spare the garbage collector the tests: each collection would look at all of them."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let it see them again: extension modules complain of what is left at the end."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Swallowed errors fail the test; the environment starts without what the probe reads in it."""
    for name in [name for name in os.environ if name.startswith(_READ)]:
        monkeypatch.delenv(name)
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    guard.reset()
    guard.set_strict(True)
    yield
    guard.set_strict(False)
    rlvr_probe.detach()
    hooks.activate(None)
    guard.reset()
    for name in [name for name in os.environ if name.startswith("RLVR_PROBE")]:
        del os.environ[name]  # an owner, left for children, would be that of the next test


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """Make recorders into ``tmp_path/runs`` that are closed after the test."""
    made: list[Recorder] = []

    def make(**settings: object) -> Recorder:
        given = {"out": tmp_path / "runs", "flush_s": 0.01, **settings}
        config = Config.from_environ(GIVEN, **given)
        made.append(Recorder(config, "run"))
        return made[-1]

    yield make
    for recorder in made:
        recorder.close("exit")
