"""How PolyTrace replays the workload: its launches, and the suite, environment and log of each.

``formal.log`` has the stage times to compare a replay with. Each of PolyTrace's frameworks has
timers of its own around what it replays: a log with other timers would show a difference where
there is none.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from msgspec import UNSET, to_builtins

from rlvr_probe.model.workload import Iteration
from rlvr_probe_polytrace.files import FILTER, FORMAL_LOG, REWARDS, of_group
from rlvr_probe_polytrace.filter_indices import trained_on
from rlvr_probe_polytrace.plan import Plan
from rlvr_probe_polytrace.records import SuiteConfig, SuiteWorkload

__all__ = ["Launch", "Launches", "env_text", "formal_lines", "make_launches", "suite_text"]

_STEP_GROUPS_B = 100_000
"""Longest ``step_groups``, bytes. Linux takes 128 KiB for one environment variable."""

_STAGES = (
    ("rollout", "gen"),
    ("reward", "reward"),
    ("old_logprob", "old_log_prob"),
    ("ref_logprob", "ref"),
    ("advantage", "adv"),
    ("update_actor", "update_actor"),
    ("step", "step"),
)
"""Our stages and the timers that PolyTrace compares."""
_BEFORE_FILTER = ("gen", "reward")
"""Timers of what is done with all that was generated."""
_INSIDE_ADV = ("old_logprob", "ref_logprob", "advantage")
"""Stages that rllm does inside its timer ``adv``."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of PolyTrace: benchmark groups of one shape.

    Attributes:
        name: Of the suite config and its reports.
        repo: Which of PolyTrace's frameworks replays it: ``rllm`` sleeps for the recorded reward
            time and takes one batch per group, ``verl`` takes several and has no reward time,
            ``search_r1`` replays turns and tool calls.
        group: Its number, where each group has a launch of its own; else None.
        iterations: One benchmark group each, in order.
        prompts: Prompts per batch: any other number makes PolyTrace draw prompts at random.
        records: Lines of each step file.
        timed: Whether every group has a stage time, so that a formal log can be paired.
        filtered: Whether prompts are dropped by ``dapo_filter_indices.jsonl``.
        overrides: Hydra overrides for the replaying trainer.
    """

    name: str
    repo: str
    group: int | None
    iterations: tuple[Iteration, ...]
    prompts: int
    records: int
    timed: bool
    filtered: bool
    overrides: tuple[str, ...]

    @property
    def step_groups(self) -> str:
        """Groups separated by ``;``, the steps of a group by ``,``."""
        return ";".join(",".join(map(str, iteration.batches)) for iteration in self.iterations)


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches that replay a workload.

    Attributes:
        launches: In order; one, or one per group.
        not_replayed: Positions in the plan's iterations that are in none of them.
        notes: For the manifest.
    """

    launches: tuple[Launch, ...]
    not_replayed: tuple[int, ...]
    notes: tuple[str, ...]


def make_launches(plan: Plan) -> Launches | None:
    """The launches that replay as many iterations as possible; None if none can be.

    A launch has one batch size. With a filter every group has a launch of its own: PolyTrace looks
    the filter up by ``WORKLOAD_STEPS``, which names one group.
    """
    whole = [plan.cut.isdisjoint(iteration.batches) for iteration in plan.iterations]
    shapes = [
        tuple(plan.batches[index].prompts for index in iteration.batches)
        if whole[position] or not any(whole)
        else ()
        for position, iteration in enumerate(plan.iterations)
    ]
    replayable = Counter(shape for shape in shapes if len(set(shape)) == 1)
    if not replayable:
        return None
    if plan.filter is not None:
        return _one_per_group(plan, shapes)
    shape = replayable.most_common(1)[0][0]
    replayed = [position for position, own in enumerate(shapes) if own == shape]
    notes: list[str] = []
    if len(replayed) < len(shapes):
        notes.append(
            f"{len(shapes) - len(replayed)} of {len(shapes)} iterations are not in the suite "
            f"config: their batch sizes differ from {list(shape)} prompts, and PolyTrace has one "
            "batch size per launch"
        )
    fit = _fitting([plan.iterations[position] for position in replayed])
    if fit < len(replayed):
        notes.append(
            f"only the first {fit} of {len(replayed)} groups are in the suite config: no more fit "
            "into an environment variable"
        )
        replayed = replayed[:fit]
    chosen = tuple(plan.iterations[position] for position in replayed)
    skipped = tuple(sorted(set(range(len(shapes))).difference(replayed)))
    repo = _repo(plan, chosen)
    if repo == "verl" and plan.reward_times is not None:
        notes.append(
            "replayed as verl, without reward time: rllm takes one batch per group, in groups "
            "counted from 0"
        )
    launch = _launch(plan, chosen, repo, None)
    return Launches((launch,), skipped, tuple(notes))


