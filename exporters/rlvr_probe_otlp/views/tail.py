"""How far the slowest trajectories and ranks are from the others."""

from __future__ import annotations

from typing import Final

from rlvr_probe_otlp.views.queries import NOT_EVAL, grown, mean, quantile
from rlvr_probe_otlp.views.table import OUTPUT, TOKENS, Board, Panel, number, spread

__all__ = ["TAIL"]

TAIL: Final = Board(
    "tail",
    "rlvr-probe: the long tail",
    "How far the slowest trajectories and ranks are from the others.",
    (
        (
            "Lengths",
            (
                number(
                    "Longest 1 % against the median",
                    "Response tokens: 1 if all are equally long.",
                    "none",
                    f"({quantile(0.99, TOKENS, where=OUTPUT)})"
                    f" / ({quantile(0.5, TOKENS, where=OUTPUT)})",
                ),
                number(
                    "Cut by the cap",
                    "Share of trajectories.",
                    "percentunit",
                    f"{grown('rlvr.trajectory.truncated', where=NOT_EVAL)}"
                    f" / {grown('rl.sample.samples', where=NOT_EVAL)}",
                ),
                number(
                    "Slowest rollout rank against the median",
                    "99 % against 50 %: 1 if ranks are balanced.",
                    "none",
                    f"({quantile(0.99, 'rl.sample.duration', where=NOT_EVAL)})"
                    f" / ({quantile(0.5, 'rl.sample.duration', where=NOT_EVAL)})",
                ),
                number("Mean response", "Tokens.", "none", mean(TOKENS, where=OUTPUT)),
                Panel(
                    "Response tokens",
                    "Of each trajectory, results of tools included.",
                    "none",
                    spread(TOKENS, where=OUTPUT),
                ),
                Panel(
                    "Prompt tokens",
                    "Of the first prompt of each trajectory.",
                    "none",
                    spread(TOKENS, where=f', gen_ai_token_type="input"{NOT_EVAL}'),
                ),
            ),
        ),
        (
            "Trajectories",
            (
                Panel(
                    "Time of a trajectory",
                    "Where each goes its own way.",
                    "s",
                    spread("rlvr.trajectory.duration", where=NOT_EVAL),
                ),
                Panel(
                    "Turns of a trajectory",
                    "Calls of the engine.",
                    "none",
                    spread("rlvr.trajectory.turns", where=NOT_EVAL),
                ),
                Panel(
                    "Time of a turn",
                    "Calls of the engine for single trajectories.",
                    "s",
                    spread("rlvr.turn.duration", where=NOT_EVAL),
                ),
                Panel(
                    "Staleness",
                    "Steps that the trainer was ahead of the oldest weights that a trajectory saw.",
                    "none",
                    spread("rlvr.staleness"),
                ),
            ),
        ),
    ),
)
