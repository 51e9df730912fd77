"""The tables of ``rlvr-probe show``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_probe.analysis.summary.job import TIMES, mean_s
from rlvr_probe.analysis.summary.trajectories import per_call_s
from rlvr_probe.report.blocks import (
    Block,
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
    rows = [
        [
            clean(span["name"]),
            clean(span["detail"], 24),
            _text(span["step"]),
            _text(span["rank"]),
            short_state(span["state"]),
            # Of a process that ended, only how long it was seen.
            ("" if span["state"] == "running" else ">= ") + seconds(span["age_s"]),
        ]
        for span in sorted(spans, key=lambda span: -(span["age_s"] or 0.0))
    ]
    title = "OPEN NOW" if live else "OPEN SPANS: never ended"
    headings = "<span | <detail | step | rank | <process | open for, s"
    return table(title, headings, rows, head=10, tail=2, what="open spans", style="alarm")


def _attempt_table(attempts: _Entries) -> list[Block]:
    """A row for each launch of the job, where there are several."""
    if len(attempts) < 2:
        return []
    rows = [
        [
            str(attempt["attempt"]),
            seconds(attempt["start_s"]),
            seconds(attempt["last_seen_s"]),
            str(len(attempt["processes"])),
            ", ".join(
                f"{count:,} {short_state(state)}"
                for state, count in _alarms_first(attempt["states"])
            ),
            _text(attempt["resumed_step"]),
            ""
            if attempt["first_step"] is None
            else f"{attempt['first_step']}-{attempt['last_step']}",
            str(attempt["steps"]),
            str(attempt["redone_steps"]),
        ]
        for attempt in attempts
    ]
    headings = "attempt | from, s | to, s | processes | <state | resumed at | steps | done | redone"
    return table("Attempts", headings, rows, head=12, tail=6, what="attempts")


def _step_table(steps: _Entries) -> list[Block]:
    """A row for each step."""
    if not steps:
        return [Line("no training step recorded", "quiet")]
    attempts = len({step["attempt"] for step in steps}) > 1
    sessions = len({step["session"] for step in steps}) > 1
    rows = []
    for step in steps:
        lengths = step["lengths"]["response_tokens"] or {}
        stages = step["stage_s"]
        rows.append(
            [
                str(step["attempt"]) if attempts else "",
                str(step["session"]) if sessions else "",
                str(step["step"]),
                f"{step['trajectories']:,}",
                *(amount(lengths[name]) if lengths else "" for name in ("p50", "p90", "max")),
                number(step["lengths"]["truncated_share"], ".1%"),
                _used(step["selection"]),
                *(seconds(stages.get(name)) for name in ("rollout", "reward", "update_actor")),
                seconds(stages.get("step")),
                "" if step["done"] else f"{step['ranks_done']} of {step['ranks']}",
            ]
        )
    headings = (
        "attempt | session | step | samples | len p50 | p90 | max | trunc | groups used"
        " | rollout s | reward s | update s | step s | <ranks done"
    )
    title = "Steps (response tokens; seconds of the slowest rank)"
    return table(title, headings, rows, head=12, tail=12, what="steps")


def _used(selection: Mapping[str, Any] | None) -> str:
    """Groups of a step that were trained on, where a filter dropped some."""
    if selection is None or selection["used"] is None:
        return ""
    return f"{selection['used']:,} of {selection['groups']:,}"


def _stage_table(stages: _Entries) -> list[Block]:
    """A row for each stage of a step."""
    ranks = any(stage["slowest_rank"] not in (None, 0) for stage in stages)
    rows = [
        [
            stage["stage"],
            seconds(stage["mean_s"]),
            *([seconds(stage["max_s"]), _text(stage["slowest_rank"])] if ranks else ["", ""]),
            f"{stage['steps']:,}",
            number(stage["share"], ".1%"),
            "" if stage["stage"] == "step" else bar(stage["share"]),
        ]
        for stage in stages
    ]
    headings = "<stage | mean s | slowest rank s | which | steps | of step time | <"
    title = "Stages (per step; a wait lies inside another stage)"
    return table(title, headings, rows, head=24, what="stages")


def _reward_table(rewards: _Entries) -> list[Block]:
    """A row for each reward function."""
    rows = [
        [
            clean(reward["function"] or "?"),
            number(reward["mean"], ".3f"),
            number(reward["values"]),
            number(reward["not_finite"] or None),
            number(reward["missing"] or None),
            number(reward["calls"]),
            *(seconds(per_call_s(reward, waited=waited)) for waited in (False, True)),
            number(reward["retries"]),
            number(reward["timeouts"]),
        ]
        for reward in rewards
    ]
    headings = (
        "<reward function | mean | values | NaN | missing | calls | s per call | s waited"
        " | retries | timeouts"
    )
    return table("Rewards", headings, rows, head=16, tail=2, what="functions")


def _tool_table(tools: _Entries) -> list[Block]:
    """A row for each tool that was called."""
    rows = [
        [
            "(no such tool)" if tool["tool"] is None else clean(tool["tool"]),
            f"{tool['calls']:,}",
            *(seconds(tool["latency_s"][name]) for name in ("p50", "p90", "max")),
            ", ".join(
                f"{count:,} {clean(status)}"
                for status, count in tool["statuses"].items()
                if status not in ("ok", "error")
            ),
            ", ".join(f"{count:,} {clean(error)}" for error, count in tool["errors"].items()),
        ]
        for tool in tools
    ]
    headings = "<tool | calls | p50 s | p90 s | max s | <not run | <errors"
    return table("Tools", headings, rows, head=16, tail=2, what="tools")


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
    rows = [
        [
            name.removesuffix("_s"),
            *(seconds(requests[name][what]) for what in ("p50", "p90", "p99", "max")),
            seconds(requests["total_s"][name]),
        ]
        for name in TIMES
        if requests[name] is not None
    ]
    headings = "<requests | p50 s | p90 s | p99 s | max s | total s"
    return [Line(", ".join(parts)), *table("Requests", headings, rows, head=3, what="times")]


def _rpc_table(rpcs: Mapping[str, Any] | None) -> list[Block]:
    """A row for each method of a worker group that was called."""
    rows = [
        [
            clean(method["group"], 24),
            clean(method["method"], 32),
            f"{method['calls']:,}",
            f"{method['ranks']:,}",
            seconds(method["caller_s"]),
            seconds(method["mean_s"]),
            *(
                [seconds(method["slowest_s"]), str(method["slowest_rank"])]
                if method["ranks"] > 1
                else ["", ""]
            ),
        ]
        for method in (rpcs or {}).get("methods", ())
    ]
    headings = (
        "<worker group | <method | calls | ranks | caller s | rank s | slowest rank s | which"
    )
    title = "Calls of worker groups (per call; they lie inside the stages)"
    return table(title, headings, rows, head=16, tail=2, what="methods")


def _user_span_table(spans: _Entries) -> list[Block]:
    """A row for each label of ``rlvr_probe.span``."""
    rows = [
        [
            clean(span["label"] or "?"),
            f"{span['count']:,}",
            seconds(mean_s(span)),
            seconds(span["max_s"]),
            seconds(span["total_s"]),
        ]
        for span in spans
    ]
    headings = "<span | count | mean s | max s | total s"
    return table("Your spans", headings, rows, head=16, tail=2, what="spans")


def _process_table(processes: _Entries) -> list[Block]:
    """A row for each process, those that died first: how it ended, what recording took."""
    hosts = {process["host"] for process in processes}
    rows = [
        [
            str(process["index"]),
            clean(process["host"], 20) if len(hosts) > 1 else "",
            clean(process["role"] or "", 24),
            _text(process["rank"]),
            str(process["pid"]),
            short_state(process["state"]),
            seconds(process["last_seen_s"] - process["start_s"]),
            seconds(process["silent_s"]),
            number(process["own_share"], ".2%"),
            f"{sum(process['lost'].values()):,}",
        ]
        for process in sorted(processes, key=lambda process: process["state"] != "died")
    ]
    headings = (
        "process | <host | <role | rank | pid | <state | recorded s | silent s"
        " | probe's own time | lost"
    )
    return table("Processes", headings, rows, head=8, tail=4, what="processes")


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