def _one_per_group(plan: Plan, shapes: Sequence[tuple[int, ...]]) -> Launches:
    launches, skipped = list[Launch](), list[int]()
    for position, (iteration, shape) in enumerate(zip(plan.iterations, shapes, strict=True)):
        if len(set(shape)) == 1:
            launches.append(_launch(plan, (iteration,), "verl", position))
        else:
            skipped.append(position)
    notes = [
        "one launch per group: PolyTrace looks the filter up by WORKLOAD_STEPS, which it does not "
        "set to the steps of a group"
    ]
    if skipped:
        notes.append(
            f"{len(skipped)} of {len(shapes)} iterations have no suite config: their batches "
            "differ in size, and PolyTrace has one batch size per launch"
        )
    if plan.reward_times is not None:
        notes.append("replayed as verl, without reward time: rllm has no filter")
    return Launches(tuple(launches), tuple(skipped), tuple(notes))


def _repo(plan: Plan, chosen: Sequence[Iteration]) -> str:
    """Which framework replays the groups.

    rllm's workers count their own calls and sleep for that step, whatever step is replayed: only
    the groups 0, 1, 2, ... sleep for their own.
    """
    if not plan.surveyed.packed:
        return "search_r1"
    dense = [iteration.batches for iteration in chosen] == [(n,) for n in range(len(chosen))]
    return "rllm" if plan.reward_times is not None and dense else "verl"


def _launch(plan: Plan, chosen: tuple[Iteration, ...], repo: str, group: int | None) -> Launch:
    workload, shape = plan.workload, [plan.batches[index].prompts for index in chosen[0].batches]
    parts = [workload.framework, workload.algorithm, "workload"]
    name = "_".join(re.sub(r"[^A-Za-z0-9.-]", "-", part) for part in parts if part)
    return Launch(
        name=name if group is None else f"{name}_group_{group}",
        repo=repo,
        group=group,
        iterations=chosen,
        prompts=shape[0],
        records=shape[0] * (workload.group_size if repo == "search_r1" else 1),
        timed=all(timings(plan, iteration, repo) for iteration in chosen),
        filtered=plan.filter is not None,
        overrides=tuple(_overrides(plan, chosen, repo, shape)),
    )


def _fitting(iterations: Sequence[Iteration]) -> int:
    """How many groups the text of ``step_groups`` can name."""
    sizes = (sum(len(str(index)) + 1 for index in each.batches) for each in iterations)
    return sum(size <= _STEP_GROUPS_B for size in accumulate(sizes))


