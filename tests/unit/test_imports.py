"""Actions on import: once, at the right moment, and never a danger to the import."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rlvr_probe import guard
from rlvr_probe.imports import when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a package that was never imported, with a module ``inner`` that holds ``value``."""
    name = f"imported_{tmp_path.name}".replace("-", "_")
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for loaded in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[loaded]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a user's process: errors of an action are counted, not raised."""
    guard.reset()
    guard.set_strict(False)
    yield
    guard.reset()


def test_it_waits_for_the_import(module: str) -> None:
    seen: list[int] = []
    when_imported(f"{module}.inner", lambda loaded: seen.append(loaded.value))
    importlib.import_module(module)
    assert seen == []
    importlib.import_module(f"{module}.inner")
    assert seen == [1]


def test_it_acts_at_once_on_what_is_imported_already(module: str) -> None:
    inner = importlib.import_module(f"{module}.inner")
    seen: list[ModuleType] = []
    when_imported(f"{module}.inner", seen.append)
    assert seen == [inner]


def test_several_actions_run_in_their_order(module: str) -> None:
    seen: list[str] = []
    when_imported(module, lambda _: seen.append("first"))
    when_imported(module, lambda _: seen.append("second"))
    importlib.import_module(module)
    assert seen == ["first", "second"]


def test_an_undone_action_never_runs(module: str) -> None:
    seen: list[ModuleType] = []
    undo = when_imported(module, seen.append)
    undo()
    undo()
    importlib.import_module(module)
    assert seen == []


def test_it_acts_once_when_the_module_is_imported_again(module: str) -> None:
    seen: list[ModuleType] = []
    when_imported(module, seen.append)
    importlib.import_module(module)
    del sys.modules[module]
    importlib.import_module(module)
    assert len(seen) == 1


def test_it_waits_for_the_first_import_that_succeeds(module: str, tmp_path: Path) -> None:
    inner = tmp_path / module / "inner.py"
    inner.write_text("raise ImportError\n")
    seen: list[ModuleType] = []
    when_imported(f"{module}.inner", seen.append)
    with pytest.raises(ImportError):
        importlib.import_module(f"{module}.inner")
    assert seen == []
    inner.write_text("value = 'other size'\n")
    importlib.invalidate_caches()
    importlib.import_module(f"{module}.inner")
    assert len(seen) == 1


def test_a_failing_action_is_counted_and_the_import_succeeds(module: str, faults: None) -> None:
    def fail(loaded: ModuleType) -> None:
        raise ZeroDivisionError

    seen: list[ModuleType] = []
    when_imported(module, fail)
    when_imported(module, seen.append)
    assert importlib.import_module(module) in seen
    assert guard.faults() == {(f"import of {module}", "ZeroDivisionError"): 1}


def test_the_module_looks_as_if_nobody_had_waited_for_it(module: str) -> None:
    plain = importlib.import_module(f"{module}.inner")
    loader = type(plain.__loader__)
    del sys.modules[f"{module}.inner"]
    when_imported(f"{module}.inner", lambda _: None)
    hooked = importlib.import_module(f"{module}.inner")
    assert hooked is not plain
    assert type(hooked.__loader__) is loader
    assert hooked.__spec__ is not None
    assert type(hooked.__spec__.loader) is loader
    assert importlib.reload(hooked) is hooked


def test_threads_that_import_together_act_once(module: str) -> None:
    seen: list[ModuleType] = []
    when_imported(module, seen.append)
    start = threading.Barrier(8)

    def load() -> None:
        start.wait()
        importlib.import_module(module)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 1


def test_waiting_for_a_module_that_does_not_exist_changes_nothing() -> None:
    when_imported("rlvr_probe_no_such_module", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'rlvr_probe_no_such_module'"):
        importlib.import_module("rlvr_probe_no_such_module")
