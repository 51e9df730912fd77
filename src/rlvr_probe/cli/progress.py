"""One line on a terminal that says how far a long reading is."""

from __future__ import annotations

import sys
import time

__all__ = ["ReadingProgress"]

_AFTER_S = 0.5
_EVERY_S = 0.2


class ReadingProgress:
    """Shows bytes read on stderr if it is a terminal and the work takes long; use with ``with``."""

    def __init__(self) -> None:
        self._shown = False
        self._next = time.monotonic() + _AFTER_S
        self._quiet = not sys.stderr.isatty()

    def __enter__(self) -> ReadingProgress:
        return self

    def __call__(self, done_b: int, total_b: int) -> None:
        """Note that ``done_b`` of ``total_b`` bytes were read."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + _EVERY_S
        self._shown = True
        share = done_b / total_b if total_b else 1.0
        sys.stderr.write(f"\r\x1b[Kreading journals: {share:4.0%} of {total_b / 1e6:,.0f} MB")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