def _overrides(
    plan: Plan, chosen: Sequence[Iteration], repo: str, shape: Sequence[int]
) -> Iterator[str]:
    """Hydra overrides without which PolyTrace would cut, repeat or reshuffle the lengths."""
    workload, actor = plan.workload, "actor_rollout_ref.actor"
    trained = sum(shape)
    if plan.filter is not None:
        trained = trained_on([plan.batches[index] for index in chosen[0].batches])
    yield f"data.train_batch_size={trained or sum(shape)}"
    if repo == "verl":
        yield f"data.gen_batch_size={shape[0]}"
    prompt_cap = max(plan.max_prompt_tokens, workload.max_prompt_tokens or 0)
    yield f"data.max_prompt_length={prompt_cap}"
    yield f"data.max_response_length={plan.response_cap or plan.surveyed.longest}"
    yield f"actor_rollout_ref.rollout.n={workload.group_size}"
    yield f"actor_rollout_ref.rollout.tensor_model_parallel_size={workload.rollout_tp}"
    if repo == "search_r1":
        yield f"actor_rollout_ref.rollout.max_model_len={plan.caps.context}"
    epochs, prompts = workload.iterations_per_batch, workload.prompts_per_update
    steps = {len(iteration.steps) for iteration in chosen}
    if epochs is not None and prompts is not None:
        yield f"{actor}.ppo_epochs={epochs}"
        yield f"{actor}.ppo_mini_batch_size={min(prompts, trained or sum(shape))}"
    elif epochs is not None and epochs > 0 and len(steps) == 1:
        updates, rest = divmod(steps.pop(), epochs)
        if not rest and updates and trained and not trained % updates:
            yield f"{actor}.ppo_epochs={epochs}"
            yield f"{actor}.ppo_mini_batch_size={trained // updates}"


def _environment(launch: Launch) -> dict[str, str]:
    """Variables of the replay. The live tool is on by default and would call the real one."""
    variables = {
        "WORKLOAD_BENCHMARK": "1",
        "WORKLOAD_BENCHMARK_LIVE_TOOL": "0",
        "WORKLOAD_COLLECT_FILTER_INDICES": "0",
        "WORKLOAD_COLLECT_LENGTHS": "0",
        "WORKLOAD_COLLECT_REWARD_TIMINGS": "0",
        "WORKLOAD_COLLECT_VALIDATE_LENGTHS": "0",
        "REPLAY_OVERRIDES": " ".join(launch.overrides),
    }
    if launch.repo == "search_r1":
        variables |= {
            "WORKLOAD_BENCHMARK_SLEEP_TOOL": "1",
            "WORKLOAD_COLLECT_MULTITURN": "0",
            "WORKLOAD_COLLECT_VALIDATE_MULTITURN": "0",
        }
    else:
        # One request per sample with its exact length; the other policies estimate per prompt.
        variables |= {"WORKLOAD_MAX_TOKEN_POLICY": "separate"}
    if launch.repo == "rllm":
        variables |= {"WORKLOAD_BENCHMARK_SKIP_REWARD": "1", "WORKLOAD_BENCHMARK_SLEEP_REWARD": "1"}
    if launch.filtered:
        # The filter is looked up by these, which nothing derives from the groups.
        variables["WORKLOAD_STEPS"] = launch.step_groups
    return dict(sorted(variables.items()))


def suite_text(launch: Launch, *, reward_files: bool) -> str:
    """The suite config: JSON, which is YAML too. ``$WORKLOAD_PATH`` is where the workload lies."""
    repo = f"${{POLYTRACE_WORKSPACE}}/{launch.repo}"
    config = SuiteConfig(
        name=launch.name,
        repo=launch.repo,
        repo_path=repo,
        benchmark_script="$BENCHMARK_SCRIPT",
        workload_path="$WORKLOAD_PATH",
        benchmark_log_path=f"{repo}/logs/benchmark_{launch.name}.log",
        step_groups=launch.step_groups,
        repeat=1,
        env=_environment(launch),
        workload=SuiteWorkload(
            type="multiturn" if launch.repo == "search_r1" else "packed_lengths",
            expected_records_per_step=launch.records,
            reward_timing_glob=f"{REWARDS}_step_*.jsonl" if reward_files else UNSET,
            filter_indices_file=FILTER if launch.filtered else UNSET,
        ),
        formal_log_path=f"$WORKLOAD_PATH/{of_group(FORMAL_LOG, launch.group)}"
        if launch.timed
        else UNSET,
    )
    return json.dumps(to_builtins(config), indent=2, allow_nan=False) + "\n"


