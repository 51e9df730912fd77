-- Every table that the analysis asks its questions of: a sentence for each, and for each column, with its
-- unit in brackets. Times are ns on the clock of the run: 0 is the start of its first process. Unknown is
-- NULL, never 0. Steps that were thrown away are in the tables; the views kept_... omit them.

-- the run; one row, with the facts of its last training run
CREATE TABLE run (
    run VARCHAR, -- run id; the name of the directory of a workload
    epoch_ns BIGINT, -- [ns] wall clock at time 0, since 1970
    kind VARCHAR, -- `recording` or `workload`
    framework VARCHAR, -- name of the framework
    framework_version VARCHAR, -- its version
    algorithm VARCHAR, -- `grpo`, `rloo`, ...
    engine VARCHAR, -- kind of rollout engine
    rollout_tp BIGINT, -- tensor-parallel size of the rollout engine
    accelerators BIGINT, -- ranks that have a model
    group_size BIGINT, -- trajectories per prompt
    max_prompt_tokens BIGINT, -- [tokens] cap on a prompt
    max_response_tokens BIGINT, -- [tokens] cap on a response
    asynchronous BOOLEAN -- whether trajectories were generated for a queue
);

-- one training run as one process saw it start
CREATE TABLE session (
    attempt INTEGER, -- launch of the job, from 0
    session BIGINT, -- training runs that the process started from step 0 before it
    process INTEGER, -- its process in `process`
    facts JSON -- everything that it recorded of the training run
);

-- one process start that recorded something
CREATE TABLE process (
    process INTEGER, -- its number, from 0 in the order of start
    key VARCHAR, -- 16 hex digits, as in its file names
    attempt INTEGER, -- launch of the job, from 0
    host VARCHAR, -- host name
    boot VARCHAR, -- boot id of its machine: processes with the same one share a clock
    pid BIGINT, -- process id
    rank BIGINT, -- global rank in the training
    world_size BIGINT, -- ranks of the training
    role VARCHAR, -- what it is to its job, for example the class of its actor
    state VARCHAR, -- `running`, `exited`, `ended_with_training`, `died` or `unknown`
    level VARCHAR, -- what was recorded last: `full`, `stages`, `spans` or `off`
    start_ns BIGINT, -- [ns] its start
    last_seen_ns BIGINT, -- [ns] when it was last seen alive
    own_s DOUBLE, -- [s] time of its threads in the probe, and CPU time of the probe's own
    lost BIGINT, -- rows known to be missing
    faults BIGINT, -- errors inside the probe
    corrected_s DOUBLE -- [s] how much later its times were put than its wall clock says, by what its machine did together with others
);

-- rows of one process known to be missing for one reason
CREATE TABLE process_lost (
    process INTEGER, -- its process in `process`
    reason VARCHAR, -- `queue_full`, `torn_rows`, `damaged_rows`, ...
    rows BIGINT -- how many
);

-- errors inside the probe at one place of one process
CREATE TABLE process_fault (
    process INTEGER, -- its process in `process`
    place VARCHAR, -- where, and the type
    times BIGINT -- how often
);

-- one accelerator, or a part of it, that a cluster gave a process
CREATE TABLE process_accelerator (
    process INTEGER, -- its process in `process`
    accelerator VARCHAR -- its kind and number on the machine: `GPU 0`
);

-- rows known to be missing in the whole run for one reason
CREATE TABLE lost (
    reason VARCHAR, -- `queue_full`, `torn_rows`, ...
    rows BIGINT -- how many
);

-- one trainer step of one attempt, over all ranks
CREATE TABLE step (
    step_id INTEGER, -- its number, from 0 in the order of start
    attempt INTEGER, -- launch of the job, from 0
    session BIGINT, -- training runs that its processes started from step 0 before it
    life BIGINT, -- how often its processes had started this session before
    number BIGINT, -- as the trainer logs it, from 1; 0 is what came before the first
    superseded_by INTEGER, -- attempt whose resuming threw it away; NULL if it stands
    done BOOLEAN, -- whether every rank finished it
    complete BOOLEAN, -- whether it is done and every batch of it is there and whole
    is_open BOOLEAN, -- whether some rank was inside it when last seen
    ranks BIGINT, -- ranks that should have done it
    ranks_done BIGINT, -- ranks whose `step` span ended without an error
    start_ns BIGINT, -- [ns] first start of any span of it, fetching of its data included
    end_ns BIGINT, -- [ns] last end of any span of it, evaluation and checkpoint included
    step_start_ns BIGINT, -- [ns] first start of its `step` spans
    step_end_ns BIGINT, -- [ns] last end of its `step` spans
    lost_batches BIGINT -- batches that were generated and whose lengths are missing
);

