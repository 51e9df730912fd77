"""The pause of the flush thread between two writes."""

from __future__ import annotations

import threading

from rlvr_probe import guard

__all__ = ["Pause"]

HURRY_NS = 50_000_000
"""However often nothing is open any more, rows are not written at once more often than this."""


class Pause:
    """What the flush thread waits in, and everybody may end."""

    def __init__(self, longest_s: float) -> None:
        """Start without a pause.

        Args:
            longest_s: How long a pause takes that is not ended, s.
        """
        self._longest_s = longest_s
        self._over = False
        # Held until there is a reason to write at once. Of the locks only this kind can be used in
        # a signal handler that interrupted a use of it.
        self._rest = threading.Lock()
        self._rest.acquire()
        self._hurried_ns = 0

    @guard.fail_open("recorder.pause", True)
    def wait(self) -> bool:
        """Pause; whether it was the last."""
        self._rest.acquire(timeout=self._longest_s)
        return self._over

    def hurry(self, now_ns: int) -> None:
        """What was called here is done: the caller may now end this process."""
        if now_ns - self._hurried_ns >= HURRY_NS:
            self._hurried_ns = now_ns
            self.wake()

    @guard.fail_open("recorder.wake")
    def wake(self) -> None:
        """Have the flush thread write at once."""
        try:
            self._rest.release()
        except RuntimeError:  # it was woken already
            pass

    def end(self) -> None:
        """Let this pause be the last one."""
        self._over = True
        self.wake()
