"""Every name rlvr-probe records: spans, events and their attributes, each with its unit.

One word per thing, the same for every framework. An adapter picks a :class:`Name` from here and
fills a subset of its attributes; nothing downstream sees a framework's own vocabulary.

``stage`` spans partition a trainer step; ``coarse`` spans are also
kept in the open-span table, so that a hang shows what is open even if no thread of the process
can run any more.
"""

from __future__ import annotations

from rlvr_probe.model.counters import (
    DEVICE,
    DEVICE_FAULT,
    DEVICE_NOTE,
    DEVICE_SAMPLE,
    DEVICE_STATE,
    DEVICES_USED,
)
from rlvr_probe.model.process_names import (
    FINISHES,
    LEFT,
    PROCESS,
    REQUEST,
    SERVED,
    SIDECAR,
    STARTED,
    TELLERS,
    Attribute,
    Name,
    attributes,
)

__all__ = [
    "ADVANTAGE", "ALL", "APPLICATION_SPAN", "CHECKPOINT", "DATA", "DEVICE", "DEVICES_USED",
    "DEVICE_FAULT", "DEVICE_NOTE", "DEVICE_SAMPLE", "DEVICE_STATE", "EVAL", "EXPERIENCE",
    "FINISHES", "LEFT", "MODES", "NAMES_VERSION", "OLD_LOGPROB", "OPTIMIZER_STEP", "OTHER",
    "PROCESS", "REF_LOGPROB", "REQUEST", "REWARD", "REWARDS", "REWARD_FN", "ROLLOUT", "RPC",
    "SELECTED", "SESSION", "SESSION_END", "SIDECAR", "STAGES", "STARTED", "STEP", "TELLERS",
    "TOOL_CALL", "TOOL_STATUSES", "TRAINED", "TRAJECTORIES", "TRAJECTORY", "TURN", "UPDATE_ACTOR",
    "UPDATE_CRITIC", "USER", "VALUES", "VERIFY", "WAIT", "WEIGHT_SYNC", "Attribute", "Name",
]  # fmt: skip

NAMES_VERSION = 1
"""Version of this vocabulary; a removed or redefined name raises it."""

MODES = ("train", "eval")
"""Values of the attribute ``mode``."""

TOOL_STATUSES = ("ok", "error", "not_found", "bad_call", "cancelled")
"""Values of the attribute ``status`` of a tool call: the tool returned; it raised; there is no tool
of that name; the framework could not make the call; it was given up."""


_SESSION = Attribute("session", "", "runs that this process started from step 0 before")
_STEP = Attribute("step", "", "trainer step, from 1: the number the trainer logs when it is done")
_MODE = Attribute("mode", "", "'train' or 'eval'")
_BATCH = Attribute("batch", "", "span id of the enclosing experience span, joins lengths, rewards")
_AROUND = Attribute("batch", "", "span id of the enclosing experience or trajectory span")
_WEIGHTS = Attribute("weight_version", "", "how often weights had been moved to the rollout engine")
_POLICY = Attribute("policy_version", "", "optimizer steps the sampling policy had seen")
_SAMPLES = Attribute("samples", "", "trajectories this rank handled in the call")
_WHERE = (_SESSION, _STEP, _MODE)
_LIST_OR_SUM = "a list with one entry per trajectory, or their sum"


def _stage(name: str, otel: str, meaning: str, *more: Attribute) -> Name:
    return Name(name, meaning, (*_WHERE, *more), stage=True, coarse=True, otel=otel)


STEP = Name(
    "step",
    "one trainer step on one rank, from its start to its end callback",
    (_SESSION, _STEP),
    coarse=True,
    otel="rl.loop",
)
DATA = _stage("data", "rlvr.data", "fetching the prompts of a step")
ROLLOUT = _stage("rollout", "rl.sample", "generating the completions of a batch", _POLICY, _SAMPLES)
REWARD = _stage("reward", "rl.reward", "verifying a batch, waiting for other ranks included")
OLD_LOGPROB = _stage("old_logprob", "rlvr.logprob", "log-probabilities under the sampling policy")
REF_LOGPROB = _stage("ref_logprob", "rlvr.ref", "log-probabilities under the reference policy")
VALUES = _stage("values", "rlvr.values", "critic values")
ADVANTAGE = _stage("advantage", "rlvr.advantage", "advantages from rewards")
UPDATE_ACTOR = _stage("update_actor", "rl.train", "policy loss, backward and optimizer step")
UPDATE_CRITIC = _stage("update_critic", "rl.train", "critic loss, backward and optimizer step")
WEIGHT_SYNC = _stage("weight_sync", "rl.sync", "moving new weights to the rollout engine", _WEIGHTS)
EVAL = _stage("eval", "rlvr.evaluate", "evaluation, generation for it included")
CHECKPOINT = _stage("checkpoint", "rlvr.checkpoint", "writing a checkpoint")
WAIT = _stage(
    "wait",
    "rlvr.wait",
    "waiting for other ranks or for data",
    Attribute("on", "", "what was waited for, for example 'reward_gather'"),
)
OTHER = _stage("other", "rlvr.other", "a stage of the framework that has no name of its own")

