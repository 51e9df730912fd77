"""The plan: everything that goes out of a run, and nothing else; a pure function of its trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rlvr_probe.exporter.timed_trajectories import shards_of
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.model.turns import turn_counts
from rlvr_probe_otlp.planning.data_model import PlannedTrace, Unit
from rlvr_probe_otlp.planning.device_metrics import DeviceUnits, use_of_spans
from rlvr_probe_otlp.planning.exemplars import with_exemplars
from rlvr_probe_otlp.planning.identity import Context, place_of, span_id
from rlvr_probe_otlp.planning.kept_trajectories import Choice, Limits
from rlvr_probe_otlp.planning.outside_steps import place, plan_outside
from rlvr_probe_otlp.planning.plan_json import fingerprint
from rlvr_probe_otlp.planning.run_metrics import (
    Histograms,
    Meter,
    Temporality,
    count_losses,
    count_step,
)
from rlvr_probe_otlp.planning.step_trace import extent_of, plan_step
from rlvr_probe_otlp.planning.trajectory_traces import link_to, plan_trajectories

__all__ = ["Plan"]

_LATEST_NS: Final = 1 << 62


class Plan:
    """What goes out of a run.

    The same recording gives the same plan, byte for byte. A step that is going on is not in it
    yet; what it adds later leaves the units before it as they are.

    Attributes:
        trace: The run.
        context: Its identities.
        waiting: Steps that are going on.
    """

    def __init__(
        self,
        trace: Trace,
        limits: Limits | None = None,
        *,
        temporality: Temporality = "cumulative",
        histograms: Histograms = "exponential",
        choice: Choice | None = None,
    ) -> None:
        """Plan ``trace``; the work is done in :meth:`units`.

        Args:
            trace: The run.
            limits: How much of it goes out.
            temporality: Of the metrics.
            histograms: Whether their bounds follow the values.
            choice: Which trajectories are kept; by default out of those of ``trace``.
        """
        limits = Limits() if limits is None else limits
        self.trace = trace
        self.context = Context(trace, limits)
        self._temporality: Temporality = temporality
        self._histograms: Histograms = histograms
        self._choice = Choice.of(trace, limits) if choice is None else choice
        self._beside = place(trace)
        self._use = use_of_spans(trace)
        alive = {process.index for process in trace.processes if process.state == "running"}
        working = {
            attempt.index for attempt in trace.attempts if alive.intersection(attempt.processes)
        }
        steps = [step for attempt in trace.attempts for step in attempt.steps]
        self._steps = [step for step in steps if not (step.open and step.attempt in working)]
        self.waiting = len(steps) - len(self._steps)

    @property
    def unclear(self) -> int:
        """Open spans that are omitted: whether their process still runs is unknown here."""
        return self._beside.unclear

    def units(self) -> Iterator[Unit]:
        """What is sent together, in the order of training; the metrics of the end are last."""
        context = self.context
        meter = Meter(context.at(0), self._temporality, self._histograms)
        yield from filter(None, (self.unit(step, meter) for step in self._steps))
        for index, nodes in sorted(self._beside.outside.items()):
            outside = plan_outside(context, self.trace.attempts[index], nodes)
            title = f"outside of the steps of attempt {index}"
            content = fingerprint(outside, context.keys, None)
            yield Unit(outside.spans[0].span_id, title, content, (outside,))
        running = any(process.state == "running" for process in self.trace.processes)
        until_ns = _LATEST_NS if running else None
        yield from DeviceUnits(self._temporality).units(context, self.trace, until_ns)
        count_losses(meter, self.trace)
        last = max((process.last_seen_ns for process in self.trace.processes), default=0)
        points = meter.points(context.at(last))
        if points:
            yield Unit(span_id(context.node, context.run, "end"), "end of the run", "", (), points)

    def unit(self, step: Step, meter: Meter) -> Unit | None:
        """What is sent of a step; None if nothing of it has a time.

        Args:
            step: Of the trace.
            meter: Has counted the steps before it, and counts it.
        """
        context = self.context
        kept = self._choice.kept(context, step)
        links = [link_to(context, step, candidate) for candidate in kept]
        more = self._beside.of_step.get(place_of(step), ())
        whole = plan_step(context, step, more, links, self._use)
        found = [] if whole is None else plan_trajectories(context, step, kept)
        traces = [*filter(None, (whole,)), *found]
        count_step(meter, step, context.models.get(step.attempt, {}))
        extent = extent_of(step, more)
        points = meter.points(context.at(0 if extent is None else extent[1]))
        points = with_exemplars(context, step, whole, zip(kept, found, strict=False), points)
        if not traces and not points:
            return None
        title = f"step {step.number} of attempt {step.attempt}"
        return Unit(context.step(step)[1], title, self._content(step, traces), traces, points)

    def _content(self, step: Step, traces: Sequence[PlannedTrace]) -> str:
        """What changes with a step: its trace, and how much is known of its trajectories.

        Not which of them are kept: that follows from the limits, and from the steps before.
        """
        limits = self.context.limits
        known = [
            (
                batch.mode,
                batch.ordinal,
                shard.offset,
                len(shard.response_tokens),
                sum(turn_counts(shard.turns).values()),
                sum(map(len, shard.tool_calls.values())),
                len(shard.calls),
                len(shard.rewards),
            )
            for batch, shard in shards_of(step)
        ]
        asked = (limits.spans, limits.trajectories, limits.share)
        return fingerprint(next(iter(traces), None), self.context.keys, [asked, known])