-- one finished coarse span of one process; `process` and `id` name it
CREATE TABLE span (
    step_id INTEGER, -- its step in `step`; NULL if it belongs to none
    attempt INTEGER, -- launch of the job, from 0
    process INTEGER, -- its process in `process`
    id BIGINT, -- its number in the process, from 1
    parent BIGINT, -- the span around it in the same process, 0 for none
    name VARCHAR, -- `step`, a stage, `experience`, `rpc`, `reward_fn`, ...
    start_ns BIGINT, -- [ns] its start
    end_ns BIGINT, -- [ns] its end
    error VARCHAR, -- type of the exception that ended it
    mode VARCHAR, -- `train` or `eval`
    function VARCHAR, -- name of the reward function
    method VARCHAR, -- of an `rpc`: name of the method
    worker_group VARCHAR, -- of an `rpc`: name of the group of processes
    side VARCHAR, -- of an `rpc`: `caller` or `worker`
    call BIGINT, -- of an `rpc` that was joined: calls of the method before it
    rank BIGINT, -- of an `rpc` of a worker: its rank in the group
    ranks BIGINT, -- of an `rpc`: processes of the group
    waits BOOLEAN, -- of an `rpc` of a caller: whether it lasts until the result is there
    samples BIGINT, -- trajectories in it
    batch BIGINT, -- `id` of the span that its batch is named by
    policy_version BIGINT, -- optimizer steps that the sampling policy had seen
    weight_version BIGINT, -- how often weights had been moved to the rollout engine
    wait_on VARCHAR, -- of a `wait`: what for
    label VARCHAR -- of a `user` span: the name given
);

-- one call of a method of a group of processes, joined on both sides
CREATE TABLE rpc (
    rpc_id INTEGER, -- its number, from 0
    step_id INTEGER, -- its step in `step`; NULL if it belongs to none
    attempt INTEGER, -- launch of the job, from 0
    worker_group VARCHAR, -- name of the group
    method VARCHAR, -- name of the method
    call BIGINT, -- calls of this method of this group before it
    process INTEGER, -- who called
    id BIGINT, -- `id` of its span
    start_ns BIGINT, -- [ns] dispatch
    end_ns BIGINT -- [ns] result, or end of the dispatch where `waits` of its span is false
);

-- what one rank did for one call
CREATE TABLE rpc_rank (
    rpc_id INTEGER, -- its call in `rpc`
    rank BIGINT, -- rank in the group
    process INTEGER, -- its process in `process`
    id BIGINT, -- `id` of its span
    start_ns BIGINT, -- [ns] its start
    end_ns BIGINT -- [ns] its end
);

-- one span that had not ended when its process was last seen, or a trainer that was between two of its steps then: the `id` of that is -1, and its name `between_steps`
CREATE TABLE open_span (
    process INTEGER, -- its process in `process`
    id BIGINT, -- its number in the process
    parent BIGINT, -- the span around it in the same process, 0 for none
    name VARCHAR, -- of the span
    detail VARCHAR, -- what its hook said of it, for example a reward function
    step BIGINT, -- `number` of the trainer step
    start_ns BIGINT, -- [ns] its start
    age_s DOUBLE, -- [s] from then until now, or until the process was last seen
    thread BIGINT -- native thread id
);

-- one generation batch over all ranks
CREATE TABLE batch (
    batch_id INTEGER, -- its number, from 0
    step_id INTEGER, -- the step it was generated in; of a queued one, that first trained on it, NULL if none did
    mode VARCHAR, -- `train` or `eval`
    ordinal BIGINT, -- batches of this step and mode before it; a number of the queue
    workload_step BIGINT, -- what the files of a workload call it; NULL for a recording
    policy_version BIGINT, -- optimizer steps that the sampling policy had seen
    group_size BIGINT, -- trajectories per prompt that were asked for
    total BIGINT, -- trajectories that it should hold
    rows BIGINT, -- trajectories that were recorded
    queued BOOLEAN, -- whether it was generated beside the training for a queue
    ragged BOOLEAN, -- whether its groups may differ in size
    whole BOOLEAN -- whether every trajectory of every prompt was recorded
);

