"""Metrics of a run: after each step, what was counted up to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.columns import finite_of, lengths_of, unknown_in
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.model.turns import turn_counts, turn_seconds
from rlvr_probe_otlp.planning.data_model import Attributes, Point, Value
from rlvr_probe_otlp.planning.histogram import ExplicitHistogram, ExponentialHistogram, bounds_of
from rlvr_probe_otlp.planning.names import duration_metric, known

__all__ = [
    "METRICS",
    "Histograms",
    "Meter",
    "Metric",
    "Temporality",
    "count_losses",
    "count_missing",
    "count_open",
    "count_step",
]

Temporality = Literal["cumulative", "delta"]
Histograms = Literal["exponential", "explicit"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, unit and kind as they go out, and its meaning."""

    name: str
    unit: str
    kind: Literal["sum", "updown", "gauge", "histogram"]
    meaning: str


_DURATIONS: Final = tuple(
    dict.fromkeys(duration_metric(name) for name in names.STAGES if name != names.OTHER.name)
)

METRICS: Final[tuple[Metric, ...]] = (
    Metric("rl.loop.duration", "s", "histogram", "steps that every rank finished"),
    *(
        Metric(name, "s", "histogram", "each time that a rank was in the stage")
        for name in (*_DURATIONS, duration_metric(names.OTHER.name))
    ),
    Metric("rl.train.steps", "{step}", "sum", "steps that every rank finished"),
    Metric("rl.sample.samples", "{sample}", "sum", "trajectories that were generated"),
    Metric(
        "gen_ai.client.token.usage", "{token}", "histogram",
        "tokens of each trajectory: its first prompt, its response",
    ),
    Metric("rlvr.trajectory.truncated", "{sample}", "sum", "trajectories that the cap cut"),
    Metric("rlvr.trajectory.duration", "s", "histogram", "trajectories with times of their own"),
    Metric("rlvr.trajectory.turns", "{turn}", "histogram", "turns of each trajectory"),
    Metric("rlvr.turn.duration", "s", "histogram", "engine calls of single trajectories"),
    Metric("rlvr.tool.duration", "s", "histogram", "calls of tools"),
    Metric("rlvr.verify.duration", "s", "histogram", "calls of reward functions"),
    Metric(
        "rlvr.staleness", "{step}", "histogram",
        "steps that the trainer was ahead of the oldest weights that a trajectory saw",
    ),
    Metric(
        "rl.environment.reward.mean", "{reward}", "gauge",
        "mean of what a reward function gave in a step",
    ),
    Metric(
        "rlvr.reward.not_finite", "{reward}", "sum",
        "rewards that are NaN or infinite, which no mean has; 0 where there are none",
    ),
    Metric("rlvr.lost", "{row}", "sum", "rows of the recording that are known to be missing"),
    Metric("rlvr.faults", "{fault}", "sum", "errors inside the probe"),
    Metric("rlvr.spans.open", "{span}", "updown", "spans that had not ended"),
)  # fmt: skip
"""Every metric of what a run did."""

_BY_NAME = {metric.name: metric for metric in METRICS}
_NAMES = frozenset(name.name for name in names.ALL)

_Key = tuple[str, tuple[tuple[str, Value], ...]]


class Meter:
    """Counts up over a run and reports what changed.

    Attributes:
        temporality: ``cumulative``: points count from the start of the run; ``delta``: from the
            point before.
    """

    def __init__(
        self,
        start_ns: int,
        temporality: Temporality = "cumulative",
        histograms: Histograms = "exponential",
    ) -> None:
        """Start at ``start_ns`` since 1970."""
        self._explicit = histograms == "explicit"
        self.temporality: Temporality = temporality
        self._start_ns = self._last_ns = start_ns
        self._values = dict[_Key, float]()
        self._histograms = dict[_Key, ExponentialHistogram | ExplicitHistogram]()
        self._changed = dict[_Key, None]()

    def count(self, metric: str, amount: float = 1, **attributes: Value) -> None:
        """Count ``amount`` up. In names of attributes ``__`` stands for a dot."""
        key = self._touch(metric, attributes)
        self._values[key] = self._values.get(key, 0) + amount

    def observe(self, metric: str, values: Iterable[float], **attributes: Value) -> None:
        """Take values of a histogram; none leaves no trace."""
        taken = list(values)
        if not taken:
            return
        key = self._touch(metric, attributes)
        if key not in self._histograms:
            self._histograms[key] = (
                ExplicitHistogram(bounds_of(_BY_NAME[metric].unit))
                if self._explicit
                else ExponentialHistogram()
            )
        self._histograms[key].extend(taken)

    def hold(self, metric: str, value: float, **attributes: Value) -> None:
        """Take what a gauge shows."""
        self._values[self._touch(metric, attributes)] = value

    def _touch(self, metric: str, attributes: Mapping[str, Value]) -> _Key:
        named = ((name.replace("__", "."), value) for name, value in attributes.items())
        key = (metric, tuple(sorted(named)))
        self._changed[key] = None
        return key

    def points(self, time_ns: int) -> list[Point]:
        """One point per series that changed since the last call, at ``time_ns`` since 1970.

        Time never goes back: a moment before the last one is that one.
        """
        time_ns = max(time_ns, self._last_ns)
        found = [self._point(key, time_ns) for key in sorted(self._changed, key=str)]
        self._changed.clear()
        if self.temporality == "delta":
            self._values.clear()
            self._histograms.clear()
        self._last_ns = time_ns
        return found

    def _point(self, key: _Key, time_ns: int) -> Point:
        metric = _BY_NAME[key[0]]
        start_ns = self._start_ns if self.temporality == "cumulative" else self._last_ns
        if metric.kind == "gauge":
            start_ns = time_ns
        histogram = self._histograms.get(key)
        value = self._values[key] if histogram is None else histogram.snapshot()
        return Point(
            metric.name, metric.unit, metric.kind, dict(key[1]), start_ns, time_ns, value
        )  # fmt: skip