EXPERIENCE = Name(
    "experience",
    "rollout, reward, log-probabilities and advantages of one batch; contains those stages",
    _WHERE,
    coarse=True,
    otel="rlvr.experience",
)
RPC = Name(
    "rpc",
    "one call of a method on every process of a worker group: from dispatch to result where it is"
    " called, its execution where it is done",
    (
        *_WHERE,
        *attributes(
            side="'caller' or 'worker'",
            group="name of the worker group",
            method="name of the method",
            call="calls of this method of this group before it, counted on each side",
            ranks="processes of the group",
            rank="rank in the group, on the worker's side",
            samples="rows of the batch that was sent",
            waits="0/1: whether the caller's span lasts until the result is there",
        ),
    ),
    coarse=True,
    otel="rlvr.rpc",
)
TRAJECTORY = Name(
    "trajectory",
    "one trajectory that goes its own way, where a batch is not generated at once; contains its"
    " turns, tool calls and verification",
    (
        _WEIGHTS,
        *attributes(
            key="what names it in every process: joins it with a row of trajectories; one that"
            " starts with '-' names it within one rollout only",
            engine="rollout engine that served it, from 0",
            policy_version_min="trainer steps the oldest weights that it saw had done",
            policy_version_max="trainer steps the newest weights that it saw had done",
            prompt_tokens="of its first prompt",
            response_tokens="of its response, results of tools in it included",
        ),
        Attribute(
            "loss_runs", "tokens", "tokens in and out of the loss in turn, those in it first"
        ),
        Attribute("truncated", "", "0/1: stopped by the cap, not by EOS"),
    ),
    otel="rlvr.trajectory",
)
VERIFY = Name(
    "verify",
    "one verification of one trajectory, as its process waited for it, queueing included",
    (
        _AROUND,
        *attributes(
            function="name of the reward function",
            value="the reward; absent where it gave none, or no finite number",
            not_finite="1: it gave NaN or infinity, which JSON cannot hold",
            attempts="requests that it took, where a service is asked",
            timeouts="of those, that were not answered in time",
            shared="list: span ids of other trajectories that were given the value",
        ),
    ),
    otel="rl.reward",
)
TURN = Name(
    "turn",
    "one call of the inference engine: one turn of one trajectory, or of many at once",
    (
        _AROUND,
        *attributes(
            samples="trajectories in the call",
            rows="list: their rows in trajectories; absent: all of them, in order",
            turn="turns they had before, a number for all or a list; absent: unknown",
            prompt_tokens=f"tokens sent to the engine, {_LIST_OR_SUM}",
            response_tokens=f"tokens it generated, {_LIST_OR_SUM}",
            cached_tokens=f"of those sent, found in its cache, {_LIST_OR_SUM}",
            request="digest of the id of its one request: what 'request' of a request is",
        ),
        *SERVED,
    ),
    otel="chat",
)
TOOL_CALL = Name(
    "tool_call",
    "one call of a tool by a trajectory",
    (
        _AROUND,
        *attributes(
            row="its row in trajectories",
            turn="turn that asked for it, from 0",
            tool="name of the tool; absent where the model made up a name",
            status="one of " + ", ".join(f"'{status}'" for status in TOOL_STATUSES),
        ),
    ),
    otel="execute_tool",
)
REWARD_FN = Name(
    "reward_fn",
    "one call of one reward function on one rank: reward work without waiting",
    (_BATCH, Attribute("function", "", "name of the reward function"), _SAMPLES),
    coarse=True,
    otel="rl.reward",
)
OPTIMIZER_STEP = Name(
    "optimizer_step",
    "the optimizer's step, inside update_actor",
    (_SESSION, _STEP),
    coarse=True,
    otel="rlvr.optimizer_step",
)
USER = Name(
    "user",
    "a stage the user marked with rlvr_probe.span, a callback, or logging",
    (Attribute("label", "", "the name given; of a callback and logging, class and method"),),
    coarse=True,
    otel="rlvr.user",
)

