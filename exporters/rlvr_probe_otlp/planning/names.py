"""Every name that goes out: OpenTelemetry's where it has one, ours (``rlvr.*``) for the rest.

``rl.*`` follows the proposal open-telemetry/semantic-conventions-genai#88, which is not merged;
``gen_ai.*`` and ``hw.*`` are in development. A name that is removed or redefined raises
:data:`VERSION`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from rlvr_probe.model import names
from rlvr_probe_otlp.planning.data_model import ERROR, Kind, Value

__all__ = [
    "ATTRIBUTES",
    "DIED",
    "INTERNAL",
    "KINDS",
    "LINKED",
    "OUTSIDE",
    "OWN",
    "RANK_STEP",
    "SCHEMA_URL",
    "SPANS",
    "SPECIAL",
    "STANDARD",
    "VERSION",
    "allowed",
    "attributes_of",
    "duration_metric",
    "error_type",
    "known",
]

VERSION: Final = 2

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""Semantic conventions that every name follows which they define; those of GenAI are of 1.42."""

SPANS: Final[Mapping[str, str]] = {name.name: name.otel for name in names.ALL if name.otel}
"""Name of a span by what a recording calls it."""

RANK_STEP: Final = "rlvr.rank_step"
"""The step as one of several ranks did it; the root of the trace is the step of all."""

OUTSIDE: Final = "rlvr.outside_steps"
"""Root of the trace that holds what belongs to no step."""

LINKED: Final = "rlvr.trajectories.linked"

DIED: Final = "process_died"
"""``error.type`` of what was open when its process died."""

_OTHER: Final = "_OTHER"
"""OpenTelemetry's ``error.type`` of a failure of which no more is known."""

ATTRIBUTES: Final[Mapping[str, str]] = {
    "session": "rlvr.session",
    "step": "rl.loop.iteration",
    "mode": "rlvr.mode",
    "policy_version": "rlvr.policy.version",
    "weight_version": "rlvr.weight.version",
    "samples": "rlvr.samples",
    "on": "rlvr.wait.for",
    "side": "rlvr.rpc.side",
    "group": "rlvr.rpc.group",
    "method": "rlvr.rpc.method",
    "ranks": "rlvr.rpc.ranks",
    "rank": "rlvr.rpc.rank",
    "waits": "rlvr.rpc.waits",
    "function": "rlvr.reward.fn",
    "label": "rlvr.label",
}
"""Name of an attribute of a coarse span by what a recording calls it: nothing else goes out."""

INTERNAL: Final = frozenset({"batch", "call"})
"""Attributes that only join rows of a recording."""

SPECIAL: Final[Mapping[tuple[str, str], str]] = {
    ("rollout", "samples"): "rl.sample.batch_size",
    ("update_actor", "samples"): "rl.train.batch_size",
    ("update_critic", "samples"): "rl.train.batch_size",
}

_TRUTHS: Final = frozenset({"waits"})

KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (names.RPC.name, "caller"): "client",
    (names.RPC.name, "worker"): "server",
}
"""Kind of a span by its name and its ``side``; every other one is internal."""

