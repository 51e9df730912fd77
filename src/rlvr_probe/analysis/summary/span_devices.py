"""Whose devices a span is on, and who else worked on them meanwhile.

A driver has the stages and no GPU, its workers have the GPUs. So a span looks for devices in three
places, and says where it found them:

*   ``process``: those that its own process works on;
*   ``job``: those that any process of its attempt works on;
*   ``node``: every GPU of its node, where no process recorded what it works on.

A device is never divided: what it did during a span counts whole, and ``shared`` says that spans
of another process were open on it at the same time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from rlvr_probe.model import names
from rlvr_probe.model.device_series import DeviceSeries
from rlvr_probe.model.trace import Process, Span, Trace

__all__ = ["Attribution", "Interval", "NodeDevices", "Scope", "merged", "stage_spans"]

Scope = Literal["process", "job", "node"]
Interval = tuple[int, int]

_LEAVES: Final = frozenset(names.STAGES) - {names.WAIT.name}
"""A wait lies inside another stage."""


class Attribution:
    """Finds the devices of spans of one trace."""

    def __init__(self, trace: Trace) -> None:
        """Look up who works on what; spans of stages show who shares a device."""
        self._trace = trace
        self._series = {device.uuid: device for device in trace.devices}
        self._attempt = {
            index: attempt.index for attempt in trace.attempts for index in attempt.processes
        }
        self._own = [process.works_on for process in trace.processes]
        self._of_job = {
            attempt.index: self._known(
                uuid for index in attempt.processes for uuid in self._own[index]
            )
            for attempt in trace.attempts
        }
        gpus = (device for device in trace.devices if device.facts.kind == "gpu")
        self._of_node = NodeDevices(gpu for gpu in gpus if gpu.facts.parent is None)
        self._found = [self._find(process) for process in trace.processes]
        self._open: dict[str, dict[tuple[Scope, int], list[Interval]]] | None = None

    def devices(self, process: int) -> tuple[Scope, Sequence[DeviceSeries]]:
        """Devices of the spans of a process, and where they were found."""
        return self._found[process]

    def is_shared(self, span: Span, uuid: str) -> bool:
        """Whether stages of others were open on a device during a span.

        Of another process; of another attempt, where the span has the devices of its job.
        """
        if self._open is None:
            self._open = self._opened()
        scope, _ = self._found[span.process]
        mine = self._owner(span.process, scope)
        return any(
            _meets(intervals, span.start_ns, span.end_ns)
            for owner, intervals in self._open.get(uuid, {}).items()
            if owner != mine and (owner[0] == scope or not self._is_kin(owner, mine))
        )

    def _is_kin(self, owner: tuple[Scope, int], other: tuple[Scope, int]) -> bool:
        """Whether one is a process and the other is its job: both stand for the same work."""
        attempts = {
            self._attempt.get(number, -1) if scope == "process" else number
            for scope, number in (owner, other)
        }
        return len(attempts) == 1

    def _owner(self, process: int, scope: Scope) -> tuple[Scope, int]:
        if scope == "process":
            return scope, process
        return "job", self._attempt.get(process, -1)

    def _opened(self) -> dict[str, dict[tuple[Scope, int], list[Interval]]]:
        """When which owner had a stage open, by device."""
        found = defaultdict[str, dict[tuple[Scope, int], list[Interval]]](dict)
        for span in stage_spans(self._trace):
            scope, devices = self._found[span.process]
            if span.name in _LEAVES:
                for device in devices:
                    intervals = found[device.uuid].setdefault(self._owner(span.process, scope), [])
                    intervals.append((span.start_ns, span.end_ns))
        return {
            uuid: {owner: merged(intervals) for owner, intervals in owners.items()}
            for uuid, owners in found.items()
        }

    def _known(self, uuids: Iterable[str]) -> list[DeviceSeries]:
        return [self._series[uuid] for uuid in dict.fromkeys(uuids) if uuid in self._series]

    def _find(self, process: Process) -> tuple[Scope, Sequence[DeviceSeries]]:
        if self._own[process.index]:
            return "process", self._known(self._own[process.index])
        of_job = self._of_job.get(self._attempt.get(process.index, -1))
        if of_job:
            return "job", of_job
        return "node", self._of_node.of(process)


class NodeDevices:
    """Devices by their node: two containers of one node differ in their host names."""

    def __init__(self, devices: Iterable[DeviceSeries]) -> None:
        """Sort them once: each span of a stage asks."""
        self._by_boot = defaultdict[str, list[DeviceSeries]](list)
        self._by_host = defaultdict[str, list[DeviceSeries]](list)
        for device in devices:
            self._by_boot[device.facts.boot].append(device)
            self._by_host[device.facts.host].append(device)

    def of(self, process: Process) -> Sequence[DeviceSeries]:
        """Those on the node of a process."""
        if process.boot:
            return self._by_boot.get(process.boot, ())
        return self._by_host.get(process.host, ())


def stage_spans(trace: Trace) -> Iterable[Span]:
    """Spans of steps and their stages, of every step that stands; of an evaluation, itself only."""
    return (
        span
        for step in trace.steps()
        for span in step.spans
        if (span.name == names.STEP.name or span.name in names.STAGES)
        and (span.name == names.EVAL.name or span.attributes.get("mode") != "eval")
    )


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals by start, those that touch made one."""
    found = list[Interval]()
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _meets(intervals: Sequence[Interval], start_ns: int, end_ns: int) -> bool:
    """Whether one of these, which are merged, has time in common with a span."""
    place = bisect_left(intervals, (start_ns,))
    before = place > 0 and intervals[place - 1][1] > start_ns
    return before or (place < len(intervals) and intervals[place][0] < end_ns)
