"""How a command ends early: SIGTERM ends it as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["orderly"]


@contextmanager
def orderly() -> Iterator[None]:
    """SIGTERM, which by default ends a process at once, ends the block as Ctrl-C does.

    In a thread beside the main one nothing is changed: Python lets that one alone handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
