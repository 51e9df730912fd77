"""The processes that tell of a run while it goes on, as the sidecar keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from rlvr_probe import registry
from rlvr_probe.exporter import LiveSession
from rlvr_probe.sidecar import live
from rlvr_probe.sidecar import subprocesses as child_module
from rlvr_probe.sidecar.live import Children
from tests.jobs import wait_for

S = 1_000_000_000
ENDS = "import sys; sys.exit(3)"
SAYS = "import os, sys; os.write(1, {!r}); os.read(0, 1)"
Fault = tuple[str, str, int]
HANGS = "import time; time.sleep(1_000)"


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Children]]:
    """Children whose processes run this code, and what they told, in ``faults``."""
    made: list[Children] = []

    def begin(code: str, faults: list[Fault]) -> Children:
        monkeypatch.setattr(child_module, "_CODE", code)
        monkeypatch.setattr(live, "wanted", lambda environ: (["one"], [("two", "ImportError")]))
        made.append(Children(tmp_path, lambda *fault: faults.append(fault)))
        made[-1].begin({})
        return made[-1]

    yield begin
    for item in made:
        item.stop(0)


def test_one_that_fails_is_started_again_ever_more_rarely_and_told_of_once(
    keep: Callable[..., Children], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, started = list[Fault](), list[int]()
    kept = keep(ENDS, faults)
    real = child_module.start
    now = 0

    def start(*arguments: str) -> object:
        started.append(now)
        return real(*arguments)

    monkeypatch.setattr(live, "start", start)
    while len(started) < 5:
        kept.look(now)
        [child] = kept._children
        if child.process is not None:
            child.process.wait()
        now += S
    waits = [later - before for before, later in pairwise(started)]
    assert waits == sorted(waits)
    assert waits[0] >= 5 * S
    assert waits[-1] >= 40 * S
    assert faults == [("live.two", "ImportError", 1), ("live.one", "status 3", 1)]


def hear(kept: Children, faults: list[Fault], last: Fault, now: int = 0) -> None:
    def told() -> bool:
        kept.look(now)
        return last in faults

    wait_for(told, 60)


def test_what_a_destination_refuses_is_told_of_once(keep: Callable[..., Children]) -> None:
    faults = list[Fault]()
    said = b"refused 1\ntaken 1\nrefused 1\nrejected 3\nrejected 3\n"
    kept = keep(SAYS.format(said), faults)
    hear(kept, faults, ("live.one", "rejected", 3))
    kept.end()
    kept.stop(60)
    assert faults == [
        ("live.two", "ImportError", 1), ("live.one", "refused", 1), ("live.one", "rejected", 3),
    ]  # fmt: skip


def test_what_one_counts_is_added_to_what_those_before_it_did(
    keep: Callable[..., Children], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = list[Fault]()
    kept = keep(SAYS.format(b"rejected 3\n"), faults)
    hear(kept, faults, ("live.one", "rejected", 3))
    monkeypatch.setattr(child_module, "_CODE", SAYS.format(b"rejected 1\nrejected 2\n"))
    [child] = kept._children
    assert child.process is not None
    child.process.kill()
    child.process.wait()
    kept.look(0)
    hear(kept, faults, ("live.one", "rejected", 5), 10_000 * S)
    assert faults[-2:] == [("live.one", "rejected", 4), ("live.one", "rejected", 5)]


@pytest.mark.parametrize(
    "said", [b"x" * 100_000, b"rejected\n", b"\xff 1\n", b"../a 1\n", b"a -1\n", b"a " + b"9" * 99]
)
def test_what_nobody_says_is_not_heard(said: bytes, keep: Callable[..., Children]) -> None:
    faults = list[Fault]()
    kept = keep(SAYS.format(said + b"\nlast 1\n"), faults)
    hear(kept, faults, ("live.one", "last", 1))
    assert faults == [("live.two", "ImportError", 1), ("live.one", "last", 1)]


def test_one_that_hangs_is_ended(keep: Callable[..., Children]) -> None:
    faults = list[Fault]()
    kept = keep(HANGS, faults)
    kept.look(0)
    [child] = kept._children
    process = child.process
    assert process is not None
    kept.end()
    kept.stop(0.1)
    assert process.returncode == -9
    assert faults[-1] == ("live.one", "Timeout", 1)


STAYS = "import os, time; os.write(1, b'done 1\\n'); time.sleep(1_000)"


def test_one_that_has_only_to_be_asked_stays_as_long_as_it_may(
    keep: Callable[..., Children],
) -> None:
    faults, left = list[Fault](), [True, True, False]
    kept = keep(STAYS, faults)
    kept.look(0)
    [child] = kept._children
    process = child.process
    assert process is not None
    kept.end()
    kept.stop(60)
    assert process.poll() is None
    kept.leave(60, lambda wait_s: left.pop(0))
    assert left == []
    assert process.returncode == -9
    assert faults == [("live.two", "ImportError", 1)]


def test_one_that_has_only_to_be_asked_ends_with_a_sidecar_that_is_told_to(
    keep: Callable[..., Children],
) -> None:
    faults = list[Fault]()
    kept = keep(STAYS, faults)
    kept.look(0)
    [child] = kept._children
    process = child.process
    assert process is not None
    kept.stop(0)
    assert process.returncode == -9


class _Point:
    """An entry point, as a package has it."""

    def __init__(self, name: str, wants: bool | None) -> None:
        self.name, self._wants = name, wants
        self.value, self.dist = f"{name}:It", None

    def load(self) -> Callable[[], object]:
        if self._wants is None:
            raise ImportError("not there")
        return lambda: _Exporter(self._wants is True)


class _Exporter:
    name = "any"

    def __init__(self, wants: bool) -> None:
        self._wants = wants

    def wanted(self, environ: Mapping[str, str]) -> bool:
        return self._wants

    def open(self, folder: Path, environ: Mapping[str, str]) -> LiveSession:
        raise AssertionError("whoever asks what is wanted opens nothing")


def test_a_broken_plugin_is_no_reason_to_do_without_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [_Point("c", True), _Point("b", None), _Point("a", False), _Point("d", True)]
    monkeypatch.setattr(registry, "entries", lambda group: points)
    assert live.wanted({}) == (["c", "d"], [("b", "ImportError")])
