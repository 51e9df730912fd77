"""What a run really did, free of any framework: run, attempt, step, and the spans of every rank.

Times are ns on the clock of the run: 0 is the start of the first process. Unknown is ``None``,
never 0. What was generated in a step is in :mod:`rlvr_probe.model.batch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch
from rlvr_probe.model.device_series import DeviceSeries
from rlvr_probe.model.requests import Request
from rlvr_probe.model.turns import LooseCall

__all__ = [
    "Attempt", "OpenSpan", "Process", "ProcessState", "RewardWork", "Rpc", "Session", "Span",
    "Step", "Trace",
]  # fmt: skip

_WORK = frozenset(
    name.name
    for name in (
        names.STEP, names.EXPERIENCE, names.ROLLOUT, names.REWARD, names.OLD_LOGPROB,
        names.REF_LOGPROB, names.VALUES, names.ADVANTAGE, names.UPDATE_ACTOR, names.UPDATE_CRITIC,
        names.OPTIMIZER_STEP,
    )
)  # fmt: skip

ProcessState = Literal["running", "exited", "ended_with_training", "died", "unknown"]
"""``exited``: it closed its journal. ``ended_with_training``: gone without that, as Ray ends the
processes of a job, and seen alive until its training was over. ``died``: gone without that, and
nothing proves as much. ``unknown``: on another host, or nothing says when it was alive."""


@dataclass(frozen=True, slots=True)
class Span:
    """One finished span of one process."""

    process: int
    """Index into :attr:`Trace.processes`."""
    id: int
    parent: int
    """Span id in the same process, 0 for none."""
    name: str
    start_ns: int
    end_ns: int
    error: str | None
    """Exception type name if it ended by one."""
    attributes: Mapping[str, object]

    @property
    def seconds(self) -> float:
        """Duration, s."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span that has not ended: now, or when its process died."""

    process: int
    id: int
    parent: int
    """The span around it in the same process; 0 for none."""
    name: str
    detail: str
    """What the hook said about it, for example the name of a reward function."""
    step: int | None
    start_ns: int
    age_s: float | None
    """Since its start, s: until now, or until the process was last seen alive."""
    thread: int | None
    """Native thread id, if it comes from the open-span table."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process start that recorded something."""

    index: int
    key: str
    """16 hex digits, as in its file names."""
    job: str
    owner: str | None
    host: str
    boot: str
    pid: int
    ppid: int
    rank: int | None
    world_size: int | None
    state: ProcessState
    start_ns: int
    last_seen_ns: int
    ids: Mapping[str, str]
    lost: Mapping[str, int]
    """Rows dropped, by reason: ``queue_full``, ``disk_full``, ``torn_rows``, ..."""
    faults: Mapping[str, int]
    """Errors inside the probe that did not reach the user, by place."""
    level: str
    """What was recorded last: ``full``, ``stages``, ``spans`` or ``off``."""
    own_s: float | None
    """Time that its users' threads spent in the probe, and CPU time of the flush thread, s."""
    probe: str = ""
    """Version of rlvr-probe that recorded it."""
    silent_s: float | None = None
    """Since its flush thread last gave a sign of life, s; only while it runs."""
    level_reason: str = ""
    """Why :attr:`level` is what it is, if it ever changed: a word and figures."""
    role: str = ""
    """What it is to its job, for example the class of its actor; empty if unknown."""
    muted: Mapping[str, str] = field(default_factory=dict)
    """Hook points where nothing was read from some time on because of its cost, with figures."""
    devices: tuple[str, ...] | None = None
    """UUIDs of the devices that it worked on; None if that is not known, empty if it may use
    none."""
    devices_how: str = ""
    """How it knew: ``torch``, asked of it; ``visible``, all that it may use."""
    given: tuple[str, ...] = ()
    """Kind and number of each accelerator that its cluster gave it on its machine."""
    corrected_s: float = 0.0
    """How much later its times were put than its wall clock says, s: by what its machine did
    together with others, at least that much is wrong between their clocks."""

    @property
    def works_on(self) -> Sequence[str]:
        """UUIDs of devices that it surely works on; none where it may use several."""
        known = self.devices or ()
        return known if self.devices_how == "torch" or len(known) == 1 else ()