OWN: Final[Mapping[str, str]] = {
    "rl.bucket": "productive, overhead, idle or wasted, as NeMo-RL has them: of a stage that holds"
    " no other stage, so that durations of a rank can be summed by it",
    "rlvr.stage": "what the recording calls the stage",
    "rlvr.attempt": "number of the launch of the job, as `show` counts them",
    "rlvr.life": "how often the processes had started this session before",
    "rlvr.step.done": "whether every rank finished the step",
    "rlvr.step.wall_s": "from its start on the first rank to its end on the last one; what was"
    " fetched or evaluated for it before that is in its trace too",
    "rlvr.step.superseded": "a later attempt resumed from before it",
    "rlvr.ranks": "ranks that should have done the step",
    "rlvr.ranks.done": "ranks that finished it",
    "rlvr.trajectories": "training trajectories that were generated in it",
    "rlvr.response_tokens": "their response tokens",
    LINKED: "of all trajectories, those that are traces of their own",
    "rlvr.stage.*.wall_s": "time in which any rank was in the stage",
    "rlvr.stage.*.sum_s": "time that all ranks together were in it",
    "rlvr.left_out.*.count": "spans of this name beyond the bound of the trace",
    "rlvr.left_out.*.sum_s": "how long they were together",
    "rlvr.unfinished": "it had not ended when its process died; its end is when that was last seen",
    "rlvr.detail": "what was open: for example a reward function",
    "rlvr.link.kind": "issued_by, consumed_by: the step of a trajectory; trajectory: the other way;"
    " application: a span of your own",
    "rlvr.kept": "why a trajectory is a trace: slowest_so_far, slowest_of_step, failed, sampled",
    "rlvr.row": "its row in the batch over all ranks",
    "rlvr.batch": "batches of the step before it",
    "rlvr.group.index": "its prompt in the batch",
    "rlvr.engine.replica": "rollout engine that served it",
    "rlvr.policy.version.start": "steps that the oldest weights had done which it saw",
    "rlvr.policy.version.end": "steps that the newest weights had done which it saw",
    "rlvr.finish_reason": "length if the cap cut it, else stop; of a turn, as its engine says",
    "rlvr.queue_s": "of a turn: from when its engine had it until it was first scheduled",
    "rlvr.prefill_s": "from then to its first token",
    "rlvr.decode_s": "from its first token to its end",
    "rlvr.kv.preemptions": "how often it lost its place in the engine's cache",
    "rlvr.loss_tokens": "response tokens in the loss",
    "rlvr.reward.functions": "reward functions that gave it a number",
    "rlvr.reward.values": "what they gave, in the same order",
    "rlvr.turn.index": "turns it had before",
    "rlvr.tool.status": "ok, error, not_found, bad_call or cancelled",
    "rlvr.role": "of a process: class of its actor, or what else it is to its job",
    "rlvr.rank": "of a process, and of what it did of a step",
    "openinference.span.kind": "CHAIN, AGENT, LLM, TOOL or EVALUATOR, for Phoenix and MLflow",
    "input.value": "of a root: which step or trajectory it is; never a prompt",
    "output.value": "of a root: what came of it, in numbers; never a response",
    "rlvr.world_size": "ranks as that process saw them",
    "rlvr.engine": "rollout engine",
    "rlvr.model.type": "architecture family",
    "rlvr.id.*": "foreign ids, as the recording has them: of Slurm, Ray, W&B, ...",
    "rlvr.names.version": "version of the names of the recording",
    "rlvr.otlp.version": "version of these names",
    "rlvr.lost.reason": "of a metric: why rows are missing",
    "rlvr.span": "of a metric: what the recording calls the span",
}
"""Attributes of our own that no recording has as they are, with their meaning."""

STANDARD: Final = (
    ERROR, "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model",
    "gen_ai.token.type", "gen_ai.tool.name",
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.completion_tokens",
    "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.prompt_tokens",
    "host.name", "process.pid", "rl.algorithm", "rl.reward.score", "rl.run.id",
    "rl.sample.input_tokens", "rl.sample.output_tokens", "rl.sample.turns", "rl.system",
    "rl.system.version", "service.instance.id", "service.name",
)  # fmt: skip
"""Attributes that OpenTelemetry or a proposal defines, beside those of recorded spans."""

_TEXT = 256
_INT = 1 << 63
_LIST = 64


def allowed(value: object) -> Value | None:
    """``value`` as it may go out; None if it may not: not a number, or of an unknown kind."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "?" for c in value[:_TEXT])
    if isinstance(value, int) and -_INT <= value < _INT:
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def error_type(error: object) -> dict[str, Value]:
    """The attribute that says why a span failed."""
    return {ERROR: allowed(error) or _OTHER}


def attributes_of(span: str, given: Mapping[str, object]) -> dict[str, Value]:
    """Attributes of a coarse span of a recording, by the names they go out with."""
    found = dict[str, Value]()
    for name, value in known(given).items():
        renamed = SPECIAL.get((span, name)) or ATTRIBUTES.get(name)
        if renamed is not None:
            found[renamed] = bool(value) if name in _TRUTHS else value
    return found


def duration_metric(span: str) -> str:
    """Name of the histogram of how long the spans of a recording called ``span`` took."""
    return f"{SPANS[span]}.duration"


def known(said: Mapping[str, object]) -> dict[str, Value]:
    """Of attributes under the names they go out with, those that may go out."""
    checked = {name: allowed(value) for name, value in said.items()}
    return {name: value for name, value in checked.items() if value is not None}
