"""Writes trace events one after another: the JSON of chrome://tracing, one event in a line.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import count
from typing import IO, Any, Final

import msgspec

from rlvr_probe_perfetto.slices import Slice

__all__ = ["HEAD", "NAMED", "Lanes", "Timeline", "Track"]

HEAD: Final = b'{"displayTimeUnit":"ms","otherData":{"producer":"rlvr-probe"},"traceEvents":['
"""What every file starts with."""

NAMED: Final = " ·"
"""What every name of a group or line ends in: Perfetto adds a number to it, so that without this
``rank 0`` reads ``rank 0 3``."""

_FLUSH_B: Final = 1 << 18


class Timeline:
    """A file that is being written; what is in memory does not grow with it.

    Attributes:
        counts: Events written, by kind: ``slices``, ``points``.
    """

    def __init__(self, stream: IO[bytes], zero_ns: int = 0) -> None:
        """Write to ``stream``; ``zero_ns`` becomes time 0."""
        self.counts = Counter[str]()
        self._stream = stream
        self._zero_ns = zero_ns
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray(HEAD)
        self._separator = b"\n"
        # A thread with the number of its process would be taken for its main thread.
        self._numbers = count(1)

    def track(self, name: str) -> Track:
        """A new group of lines, below those before it."""
        number = next(self._numbers)
        self._describe("process_name", number, None, {"name": name + NAMED})
        self._describe("process_sort_index", number, None, {"sort_index": number})
        return Track(self, number)

    def finish(self) -> None:
        """Write what closes the file."""
        self._buffer += b"\n]}\n"
        self._stream.write(self._buffer)
        self._buffer.clear()

    def thread(self, track: int, name: str, place: int) -> int:
        """A new line of a track; its number."""
        number = next(self._numbers)
        self._describe("thread_name", track, number, {"name": name + NAMED})
        self._describe("thread_sort_index", track, number, {"sort_index": place})
        return number

    def event(self, kind: str, track: int, thread: int | None, time_ns: int, **more: Any) -> None:
        """One event at a time of the run."""
        place = {} if thread is None else {"tid": thread}
        self._write({"ph": kind, "pid": track, **place, "ts": _us(time_ns - self._zero_ns), **more})

    def _describe(
        self, what: str, track: int, thread: int | None, arguments: Mapping[str, object]
    ) -> None:
        place = {} if thread is None else {"tid": thread}
        self._write({"ph": "M", "name": what, "pid": track, **place, "args": arguments})

    def _write(self, event: dict[str, Any]) -> None:
        self._buffer += self._separator
        self._buffer += self._encoder.encode(event)
        self._separator = b",\n"
        if len(self._buffer) >= _FLUSH_B:
            self._stream.write(self._buffer)
            self._buffer.clear()


class Track:
    """A group of lines: those of a process, or of a device."""

    def __init__(self, timeline: Timeline, number: int) -> None:
        """Start without lines; :meth:`Timeline.track` makes one."""
        self._timeline = timeline
        self._number = number
        self._lanes = dict[str, Lanes]()
        self._threads = dict[tuple[str, int], int]()

    def slice(self, bar: Slice, line: str) -> int:
        """Draw a slice on a line of this name, or on one beside it; the thread it is on.

        Slices of one name of a line come by start.
        """
        lanes = self._lanes.setdefault(line, Lanes())
        lane = lanes.place(bar.start_ns, bar.end_ns, bar.key, bar.parent, within_any=bar.within_any)
        thread = self._thread(line, lane)
        self._timeline.counts["slices"] += 1
        self._timeline.event(
            "X", self._number, thread, bar.start_ns, dur=_us(bar.end_ns - bar.start_ns),
            name=bar.name, cat=bar.kind, args=dict(bar.arguments),
        )  # fmt: skip
        return thread

    def arrow(self, number: int, thread: int, time_ns: int, *, starts: bool) -> None:
        """One end of an arrow between two slices, at the slice that is open on ``thread``."""
        more = {} if starts else {"bp": "e"}
        self._timeline.event(
            "s" if starts else "f", self._number, thread, time_ns, id=number, name="rpc",
            cat="rpc", **more,
        )  # fmt: skip

    def instant(self, line: str, time_ns: int, name: str, arguments: Mapping[str, object]) -> None:
        """Draw a mark."""
        self._timeline.event(
            "i", self._number, self._thread(line, 0), time_ns, name=name, cat="mark", s="t",
            args=dict(arguments),
        )  # fmt: skip

    def point(self, name: str, unit: str, time_ns: int, value: float) -> None:
        """Let a counter have a value from a time on; viewers show its unit behind its name."""
        self._timeline.counts["points"] += 1
        self._timeline.event("C", self._number, None, time_ns, name=name, args={unit: value})

    def _thread(self, line: str, lane: int) -> int:
        found = self._threads.get((line, lane))
        if found is None:
            name = line if not lane else f"{line} ({lane + 1})"
            found = self._timeline.thread(self._number, name, len(self._threads))
            self._threads[line, lane] = found
        return found


class Lanes:
    """Lines of one process; a slice is put on the first that it fits.

    Viewers drop, or draw wrong, slices of a thread that overlap without nesting. What a process did
    at the same time, in threads or coroutines, is known to be concurrent only by its times and
    parents.
    """

    def __init__(self) -> None:
        """Start without lines."""
        self._stacks = list[list[tuple[int, Hashable]]]()
        self._busy = list[tuple[int, int]]()
        """Heap: when the outermost slice of a line ends, and the line."""
        self._free = list[int]()
        self._open = dict[Hashable, tuple[int, int]]()
        """Slices on a line: that line, and their end."""

    def place(
        self,
        start_ns: int,
        end_ns: int,
        key: Hashable,
        parent: Hashable = None,
        *,
        within_any: bool = False,
    ) -> int:
        """Number of the line, from 0.

        Inside another slice lies only what has that one as its parent, or, with ``within_any``,
        what has a parent that is not on any line at the moment.

        Args:
            start_ns: Not before that of the slice placed last.
            end_ns: Not before the start.
            key: Names the slice.
            parent: Key of the slice around it, None for none.
            within_any: Whether a slice without a parent may lie in one that is around it in time.
        """
        while self._busy and self._busy[0][0] <= start_ns:
            number = heapq.heappop(self._busy)[1]
            self._end(number, start_ns)
            heapq.heappush(self._free, number)
        around = self._open.get(parent)
        if around is not None and around[1] > start_ns:
            lines: Iterable[int] = (around[0],)
        else:
            lines = sorted(line for _, line in self._busy) if within_any else ()
            parent = None
        for number in lines:
            self._end(number, start_ns)
            until_ns, other = self._stacks[number][-1]
            if parent in (None, other) and end_ns <= until_ns:
                break
        else:
            if not self._free:
                self._free.append(len(self._stacks))
                self._stacks.append([])
            number = heapq.heappop(self._free)
            heapq.heappush(self._busy, (end_ns, number))
        self._stacks[number].append((end_ns, key))
        self._open[key] = number, end_ns
        return number

    def _end(self, number: int, time_ns: int) -> None:
        """Take off a line what has ended."""
        stack = self._stacks[number]
        while stack and stack[-1][0] <= time_ns:
            self._open.pop(stack.pop()[1], None)


def _us(time_ns: int) -> float | int:
    """Microseconds, the unit of the format; exact to the ns within 50 days."""
    whole, rest = divmod(time_ns, 1000)
    return whole if not rest else time_ns / 1000
