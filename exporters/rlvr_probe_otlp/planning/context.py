"""What every part of a plan needs to know of its run: identities and the time of day."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rlvr_probe.model.trace import Process, Step, Trace
from rlvr_probe_otlp.planning.facts import model_of
from rlvr_probe_otlp.planning.identifiers import node_id, shares, span_id, trace_id
from rlvr_probe_otlp.planning.telemetry import Attributes

__all__ = ["Context", "Limits", "sender_of"]

_LATEST_NS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a run goes out.

    Attributes:
        spans: Most spans of one trace.
        trajectories: Most trajectories of one step that become traces.
        share: Of the other trajectories, the share that is kept, 0..1.
        slowest: How many of the slowest trajectories of the run so far are kept.
        slowest_of_step: And how many of each step.
    """

    spans: int = 500
    trajectories: int = 100
    share: float = 0.01
    slowest: int = 100
    slowest_of_step: int = 8


@dataclass(frozen=True, slots=True)
class Context:
    """A run.

    Attributes:
        run: Its id.
        node: Id of the node that sends what is in its folder; another node with a folder of its own
            sends another part of the run.
        epoch_ns: Wall clock at time 0 of the run, ns since 1970.
        keys: Key of each process.
        ranks: Rank of each process, where it has one.
        models: Who generated in each attempt, in attributes of GenAI.
        applications: Trace and span id of the application's own span, by process and span of ours.
    """

    run: str
    node: str
    epoch_ns: int
    keys: Sequence[str]
    ranks: Sequence[int | None]
    limits: Limits
    models: Mapping[int, Attributes] = field(default_factory=dict)
    applications: Mapping[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: Trace, limits: Limits) -> Context:
        """That of ``trace``."""
        keys = [process.key for process in trace.processes]
        ranks = [process.rank for process in trace.processes]
        node = node_id(sender_of(trace))
        models = {attempt.index: model_of(attempt) for attempt in trace.attempts}
        return cls(
            trace.run, node, trace.epoch_ns, keys, ranks, limits, models, trace.application_spans
        )

    def at(self, time_ns: int) -> int:
        """Wall clock at a time of the run, ns since 1970, within what OTLP can say."""
        return min(max(0, self.epoch_ns + time_ns), _LATEST_NS)

    def span(self, process: int, number: int) -> str:
        """Id of a recorded span."""
        return span_id(self.run, self.keys[process], number)

    def step(self, step: Step) -> tuple[str, str]:
        """Ids of the trace of a step, which is that of all nodes, and of its root here."""
        place = (self.run, "step", step.attempt, step.session, step.life, step.number)
        return trace_id(*place), span_id(self.node, *place)

    def trajectory(
        self, step: Step, mode: str, ordinal: int, row: int, *part: object
    ) -> tuple[str, str]:
        """Ids of the trace of a trajectory and of its root, or of a part of it."""
        of_step = (step.attempt, step.session, step.life, step.number)
        place = (self.run, self.node, "trajectory", *of_step, mode, ordinal, row)
        return trace_id(*place), span_id(*place, *part)

    def shares(self, step: Step, mode: str, ordinal: int) -> Callable[[int], float]:
        """Where the trace of a row of a batch lies among all traces: 0 up to 1."""
        of_step = (step.attempt, step.session, step.life, step.number)
        return shares(self.run, self.node, "trajectory", *of_step, mode, ordinal)

    def outside(self, attempt: int) -> tuple[str, str]:
        """Ids of the trace of what an attempt did outside of its steps, and of its root here."""
        place = (self.run, "outside", attempt)
        return trace_id(*place), span_id(self.node, *place)


def sender_of(trace: Trace) -> Process | None:
    """The process that began first: the sidecar of its node sends what is in the folder."""
    return next(iter((*trace.processes, *trace.sidecars)), None)
