"""Tools that trajectories, and so GPUs, wait for.

A recording shows how long calls take, not how long they should. A tool is compared with the fastest
other tool that does more than compute in passing; a tool that much GPU time waits for is named
however it compares. The replay gives its calls the latency of that other tool, or none, and looks
for the last trajectory, or the last rank, again. Calls that run at the same time are waited for
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.replay import WITHOUT
from rlvr_probe.analysis.causes.texts import seconds, times
from rlvr_probe.analysis.causes.thresholds import TOOL_ALIKE_NS, TOOL_RATIO, TOOL_SHARE
from rlvr_probe.analysis.results import Answer, Evidence
from rlvr_probe.analysis.statements import fill, statements

__all__ = ["replay_tool", "slow_tools"]

_SQL: Final = statements(__name__)

_TRIED: Final = 2
"""Tools that are replayed, those first that most time was spent in."""


def slow_tools(run: Run) -> list[Cause]:
    """Tools that are slow beside others, or that much GPU time waits for."""
    tools = run.ask(_SQL["tools"]).dicts
    causes = list[Cause]()
    for tool in tools[:_TRIED]:
        others = [row["ns"] for row in tools if row is not tool and row["ns"] >= TOOL_ALIKE_NS]
        left = min([*others, tool["ns"]]) / tool["ns"] if others else 0.0
        answer = replay_tool(run, tool["tool"], left)
        saving = Saving.of(answer.rows)
        slow = bool(others) and left <= 1 / TOOL_RATIO
        if not slow:
            whole_answer = replay_tool(run, tool["tool"], 0.0)
            whole = Saving.of(whole_answer.rows)
            if run.share(whole) < TOOL_SHARE:
                continue
            if run.is_noise(saving):
                saving, answer = whole, whole_answer
        causes += _cause(run, tool, tools, saving, answer)
    return causes


def replay_tool(run: Run, tool: str, left: float) -> Answer:
    """Wall time of each step, ns, that calls of ``tool`` of that share of their time would save."""
    return run.ask(fill(_SQL["replay"], without=WITHOUT), names=[tool], left=left)


def _cause(
    run: Run,
    tool: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
    saving: Saving,
    answer: Answer,
) -> list[Cause]:
    title = f"tool {tool['tool']} takes {seconds(tool['ns'])} a call"
    others = sorted((row["ns"], row["tool"]) for row in tools if row is not tool)
    others = [(ns, name) for ns, name in others if ns >= TOOL_ALIKE_NS]
    if others:
        fastest, name = others[0]
        title += f", {times(tool['ns'] / fastest)} as long as {name}"
    worst = [
        f"{tool['calls']:,} calls in training, the longest {seconds(tool['longest_ns'])}",
        *run.worst_steps(saving, 2),
    ]
    evidence = {"trajectory": Evidence.of(dict.fromkeys(tool["slowest"]), tool["calls"])}
    where = {"tool": str(tool["tool"])}
    return run.cause(
        "slow_tool", title, answer, saving, where=where, evidence=evidence, worst=worst
    )