-- the trajectories of one prompt
CREATE TABLE prompt_group (
    batch_id INTEGER, -- its batch in `batch`
    grp BIGINT, -- position of its prompt in the batch, from 0
    size BIGINT, -- trajectories that it should hold
    rows BIGINT, -- trajectories that were recorded
    kept BOOLEAN, -- whether it passed the trainer's filter; NULL where unknown
    used BOOLEAN -- whether it was trained on; NULL where unknown
);

-- one sampled completion of one prompt
CREATE TABLE trajectory (
    trajectory_id INTEGER, -- its number, from 0, in the order of batches and rows
    batch_id INTEGER, -- its batch in `batch`
    step_id INTEGER, -- the step of its batch
    mode VARCHAR, -- `train` or `eval`
    process INTEGER, -- which recorded its lengths
    "row" BIGINT, -- row in the batch over all ranks
    grp BIGINT, -- position of its prompt in the batch, from 0
    sample BIGINT, -- position in its group, from 0
    prompt_tokens BIGINT, -- [tokens] of its first prompt
    response_tokens BIGINT, -- [tokens] of its whole response, results of tools included
    loss_tokens BIGINT, -- [tokens] response tokens in the loss; NULL where no mask is known
    context_tokens BIGINT, -- [tokens] of prompt and response before a cut, where a workload says
    truncated BOOLEAN, -- whether it was stopped by the cap
    engine BIGINT, -- rollout engine that served it, from 0; NULL: rank of its process
    policy_version BIGINT, -- optimizer steps that the sampling policy had seen
    policy_version_min BIGINT, -- trainer steps that the oldest weights it saw had done
    policy_version_max BIGINT, -- trainer steps that the newest weights it saw had done
    start_ns BIGINT, -- [ns] its start, or that of the rollout it is a part of
    end_ns BIGINT, -- [ns] its end, or that of the rollout it is a part of
    own_times BOOLEAN, -- whether these times are its own and not the rollout's
    source VARCHAR -- where its prompt is from, in the column that the user named
);

-- one engine call of one trajectory
CREATE TABLE turn (
    trajectory_id INTEGER, -- its trajectory in `trajectory`
    batch_id INTEGER, -- the batch of that
    turn BIGINT, -- turns that the trajectory had before it
    prompt_tokens BIGINT, -- [tokens] sent to the engine: everything so far
    response_tokens BIGINT, -- [tokens] generated
    cached_tokens BIGINT, -- [tokens] of those sent, found in the engine's prefix cache
    start_ns BIGINT, -- [ns] when the engine was asked
    end_ns BIGINT, -- [ns] when it had answered
    took_s DOUBLE, -- [s] how long it took, also where a workload does not say when
    queue_s DOUBLE, -- [s] from when the engine had it until it was first scheduled
    prefill_s DOUBLE, -- [s] from then to its first token
    decode_s DOUBLE, -- [s] from its first token to its end
    preemptions BIGINT, -- how often it lost its place in the engine's cache
    finish VARCHAR -- why it ended: `stop`, `length`, `abort`
);

-- one sequence as an inference engine served it, whether a turn is known of it or not
CREATE TABLE request (
    attempt INTEGER, -- launch of the job, from 0
    process INTEGER, -- which recorded it
    start_ns BIGINT, -- [ns] when it was given to the engine
    end_ns BIGINT, -- [ns] its end
    prompt_tokens BIGINT, -- [tokens] of its prompt
    response_tokens BIGINT, -- [tokens] that it generated
    cached_tokens BIGINT, -- [tokens] of its prompt, found in the engine's cache
    queue_s DOUBLE, -- [s] from when the engine had it until it was first scheduled
    prefill_s DOUBLE, -- [s] from then to its first token
    decode_s DOUBLE, -- [s] from its first token to its end
    preemptions BIGINT, -- how often it lost its place in the engine's cache
    finish VARCHAR -- why it ended: `stop`, `length`, `abort`
);

-- one call of an engine that is not a row of `turn`: its trajectories are recorded as one sum, or unknown
CREATE TABLE engine_call (
    attempt INTEGER, -- launch of the job, from 0
    process INTEGER, -- who called
    start_ns BIGINT, -- [ns] its start
    end_ns BIGINT, -- [ns] its end
    samples BIGINT, -- trajectories in it
    response_tokens BIGINT -- [tokens] generated in it
);

