"""How long steps take, and which stage takes that time."""

from __future__ import annotations

from typing import Final

from rlvr_probe_otlp.views.queries import NOT_EVAL, grown, mean, rate, seconds_of_stages, taken
from rlvr_probe_otlp.views.table import OUTPUT, TOKENS, Board, Panel, each, number, spread

__all__ = ["STEPS"]

STEPS: Final = Board(
    "steps",
    "rlvr-probe: anatomy of a step",
    "How long steps take, and which stage takes that time.",
    (
        (
            "Steps",
            (
                number(
                    "Steps",
                    "Finished by every rank, within the window.",
                    "none",
                    grown("rl.train.steps"),
                    decimals=0,
                ),
                number(
                    "Step time, mean",
                    "From the first to the last rank.",
                    "s",
                    mean("rl.loop.duration"),
                ),
                number(
                    "Trajectories per second",
                    "Generated, evaluations left out.",
                    "none",
                    rate("rl.sample.samples", where=NOT_EVAL),
                ),
                number(
                    "Response tokens per second",
                    "Of all ranks, evaluations left out.",
                    "short",
                    taken(TOKENS, what="sum", where=OUTPUT),
                ),
                Panel(
                    "Step time",
                    "A step lasts from its first to its last rank.",
                    "s",
                    spread("rl.loop.duration"),
                ),
                Panel(
                    "Mean reward of a step",
                    "By reward function; evaluations are lines of their own.",
                    "none",
                    each(
                        "rl.environment.reward.mean",
                        "{{rlvr_reward_fn}} {{rlvr_mode}}",
                        "rlvr.reward.fn",
                        "rlvr.mode",
                    ),
                    signed=True,
                ),
            ),
        ),
        (
            "Stages",
            (
                Panel(
                    "Ranks in each stage",
                    "How many ranks are in a stage at a time, on average:"
                    " its height is its share of the GPU-hours. What is missing up to the number of"
                    " ranks is spent in no stage.",
                    "none",
                    (("{{rlvr_stage}}", seconds_of_stages()),),
                    width=24,
                    stacked=True,
                    axis="ranks",
                ),
                Panel(
                    "Rollout of a rank",
                    "The slowest rank is what the others wait for.",
                    "s",
                    spread("rl.sample.duration", where=NOT_EVAL),
                ),
                Panel(
                    "Reward of a rank",
                    "Waiting for other ranks included.",
                    "s",
                    spread("rl.reward.duration", where=NOT_EVAL),
                ),
                Panel(
                    "Update of a rank",
                    "By stage: actor and critic.",
                    "s",
                    spread("rl.train.duration", "rlvr.stage"),
                ),
                Panel(
                    "Weight sync of a rank",
                    "Rises with the model, not with the batch.",
                    "s",
                    spread("rl.sync.duration"),
                ),
                Panel(
                    "Waiting of a rank",
                    "For other ranks or for data.",
                    "s",
                    spread("rlvr.wait.duration"),
                ),
                Panel(
                    "Evaluation, checkpoint: time of each",
                    "Mean.",
                    "s",
                    (
                        ("evaluation", mean("rlvr.evaluate.duration")),
                        ("checkpoint", mean("rlvr.checkpoint.duration")),
                    ),
                ),
            ),
        ),
    ),
)