@dataclass(frozen=True, slots=True)
class RewardWork:
    """Calls of one reward function by a process that verifies for others, all together.

    Nothing says for whom each was: how long they wait is in the verifications of those.
    """

    process: int
    function: str
    calls: int
    mean_start_ns: int
    """Mean of the moments when they started."""
    seconds: float
    """Sum of their durations, s."""
    errors: int
    """How many an exception ended."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """One call of a method of a worker group, as its caller and every rank saw it."""

    group: str
    method: str
    call: int
    """Calls of this method of this group before it."""
    caller: Span
    ranks: tuple[Span, ...]
    """By rank in the group, every one of them."""


@dataclass(frozen=True, slots=True)
class Session:
    """Facts about one training run as one rank saw it start (attributes of ``names.SESSION``)."""

    process: int
    session: int
    facts: Mapping[str, object]


@dataclass(slots=True)
class Step:
    """One trainer step of one attempt, over all ranks."""

    attempt: int
    session: int
    number: int
    """From 1, as the trainer logs it."""
    spans: list[Span]
    """Step, experience, stage, reward_fn and optimizer_step spans of all ranks, by start."""
    batches: list[Batch]
    """Training batches generated in this step, by ordinal."""
    evaluations: list[Batch]
    ranks_done: int
    """Ranks whose step span ended without an error."""
    ranks: int
    """Ranks that should have done it."""
    superseded_by: int | None = None
    """Attempt that resumed from before this step, so that its weights were thrown away; its own
    where the processes themselves went back to a checkpoint."""
    life: int = 0
    """How often the processes started this session before: they may resume without a restart."""
    rpcs: list[Rpc] = field(default_factory=list)
    """Calls of worker groups that were joined, by start; their spans are in :attr:`spans` too."""
    open: bool = False
    """Some rank was inside it when last seen."""
    lost_batches: int = 0
    """Training batches that a rank generated in it, by its spans, and whose lengths on that rank
    are missing: the most of any rank."""

    @property
    def missing_batches(self) -> int:
        """Training batches of it without lengths of any rank, as far as is known.

        Spans show them, or a gap in their ordinals, which count from 0 in a step; in one that
        was gone back to they may count on.
        """
        gap = 0
        ordinals = [batch.ordinal for batch in self.batches if not batch.queued]
        if ordinals:
            first = min(ordinals) if self.life else 0
            gap = max(ordinals) + 1 - first - len(ordinals)
        known = sum(not batch.complete for batch in self.batches)
        return max(0, gap, self.lost_batches - known)

    @property
    def lengths_known(self) -> bool:
        """Whether the lengths of every batch generated in it are there, as far as is known."""
        return not self.missing_batches and all(batch.complete for batch in self.batches)

    @property
    def started(self) -> bool:
        """Whether any work of the step itself was recorded.

        Fetching data, evaluating and saving happen between steps and only carry a step's number.
        """
        return (
            self.open
            or bool(self.batches)
            or any(
                span.name in _WORK and span.attributes.get("mode") != "eval" for span in self.spans
            )
        )

    @property
    def done(self) -> bool:
        """Whether every rank finished it."""
        return self.ranks_done == self.ranks

    @property
    def complete(self) -> bool:
        """Whether every rank finished it, and every batch generated in it is there and whole."""
        return self.done and self.lengths_known and all(batch.whole for batch in self.batches)

    def within(self, stage: str) -> bool:
        """Whether ``stage`` was seen inside the step; TRL evaluates and saves between two steps."""
        whole = {span.process: span for span in self.spans if span.name == names.STEP.name}
        return any(
            whole[span.process].start_ns <= span.start_ns < whole[span.process].end_ns
            for span in self.spans
            if span.name == stage and span.process in whole
        )

    def stage_seconds(self, stage: str) -> dict[int, float]:
        """Summed duration of the spans of ``stage`` by process, s.

        Stages inside an evaluation are omitted, except ``eval`` itself; of two spans of one stage,
        one inside the other, the outer one counts.
        """
        total: dict[int, float] = {}
        covered: dict[int, int] = {}
        for span in self.spans:
            if span.name != stage or (stage != "eval" and span.attributes.get("mode") == "eval"):
                continue
            if span.end_ns <= covered.get(span.process, -1):
                continue
            covered[span.process] = span.end_ns
            total[span.process] = total.get(span.process, 0.0) + span.seconds
        return total


@dataclass(slots=True)
class Attempt:
    """One launch of the job: all its ranks, from start to end or death."""

    index: int
    job: str
    processes: list[int]
    sessions: list[Session]
    steps: list[Step]
    """By session, life and number."""
    concurrent: bool = False
    """Another attempt ran at the same time: two jobs share this run id."""
    mixed: bool = False
    """Two processes claim one rank at the same time: its rows cannot be told apart."""
    lineage: int = 0
    """Attempts that continue one another's training, by resuming, share this number."""
    rpcs: list[Rpc] = field(default_factory=list)
    """Joined calls of worker groups that belong to no step, by start; their spans are in
    :attr:`Trace.unplaced`."""
    requests: Sequence[Request] = ()
    """Requests of its inference engines that these or their turns recorded."""
    unjoined_requests: int = 0
    """How many of them belong to no turn that is known."""
    untrained: list[Batch] = field(default_factory=list)
    """Batches that were generated for a queue and never trained on; their step is not known."""
    loose_calls: Sequence[LooseCall] = ()
    """Calls of inference engines that belong to no known turn: each sums up many trajectories, or
    its trajectory never finished or was never recorded by a trainer."""

    @property
    def last_step(self) -> Step | None:
        """The last step that every rank finished."""
        return max(
            (step for step in self.steps if step.done and step.started),
            key=lambda step: (step.session, step.number),
            default=None,
        )


