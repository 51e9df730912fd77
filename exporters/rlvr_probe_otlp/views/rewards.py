"""What waits for which verifier or tool, and what fails."""

from __future__ import annotations

from typing import Final

from rlvr_probe_otlp.views.queries import grown, share, taken
from rlvr_probe_otlp.views.table import Board, Panel, each, spread

__all__ = ["REWARDS"]

_TOOL = "gen_ai.tool.name"

REWARDS: Final = Board(
    "rewards",
    "rlvr-probe: rewards and tools",
    "What waits for a verifier or a tool, by its name.",
    (
        (
            "Reward functions",
            (
                Panel(
                    "Time of a call",
                    "By function: of a batch or of one trajectory, as the framework calls it.",
                    "s",
                    spread("rlvr.verify.duration", "rlvr.reward.fn"),
                ),
                Panel(
                    "Calls under way",
                    "How many are under way at a time, on average.",
                    "none",
                    (
                        (
                            "{{rlvr_reward_fn}}",
                            taken("rlvr.verify.duration", "rlvr.reward.fn", what="sum"),
                        ),
                    ),
                    stacked=True,
                ),
                Panel(
                    "Calls per second",
                    "By function.",
                    "none",
                    (("{{rlvr_reward_fn}}", taken("rlvr.verify.duration", "rlvr.reward.fn")),),
                ),
                Panel(
                    "Mean reward of a step",
                    "By function; evaluations are lines of their own.",
                    "none",
                    each(
                        "rl.environment.reward.mean",
                        "{{rlvr_reward_fn}} {{rlvr_mode}}",
                        "rlvr.reward.fn",
                        "rlvr.mode",
                    ),
                    signed=True,
                ),
                Panel(
                    "Rewards that are NaN or infinite",
                    "By function; no mean has them.",
                    "none",
                    (
                        (
                            "{{rlvr_reward_fn}}",
                            grown("rlvr.reward.not_finite", "rlvr.reward.fn"),
                        ),
                    ),
                    width=24,
                ),
            ),
        ),
        (
            "Tools",
            (
                Panel("Time of a call", "By tool.", "s", spread("rlvr.tool.duration", _TOOL)),
                Panel(
                    "Calls under way",
                    "How many are under way at a time, on average.",
                    "none",
                    (("{{gen_ai_tool_name}}", taken("rlvr.tool.duration", _TOOL, what="sum")),),
                    stacked=True,
                ),
                Panel(
                    "Calls per second",
                    "By tool and by how they ended.",
                    "none",
                    (
                        (
                            "{{gen_ai_tool_name}} {{rlvr_tool_status}}",
                            taken("rlvr.tool.duration", _TOOL, "rlvr.tool.status"),
                        ),
                    ),
                ),
                Panel(
                    "Calls that failed",
                    "Share of calls: the tool raised, was not there, was"
                    " called wrongly or was given up.",
                    "percentunit",
                    (
                        (
                            "{{gen_ai_tool_name}}",
                            share("rlvr.tool.duration", _TOOL, where=', rlvr_tool_status!="ok"'),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
