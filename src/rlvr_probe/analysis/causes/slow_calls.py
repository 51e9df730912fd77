"""Tools and reward functions that GPUs wait for.

A recording shows how long calls take, not how long they should. A tool is compared with the fastest
other tool that does more than compute in passing; a tool that much GPU time waits for is named
however it compares. The replay gives its calls the latency of that other tool, or none, and looks
for the last trajectory, or the last rank, again. Calls that run at the same time are waited for
once.

Where trajectories are verified one by one, queueing shows: a verification takes longer than the
first ones of its batch, which found the queue empty. The replay gives each at most the 90th
percentile of those, and looks for the last trajectory again. Queueing is named where it explains
most of the wait for verification, or where nothing else is to be named.

Where a rank calls a function for all of its rows, parallelism shows in how much longer a call takes
for more rows: hardly with enough workers, in proportion if it verifies one after another. The slope
of that in logarithms gives the number of workers; the replay takes :data:`PARALLEL` instead.

A function that is neither, and that much GPU time waits for, is named as slow: the replay drops its
calls. Where nearly all of that wait lies in some steps, the other steps show what is usual for it:
the replay gives it that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlvr_probe.analysis.causes import thresholds
from rlvr_probe.analysis.causes.builder import WITHOUT, Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, seconds, times
from rlvr_probe.analysis.results import Answer, Evidence
from rlvr_probe.analysis.statements import fill, statements

__all__ = ["replay_functions", "replay_tool", "serial_rewards", "slow_tools"]

_SQL: Final = statements(__name__)

_TRIED: Final = 2
"""Tools that are replayed, those first that most time was spent in."""


def slow_tools(run: Run) -> list[Cause]:
    """Tools that are slow beside others, or that much GPU time waits for."""
    tools = run.ask(_SQL["tools"]).dicts
    causes = list[Cause]()
    for tool in tools[:_TRIED]:
        alike = [row for row in tools if row is not tool and row["ns"] >= thresholds.TOOL_ALIKE_NS]
        fastest = min(alike, key=lambda row: (row["ns"], row["tool"]), default=None)
        left = min(1.0, fastest["ns"] / tool["ns"]) if fastest else 0.0
        answer = replay_tool(run, tool["tool"], left)
        saving = Saving.of(answer.rows)
        if not fastest or left > 1 / thresholds.TOOL_RATIO:
            whole_answer = replay_tool(run, tool["tool"], 0.0)
            whole = Saving.of(whole_answer.rows)
            if run.share(whole) < thresholds.TOOL_SHARE:
                continue
            if run.is_noise(saving):
                saving, answer = whole, whole_answer
        title = f"tool {tool['tool']} takes {seconds(tool['ns'])} a call"
        if fastest:
            title += f", {times(tool['ns'] / fastest['ns'])} as long as {fastest['tool']}"
        evidence = {"trajectory": Evidence.of(dict.fromkeys(tool["slowest"]), tool["calls"])}
        causes += run.cause(
            "slow_tool", title, answer, saving, where={"tool": str(tool["tool"])},
            evidence=evidence, worst=_worst(run, tool, saving),
        )  # fmt: skip
    return causes


def _worst(run: Run, row: Mapping[str, Any], saving: Saving) -> list[str]:
    longest = seconds(row["longest_ns"])
    calls = f"{row['calls']:,} calls in training, the longest {longest}"
    return [calls, *run.worst_steps(saving, 2)]


def replay_tool(run: Run, tool: str, left: float) -> Answer:
    """Wall time of each step, ns, that calls of ``tool`` of that share of their time would save."""
    return run.ask(fill(_SQL["replay"], without=WITHOUT), names=[tool], left=left)


_LATE: Final = 1.3
"""Longest of several verifications at a time, by their mean: of log-normal times as in the
simulator."""

_FEW: Final = 8
"""Rows of a call from which on workers are busy at the same time."""


def serial_rewards(run: Run) -> list[Cause]:
    """Verification one after another, if GPUs wait for it; else functions that just take long."""
    waited = Saving.of(run.ask(_SQL["waited"]).rows)
    if run.is_noise(waited):
        return []
    answer = run.ask(_SQL["queued"])
    saving = Saving.of(answer.rows)
    queued = _queued(run, answer, saving)
    if queued and saving.wall_ns >= thresholds.QUEUED_MOST * waited.wall_ns:
        return queued
    return _in_batches(run) or _long(run) or queued


def _queued(run: Run, answer: Answer, saving: Saving) -> list[Cause]:
    functions = run.ask(_SQL["functions"]).dicts
    if not functions:
        return []
    worst = [
        f"{row['function']}: {row['calls']:,} verifications, {seconds(row['ns'])} each in the"
        f" median and up to {seconds(row['longest_ns'])}, queueing included"
        for row in functions[:3]
    ] + run.worst_steps(saving, 2)
    gpus = run.unit.say("GPUs")
    title = f"{gpus} waited for verifications that queued for reward function {_first(functions)}"
    where = {"function": str(functions[0]["function"])}
    return run.cause("serial_reward", title, answer, saving, where=where, worst=worst)


def _in_batches(run: Run) -> list[Cause]:
    functions = run.ask(_SQL["calls"], few=_FEW).dicts
    total = sum(row["total_s"] for row in functions)
    if not total:
        return []
    growth = sum(row["growth"] * row["total_s"] for row in functions) / total
    if growth < thresholds.SERIAL:
        return []
    rows = sum(row["rows"] * row["total_s"] for row in functions) / total
    # A call of n rows on k workers takes n / k times one verification, and the end of the last.
    workers = 1 + max(0.0, rows * (1 - growth) / (_LATE * growth))
    left = _length(rows, thresholds.PARALLEL) / _length(rows, workers)
    answer = replay_functions(run, [row["function"] for row in functions], min(1.0, left))
    saving = Saving.of(answer.rows)
    worst = [
        f"{row['function']}: {row['s']:.2g} s a call of {row['rows']:.0f} rows, up to"
        f" {row['longest_s']:.2g} s"
        for row in functions[:3]
    ] + run.worst_steps(saving, 2)
    title = (
        f"reward function {_first(functions)} verified about {workers:.0f} at a time while all"
        " ranks waited"
    )
    where = {"function": str(functions[0]["function"])}
    return run.cause("serial_reward", title, answer, saving, where=where, worst=worst)


def _long(run: Run) -> list[Cause]:
    """Functions that all GPUs wait for long, however many verifications there are at a time."""
    causes = list[Cause]()
    gpus = run.unit.say("GPUs")
    for row in run.ask(_SQL["spent"]).dicts:
        answer = replay_functions(run, [row["function"]], 0.0)
        saving = Saving.of(answer.rows)
        if run.share(saving) < thresholds.REWARD_SHARE:
            continue
        title = f"{gpus} wait for reward function {row['function']}, {seconds(row['ns'])} a call"
        usual = replay_functions(run, [row["function"]], 0.0, row["usual_ns"])
        above = Saving.of(usual.rows).by_step
        least = max(row["usual_ns"], max(above.values(), default=0.0) / 10)
        late = Saving({step: ns if ns >= least else 0.0 for step, ns in above.items()})
        if late.wall_ns >= thresholds.SOMETIMES * saving.wall_ns:
            saving, answer = late, usual
            title = (
                f"{gpus} wait for reward function {row['function']} in {len(late.worst_steps)} of"
                f" {len(above)} steps, up to {seconds(row['longest_ns'])} a call and"
                f" {seconds(row['usual_ns'])} in others"
            )
        where, worst = {"function": str(row["function"])}, _worst(run, row, saving)
        causes += run.cause("slow_reward", title, answer, saving, where=where, worst=worst)
    return causes


def replay_functions(
    run: Run, functions: Sequence[str], left: float, usual_ns: float = 0.0
) -> Answer:
    """Wall time of each step, ns, that shorter calls of reward functions would save.

    Args:
        run: The run.
        functions: Their names.
        left: Share of their time that calls take.
        usual_ns: They take at least that long, if they did.
    """
    shorter = fill(_SQL["shorter"], without=WITHOUT)
    return run.ask(shorter, names=list(functions), left=left, usual=float(usual_ns))


def _length(rows: float, workers: float) -> float:
    """What a call of ``rows`` takes with so many workers, by the time of one verification."""
    return _LATE * (1 - 1 / workers) + rows / workers


def _first(functions: Sequence[dict[str, Any]]) -> str:
    """Name of the most expensive one, and how many there are beside it."""
    name = str(functions[0]["function"])
    return name if len(functions) == 1 else f"{name} and {len(functions) - 1} more"