def env_text(launch: Launch) -> str:
    """Shell text to source before the suite or the replaying trainer; it finds its own folder."""
    lines = ["# Source this: . path/to/the/file"]
    if launch.filtered:
        lines += [
            "# One launch per group: the filter of a batch is looked up by WORKLOAD_STEPS, so that",
            "# a launch of several groups would filter them all by the first one's.",
        ]
    lines += [
        'export WORKLOAD_PATH="$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE:-$0}")" && pwd)"',
        f"export WORKLOAD_STEP_GROUPS='{launch.step_groups}'",
    ]
    lines += [f"export {key}='{value}'" for key, value in _environment(launch).items()]
    return "\n".join(lines) + "\n"


def formal_lines(iterations: Iterable[Iteration], plan: Plan, repo: str) -> Iterator[str]:
    """The real stage times as verl prints them: one line per benchmark group, in order.

    Plain decimals: PolyTrace pairs lines by position, so a line that fails to parse shifts all
    later ones.
    """
    for iteration in iterations:
        seconds = timings(plan, iteration, repo)
        # Where the time of the step is unknown PolyTrace would take ``step`` for it.
        key = "step" if "step" in seconds else "training/global_step"
        parts = [f"{key}:{iteration.steps[-1] if iteration.steps else 0}"]
        parts += [f"timing_s/{timer}:{value:.9f}" for timer, value in seconds.items()]
        tokens = sum(
            int(sum(shard.prompt_tokens)) + int(sum(shard.response_tokens))
            for index in iteration.batches
            for shard in plan.batches[index].batch.batch.shards
        )
        parts.append(f"perf/total_num_tokens:{tokens}")
        yield " - ".join(parts)


def timings(plan: Plan, iteration: Iteration, repo: str) -> dict[str, float]:
    """Seconds by PolyTrace's timer; unknown, non-finite and too short ones are absent.

    So are stages whose replay differs: those behind a filter that it does not know, where it does
    more, and all of a batch that is not written whole, where it does less.
    """
    if not plan.cut.isdisjoint(iteration.batches):
        return {}
    seconds = {
        timer: value
        for stage, timer in _STAGES
        if (value := iteration.stage_s.get(stage)) is not None
    }
    if repo == "rllm":
        _as_rllm(seconds, plan, iteration)
    elif repo == "search_r1":
        seconds.pop("reward", None)  # its replay gives none
    if any(plan.batches[index].batch.batch.unselected for index in iteration.batches):
        seconds = {timer: seconds[timer] for timer in _BEFORE_FILTER if timer in seconds}
    return {
        timer: seconds[timer]
        for _, timer in _STAGES
        if timer in seconds and math.isfinite(seconds[timer]) and seconds[timer] >= 5e-10
    }


def _as_rllm(seconds: dict[str, float], plan: Plan, iteration: Iteration) -> None:
    """What rllm's timers would show: rewards inside ``gen``, log-probabilities inside ``adv``."""
    for timer in ("reward", "adv"):
        seconds.pop(timer, None)
    # NaN where one is unknown; what is not finite is not written.
    lags = [
        plan.reward_times[index].lag_s if plan.reward_times else None for index in iteration.batches
    ]
    if "gen" in seconds:
        seconds["gen"] += sum(math.nan if lag is None else lag for lag in lags)
    seen = {stage for other in plan.iterations for stage in other.stage_s}
    if "advantage" in seen:
        stages = [stage for stage in _INSIDE_ADV if stage in seen]
        seconds["adv"] = math.fsum(iteration.stage_s.get(stage, math.nan) for stage in stages)
