"""What every part of a plan needs to know of its run: ids, facts and the time of day.

Ids follow from what a span is: every process, and every repetition, gives the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from rlvr_probe.model.trace import Attempt, Process, Step, Trace
from rlvr_probe_otlp.planning.data_model import Attributes
from rlvr_probe_otlp.planning.names import allowed

__all__ = [
    "Context",
    "Limits",
    "facts_of",
    "model_of",
    "node_id",
    "sender_of",
    "shares",
    "span_id",
    "trace_id",
]


_NAMES: Final = {
    "framework": "rl.system",
    "framework_version": "rl.system.version",
    "algorithm": "rl.algorithm",
    "model_type": "rlvr.model.type",
    "engine": "rlvr.engine",
}


def facts_of(attempt: Attempt, process: int | None = None) -> dict[str, str]:
    """By the names they go out with: of this process, else of the first that has them."""
    sessions = sorted(
        attempt.sessions,
        key=lambda session: (session.process != process, session.session, session.process),
    )
    found = dict[str, str]()
    for session in reversed(sessions):
        for name, otel in _NAMES.items():
            value = allowed(session.facts.get(name))
            if isinstance(value, str):
                found[otel] = value
    return found


def model_of(attempt: Attempt) -> Attributes:
    """Who generated, as GenAI's conventions name it.

    The model that is trained has no name but that of its architecture, and of a rollout engine how
    it runs is behind a dash: ``vllm-colocate``.
    """
    facts: Mapping[str, str] = facts_of(attempt)
    said = {
        "gen_ai.provider.name": facts.get("rlvr.engine", "").partition("-")[0],
        "gen_ai.request.model": facts.get("rlvr.model.type", ""),
    }
    return {name: value for name, value in said.items() if value}


_PERSON = b"rlvr-probe"


def trace_id(*parts: object) -> str:
    """Id of the trace that ``parts`` name."""
    return _digest(16, parts)


def span_id(*parts: object) -> str:
    """Id of the span that ``parts`` name."""
    return _digest(8, parts)


def node_id(process: Process | None) -> str:
    """Id of the node of a process: containers of one machine share a boot, but have names."""
    return "" if process is None else _digest(8, (process.host, process.boot))


def shares(*parts: object) -> Callable[[object], float]:
    """Where the trace that ``parts`` and one part more name lies among all: 0 up to 1.

    To keep a share of them, the same everywhere.
    """
    begun = blake2b(_text(parts) + b"\0", digest_size=16, person=_PERSON)

    def share_of(part: object) -> float:
        hashed = begun.copy()
        hashed.update(_text((part,)))
        return int(hashed.hexdigest()[:13], 16) / (1 << 52)

    return share_of


def _digest(size: int, parts: tuple[object, ...]) -> str:
    return blake2b(_text(parts), digest_size=size, person=_PERSON).hexdigest()


def _text(parts: tuple[object, ...]) -> bytes:
    return "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")


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
    """The process that started first: the sidecar of its node sends what is in the folder."""
    return next(iter((*trace.processes, *trace.sidecars)), None)
