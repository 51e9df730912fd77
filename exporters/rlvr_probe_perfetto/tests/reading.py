"""Reads a timeline by the description of its format alone, and says where it breaks it."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from rlvr_probe_perfetto.drawing import Limits, draw
from rlvr_probe_perfetto.scope import Scope
from rlvr_probe_perfetto.trace_events import NAMED

from rlvr_probe import cli
from rlvr_probe.model.trace import Trace

__all__ = ["Bar", "Timeline", "drawn", "exported"]

NEEDED = {
    "M": {"name", "pid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
    "C": {"name", "pid", "ts", "args"},
}


@dataclass
class Bar:
    """One slice; ``parent`` is the one that a viewer shows it in."""

    track: str
    line: str
    pid: int
    tid: int
    name: str
    kind: str
    start_ns: int
    end_ns: int
    arguments: dict[str, Any]
    parent: Bar | None = None

    @property
    def times(self) -> tuple[int, int]:
        return self.start_ns, self.end_ns


class Timeline:
    """What is in a file."""

    def __init__(self, data: bytes) -> None:
        self.document: dict[str, Any] = json.loads(data)
        self.events: list[dict[str, Any]] = self.document["traceEvents"]
        self.tracks = dict[int, str]()
        self.lines = dict[int, tuple[int, str]]()
        self.order = dict[int, int]()
        for event in self.events:
            extra = {"tid"} if event["ph"] == "M" else set()
            assert NEEDED[event["ph"]] <= event.keys() - {"ph"} <= NEEDED[event["ph"]] | extra
            if event["name"] == "process_name":
                assert self.tracks.setdefault(event["pid"], _plain(event))
            elif event["name"] == "process_sort_index":
                self.order[event["pid"]] = event["args"]["sort_index"]
            elif event["name"] == "thread_name":
                assert event["tid"] not in self.lines | self.tracks, "numbers are unique"
                self.lines[event["tid"]] = (event["pid"], _plain(event))
        self.bars = [self._bar(event) for event in self.events if event["ph"] == "X"]
        self._nest()

    def _bar(self, event: dict[str, Any]) -> Bar:
        pid, line = self.lines[event["tid"]]
        assert pid == event["pid"]
        start_ns = round(event["ts"] * 1000)
        return Bar(
            self.tracks[pid], line, pid, event["tid"], event["name"], event["cat"], start_ns,
            start_ns + round(event["dur"] * 1000), event["args"],
        )  # fmt: skip

    def _nest(self) -> None:
        stacks = defaultdict[int, list[Bar]](list)
        for bar in self.bars:
            stack = stacks[bar.tid]
            assert bar.end_ns >= bar.start_ns >= 0
            while stack and stack[-1].end_ns <= bar.start_ns:
                stack.pop()
            if stack:
                assert bar.end_ns <= stack[-1].end_ns, "overlaps without lying inside"
                bar.parent = stack[-1]
            stack.append(bar)

    def of(self, *kinds: str) -> list[Bar]:
        """Bars of these kinds."""
        return [bar for bar in self.bars if bar.kind in kinds]

    def arrows(self) -> list[tuple[Bar, Bar]]:
        """Bars that an arrow begins and ends at."""
        ends = [
            {event["id"]: event for event in self.events if event["ph"] == kind} for kind in "sf"
        ]
        assert ends[0].keys() == ends[1].keys()
        assert all(ends[0][number]["ts"] <= ends[1][number]["ts"] for number in ends[0])
        return [(self._at(ends[0][number]), self._at(ends[1][number])) for number in ends[0]]

    def _at(self, event: dict[str, Any]) -> Bar:
        """The innermost bar that is open on a line at the moment."""
        time_ns = round(event["ts"] * 1000)
        met = [bar for bar in self.bars if bar.tid == event["tid"]]
        return [bar for bar in met if bar.start_ns <= time_ns < bar.end_ns][-1]

    def points(self, track: str, counter: str) -> list[tuple[int, float]]:
        """Times and values of a counter, by its name and unit."""
        return [
            (time_ns, value) for *name, time_ns, value in self.values() if name == [track, counter]
        ]

    def values(self) -> Iterator[tuple[str, str, int, float]]:
        """Track, name and unit, time and value of each value of a counter."""
        for event in self.events:
            if event["ph"] == "C":
                [(unit, value)] = event["args"].items()
                time_ns = round(event["ts"] * 1000)
                yield self.tracks[event["pid"]], f"{event['name']} {unit}", time_ns, value


def _plain(event: dict[str, Any]) -> str:
    """The name of a group or line, without what keeps it from the number behind it."""
    name = str(event["args"]["name"])
    assert name.endswith(NAMED)
    return name.removesuffix(NAMED)


def drawn(
    trace: Trace, limits: Limits | None = None, steps: tuple[int, int] | None = None
) -> Timeline:
    """The timeline of a trace."""
    stream = BytesIO()
    draw(trace, stream, limits, Scope.of(trace, steps))
    return Timeline(stream.getvalue())


def exported(run: Path, out: Path, *more: str) -> Timeline:
    """The timeline that the command makes."""
    assert cli.main(["export", str(run), "--to", "perfetto", "--out", str(out), *more]) == 0
    data = out.read_bytes()
    return Timeline(gzip.decompress(data) if out.suffix == ".gz" else data)
