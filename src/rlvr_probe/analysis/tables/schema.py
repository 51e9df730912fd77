"""Every table that the analysis asks its questions of, each column with a sentence and a unit.

Times are ns on the clock of the run: 0 is the start of its first process. Unknown is NULL, never 0.
Steps that were thrown away are in the tables; the views of :data:`VIEWS` leave them out.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.tables.columns import Column, Table

__all__ = ["BY_NAME", "TABLES", "VIEWS"]

_ID: Final = "INTEGER"
_NUMBER: Final = "BIGINT"
_TEXT: Final = "VARCHAR"
_YES: Final = "BOOLEAN"
_REAL: Final = "DOUBLE"


def _id(name: str, meaning: str) -> Column:
    return Column(name, _ID, meaning)


def _number(name: str, meaning: str) -> Column:
    return Column(name, _NUMBER, meaning)


def _tokens(name: str, meaning: str) -> Column:
    return Column(name, _NUMBER, meaning, "tokens")


def _text(name: str, meaning: str) -> Column:
    return Column(name, _TEXT, meaning)


def _yes(name: str, meaning: str) -> Column:
    return Column(name, _YES, meaning)


def _ns(name: str, meaning: str) -> Column:
    return Column(name, _NUMBER, meaning, "ns")


def _s(name: str, meaning: str) -> Column:
    return Column(name, _REAL, meaning, "s")


_STEP = _id("step_id", "its step in `step`; NULL if it belongs to none")
_BATCH = _id("batch_id", "its batch in `batch`")
_TRAJECTORY = _id("trajectory_id", "its trajectory in `trajectory`")
_PROCESS = _id("process", "its process in `process`")
_ATTEMPT = _id("attempt", "launch of the job, from 0")
_TURN = _number("turn", "turns that the trajectory had before it")
_FUNCTION = _text("function", "name of the reward function")
_DEVICE = _id("device", "its device in `device`")
_GROUP = _number("grp", "position of its prompt in the batch, from 0")

_ENGINE = (
    _s("queue_s", "from when the engine had it until it was first scheduled"),
    _s("prefill_s", "from then to its first token"),
    _s("decode_s", "from its first token to its end"),
    _number("preemptions", "how often it lost its place in the engine's cache"),
    _text("finish", "why it ended: `stop`, `length`, `abort`"),
)

TABLES: Final[tuple[Table, ...]] = (
    Table(
        "run",
        "the run; one row, with the facts of its last training",
        (
            _text("run", "run id; the name of the directory of a workload"),
            Column("epoch_ns", _NUMBER, "wall clock at time 0, since 1970", "ns"),
            _text("kind", "`recording` or `workload`"),
            _text("framework", "name of the framework"),
            _text("framework_version", "its version"),
            _text("algorithm", "`grpo`, `rloo`, ..."),
            _text("engine", "kind of rollout engine"),
            _number("rollout_tp", "tensor-parallel size of the rollout engine"),
            _number("accelerators", "ranks that have a model"),
            _number("group_size", "trajectories per prompt"),
            _tokens("max_prompt_tokens", "cap on a prompt"),
            _tokens("max_response_tokens", "cap on a response"),
            _yes("asynchronous", "whether trajectories were generated for a queue"),
        ),
    ),
    Table(
        "session",
        "one training as one process saw it begin",
        (
            _ATTEMPT,
            _number("session", "trainings that the process began from step 0 before"),
            _PROCESS,
            Column("facts", "JSON", "everything that it told of the training"),
        ),
    ),
    Table(
        "process",
        "one process start that recorded something",
        (
            _id("process", "its number, from 0 in the order of start"),
            _text("key", "16 hex digits, as in its file names"),
            _ATTEMPT,
            _text("host", "host name"),
            _text("boot", "boot id of its machine: processes with the same one share a clock"),
            _number("pid", "process id"),
            _number("rank", "global rank in the training"),
            _number("world_size", "ranks of the training"),
            _text("role", "what it is to its job, for example the class of its actor"),
            _text("state", "`running`, `exited`, `ended_with_training`, `died` or `unknown`"),
            _text("level", "what was recorded last: `full`, `stages`, `spans` or `off`"),
            _ns("start_ns", "its start"),
            _ns("last_seen_ns", "when it was last seen alive"),
            _s("own_s", "time that its threads spent in the probe, and CPU time of the probe's"),
            _number("lost", "rows known to be missing"),
            _number("faults", "errors inside the probe"),
        ),
    ),
    Table(
        "process_lost",
        "rows of one process known to be missing for one reason",
        (
            _PROCESS,
            _text("reason", "`queue_full`, `torn_rows`, `damaged_rows`, ..."),
            _number("rows", "how many"),
        ),
    ),
    Table(
        "process_fault",
        "errors inside the probe at one place of one process",
        (_PROCESS, _text("place", "where, and the type"), _number("times", "how often")),
    ),
    Table(
        "lost",
        "rows known to be missing in the whole run for one reason",
        (_text("reason", "`queue_full`, `torn_rows`, ..."), _number("rows", "how many")),
    ),
    Table(
        "step",
        "one trainer step of one attempt, over all ranks",
        (
            _id("step_id", "its number, from 0 in the order of start"),
            _ATTEMPT,
            _number("session", "trainings that its processes began from step 0 before"),
            _number("life", "how often its processes had begun this session before"),
            _number("number", "as the trainer logs it, from 1; 0 is what came before the first"),
            _id("superseded_by", "attempt whose resuming threw it away; NULL if it stands"),
            _yes("done", "whether every rank finished it"),
            _yes("complete", "whether it is done and every batch of it is there and whole"),
            _yes("is_open", "whether some rank was inside it when last seen"),
            _number("ranks", "ranks that should have done it"),
            _number("ranks_done", "ranks whose `step` span ended without an error"),
            _ns("start_ns", "first start of any span of it, fetching of its data included"),
            _ns("end_ns", "last end of any span of it, evaluation and checkpoint included"),
            _ns("step_start_ns", "first start of its `step` spans"),
            _ns("step_end_ns", "last end of its `step` spans"),
            _number("lost_batches", "batches that were generated and whose lengths are missing"),
        ),
    ),
    Table(
        "span",
        "one finished coarse span of one process; `process` and `id` name it",
        (
            _STEP,
            _ATTEMPT,
            _PROCESS,
            _number("id", "its number in the process, from 1"),
            _number("parent", "the span around it in the same process, 0 for none"),
            _text("name", "`step`, a stage, `experience`, `rpc`, `reward_fn`, ..."),
            _ns("start_ns", "its start"),
            _ns("end_ns", "its end"),
            _text("error", "type of the exception that ended it"),
            _text("mode", "`train` or `eval`"),
            _FUNCTION,
            _text("method", "of an `rpc`: name of the method"),
            _text("worker_group", "of an `rpc`: name of the group of processes"),
            _text("side", "of an `rpc`: `caller` or `worker`"),
            _number("call", "of an `rpc` that was joined: calls of the method before it"),
            _number("rank", "of an `rpc` of a worker: its rank in the group"),
            _number("ranks", "of an `rpc`: processes of the group"),
            _yes("waits", "of an `rpc` of a caller: whether it lasts until the result is there"),
            _number("samples", "trajectories in it"),
            _number("batch", "`id` of the span that its batch is named by"),
            _number("policy_version", "optimizer steps that the sampling policy had seen"),
            _number("weight_version", "how often weights had been moved to the rollout engine"),
            _text("wait_on", "of a `wait`: what for"),
            _text("label", "of a `user` span: the name given"),
        ),
    ),
    Table(
        "rpc",
        "one call of a method of a group of processes, joined on both sides",
        (
            _id("rpc_id", "its number, from 0"),
            _STEP,
            _ATTEMPT,
            _text("worker_group", "name of the group"),
            _text("method", "name of the method"),
            _number("call", "calls of this method of this group before it"),
            _id("process", "who called"),
            _number("id", "`id` of its span"),
            _ns("start_ns", "dispatch"),
            _ns("end_ns", "result, or end of the dispatch where `waits` of its span is false"),
        ),
    ),
    Table(
        "rpc_rank",
        "what one rank did for one call",
        (
            _id("rpc_id", "its call in `rpc`"),
            _number("rank", "rank in the group"),
            _PROCESS,
            _number("id", "`id` of its span"),
            _ns("start_ns", "its start"),
            _ns("end_ns", "its end"),
        ),
    ),
    Table(
        "batch",
        "one generation batch over all ranks",
        (
            _id("batch_id", "its number, from 0"),
            _id("step_id", "the step it was generated in; of a queued one, that first trained on"),
            _text("mode", "`train` or `eval`"),
            _number("ordinal", "batches of this step and mode before it; a number of the queue"),
            _number("policy_version", "optimizer steps that the sampling policy had seen"),
            _number("group_size", "trajectories per prompt that were asked for"),
            _number("total", "trajectories that it should hold"),
            _number("rows", "trajectories that were recorded"),
            _yes("queued", "whether it was generated beside the training for a queue"),
            _yes("ragged", "whether its groups may differ in size"),
            _yes("whole", "whether every trajectory of every prompt was recorded"),
        ),
    ),
    Table(
        "prompt_group",
        "the trajectories of one prompt",
        (
            _BATCH,
            _GROUP,
            _number("size", "trajectories that it should hold"),
            _number("rows", "trajectories that were recorded"),
            _yes("kept", "whether it passed the trainer's filter; NULL where nothing tells"),
            _yes("used", "whether it was trained on; NULL where nothing tells"),
        ),
    ),
    Table(
        "trajectory",
        "one sampled completion of one prompt",
        (
            _id("trajectory_id", "its number, from 0, in the order of batches and rows"),
            _BATCH,
            _id("step_id", "the step of its batch"),
            _text("mode", "`train` or `eval`"),
            _id("process", "who told of its lengths"),
            _number("row", "row in the batch over all ranks"),
            _GROUP,
            _number("sample", "position in its group, from 0"),
            _tokens("prompt_tokens", "of its first prompt"),
            _tokens("response_tokens", "of its whole response, results of tools included"),
            _tokens("loss_tokens", "response tokens in the loss; NULL where no mask is known"),
            _yes("truncated", "whether it was stopped by the cap"),
            _number("engine", "rollout engine that served it, from 0; NULL: rank of its process"),
            _number("policy_version", "optimizer steps that the sampling policy had seen"),
            _number("policy_version_min", "trainer steps that the oldest weights it saw had done"),
            _number("policy_version_max", "trainer steps that the newest weights it saw had done"),
            _ns("start_ns", "its start, or that of the rollout it is a part of"),
            _ns("end_ns", "its end, or that of the rollout it is a part of"),
            _yes("own_times", "whether these times are its own and not the rollout's"),
        ),
    ),
    Table(
        "turn",
        "one engine call of one trajectory",
        (
            _TRAJECTORY,
            _TURN,
            _tokens("prompt_tokens", "sent to the engine: everything so far"),
            _tokens("response_tokens", "generated"),
            _tokens("cached_tokens", "of those sent, found in the engine's prefix cache"),
            _ns("start_ns", "when the engine was asked"),
            _ns("end_ns", "when it had answered"),
            *_ENGINE,
        ),
    ),
    Table(
        "request",
        "one sequence as an inference engine served it, whether a turn is known of it or not",
        (
            _ATTEMPT,
            _id("process", "who told of it"),
            _ns("start_ns", "when it was given to the engine"),
            _ns("end_ns", "its end"),
            _tokens("prompt_tokens", "of its prompt"),
            _tokens("response_tokens", "that it generated"),
            _tokens("cached_tokens", "of its prompt, found in the engine's cache"),
            *_ENGINE,
        ),
    ),
    Table(
        "tool_call",
        "one call of a tool by a trajectory",
        (
            _TRAJECTORY,
            _number("turn", "the turn that asked for it"),
            _text("tool", "name of the tool; NULL where there is none of that name"),
            _text("status", "`ok`, `error`, `not_found`, `bad_call` or `cancelled`"),
            _text("error", "type of the exception if it raised"),
            _ns("start_ns", "its start"),
            _ns("end_ns", "its end"),
        ),
    ),
    Table(
        "verification",
        "one verification of one trajectory on its own, queueing included",
        (
            _TRAJECTORY,
            _id("process", "who waited for it"),
            _FUNCTION,
            _ns("start_ns", "its start"),
            _ns("end_ns", "its end"),
            _number("attempts", "requests that it took, where a service is asked"),
            _number("timeouts", "of those, that nobody answered in time"),
        ),
    ),
    Table(
        "reward_call",
        "one call of a reward function over the part of a batch that one process has",
        (
            _BATCH,
            _PROCESS,
            _FUNCTION,
            _ns("start_ns", "its start"),
            _ns("end_ns", "its end"),
            _number("samples", "trajectories in it"),
        ),
    ),
    Table(
        "reward",
        "what one reward function gave one trajectory",
        (
            _TRAJECTORY,
            _FUNCTION,
            _number("fn", "position of the function in the trainer's list"),
            Column("value", _REAL, "the reward; NULL where the function gave none", "1"),
            _s("verify_s", "time of this one verification; NULL where it is of a whole batch"),
        ),
    ),
    Table(
        "trained",
        "one group that a step is known to have trained on",
        (_id("step_id", "the first step that did"), _BATCH, _GROUP),
    ),
    Table(
        "device",
        "one device of a node: a GPU, a part of one, or the host",
        (
            _id("device", "its number, from 0"),
            _text("uuid", "its own name"),
            _text("host", "host name"),
            _text("boot", "boot id of its machine"),
            _text("kind", "`gpu` or `host`; empty if it was not told"),
            _text("vendor", "who made it"),
            _text("model", "its model"),
            _text("parent", "`uuid` of the GPU that it is a part of"),
            Column("memory_limit_b", _NUMBER, "memory that it has", "B"),
        ),
    ),
    Table(
        "device_process",
        "one device that one process works on, or may",
        (
            _DEVICE,
            _PROCESS,
            _text("how", "`torch`: it said so; `visible`: one of those that it may use"),
        ),
    ),
    Table(
        "reading",
        "one value of one counter of one device; what was not read has no row",
        (
            _DEVICE,
            _text("counter", "its name"),
            _ns("start_ns", "begin of the time that a share is the mean of; else `end_ns`"),
            _ns("end_ns", "when it was read"),
            Column("value", _REAL, "in the unit of the counter", "of the counter"),
        ),
    ),
    Table(
        "device_fault",
        "one error that a driver reported",
        (
            _DEVICE,
            _ns("time_ns", "when"),
            _text("what", "`xid`, `lost` or `reset_required`"),
            _number("code", "of an `xid`"),
        ),
    ),
    Table(
        "open_span",
        "one span that had not ended when its process was last seen",
        (
            _PROCESS,
            _number("id", "its number in the process"),
            _text("name", "of the span"),
            _text("detail", "what its hook said of it, for example a reward function"),
            _number("step", "`number` of the trainer step"),
            _ns("start_ns", "its start"),
            _s("age_s", "from then until now, or until the process was last seen"),
            _number("thread", "native thread id"),
        ),
    ),
)
"""In the order of the documentation."""

BY_NAME: Final = {table.name: table for table in TABLES}

_GONE = "SELECT step_id FROM step WHERE superseded_by IS NOT NULL"

VIEWS: Final = {
    "kept_step": "SELECT * FROM step WHERE superseded_by IS NULL",
    **{
        f"kept_{table}": f"SELECT * FROM {table} WHERE step_id IS NULL OR step_id NOT IN ({_GONE})"
        for table in ("span", "rpc", "batch", "trajectory")
    },
}
"""By name: the rows of a table that belong to no step that was thrown away."""
