"""The one place that swallows errors: it counts them, and never their message."""

from __future__ import annotations

import logging
import signal

import pytest

from rlvr_probe import guard


@pytest.mark.parametrize("error", [ValueError, MemoryError, RecursionError, OSError])
def test_an_error_is_counted_and_the_default_returned(error: type[Exception]) -> None:
    guard.set_strict(False)

    @guard.fail_open("place", default=7)
    def fails() -> int:
        raise error("secret")

    assert [fails(), fails()] == [7, 7]
    assert guard.faults() == {("place", error.__name__): 2}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_is_never_swallowed(error: type[BaseException]) -> None:
    guard.set_strict(False)

    @guard.fail_open("place")
    def fails() -> None:
        raise error

    with pytest.raises(error):
        fails()
    assert not guard.faults()


def test_the_first_error_of_a_place_is_logged_once_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="rlvr_probe"):
        for _ in range(3):
            guard.note("place", ValueError("secret"))
    assert [record.getMessage() for record in caplog.records] == [
        "place failed with ValueError; the run goes on, this is counted"
    ]


def test_a_logging_handler_that_raises_does_no_harm() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError

    logger = logging.getLogger("rlvr_probe")
    handler = Broken()
    logger.addHandler(handler)
    try:
        guard.note("place", ValueError())
    finally:
        logger.removeHandler(handler)
    assert guard.faults() == {("place", "ValueError"): 1}


def test_an_alarm_of_the_user_gets_through_our_code() -> None:
    guard.set_strict(False)

    class TooSlow(Exception): ...

    def handler(number: int, frame: object) -> None:
        raise TooSlow

    @guard.fail_open("place")
    def slow() -> None:
        signal.raise_signal(signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TooSlow):
            slow()
        with pytest.raises(TooSlow):
            guard.attempt(lambda _: slow(), 0, None)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not guard.faults()


def test_an_attempt_is_counted_under_the_name_of_its_function() -> None:
    guard.set_strict(False)

    def read(argument: int) -> float:
        return 1 / argument

    assert guard.attempt(read, 2, None) == 0.5
    assert guard.attempt(read, 0, "absent") == "absent"
    [(place, kind)] = guard.faults()
    assert place.endswith("test_guard.test_an_attempt_is_counted_under_the_name_of_its_function."
                          "<locals>.read")  # fmt: skip
    assert kind == "ZeroDivisionError"
