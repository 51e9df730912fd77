"""Alarms of the user, and the end of the stack, wherever they can hit a recorded call."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rlvr_probe import guard
from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model import names, schema
from rlvr_probe.probe import hooks, user_span
from rlvr_probe.probe.hooks import Hook, HookProbe, Patches, wrap
from rlvr_probe.probe.hooks.calls import _running
from rlvr_probe.probe.recorder import CURRENT, Recorder

PACKAGE = str(Path(hooks.__file__).parents[2])


class TooSlow(Exception):
    """What a user's alarm raises."""


def handler(number: int, frame: FrameType | None) -> None:
    raise TooSlow


@pytest.fixture
def recorder(record: Callable[..., Recorder]) -> Iterator[Recorder]:
    """With its files made, so that what follows touches none."""
    made = record(queue_rows=10_000_000)
    guard.set_strict(False)
    hooks.activate(made, HookProbe(made, Patches()))
    with user_span.span("first"):
        pass
    assert made._table is not None
    before = signal.signal(signal.SIGALRM, handler)
    yield made
    signal.signal(signal.SIGALRM, before)
    hooks.activate(None)
    CURRENT.set(0)
    _running.set(())
    user_span._entered.set(())


def _values(call: Call) -> tuple[Any, ...]:
    return (1,)


def _nothing(call: Call) -> None: ...


def _detail(call: Call) -> str:
    return "detail"


def _step(call: Call) -> int:
    return 3


POINT = HookPoint(
    "call", names.ROLLOUT, ("samples",), _values, _detail, _step, before=_nothing, after=_nothing
)


class Trainer:
    """Something with a method."""

    def generate(self) -> int:
        return 1

    def rows(self) -> Iterator[int]:
        yield 1


def scenes() -> dict[str, Callable[[], object]]:
    """Calls of the user that are recorded, by name."""

    @contextlib.contextmanager
    def timer() -> Iterator[None]:
        yield

    async def coroutine() -> int:
        return 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    def fails() -> None:
        raise KeyError

    trainer = Trainer()
    method = wrap(Trainer.generate, Hook(POINT, method=True))
    rows = wrap(Trainer.rows, Hook(POINT, method=True))
    wrapped = {f.__name__: wrap(f, Hook(POINT)) for f in (timer, coroutine, stream, fails)}

    def cm() -> None:
        with wrapped["timer"]():
            pass

    def failing() -> None:
        with contextlib.suppress(KeyError):
            wrapped["fails"]()

    async def consume() -> list[int]:
        return [i async for i in wrapped["stream"]()]

    def send(coroutine: Any) -> None:
        # An event loop would be hit by most of the alarms, and is none of ours.
        with contextlib.suppress(StopIteration), contextlib.closing(coroutine):
            coroutine.send(None)

    def span() -> None:
        with user_span.span("stage", value=1):
            pass

    return {
        "function": lambda: method(trainer),
        "generator": lambda: list(rows(trainer)),
        "context manager": cm,
        "coroutine": lambda: send(wrapped["coroutine"]()),
        "async generator": lambda: send(consume()),
        "failing function": failing,
        "span": span,
    }


SCENES = (
    "function", "generator", "context manager", "coroutine", "async generator", "failing function",
    "span",
)  # fmt: skip


def healthy(recorder: Recorder) -> list[str]:
    """What is not as it was before a call."""
    table = recorder._table
    assert table is not None
    assert table._map is not None
    spans_in_table = [
        schema.OPEN_SLOT.unpack_from(table._map, (i + 1) * schema.OPEN_SLOT_BYTES)[0]
        for i in range(schema.OPEN_SLOTS)
    ]
    wrong = {
        "current span": CURRENT.get() != 0,
        "running": _running.get() != (),
        "entered": user_span._entered.get() != (),
        "open": bool(recorder.open),
        "table": any(spans_in_table),
        "slots": sorted(table._free) != list(range(1, schema.OPEN_SLOTS + 1)),
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


@pytest.mark.parametrize("scene", SCENES)
def test_an_alarm_leaves_nothing_behind_wherever_it_goes_off(
    recorder: Recorder, scene: str
) -> None:
    # Signal handlers run where a function of Python begins and where one of C returns.
    run = scenes()[scene]
    run()
    assert healthy(recorder) == []
    hits, at = 0, 0
    while True:
        at += 1
        seen = 0

        def profile(frame: FrameType, event: str, argument: object, at: int = at) -> None:
            nonlocal seen
            code = frame.f_code
            if event not in ("call", "c_return") or not code.co_filename.startswith(PACKAGE):
                return
            if code.co_name == "__exit__" and event == "call":
                return  # nothing in Python can be done about one before its own first line
            if sys.version_info < (3, 11) and event == "call" and frame.f_lasti >= 0:
                # A generator goes on. A signal handler would run inside its `try`, what a profile
                # function raises skips it: https://github.com/python/cpython/blob/3.10/Python/ceval.c
                return
            seen += 1
            if seen == at:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGALRM)

        sys.setprofile(profile)
        try:
            run()
        except TooSlow:
            hits += 1
        finally:
            sys.setprofile(None)
        assert healthy(recorder) == [], f"after an alarm at place {at}"
        if seen < at:
            break
    assert hits == at - 1, "every alarm reaches the user"
    assert hits > 20
    assert not guard.faults()


def _deep(depth: int, call: Callable[[], object]) -> object:
    return call() if depth == 0 else _deep(depth - 1, call)


# A coroutine that was made with the last frame, and which nothing was left to run with.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("scene", SCENES)
def test_the_end_of_the_stack_costs_the_user_one_frame_and_leaves_nothing_behind(
    recorder: Recorder, scene: str
) -> None:
    run = scenes()[scene]
    run()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    fits, outcomes = 0, []
    try:
        for depth in range(150, 300):
            try:
                _deep(depth, run)
                fits = depth
                outcomes.append(True)
            except RecursionError:
                outcomes.append(False)
            assert healthy(recorder) == [], f"at depth {depth}"
    finally:
        sys.setrecursionlimit(limit)
    assert outcomes == sorted(outcomes, reverse=True)
    hooks.activate(None)
    bare = fits
    sys.setrecursionlimit(300)
    try:
        for depth in range(fits, 300):
            try:
                _deep(depth, run)
                bare = depth
            except RecursionError:
                break
    finally:
        sys.setrecursionlimit(limit)
    assert bare == fits, "an active probe takes no more of the stack than an inert one"