def count_step(meter: Meter, step: Step, model: Attributes) -> None:
    """Count what was done in a step.

    Args:
        meter: Has counted the steps before it.
        step: One that is over.
        model: Who generated, in attributes of GenAI.
    """
    whole = sorted(
        (span.start_ns, span.end_ns) for span in step.spans if span.name == names.STEP.name
    )
    if step.done and whole:
        meter.observe("rl.loop.duration", [(max(end for _, end in whole) - whole[0][0]) / 1e9])
        meter.count("rl.train.steps")
    stages = dict[tuple[str, str], list[float]]()
    for span in step.spans:
        if span.name in names.STAGES:
            mode = span.attributes.get("mode")
            seconds = stages.setdefault((span.name, mode if isinstance(mode, str) else ""), [])
            seconds.append((span.end_ns - span.start_ns) / 1e9)
    for (stage, mode), lengths in sorted(stages.items()):
        # The order of a sum decides its last digits.
        meter.observe(duration_metric(stage), sorted(lengths), rlvr__stage=stage, **_mode(mode))
    for batch in (*step.batches, *step.evaluations):
        _count_batch(meter, step, batch, model)


def _mode(mode: str) -> dict[str, Value]:
    return {"rlvr__mode": mode} if mode in names.MODES else {}


def _count_batch(meter: Meter, step: Step, batch: Batch, model: Attributes) -> None:
    mode = _mode(batch.mode)
    asked = {name.replace(".", "__"): value for name, value in model.items()}
    asked["gen_ai__operation__name"] = "invoke_agent"
    meter.count("rl.sample.samples", batch.rows, **mode)
    for shard in batch.shards:
        for kind, column in (("input", shard.prompt_tokens), ("output", shard.response_tokens)):
            said = {**asked, **mode, "gen_ai__token__type": kind}
            meter.observe("gen_ai.client.token.usage", column, **said)
        if shard.truncated is not None:
            meter.count("rlvr.trajectory.truncated", sum(map(bool, shard.truncated)), **mode)
        lengths = lengths_of(shard.times_ns or ())
        seconds = (length / 1e9 for length in lengths if length is not None)
        meter.observe("rlvr.trajectory.duration", seconds, **mode)
        versions = [version for version in shard.policy_versions or () if version is not None]
        behind = (max(0, step.number - 1 - oldest) for oldest, _ in versions)
        meter.observe("rlvr.staleness", behind, **mode)
        _count_turns(meter, shard, mode)
    _count_rewards(meter, batch, mode)


def _count_turns(meter: Meter, shard: BatchShard, mode: Mapping[str, Value]) -> None:
    meter.observe("rlvr.trajectory.turns", turn_counts(shard.turns).values(), **mode)
    meter.observe("rlvr.turn.duration", turn_seconds(shard.turns), **mode)
    tools = dict[tuple[str | None, str | None], list[float]]()
    for calls in shard.tool_calls.values():
        for call in calls:
            tools.setdefault((call.tool, call.status), []).append(call.latency_s)
    for (tool, status), lengths in tools.items():
        said = known({"gen_ai__tool__name": tool, "rlvr__tool__status": status})
        meter.observe("rlvr.tool.duration", lengths, **said, **mode)


def _count_rewards(meter: Meter, batch: Batch, mode: Mapping[str, Value]) -> None:
    seconds, rewards = dict[str, list[float]](), dict[str, list[float]]()
    odd = Counter[str]()
    for shard in batch.shards:
        for function, lengths in shard.calls.seconds().items():
            seconds.setdefault(function, []).extend(lengths)
        for given in shard.rewards:
            finite = finite_of(given.values)
            rewards.setdefault(given.function, []).extend(finite)
            numbers = len(given.values) - unknown_in(given.values)
            if numbers:
                odd[given.function] += numbers - len(finite)

    def labels(function: str) -> dict[str, Value]:
        return {**known({"rlvr__reward__fn": function or None}), **mode}

    for function, lengths in sorted(seconds.items()):
        meter.observe("rlvr.verify.duration", sorted(lengths), **labels(function))
    for function, values in sorted(rewards.items()):
        if values:
            mean = sum(values) / len(values)
            meter.hold("rl.environment.reward.mean", mean, **labels(function))
    for function, amount in sorted(odd.items()):
        meter.count("rlvr.reward.not_finite", amount, **labels(function))


def count_losses(meter: Meter, trace: Trace) -> None:
    """Count what is missing, what went wrong inside the probe, and what is open."""
    faults = sum(sum(process.faults.values()) for process in trace.processes)
    count_missing(meter, trace.lost, faults)
    count_open(meter, trace)


def count_missing(meter: Meter, lost: Mapping[str, int], faults: int) -> None:
    """Count rows that are missing, by reason, and errors inside the probe.

    None is a 0 without a reason: a missing series means that nothing was counted.
    """
    meter.count("rlvr.lost", 0)
    for reason, rows in sorted(lost.items()):
        meter.count("rlvr.lost", rows, rlvr__lost__reason=reason)
    meter.count("rlvr.faults", faults)


def count_open(meter: Meter, trace: Trace) -> None:
    """Count spans that had not ended."""
    opened = Counter(span.name for span in trace.open_spans if span.name in _NAMES)
    for name, count in sorted(opened.items()):
        meter.count("rlvr.spans.open", count, rlvr__span=name)
    if not opened:
        meter.count("rlvr.spans.open", 0)