-- one call of a tool by a trajectory
CREATE TABLE tool_call (
    trajectory_id INTEGER, -- its trajectory in `trajectory`
    batch_id INTEGER, -- the batch of that
    turn BIGINT, -- the turn that asked for it
    tool VARCHAR, -- name of the tool; NULL where there is none of that name
    status VARCHAR, -- `ok`, `error`, `not_found`, `bad_call` or `cancelled`
    error VARCHAR, -- type of the exception if it raised
    start_ns BIGINT, -- [ns] its start
    end_ns BIGINT, -- [ns] its end
    took_s DOUBLE, -- [s] how long it took, also where a workload does not say when
    added_tokens BIGINT, -- [tokens] that it added to the context, where a workload says
    queries BIGINT -- questions that it asked at once, where a workload says
);

-- one verification of one trajectory on its own, queueing included
CREATE TABLE verification (
    trajectory_id INTEGER, -- its trajectory in `trajectory`
    batch_id INTEGER, -- the batch of that
    process INTEGER, -- who waited for it
    function VARCHAR, -- name of the reward function
    start_ns BIGINT, -- [ns] its start
    end_ns BIGINT, -- [ns] its end
    attempts BIGINT, -- requests that it took, where a service is asked
    timeouts BIGINT -- of those, that got no answer in time
);

-- one call of a reward function over the part of a batch that one process has
CREATE TABLE reward_call (
    batch_id INTEGER, -- its batch in `batch`
    process INTEGER, -- its process in `process`
    function VARCHAR, -- name of the reward function
    start_ns BIGINT, -- [ns] its start
    end_ns BIGINT, -- [ns] its end
    took_s DOUBLE, -- [s] how long it took, also where a workload does not say when
    samples BIGINT -- trajectories in it
);

-- calls of a reward function by a process that verifies for others, all together
CREATE TABLE reward_work (
    process INTEGER, -- its process in `process`
    function VARCHAR, -- name of the reward function
    calls BIGINT, -- how many
    mean_start_ns BIGINT, -- [ns] mean of their starts
    took_s DOUBLE, -- [s] sum of their durations
    errors BIGINT -- how many an exception ended
);

-- what one reward function gave one trajectory
CREATE TABLE reward (
    trajectory_id INTEGER, -- its trajectory in `trajectory`
    batch_id INTEGER, -- the batch of that
    function VARCHAR, -- name of the reward function
    fn BIGINT, -- position of the function in the trainer's list
    value DOUBLE, -- [1] the reward; NULL where the function gave none, NaN where no finite number
    verify_s DOUBLE -- [s] time of this one verification; NULL where it is of a whole batch, or of another trajectory, whose value this one was given
);

-- one group that a step trained on
CREATE TABLE trained (
    step_id INTEGER, -- the first step that did
    batch_id INTEGER, -- its batch in `batch`
    grp BIGINT -- position of its prompt in the batch, from 0
);

-- one device of a node: a GPU, a part of one, or the host
CREATE TABLE device (
    device INTEGER, -- its number, from 0
    uuid VARCHAR, -- its own name
    host VARCHAR, -- host name
    boot VARCHAR, -- boot id of its machine
    kind VARCHAR, -- `gpu` or `host`; empty if unknown
    vendor VARCHAR, -- who made it
    model VARCHAR, -- its model
    parent VARCHAR, -- `uuid` of the GPU that it is a part of
    memory_limit_b BIGINT -- [B] memory that it has
);

-- one device that one process works on, or may
CREATE TABLE device_process (
    device INTEGER, -- its device in `device`
    process INTEGER, -- its process in `process`
    how VARCHAR -- `torch`: it said so; `visible`: one of those that it may use
);

-- one value of one counter of one device; what was not read has no row
CREATE TABLE reading (
    device INTEGER, -- its device in `device`
    counter VARCHAR, -- its name
    start_ns BIGINT, -- [ns] start of the time that a share is the mean of; else `end_ns`
    end_ns BIGINT, -- [ns] when it was read
    value DOUBLE -- [of the counter] in the unit of the counter
);

-- one error that a driver reported
CREATE TABLE device_fault (
    device INTEGER, -- its device in `device`
    time_ns BIGINT, -- [ns] when
    what VARCHAR, -- `xid`, `lost`, `reset_required` or `unresponsive`
    code BIGINT -- of an `xid`, or of the error
);
