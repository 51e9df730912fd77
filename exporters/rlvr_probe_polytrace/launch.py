"""How PolyTrace is told to replay the workload: suite config, environment block, formal log."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlvr_probe.model.workload import Iteration, Workload
from rlvr_probe_polytrace.layout import FORMAL_LOG, REWARDS
from rlvr_probe_polytrace.plan import Plan

__all__ = ["Launch", "env_text", "formal_lines", "make_launch", "suite_text"]

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


_STEP_GROUPS_B = 100_000
"""Longest ``step_groups``, bytes. Linux takes 128 KiB for one environment variable."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of PolyTrace: benchmark groups of one shape.

    Attributes:
        name: Of the suite config and its reports.
        flavor: Which of PolyTrace's frameworks replays it: ``rllm`` sleeps for the recorded reward
            time and takes one batch per group, ``verl`` takes several and has no reward time.
        iterations: One benchmark group each, in order.
        not_replayed: Positions in the plan's iterations that do not fit into this launch.
        prompts: Prompts per batch: any other number makes PolyTrace draw prompts at random.
        timed: Whether every group has a stage time, so that a formal log can be paired.
        overrides: Hydra overrides for the replaying trainer.
        notes: For the manifest.
    """

    name: str
    flavor: str
    iterations: tuple[Iteration, ...]
    not_replayed: tuple[int, ...]
    prompts: int
    timed: bool
    overrides: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def step_groups(self) -> str:
        """Groups separated by ``;``, the steps of a group by ``,``."""
        return ";".join(",".join(map(str, iteration.batches)) for iteration in self.iterations)


def make_launch(workload: Workload, plan: Plan) -> Launch | None:
    """The launch that replays as many iterations as one launch can; None if it can replay none.

    All groups of a launch share one batch size, so the most common shape is taken; the files of
    the others are written all the same.
    """
    prompts = [batch.batch.total // workload.group_size for batch in plan.batches]
    shapes = [tuple(prompts[index] for index in iteration.batches) for iteration in plan.iterations]
    replayable = Counter(shape for shape in shapes if len(set(shape)) == 1)
    if not replayable:
        return None
    shape = replayable.most_common(1)[0][0]
    chosen = tuple(
        iteration for iteration, its in zip(plan.iterations, shapes, strict=True) if its == shape
    )
    skipped = [position for position, its in enumerate(shapes) if its != shape]
    notes: list[str] = []
    if skipped:
        notes.append(
            f"{len(skipped)} of {len(shapes)} iterations are not in the suite config: their batch "
            f"sizes differ from {list(shape)} prompts, and PolyTrace has one batch size per launch"
        )
    fit = _fitting(chosen)
    if fit < len(chosen):
        notes.append(
            f"only the first {fit} of {len(chosen)} groups are in the suite config: no more fit "
            "into an environment variable"
        )
        replayed = [position for position, its in enumerate(shapes) if its == shape]
        skipped = sorted(skipped + replayed[fit:])
        chosen = chosen[:fit]
    # rllm's workers count their own calls and sleep for that step, whatever step is replayed: only
    # the groups 0, 1, 2, ... sleep for their own.
    dense = [iteration.batches for iteration in chosen] == [(n,) for n in range(len(chosen))]
    flavor = "rllm" if plan.rewards and dense else "verl"
    if plan.rewards and not dense:
        notes.append(
            "replayed as verl, without reward time: rllm takes one batch per group, in groups "
            "counted from 0"
        )
    return Launch(
        name=_name(workload),
        flavor=flavor,
        iterations=chosen,
        not_replayed=tuple(skipped),
        prompts=shape[0],
        timed=all(_timings(iteration) for iteration in chosen),
        overrides=_overrides(workload, plan, chosen, shape, flavor),
        notes=tuple(notes),
    )


def _fitting(iterations: Sequence[Iteration]) -> int:
    """How many groups the text of ``step_groups`` can name."""
    size = 0
    for count, iteration in enumerate(iterations):
        size += sum(len(str(index)) + 1 for index in iteration.batches)
        if size > _STEP_GROUPS_B:
            return count
    return len(iterations)


def _name(workload: Workload) -> str:
    parts = [workload.framework, workload.algorithm, "workload"]
    return "_".join(re.sub(r"[^A-Za-z0-9.-]", "-", part) for part in parts if part)


def _overrides(
    workload: Workload,
    plan: Plan,
    chosen: Sequence[Iteration],
    shape: Sequence[int],
    flavor: str,
) -> tuple[str, ...]:
    """Hydra overrides without which PolyTrace would cut, repeat or reshuffle the lengths."""
    prompt_cap = max(plan.max_prompt_tokens, workload.max_prompt_tokens or 0)
    found = [f"data.train_batch_size={sum(shape)}"]
    if flavor == "verl":
        found.append(f"data.gen_batch_size={shape[0]}")
    found += [
        f"data.max_prompt_length={prompt_cap}",
        f"data.max_response_length={plan.response_cap or plan.max_response_tokens}",
        f"actor_rollout_ref.rollout.n={workload.group_size}",
        f"actor_rollout_ref.rollout.tensor_model_parallel_size={workload.rollout_tp}",
    ]
    epochs = workload.iterations_per_batch
    steps = {len(iteration.steps) for iteration in chosen}
    if epochs is not None and epochs > 0 and len(steps) == 1:
        updates, rest = divmod(steps.pop(), epochs)
        if not rest and updates and not sum(shape) % updates:
            found += [
                f"actor_rollout_ref.actor.ppo_epochs={epochs}",
                f"actor_rollout_ref.actor.ppo_mini_batch_size={sum(shape) // updates}",
            ]
    return tuple(found)


def _environment(launch: Launch) -> dict[str, str]:
    """Variables of the replay. The live tool is on by default and would call the real one."""
    found = {
        "WORKLOAD_BENCHMARK": "1",
        "WORKLOAD_BENCHMARK_LIVE_TOOL": "0",
        "WORKLOAD_COLLECT_FILTER_INDICES": "0",
        "WORKLOAD_COLLECT_LENGTHS": "0",
        "WORKLOAD_COLLECT_REWARD_TIMINGS": "0",
        "WORKLOAD_COLLECT_VALIDATE_LENGTHS": "0",
        # One request per sample with its exact length; the other policies estimate per prompt.
        "WORKLOAD_MAX_TOKEN_POLICY": "separate",
        "REPLAY_OVERRIDES": " ".join(launch.overrides),
    }
    if launch.flavor == "rllm":
        found["WORKLOAD_BENCHMARK_SKIP_REWARD"] = "1"
        found["WORKLOAD_BENCHMARK_SLEEP_REWARD"] = "1"
    return dict(sorted(found.items()))


def suite_text(launch: Launch, *, reward_files: bool) -> str:
    """The suite config: JSON, which is YAML too. ``$WORKLOAD_PATH`` is where the workload lies."""
    repo = f"${{POLYTRACE_WORKSPACE}}/{launch.flavor}"
    workload: dict[str, object] = {
        "type": "packed_lengths",
        "expected_records_per_step": launch.prompts,
    }
    if reward_files:
        workload["reward_timing_glob"] = f"{REWARDS}_step_*.jsonl"
    config: dict[str, object] = {
        "name": launch.name,
        "repo": launch.flavor,
        "repo_path": repo,
        "benchmark_script": "$BENCHMARK_SCRIPT",
        "workload_path": "$WORKLOAD_PATH",
        "benchmark_log_path": f"{repo}/logs/benchmark_{launch.name}.log",
        "step_groups": launch.step_groups,
        "repeat": 1,
        "env": _environment(launch),
        "workload": workload,
    }
    if launch.timed:
        config["formal_log_path"] = f"$WORKLOAD_PATH/{FORMAL_LOG}"
    return json.dumps(config, indent=2, allow_nan=False) + "\n"


def env_text(launch: Launch) -> str:
    """Shell text to source before the suite or the replaying trainer; it finds its own folder."""
    lines = [
        "# Source this: . path/to/benchmark.env",
        'export WORKLOAD_PATH="$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE:-$0}")" && pwd)"',
        f"export WORKLOAD_STEP_GROUPS='{launch.step_groups}'",
    ]
    lines += [f"export {key}='{value}'" for key, value in _environment(launch).items()]
    return "\n".join(lines) + "\n"


def formal_lines(launch: Launch, plan: Plan) -> Iterator[str]:
    """The real stage times as verl prints them: one line per benchmark group, in order.

    Plain decimals: PolyTrace pairs lines by position, so a line that fails to parse shifts all
    later ones.
    """
    tokens = [
        sum(int(sum(shard.prompt_tokens)) + int(sum(shard.response_tokens)) for shard in shards)
        for shards in (batch.batch.shards for batch in plan.batches)
    ]
    for iteration in launch.iterations:
        timings = _timings(iteration)
        # Where the time of the step is unknown PolyTrace would take ``step`` for it.
        key = "step" if "step" in timings else "training/global_step"
        parts = [f"{key}:{iteration.steps[-1] if iteration.steps else 0}"]
        parts += [f"timing_s/{timer}:{value:.9f}" for timer, value in timings.items()]
        parts.append(f"perf/total_num_tokens:{sum(tokens[index] for index in iteration.batches)}")
        yield " - ".join(parts)


def _timings(iteration: Iteration) -> dict[str, float]:
    """Seconds by PolyTrace's timer; what is unknown, not finite or too short to say is absent."""
    found: dict[str, float] = {}
    for stage, timer in _STAGES:
        value = iteration.stage_s.get(stage)
        if value is not None and math.isfinite(value) and value >= 5e-10:
            found[timer] = value
    return found
