"""Tables of what was generated, and how it was rewarded."""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording.columns import Column, Table
from rlvr_probe.recording.tables.kinds import (
    ATTEMPT,
    BATCH,
    FUNCTION,
    GROUP,
    PROCESS,
    REAL,
    TOOK,
    TRAJECTORY,
    TURN,
    id_,
    ns,
    number,
    seconds,
    text,
    tokens,
    yes,
)

__all__ = ["GENERATED_TABLES"]

_ENGINE = (
    seconds("queue_s", "from when the engine had it until it was first scheduled"),
    seconds("prefill_s", "from then to its first token"),
    seconds("decode_s", "from its first token to its end"),
    number("preemptions", "how often it lost its place in the engine's cache"),
    text("finish", "why it ended: `stop`, `length`, `abort`"),
)

GENERATED_TABLES: Final = (
    Table(
        "batch",
        "one generation batch over all ranks",
        (
            id_("batch_id", "its number, from 0"),
            id_(
                "step_id",
                "the step it was generated in; of a queued one, that first trained on it, NULL if"
                " none did",
            ),
            text("mode", "`train` or `eval`"),
            number("ordinal", "batches of this step and mode before it; a number of the queue"),
            number("workload_step", "what the files of a workload call it; NULL for a recording"),
            number("policy_version", "optimizer steps that the sampling policy had seen"),
            number("group_size", "trajectories per prompt that were asked for"),
            number("total", "trajectories that it should hold"),
            number("rows", "trajectories that were recorded"),
            yes("queued", "whether it was generated beside the training for a queue"),
            yes("ragged", "whether its groups may differ in size"),
            yes("whole", "whether every trajectory of every prompt was recorded"),
        ),
    ),
    Table(
        "prompt_group",
        "the trajectories of one prompt",
        (
            BATCH,
            GROUP,
            number("size", "trajectories that it should hold"),
            number("rows", "trajectories that were recorded"),
            yes("kept", "whether it passed the trainer's filter; NULL where nothing tells"),
            yes("used", "whether it was trained on; NULL where nothing tells"),
        ),
    ),
    Table(
        "trajectory",
        "one sampled completion of one prompt",
        (
            id_("trajectory_id", "its number, from 0, in the order of batches and rows"),
            BATCH,
            id_("step_id", "the step of its batch"),
            text("mode", "`train` or `eval`"),
            id_("process", "who told of its lengths"),
            number("row", "row in the batch over all ranks"),
            GROUP,
            number("sample", "position in its group, from 0"),
            tokens("prompt_tokens", "of its first prompt"),
            tokens("response_tokens", "of its whole response, results of tools included"),
            tokens("loss_tokens", "response tokens in the loss; NULL where no mask is known"),
            tokens("context_tokens", "of prompt and response before a cut, where a workload says"),
            yes("truncated", "whether it was stopped by the cap"),
            number("engine", "rollout engine that served it, from 0; NULL: rank of its process"),
            number("policy_version", "optimizer steps that the sampling policy had seen"),
            number("policy_version_min", "trainer steps that the oldest weights it saw had done"),
            number("policy_version_max", "trainer steps that the newest weights it saw had done"),
            ns("start_ns", "its start, or that of the rollout it is a part of"),
            ns("end_ns", "its end, or that of the rollout it is a part of"),
            yes("own_times", "whether these times are its own and not the rollout's"),
        ),
    ),
    Table(
        "turn",
        "one engine call of one trajectory",
        (
            TRAJECTORY,
            TURN,
            tokens("prompt_tokens", "sent to the engine: everything so far"),
            tokens("response_tokens", "generated"),
            tokens("cached_tokens", "of those sent, found in the engine's prefix cache"),
            ns("start_ns", "when the engine was asked"),
            ns("end_ns", "when it had answered"),
            TOOK,
            *_ENGINE,
        ),
    ),
    Table(
        "request",
        "one sequence as an inference engine served it, whether a turn is known of it or not",
        (
            ATTEMPT,
            id_("process", "who told of it"),
            ns("start_ns", "when it was given to the engine"),
            ns("end_ns", "its end"),
            tokens("prompt_tokens", "of its prompt"),
            tokens("response_tokens", "that it generated"),
            tokens("cached_tokens", "of its prompt, found in the engine's cache"),
            *_ENGINE,
        ),
    ),
    Table(
        "engine_call",
        "one call of an engine that is no row of `turn`: its trajectories are told in one sum, or"
        " are not known",
        (
            ATTEMPT,
            id_("process", "who called"),
            ns("start_ns", "its start"),
            ns("end_ns", "its end"),
            number("samples", "trajectories in it"),
            tokens("response_tokens", "generated in it"),
        ),
    ),
    Table(
        "tool_call",
        "one call of a tool by a trajectory",
        (
            TRAJECTORY,
            number("turn", "the turn that asked for it"),
            text("tool", "name of the tool; NULL where there is none of that name"),
            text("status", "`ok`, `error`, `not_found`, `bad_call` or `cancelled`"),
            text("error", "type of the exception if it raised"),
            ns("start_ns", "its start"),
            ns("end_ns", "its end"),
            TOOK,
            tokens("added_tokens", "that it added to the context, where a workload says"),
            number("queries", "questions that it asked at once, where a workload says"),
        ),
    ),
    Table(
        "verification",
        "one verification of one trajectory on its own, queueing included",
        (
            TRAJECTORY,
            id_("process", "who waited for it"),
            FUNCTION,
            ns("start_ns", "its start"),
            ns("end_ns", "its end"),
            number("attempts", "requests that it took, where a service is asked"),
            number("timeouts", "of those, that nobody answered in time"),
        ),
    ),
    Table(
        "reward_call",
        "one call of a reward function over the part of a batch that one process has",
        (
            BATCH,
            PROCESS,
            FUNCTION,
            ns("start_ns", "its start"),
            ns("end_ns", "its end"),
            TOOK,
            number("samples", "trajectories in it"),
        ),
    ),
    Table(
        "reward_work",
        "calls of a reward function by a process that verifies for others, all together",
        (
            PROCESS,
            FUNCTION,
            number("calls", "how many"),
            ns("mean_start_ns", "mean of the moments when they began"),
            seconds("took_s", "sum of their durations"),
            number("errors", "how many an exception ended"),
        ),
    ),
    Table(
        "reward",
        "what one reward function gave one trajectory",
        (
            TRAJECTORY,
            FUNCTION,
            number("fn", "position of the function in the trainer's list"),
            Column(
                "value",
                REAL,
                "the reward; NULL where the function gave none, NaN where no finite number",
                "1",
            ),
            seconds(
                "verify_s",
                "time of this one verification; NULL where it is of a whole batch, or of another"
                " trajectory, whose value this one was given",
            ),
        ),
    ),
    Table(
        "trained",
        "one group that a step is known to have trained on",
        (id_("step_id", "the first step that did"), BATCH, GROUP),
    ),
)
