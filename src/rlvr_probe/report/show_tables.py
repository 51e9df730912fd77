"""The tables of ``rlvr-probe show``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_probe.analysis.summary.job import mean_s
from rlvr_probe.analysis.summary.trajectories import TIMES, per_call_s
from rlvr_probe.report.blocks import (
    Block,
    Columns,
    Line,
    amount,
    bar,
    clean,
    count_of,
    number,
    seconds,
    table,
)
from rlvr_probe.report.show_devices import device_table

__all__ = ["open_span_table", "short_state", "states", "tables"]

_Entries = Sequence[Mapping[str, Any]]
_ENDED = "ended_with_training"


def tables(summary: Mapping[str, Any]) -> list[Block]:
    """All of them but that of open spans, which is an alarm."""
    return [
        *_attempt_table(summary["attempt_list"]),
        *_step_table(summary["step_list"]),
        *_stage_table(summary["stages"]),
        *device_table(summary["devices"]),
        *_reward_table(summary["rewards"]),
        *_tool_table(summary["tools"]),
        *_request_blocks(summary["requests"]),
        *_rpc_table(summary["rpcs"]),
        *_user_span_table(summary["user_spans"]),
        *_process_table(summary["process_list"]),
    ]


def open_span_table(spans: _Entries) -> list[Block]:
    """What was open when the recording ended, or is open now; the oldest first."""
    live = all(span["state"] == "running" for span in spans)
    columns: Columns = {
        "<span": lambda span: clean(span["name"]),
        "<detail": lambda span: clean(span["detail"], 24),
        "step": lambda span: _text(span["step"]),
        "rank": lambda span: _text(span["rank"]),
        "<process": lambda span: short_state(span["state"]),
        "open for, s": _open_for,
    }
    oldest = sorted(spans, key=lambda span: -(span["age_s"] or 0.0))
    title = "OPEN NOW" if live else "OPEN SPANS: never ended"
    return table(title, columns, oldest, head=10, tail=2, what="open spans", style="alarm")


def _open_for(span: Mapping[str, Any]) -> str:
    """How long a span is open; of a process that ended, only how long it was seen."""
    return ("" if span["state"] == "running" else ">= ") + seconds(span["age_s"])


def _attempt_table(attempts: _Entries) -> list[Block]:
    """A row for each launch of the job, where there are several."""
    if len(attempts) < 2:
        return []
    columns: Columns = {
        "attempt": lambda attempt: str(attempt["attempt"]),
        "from, s": lambda attempt: seconds(attempt["start_s"]),
        "to, s": lambda attempt: seconds(attempt["last_seen_s"]),
        "processes": lambda attempt: str(len(attempt["processes"])),
        "<state": lambda attempt: ", ".join(
            f"{count:,} {short_state(state)}" for state, count in _alarms_first(attempt["states"])
        ),
        "resumed at": lambda attempt: _text(attempt["resumed_step"]),
        "steps": _steps_of,
        "done": lambda attempt: str(attempt["steps"]),
        "redone": lambda attempt: str(attempt["redone_steps"]),
    }
    return table("Attempts", columns, attempts, head=12, tail=6, what="attempts")


def _steps_of(attempt: Mapping[str, Any]) -> str:
    first, last = attempt["first_step"], attempt["last_step"]
    return "" if first is None else f"{first}-{last}"


def _step_table(steps: _Entries) -> list[Block]:
    """A row for each step."""
    if not steps:
        return [Line("no training step recorded", "quiet")]
    attempts = len({step["attempt"] for step in steps}) > 1
    sessions = len({step["session"] for step in steps}) > 1

    def tokens(step: Mapping[str, Any], name: str) -> str:
        lengths = step["lengths"]["response_tokens"]
        return amount(lengths[name]) if lengths else ""

    columns: Columns = {
        "attempt": lambda step: str(step["attempt"]) if attempts else "",
        "session": lambda step: str(step["session"]) if sessions else "",
        "step": lambda step: str(step["step"]),
        "samples": lambda step: f"{step['trajectories']:,}",
        "len p50": lambda step: tokens(step, "p50"),
        "p90": lambda step: tokens(step, "p90"),
        "max": lambda step: tokens(step, "max"),
        "trunc": lambda step: number(step["lengths"]["truncated_share"], ".1%"),
        "groups used": lambda step: _used(step["selection"]),
        "rollout s": lambda step: seconds(step["stage_s"].get("rollout")),
        "reward s": lambda step: seconds(step["stage_s"].get("reward")),
        "update s": lambda step: seconds(step["stage_s"].get("update_actor")),
        "step s": lambda step: seconds(step["stage_s"].get("step")),
        "<ranks done": lambda step: (
            "" if step["done"] else f"{step['ranks_done']} of {step['ranks']}"
        ),
    }
    title = "Steps (response tokens; seconds of the slowest rank)"
    return table(title, columns, steps, head=12, tail=12, what="steps")


def _used(selection: Mapping[str, Any] | None) -> str:
    """Groups of a step that were trained on, where a filter dropped some."""
    if selection is None or selection["used"] is None:
        return ""
    return f"{selection['used']:,} of {selection['groups']:,}"


def _stage_table(stages: _Entries) -> list[Block]:
    """A row for each stage of a step."""
    ranks = any(stage["slowest_rank"] not in (None, 0) for stage in stages)
    columns: Columns = {
        "<stage": lambda stage: stage["stage"],
        "mean s": lambda stage: seconds(stage["mean_s"]),
        "slowest rank s": lambda stage: seconds(stage["max_s"]) if ranks else "",
        "which": lambda stage: _text(stage["slowest_rank"]) if ranks else "",
        "steps": lambda stage: f"{stage['steps']:,}",
        "of step time": lambda stage: number(stage["share"], ".1%"),
        "<": lambda stage: "" if stage["stage"] == "step" else bar(stage["share"]),
    }
    title = "Stages (per step; a wait lies inside another stage)"
    return table(title, columns, stages, head=24, what="stages")


def _reward_table(rewards: _Entries) -> list[Block]:
    """A row for each reward function."""
    columns: Columns = {
        "<reward function": lambda reward: clean(reward["function"] or "?"),
        "mean": lambda reward: number(reward["mean"], ".3f"),
        "values": lambda reward: number(reward["values"]),
        "NaN": lambda reward: number(reward["not_finite"] or None),
        "missing": lambda reward: number(reward["missing"] or None),
        "calls": lambda reward: number(reward["calls"]),
        "s per call": lambda reward: seconds(per_call_s(reward, waited=False)),
        "s waited": lambda reward: seconds(per_call_s(reward, waited=True)),
        "retries": lambda reward: number(reward["retries"]),
        "timeouts": lambda reward: number(reward["timeouts"]),
    }
    return table("Rewards", columns, rewards, head=16, tail=2, what="functions")


def _tool_table(tools: _Entries) -> list[Block]:
    """A row for each tool that was called."""

    def counts(of: Mapping[str, int]) -> str:
        return ", ".join(f"{count:,} {clean(name)}" for name, count in of.items())

    def not_run(tool: Mapping[str, Any]) -> str:
        ran = ("ok", "error")
        return counts({name: n for name, n in tool["statuses"].items() if name not in ran})

    columns: Columns = {
        "<tool": lambda tool: "(no such tool)" if tool["tool"] is None else clean(tool["tool"]),
        "calls": lambda tool: f"{tool['calls']:,}",
        "p50 s": lambda tool: seconds(tool["latency_s"]["p50"]),
        "p90 s": lambda tool: seconds(tool["latency_s"]["p90"]),
        "max s": lambda tool: seconds(tool["latency_s"]["max"]),
        "<not run": not_run,
        "<errors": lambda tool: counts(tool["errors"]),
    }
    return table("Tools", columns, tools, head=16, tail=2, what="tools")


def _request_blocks(requests: Mapping[str, Any] | None) -> list[Block]:
    """Counts of requests to engines, and the table of their times."""
    if requests is None:
        return []
    parts = [f"{requests['requests']:,} requests to engines"]
    if requests["unjoined"]:
        parts.append(f"{requests['unjoined']:,} without a known turn")
    if requests["cached_share"] is not None:
        parts.append(f"{requests['cached_share']:.1%} of their prompt tokens cached")
    if requests["preemptions"]:
        preempted, times = requests["preempted"], requests["preemptions"]
        parts.append(f"{preempted:,} preempted, {times:,} times in all")
    columns: Columns = {
        "<requests": lambda name: name.removesuffix("_s"),
        "p50 s": lambda name: seconds(requests[name]["p50"]),
        "p90 s": lambda name: seconds(requests[name]["p90"]),
        "p99 s": lambda name: seconds(requests[name]["p99"]),
        "max s": lambda name: seconds(requests[name]["max"]),
        "total s": lambda name: seconds(requests["total_s"].get(name)),
    }
    known = [name for name in TIMES if requests[name] is not None]
    return [Line(", ".join(parts)), *table("Requests", columns, known, head=3, what="times")]


def _rpc_table(rpcs: Mapping[str, Any] | None) -> list[Block]:
    """A row for each method of a worker group that was called."""
    columns: Columns = {
        "<worker group": lambda method: clean(method["group"], 24),
        "<method": lambda method: clean(method["method"], 32),
        "calls": lambda method: f"{method['calls']:,}",
        "ranks": lambda method: f"{method['ranks']:,}",
        "caller s": lambda method: seconds(method["caller_s"]),
        "rank s": lambda method: seconds(method["mean_s"]),
        "slowest rank s": lambda method: (
            seconds(method["slowest_s"]) if method["ranks"] > 1 else ""
        ),
        "which": lambda method: str(method["slowest_rank"]) if method["ranks"] > 1 else "",
    }
    title = "Calls of worker groups (per call; they lie inside the stages)"
    methods = (rpcs or {}).get("methods", ())
    return table(title, columns, methods, head=16, tail=2, what="methods")


def _user_span_table(spans: _Entries) -> list[Block]:
    """A row for each label of ``rlvr_probe.span``."""
    columns: Columns = {
        "<span": lambda span: clean(span["label"] or "?"),
        "count": lambda span: f"{span['count']:,}",
        "mean s": lambda span: seconds(mean_s(span)),
        "max s": lambda span: seconds(span["max_s"]),
        "total s": lambda span: seconds(span["total_s"]),
    }
    return table("Your spans", columns, spans, head=16, tail=2, what="spans")


def _process_table(processes: _Entries) -> list[Block]:
    """A row for each process, those that died first: how it ended, what recording took."""
    hosts = {process["host"] for process in processes}
    columns: Columns = {
        "process": lambda process: str(process["index"]),
        "<host": lambda process: clean(process["host"], 20) if len(hosts) > 1 else "",
        "<role": lambda process: clean(process["role"] or "", 24),
        "rank": lambda process: _text(process["rank"]),
        "pid": lambda process: str(process["pid"]),
        "<state": lambda process: short_state(process["state"]),
        "recorded s": lambda process: seconds(process["last_seen_s"] - process["start_s"]),
        "silent s": lambda process: seconds(process["silent_s"]),
        "probe's own time": lambda process: number(process["own_share"], ".2%"),
        "lost": lambda process: f"{sum(process['lost'].values()):,}",
    }
    died_first = sorted(processes, key=lambda process: process["state"] != "died")
    return table("Processes", columns, died_first, head=8, tail=4, what="processes")


def states(processes: _Entries) -> str:
    """How many processes there are in each state, in words."""
    counts = Counter(process["state"] for process in processes)
    many = count_of(len(processes), "process")
    if len(counts) == 1:
        return f"{many} {_words(next(iter(counts)))}"
    parts = ", ".join(f"{count:,} {_words(state)}" for state, count in _alarms_first(counts))
    return f"{many}: {parts}" if parts else many


def short_state(state: str) -> str:
    """A state as a column has room for it."""
    return "ended" if state == _ENDED else state


def _words(state: str) -> str:
    return "ended with the run" if state == _ENDED else state


def _alarms_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (item[0] != "died", -item[1]))


def _text(value: object) -> str:
    return "" if value is None else clean(value, 16)
