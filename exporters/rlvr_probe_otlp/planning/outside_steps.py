"""Spans that a recording keeps outside its steps: put into their step, or a trace of their own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from rlvr_probe.model.trace import Attempt, Step, Trace
from rlvr_probe_otlp.planning.data_model import PlannedTrace
from rlvr_probe_otlp.planning.identity import Context, Place, place_of
from rlvr_probe_otlp.planning.names import OUTSIDE
from rlvr_probe_otlp.planning.span_tree import Node, Root, node_of, plan_trace, unfinished_node
from rlvr_probe_otlp.planning.step_trace import extent_of

__all__ = ["Beside", "place", "plan_outside"]


@dataclass(slots=True)
class Beside:
    """Spans that the recording keeps beside its steps.

    Attributes:
        of_step: Those inside a step, by :func:`place_of`.
        outside: The others, by attempt.
        unclear: Spans that may still be open: whether their process runs is not known here.
    """

    of_step: dict[Place, list[Node]] = field(default_factory=dict)
    outside: dict[int, list[Node]] = field(default_factory=dict)
    unclear: int = 0


def place(trace: Trace) -> Beside:
    """Put the user's spans, spans without a step and those never ended where they were.

    A span lies in the step that it starts in. What was open when a process died ends when that was
    last seen.
    """
    found = Beside()
    homes = {index: attempt for attempt in trace.attempts for index in attempt.processes}
    times = {attempt.index: _Times(attempt) for attempt in trace.attempts}

    def add(node: Node | None, number: int | None = None) -> None:
        if node is None or (attempt := homes.get(node.key[0])) is None:
            return
        step = times[attempt.index].step_at(node.start_ns, number)
        if step is None:
            found.outside.setdefault(attempt.index, []).append(node)
        else:
            found.of_step.setdefault(place_of(step), []).append(node)

    for span in (*trace.user_spans, *trace.unplaced):
        add(node_of(span))
    for opened in trace.open_spans:
        process = trace.processes[opened.process]
        if process.state == "unknown":
            found.unclear += 1
        if process.state == "died":
            add(unfinished_node(opened, process.last_seen_ns), opened.step)
    return found


class _Times:
    """The steps of an attempt by start, each until it ends."""

    def __init__(self, attempt: Attempt) -> None:
        known = [(*extent, step) for step in attempt.steps if (extent := extent_of(step))]
        self._steps = sorted(known, key=lambda entry: (*entry[:2], place_of(entry[2])))
        self._numbered = {step.number: step for step in attempt.steps}

    def step_at(self, time_ns: int, number: int | None) -> Step | None:
        """The step of that number, else the one that goes on at a moment."""
        if number is not None:
            return self._numbered.get(number)
        at = bisect_right(self._steps, time_ns, key=itemgetter(0)) - 1
        if at < 0:
            return None
        _, end_ns, step = self._steps[at]
        return step if time_ns < end_ns else None


def plan_outside(context: Context, attempt: Attempt, nodes: Sequence[Node]) -> PlannedTrace:
    """The trace of what an attempt did outside of its steps."""
    root = Root(
        ids=context.outside(attempt.index),
        name=OUTSIDE,
        process=min((node.key[0] for node in nodes), key=lambda index: context.keys[index]),
        start_ns=min(node.start_ns for node in nodes),
        end_ns=max(node.end_ns for node in nodes),
        attributes={"rlvr.attempt": attempt.index},
    )
    return plan_trace(context, root, nodes, attempt.rpcs)
