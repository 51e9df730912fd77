"""What libraries that are loaded already know: the devices of this process, the active span.

None is imported here, and CUDA never started. A process without CUDA is recorded with what it may
use (``CUDA_VISIBLE_DEVICES``), if that names devices and not places in an unknown order. A program
that has not loaded OpenTelemetry has no span of it either.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from rlvr_probe import guard
from rlvr_probe.model.names import APPLICATION_SPAN, DEVICES_USED, Name

__all__ = ["DevicesUsed", "record_application_span"]

_NAMED = re.compile(r"(?:GPU-|MIG-(?:GPU-)?)[0-9a-fA-F/-]{1,100}")
_NONE = ("", "-1", "NoDevFiles")
_TOKENS = 128

_LITTLE = 10
"""A device on which a process ever held a tenth of what it held on another is not what it works on:
a stray tensor on the first GPU is a common mistake."""

_LEAST_B = 16 << 20
"""Below this on all of them, what it will work on may not be there yet."""


class Recording(Protocol):
    """Where it is recorded."""

    def define(self, name: Name, attributes: Sequence[str]) -> int:
        """Number of the layout of rows for a name with these attributes."""
        ...

    def event_row(self, definition: int, parent: int, values: Sequence[Any]) -> None:
        """Queue an event of this moment."""


class DevicesUsed:
    """Finds out once, and records it.

    Attributes:
        wanted: There may be more to find out.
    """

    def __init__(self) -> None:
        self.wanted = True
        self._looked = 0
        self._next = 1
        self._told = False

    @guard.fail_open("recorder.devices")
    def look(self, recording: Recording) -> None:
        """Record which devices this process works on, if that is new. Below 1 us while CUDA is off.

        Where torch has started CUDA but its devices cannot be distinguished yet, it is asked again
        after twice as many calls: asking takes 0.1 ms per device.
        """
        self._looked += 1
        found: Sequence[str] | None = None
        how = "torch"
        torch = sys.modules.get("torch")
        if torch is not None and self._looked >= self._next and _is_running(torch) is True:
            self._next = 2 * self._looked
            found = _of_torch(torch)
            self.wanted = found is None
        if found is None and not self._told:
            self._told = True
            found, how = _visible(), "visible"
        if found is None:
            return
        if not all(type(name) is str for name in found):
            raise TypeError("no names of devices")
        recording.event_row(recording.define(DEVICES_USED, ("uuids", "how")), 0, (list(found), how))


def _is_running(torch: Any) -> bool:
    # torch may be half imported at this moment, on another thread.
    asked = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    return asked is not None and bool(asked())


def _of_torch(torch: Any) -> Sequence[str] | None:
    """Names of the devices on which torch holds what it works on; None if that is not known yet."""
    count = torch.cuda.device_count()
    places = [0] if count == 1 else _holding(torch.cuda, count)
    tokens = _visible() or ()
    found = list[str]()
    for place in places:
        token = tokens[place] if len(tokens) == count else ""
        # of a part of a GPU, torch may give the name of the whole
        name = token if token.startswith("MIG-") else _uuid(torch, place) or token
        if not name:
            return None
        found.append(name)
    return found or None


def _holding(cuda: Any, count: int) -> list[int]:
    """Places of the devices with memory of ours.

    The current device says less: each thread has its own, and starts with the first.
    """
    try:
        peaks = [cuda.max_memory_allocated(place) for place in range(count)]
    except RuntimeError:  # an allocator of the user's, which keeps no books
        return [cuda.current_device()]
    most = max(peaks, default=0)
    least = most / _LITTLE
    return [place for place, peak in enumerate(peaks) if peak > least] if most > _LEAST_B else []


def _uuid(torch: Any, place: int) -> str:
    """Name of a device as its driver's library spells it; empty for what is none of NVIDIA's."""
    if torch.version.cuda is None:
        return ""
    given = getattr(torch.cuda.get_device_properties(place), "uuid", None)  # torch 2.5 and later
    return "" if given is None else f"GPU-{given}"


def _visible() -> Sequence[str] | None:
    """Names, or numbers in the order of the PCI bus, of what this process may use.

    None if that is everything, or is given in an order that only CUDA knows.
    """
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return None
    if given.strip() in _NONE:
        return ()
    tokens = [token.strip() for token in given.split(",")][:_TOKENS]
    if all(_NAMED.fullmatch(token) for token in tokens):
        return tokens
    ordered = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return tokens if ordered and all(token.isdecimal() for token in tokens) else None


@guard.fail_open("recorder.application")
def record_application_span(recording: Recording, span: int) -> None:
    """Record which span of the application's is active on this thread, as ``span`` of ours ends.

    Only one that the application keeps. Costs 0.1 us where OpenTelemetry is not loaded, 0.4 us
    where no span is active, 2 us where one is.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    # It may be half imported at this moment, on another thread.
    asked = getattr(trace, "get_current_span", None)
    if asked is None:
        return
    context = asked().get_span_context()
    if context.is_valid and context.trace_flags.sampled:
        ids = (f"{context.trace_id:032x}", f"{context.span_id:016x}")
        recording.event_row(recording.define(APPLICATION_SPAN, ("trace", "span")), span, ids)