@dataclass(slots=True)
class Trace:
    """One run, merged from all its journals."""

    run: str
    processes: list[Process]
    attempts: list[Attempt]
    open_spans: list[OpenSpan]
    user_spans: list[Span]
    """Spans made with ``rlvr_probe.span``."""
    lost: dict[str, int]
    """Rows known to be missing, by reason, over all processes and the reading itself."""
    notes: list[str]
    """What a reader of the run should know: sentences, most important first."""
    unplaced: list[Span] = field(default_factory=list)
    """Coarse spans that belong to no trainer step."""
    unreached: dict[str, int] = field(default_factory=dict)
    """Actors that were asked for and never recorded anything, by class."""
    unjoined_rpcs: int = 0
    """Calls of worker groups that are known from one side only, or not from every rank."""
    totals: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Count and summed duration, s, of the finer spans (turns, tool calls), by name."""
    reward_work: list[RewardWork] = field(default_factory=list)
    """What processes that verify for others did, by process and function."""
    devices: list[DeviceSeries] = field(default_factory=list)
    """What was read of the devices of all nodes, by host and by their number there."""
    sidecars: list[Process] = field(default_factory=list)
    """The processes that read them: no part of the job, and not in :attr:`Trace.processes`."""
    between: list[OpenSpan] = field(default_factory=list)
    """What trainers did that were between two steps: not spans, so without an id."""
    application_spans: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    """By process and id of a span: trace id and span id, hex, of the span of the application's own
    OpenTelemetry that was around it."""
    epoch_ns: int = 0
    """Wall clock at time 0, ns since 1970; between machines only as good as their clocks."""

    def steps(self) -> Iterator[Step]:
        """Every step that stands, in the order of training; superseded ones are omitted."""
        for attempt in self.attempts:
            for step in attempt.steps:
                if step.superseded_by is None:
                    yield step

    @property
    def redone(self) -> list[Step]:
        """Steps that were started and thrown away: a later attempt resumed from before them."""
        return [
            step
            for attempt in self.attempts
            for step in attempt.steps
            if step.superseded_by is not None and step.started
        ]
