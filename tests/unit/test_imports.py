"""Actions on import: once, at the right moment, and never a danger to the import."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from rlvr_probe import guard
from rlvr_probe.probe.import_hooks import when_imported


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


class Half:
    """An import by another thread that is held in the middle of the module."""

    def __init__(self, name: str, inner: Path, end: str = "value = 1") -> None:
        self.begun = sys.modules[__name__].begun = threading.Event()  # type: ignore[attr-defined]
        self.go = sys.modules[__name__].go = threading.Event()  # type: ignore[attr-defined]
        inner.write_text(f"from {__name__} import begun, go\nbegun.set()\ngo.wait(60)\n{end}\n")
        importlib.invalidate_caches()
        self._name = name
        self._thread = threading.Thread(target=self._load)
        self._thread.start()
        assert self.begun.wait(60)

    def _load(self) -> None:
        try:
            importlib.import_module(self._name)
        except ZeroDivisionError:
            pass

    def finish(self) -> None:
        self.go.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_it_waits_for_an_import_that_another_thread_has_begun(module: str, tmp_path: Path) -> None:
    name = f"{module}.inner"
    half = Half(name, tmp_path / module / "inner.py")
    seen: list[object] = []
    for number in range(3):
        when_imported(name, lambda loaded, n=number: seen.append((n, loaded.value)))  # type: ignore[misc]
    undo = when_imported(name, seen.append)
    threads: list[threading.Thread] = []
    when_imported(name, lambda _: threads.append(threading.current_thread()))
    undo()
    assert seen == []
    half.finish()
    assert seen == [(0, 1), (1, 1), (2, 1)]
    assert threads == [half._thread]
    spec = sys.modules[name].__spec__
    assert type(spec) is ModuleSpec
    assert vars(spec).keys() == vars(importlib.import_module(module).__spec__).keys()
    assert importlib.reload(sys.modules[name]).value == 1
    assert len(seen) == 3


def test_it_waits_on_after_an_import_that_another_thread_has_begun_and_that_fails(
    module: str, tmp_path: Path
) -> None:
    name, inner = f"{module}.inner", tmp_path / module / "inner.py"
    half = Half(name, inner, "1 / 0")
    seen: list[object] = []
    when_imported(name, lambda loaded: seen.append(loaded.value))
    half.finish()
    assert seen == []
    inner.write_text("value = 'other size'\n")
    importlib.invalidate_caches()
    importlib.import_module(name)
    assert seen == ["other size"]


def test_it_waits_for_the_import_it_is_called_from(module: str, tmp_path: Path) -> None:
    name = f"{module}.inner"
    seen: list[int] = []
    sys.modules[__name__].seen = seen  # type: ignore[attr-defined]
    (tmp_path / module / "inner.py").write_text(
        "from rlvr_probe.probe.import_hooks import when_imported\n"
        f"from {__name__} import seen\n"
        "when_imported(__name__, lambda loaded: seen.append(loaded.value))\n"
        "assert seen == []\n"
        "value = 1\n"
    )
    importlib.import_module(name)
    assert seen == [1]


def test_a_module_that_replaces_itself_is_handed_over_as_it_is_found(
    module: str, tmp_path: Path
) -> None:
    name = f"{module}.inner"
    end = (
        "import sys, types\nlazy = types.ModuleType(__name__)\nlazy.__spec__ = __spec__\n"
        "sys.modules[__name__] = lazy"
    )
    half = Half(name, tmp_path / module / "inner.py", end)
    seen: list[ModuleType] = []
    when_imported(name, seen.append)
    half.finish()
    assert seen == [sys.modules[name]]
    assert not hasattr(seen[0], "lazy")


def test_threads_that_wait_while_others_import_act_once_each(module: str, tmp_path: Path) -> None:
    seen: list[int] = []
    (tmp_path / module / "inner.py").write_text("value = 1\n")

    def wait(name: str, start: threading.Barrier) -> None:
        start.wait()
        when_imported(name, lambda loaded: seen.append(loaded.value))

    def load(name: str, start: threading.Barrier) -> None:
        start.wait()
        importlib.import_module(name)

    for _ in range(50):
        name = f"{module}.inner"
        sys.modules.pop(name, None)
        # Has wrapt look at this import from its first moment: it does not see who comes between
        # the search for a module and its start.
        when_imported(name, lambda _: None)
        start = threading.Barrier(4)
        threads = [
            threading.Thread(target=target, args=(name, start))
            for target in (wait, load, wait, load)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(seen) == 2
        seen.clear()


def test_waiting_for_a_module_that_does_not_exist_changes_nothing() -> None:
    when_imported("rlvr_probe_no_such_module", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'rlvr_probe_no_such_module'"):
        importlib.import_module("rlvr_probe_no_such_module")
