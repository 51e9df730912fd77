"""What a run, its processes and its spans are: ids, resources, and the time of day.

Ids follow from what a span is: every process, and every repetition, gives the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from rlvr_probe.model import names
from rlvr_probe.model.trace import Attempt, Process, Step, Trace
from rlvr_probe_otlp.planning.data_model import Attributes, Value
from rlvr_probe_otlp.planning.names import VERSION, allowed, known

if TYPE_CHECKING:
    from rlvr_probe_otlp.planning.kept_trajectories import Limits

__all__ = ["Context", "Place", "place_of", "process_resources", "run_resource", "span_id"]

SERVICE: Final = "rlvr-training"
"""``service.name`` unless OTEL_SERVICE_NAME gives another one."""

_FACTS: Final = {
    "framework": "rl.system",
    "framework_version": "rl.system.version",
    "algorithm": "rl.algorithm",
    "model_type": "rlvr.model.type",
    "engine": "rlvr.engine",
}
_VERSIONS: Final = {"rlvr.names.version": names.NAMES_VERSION, "rlvr.otlp.version": VERSION}
_PERSON: Final = b"rlvr-probe"
_LATEST_NS: Final = (1 << 63) - 1
_ID: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

Place = tuple[int, int, int, int]


def place_of(step: Step) -> Place:
    """What distinguishes a step from every other of the run."""
    return step.attempt, step.session, step.life, step.number


def span_id(*parts: object) -> str:
    """Id of the span that ``parts`` name."""
    return _digest(8, parts)


def _digest(size: int, parts: tuple[object, ...]) -> str:
    return blake2b(_text(parts), digest_size=size, person=_PERSON).hexdigest()


def _text(parts: tuple[object, ...]) -> bytes:
    return "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")


def _sender_of(trace: Trace) -> Process | None:
    """The process that started first: the sidecar of its node sends what is in the folder."""
    return next(iter((*trace.processes, *trace.sidecars)), None)


def _node_id(process: Process | None) -> str:
    """Id of the node of a process: containers of one machine share a boot, but have names."""
    return "" if process is None else span_id(process.host, process.boot)


class Context:
    """What every part of a plan needs to know of its run.

    Attributes:
        run: Its id.
        node: Id of the node that sends what is in its folder; another node with a folder of its own
            sends another part of the run.
        limits: How much of it goes out.
        keys: Key of each process.
        ranks: Rank of each process, where it has one.
        models: Who generated in each attempt, in attributes of GenAI.
        applications: Trace and span id of the application's own span, by process and span of ours.
    """

    def __init__(self, trace: Trace, limits: Limits) -> None:
        """That of ``trace``."""
        self.run = trace.run
        self.node = _node_id(_sender_of(trace))
        self.limits = limits
        self.keys = [process.key for process in trace.processes]
        self.ranks = [process.rank for process in trace.processes]
        self.models = {attempt.index: _model_of(attempt) for attempt in trace.attempts}
        self.applications = trace.application_spans
        self._epoch_ns = trace.epoch_ns

    def at(self, time_ns: int) -> int:
        """Wall clock at a time of the run, ns since 1970, within what OTLP can say."""
        return min(max(0, self._epoch_ns + time_ns), _LATEST_NS)

    def span(self, process: int, number: int) -> str:
        """Id of a recorded span."""
        return span_id(self.run, self.keys[process], number)

    def step(self, step: Step) -> tuple[str, str]:
        """Ids of the trace of a step, which is that of all nodes, and of its root here."""
        return self._of_all_nodes("step", *place_of(step))

    def outside(self, attempt: int) -> tuple[str, str]:
        """Ids of the trace of what an attempt did outside of its steps, and of its root here."""
        return self._of_all_nodes("outside", attempt)

    def _of_all_nodes(self, *parts: object) -> tuple[str, str]:
        place = (self.run, *parts)
        return _digest(16, place), span_id(self.node, *place)

    def trajectory(
        self, step: Step, mode: str, ordinal: int, row: int, *part: object
    ) -> tuple[str, str]:
        """Ids of the trace of a trajectory and of its root, or of a part of it."""
        place = (self.run, self.node, "trajectory", *place_of(step), mode, ordinal, row)
        return _digest(16, place), span_id(*place, *part)

    def shares(self, step: Step, mode: str, ordinal: int) -> Callable[[int], float]:
        """Where the trace of a row of a batch lies among all traces: 0 up to 1.

        To keep a share of them, the same everywhere.
        """
        place = (self.run, self.node, "trajectory", *place_of(step), mode, ordinal)
        started = blake2b(_text(place) + b"\0", digest_size=16, person=_PERSON)

        def share_of(row: int) -> float:
            hashed = started.copy()
            hashed.update(_text((row,)))
            return int(hashed.hexdigest()[:13], 16) / (1 << 52)

        return share_of


def _facts_of(attempt: Attempt, process: int | None = None) -> dict[str, str]:
    """By the names they go out with: of this process, else of the first that has them."""
    sessions = sorted(
        attempt.sessions,
        key=lambda session: (session.process != process, session.session, session.process),
    )
    found = dict[str, str]()
    for session in reversed(sessions):
        for name, otel in _FACTS.items():
            value = allowed(session.facts.get(name))
            if isinstance(value, str):
                found[otel] = value
    return found


def _model_of(attempt: Attempt) -> Attributes:
    """Who generated, as GenAI's conventions name it.

    The model that is trained has no name but that of its architecture, and of a rollout engine how
    it runs is behind a dash: ``vllm-colocate``.
    """
    facts = _facts_of(attempt)
    return _filled(
        {
            "gen_ai.provider.name": facts.get("rlvr.engine", "").partition("-")[0],
            "gen_ai.request.model": facts.get("rlvr.model.type"),
        }
    )


def run_resource(trace: Trace) -> Attributes:
    """The resource of what concerns all processes whose recordings one node sends."""
    sender = _sender_of(trace)
    found = _filled(
        {
            "service.name": SERVICE,
            # Keeps two runs, and two nodes of one, apart where no other attribute is kept.
            "service.instance.id": f"{trace.run}@{_node_id(sender)}",
            "rl.run.id": trace.run,
            "host.name": None if sender is None else sender.host,
            **_VERSIONS,
        }
    )
    facts = dict[str, Value]()
    for attempt in reversed(trace.attempts):
        facts.update(_facts_of(attempt))
    return {**found, **facts}


def process_resources(trace: Trace) -> Sequence[Attributes]:
    """The resource of every process, in the order of :attr:`Trace.processes`."""
    attempts = {index: attempt for attempt in trace.attempts for index in attempt.processes}
    return [
        _resource(trace.run, process, attempts.get(process.index)) for process in trace.processes
    ]


def _resource(run: str, process: Process, attempt: Attempt | None) -> Attributes:
    found = {
        "service.name": SERVICE,
        "service.instance.id": process.key,
        "rl.run.id": run,
        **_VERSIONS,
        "host.name": process.host,
        "process.pid": process.pid,
        "rlvr.role": process.role,
        "rlvr.rank": process.rank,
        "rlvr.world_size": process.world_size,
    }
    ids = sorted(process.ids.items())
    found.update({f"rlvr.id.{name}": value for name, value in ids if _ID.fullmatch(name)})
    facts = {} if attempt is None else _facts_of(attempt, process.index)
    return {**_filled(found), **facts}


def _filled(said: Mapping[str, object]) -> dict[str, Value]:
    """Of attributes, those that may go out and are not empty."""
    return {name: value for name, value in known(said).items() if value != ""}