SESSION = Name(
    "session",
    "facts about a run that starts: framework, algorithm, sizes, caps, foreign run ids",
    (
        _SESSION,
        *attributes(
            framework="name of the framework, for example 'trl'",
            framework_version="its version",
            algorithm="'grpo', 'rloo', ...",
            resumed_step="trainer steps done before it started; 0 from scratch",
            rank="global rank of this process",
            world_size="number of ranks",
            accelerators="ranks with a model, where the process that trains is none of them",
            rollout_tp="tensor-parallel size of the rollout engine",
            engine="'transformers', 'vllm-colocate', 'vllm-server', ...",
            group_size="trajectories per prompt",
            group_size_eval="trajectories per prompt in evaluation",
            batch_per_rank="trajectories one rank generates per batch",
            max_prompt_tokens="cap on a prompt",
            max_response_tokens="cap on a response",
            steps_per_generation="optimizer micro steps fed by one batch",
            iterations="passes over one batch",
            accumulation="micro steps per trainer step",
            prompts_per_update="prompts per update of the model, where a step has several",
            filters="0/1: whether a filter may drop groups (dynamic sampling); 'selected' then says"
            " for every step which",
            model_type="architecture family, for example 'qwen2'",
            reward_functions="list of names, in the order of the trainer",
            ids="run ids of W&B and MLflow, by allow-list",
        ),
    ),
    event=True,
)
APPLICATION_SPAN = Name(
    "application_span",
    "the span of the application's own OpenTelemetry that was active when its parent, a coarse span"
    " with nothing around it, ended",
    attributes(
        trace="its trace id, 32 hex digits",
        span="its id, 16 hex digits",
    ),
    event=True,
)
SESSION_END = Name(
    "session_end",
    "the run returned by itself: a later process does not repeat it",
    (_SESSION, _STEP),
    event=True,
)
TRAJECTORIES = Name(
    "trajectories",
    "finished trajectories of one rank and batch; list columns, one entry per trajectory",
    (
        *_WHERE,
        _BATCH,
        Attribute("ordinal", "", "count of batches in this step, mode and process, from 0"),
        _POLICY,
        _WEIGHTS,
        *attributes(
            queue_group="its number in the queue that a trainer takes it from: there is no step,"
            " 'trained' has it",
            spans="list: trajectory span of each, where it has one",
            keys="list: key of each, where its span is another process's",
            groups="list: group of each, from 0; absent: row // group_size",
            prompts="list: what names the prompt of each group in every process",
            engines="list: rollout engine of each, from 0",
            sources="list: where the prompt of each is from, in the column that the user named",
            offset="row of the first entry in the batch over all ranks",
            total="rows of the batch over all ranks, or until here if it grows",
            grows="0/1: more rows of it may follow, as long as a trainer throws groups away",
            group_size="trajectories per prompt; row // group_size is the group",
            prompt_tokens="list: prompt length as the engine saw it",
            response_tokens="list: its length, results of tools in it included",
        ),
        Attribute(
            "loss_runs",
            "tokens",
            "list: per response, tokens in and out of the loss in turn, those in it first; absent:"
            " the trainer has no mask, or none that fits",
        ),
        Attribute("truncated", "", "list of 0/1: stopped by the cap, not by EOS"),
    ),
    event=True,
)
TRAINED = Name(
    "trained",
    "what a trainer took from a queue for one micro step",
    (
        _SESSION,
        _STEP,
        Attribute("groups", "", "list: queue_group of what it took"),
    ),
    event=True,
)
SELECTED = Name(
    "selected",
    "which prompts of generated batches the trainer kept, and trained on, in a step",
    (
        _SESSION,
        _STEP,
        *attributes(
            batch="in place of a step: 'batch' of the 'trajectories' for a queue",
            kept="list: prompts whose groups passed the filter",
            used="list: prompts whose groups were trained on",
            discarded="list: prompts whose groups were thrown away",
            reason="why: 'filter', 'stale', 'failed' or 'surplus'",
        ),
    ),
    event=True,
)
REWARDS = Name(
    "rewards",
    "values of one reward function for one rank and batch; list columns, same rows as trajectories",
    (
        _BATCH,
        *attributes(
            function="name of the reward function",
            index="its position in the trainer's list",
            values="list: reward, null where the function gave no finite number",
            not_finite="list: rows, from 0, that it gave NaN or infinity; others it gave none",
            verify_s="list: time of each verification, where it is known per sample",
        ),
    ),
    event=True,
)

ALL: tuple[Name, ...] = (
    STEP, DATA, ROLLOUT, REWARD, OLD_LOGPROB, REF_LOGPROB, VALUES, ADVANTAGE, UPDATE_ACTOR,
    UPDATE_CRITIC, WEIGHT_SYNC, EVAL, CHECKPOINT, WAIT, OTHER, EXPERIENCE, RPC, TRAJECTORY, TURN,
    REQUEST, TOOL_CALL, VERIFY, REWARD_FN, OPTIMIZER_STEP, USER, APPLICATION_SPAN, PROCESS,
    STARTED, LEFT, SESSION, SESSION_END, TRAJECTORIES, TRAINED, SELECTED, REWARDS, DEVICE,
    DEVICE_SAMPLE, DEVICE_STATE, DEVICE_FAULT, DEVICE_NOTE, DEVICES_USED,
)  # fmt: skip
"""Every name, in the order of the documentation."""

STAGES: tuple[str, ...] = tuple(name.name for name in ALL if name.stage)
"""Names of the stages."""
