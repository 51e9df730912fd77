"""What ``rlvr-probe show`` says, in which order: the answer, then what is wrong, then tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rlvr_probe.report.devices import device_alarms, device_table
from rlvr_probe.report.document import (
    Block,
    Column,
    Line,
    amount,
    bar,
    clean,
    duration,
    grid,
    seconds,
)
from rlvr_probe.report.job import job_lines, rpc_table
from rlvr_probe.report.processes import process_table, short_state, state_counts, states
from rlvr_probe.report.requests import request_blocks
from rlvr_probe.report.turns import tool_table, turns_line

__all__ = ["lay_out"]

_Summary = Mapping[str, Any]


def lay_out(summary: _Summary) -> list[Block]:
    """The report on a summary."""
    return [
        *_heading(summary),
        *_open_spans(summary),
        *_losses(summary),
        *device_alarms(summary["devices"]),
        *_notes(summary),
        *_attempts(summary),
        *_steps(summary),
        *_stages(summary),
        *device_table(summary["devices"]),
        *_rewards(summary),
        *tool_table(summary["tools"]),
        *request_blocks(summary["requests"]),
        *rpc_table(summary["rpcs"]),
        *_user_spans(summary),
        *process_table(summary["process_list"]),
    ]


def _heading(summary: _Summary) -> list[Block]:
    facts = summary["training"] or {}
    parts = [clean(summary["run"], 64)]
    if facts.get("framework"):
        version = f" {clean(facts['framework_version'], 16)}" if facts["framework_version"] else ""
        parts.append(f"{clean(facts['framework'], 16)}{version}")
    if facts.get("algorithm"):
        parts.append(clean(facts["algorithm"], 16).upper())
    if facts.get("accelerators") or facts.get("world_size"):
        parts.append(_count(facts.get("accelerators") or facts["world_size"], "rank"))
    parts.append(states(summary["process_list"]))
    blocks: list[Block] = [Line(" · ".join(parts), "title")]
    steps = _count(summary["steps"], "step")
    if summary["unfinished_steps"]:
        steps += f" (+{summary['unfinished_steps']} unfinished)"
    sizes = f" of {facts['group_size']}" if facts.get("group_size") else ""
    blocks.append(
        Line(
            f"{steps} recorded over {duration(summary['duration_s'])}, "
            f"{_count(summary['trajectories'], 'trajectory', 'trajectories')} in "
            f"{_count(summary['groups'], 'group')}{sizes}"
        )
    )
    if summary["trajectories"]:
        blocks.append(Line(_tokens(summary)))
    if summary["turns"]:
        blocks.append(Line(turns_line(summary["turns"])))
    blocks += job_lines(summary)
    evaluation = summary["evaluation"]
    if evaluation["trajectories"]:
        blocks.append(
            Line(
                f"evaluation apart: {evaluation['trajectories']:,} trajectories,"
                f" {evaluation['response_tokens']:,} response tokens"
            )
        )
    if summary["redone_steps"]:
        blocks.append(Line(_redone(summary)))
    return blocks


def _tokens(summary: _Summary) -> str:
    lengths = summary["lengths"]
    parts = [
        f"{summary[f'{kind}_tokens']:,} {kind} tokens"
        f" (p50 {amount(found['p50'])}, max {amount(found['max'])})"
        for kind in ("prompt", "response")
        if (found := lengths[f"{kind}_tokens"]) is not None
    ]
    share = lengths["truncated_share"]
    return ", ".join(parts) + ("" if share is None else f", {share:.1%} stopped by the cap")


def _redone(summary: _Summary) -> str:
    numbers = sorted({one["step"] for one in summary["redone"]})
    shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    count = summary["redone_steps"]
    verb = "step was" if count == 1 else "steps were"
    return (
        f"{count} {verb} redone after a resume"
        f" ({'step' if len(numbers) == 1 else 'steps'} {shown}): not counted above"
    )


def _open_spans(summary: _Summary) -> list[Block]:
    spans = sorted(summary["open_span_list"], key=lambda one: -(one["age_s"] or 0.0))
    if not spans:
        return []
    live = all(one["state"] == "running" for one in spans)
    title = "OPEN NOW" if live else "OPEN SPANS: never ended"
    rows = [
        [
            clean(one["name"]),
            clean(one["detail"], 24),
            _text(one["step"]),
            _text(one["rank"]),
            short_state(one["state"]),
            # Of a process that ended, only how long it was seen.
            ("" if one["state"] == "running" else ">= ") + seconds(one["age_s"]),
        ]
        for one in spans
    ]
    columns = (
        Column("span", number=False),
        Column("detail", number=False),
        Column("step"),
        Column("rank"),
        Column("process", number=False),
        Column("open for, s"),
    )
    return [grid(title, columns, rows, head=10, tail=2, what="open spans", style="alarm")]


def _losses(summary: _Summary) -> list[Block]:
    blocks: list[Block] = []
    if summary["lost"]:
        reasons = ", ".join(
            f"{count:,} {clean(reason)}" for reason, count in _most(summary["lost"])
        )
        blocks.append(
            Line(f"LOST: {_count(summary['lost_records'], 'record')} ({reasons})", "alarm")
        )
    if summary["faults"]:
        places = ", ".join(
            f"{count:,} in {clean(at, 72)}" for at, count in _most(summary["faults"])
        )
        blocks.append(Line(f"FAULTS inside the probe, hidden from the run: {places}", "alarm"))
    processes = summary["process_list"]
    reduced = dict[str, list[str]]()
    muted = dict[str, list[str]]()
    for one in processes:
        if one["level"] != "full":
            reduced.setdefault(clean(one["level"]), []).append(clean(one["level_reason"], 60))
        for place, reason in one["muted"].items():
            muted.setdefault(clean(place, 60), []).append(clean(reason, 60))
    for word, what in (("REDUCED to", reduced), ("MUTED", muted)):
        for name, why in list(what.items())[:6]:
            count = _count(len(why), "process", "processes")
            blocks.append(Line(f"{word} {name} in {count}: {why[0] or 'unknown why'}", "alarm"))
        if len(what) > 6:
            blocks.append(Line(f"{word} {len(what) - 6} more, see the notes", "alarm"))
    return blocks


def _notes(summary: _Summary) -> list[Block]:
    return [Line(f"note: {clean(note, 400)}", "quiet") for note in summary["notes"]]


def _attempts(summary: _Summary) -> list[Block]:
    attempts = summary["attempt_list"]
    if len(attempts) < 2:
        return []
    rows = [
        [
            str(one["attempt"]),
            seconds(one["start_s"]),
            seconds(one["last_seen_s"]),
            str(len(one["processes"])),
            state_counts(one["states"]),
            _text(one["resumed_step"]),
            "" if one["first_step"] is None else f"{one['first_step']}-{one['last_step']}",
            str(one["steps"]),
            str(one["redone_steps"]),
        ]
        for one in attempts
    ]
    columns = (
        Column("attempt"),
        Column("from, s"),
        Column("to, s"),
        Column("processes"),
        Column("state", number=False),
        Column("resumed at"),
        Column("steps"),
        Column("done"),
        Column("redone"),
    )
    return [grid("Attempts", columns, rows, head=12, tail=6, what="attempts")]


def _steps(summary: _Summary) -> list[Block]:
    steps = summary["step_list"]
    if not steps:
        return [Line("no training step was recorded", "quiet")]
    attempts = len({one["attempt"] for one in steps}) > 1
    sessions = len({one["session"] for one in steps}) > 1
    rows = []
    for one in steps:
        lengths = one["lengths"]["response_tokens"] or {}
        share = one["lengths"]["truncated_share"]
        stages = one["stage_s"]
        rows.append(
            [
                str(one["attempt"]) if attempts else "",
                str(one["session"]) if sessions else "",
                str(one["step"]),
                f"{one['trajectories']:,}",
                *(amount(lengths[name]) if lengths else "" for name in ("p50", "p90", "max")),
                "" if share is None else f"{share:.1%}",
                _used(one["selection"]),
                *(seconds(stages.get(name)) for name in ("rollout", "reward", "update_actor")),
                seconds(stages.get("step")),
                "" if one["done"] else f"{one['ranks_done']} of {one['ranks']}",
            ]
        )
    columns = (
        Column("attempt"),
        Column("session"),
        Column("step"),
        Column("samples"),
        Column("len p50"),
        Column("p90"),
        Column("max"),
        Column("trunc"),
        Column("groups used"),
        Column("rollout s"),
        Column("reward s"),
        Column("update s"),
        Column("step s"),
        Column("ranks done", number=False),
    )
    title = "Steps (response tokens; seconds of the slowest rank)"
    return [grid(title, columns, rows, head=12, tail=12, what="steps")]


def _used(chosen: _Summary | None) -> str:
    """Groups of a step that were trained on, where a filter left some out."""
    if chosen is None or chosen["used"] is None:
        return ""
    return f"{chosen['used']:,} of {chosen['groups']:,}"


def _stages(summary: _Summary) -> list[Block]:
    stages = summary["stages"]
    if not stages:
        return []
    ranks = any(one["slowest_rank"] not in (None, 0) for one in stages)
    rows = [
        [
            one["stage"],
            seconds(one["mean_s"]),
            *([seconds(one["max_s"]), _text(one["slowest_rank"])] if ranks else ["", ""]),
            f"{one['steps']:,}",
            "" if one["share"] is None else f"{one['share']:.1%}",
            "" if one["stage"] == "step" else bar(one["share"]),
        ]
        for one in stages
    ]
    columns = (
        Column("stage", number=False),
        Column("mean s"),
        Column("slowest rank s"),
        Column("which"),
        Column("steps"),
        Column("of step time"),
        Column("", number=False),
    )
    title = "Stages (per step; a wait lies inside another stage)"
    return [grid(title, columns, rows, head=24, tail=0, what="stages")]


def _rewards(summary: _Summary) -> list[Block]:
    rows = [
        [
            clean(one["function"] or "?"),
            "" if one["mean"] is None else f"{one['mean']:.3f}",
            "" if one["values"] is None else f"{one['values']:,}",
            f"{one['not_finite']:,}" if one["not_finite"] else "",
            f"{one['missing']:,}" if one["missing"] else "",
            "" if one["calls"] is None else f"{one['calls']:,}",
            *(_per_call(one, waited) for waited in (False, True)),
            *(("" if one[name] is None else f"{one[name]:,}") for name in ("retries", "timeouts")),
        ]
        for one in summary["rewards"]
    ]
    if not rows:
        return []
    columns = (
        Column("reward function", number=False),
        Column("mean"),
        Column("values"),
        Column("NaN"),
        Column("none"),
        Column("calls"),
        Column("s per call"),
        Column("s waited"),
        Column("asked again"),
        Column("timed out"),
    )
    return [grid("Rewards", columns, rows, head=16, tail=2, what="functions")]


def _per_call(one: _Summary, waited: bool) -> str:
    """Seconds of a call of a reward function, in the column of what they are."""
    return (
        seconds(one["total_s"] / one["calls"]) if one["calls"] and one["waited"] is waited else ""
    )


def _user_spans(summary: _Summary) -> list[Block]:
    rows = [
        [
            clean(one["label"] or "?"),
            f"{one['count']:,}",
            seconds(one["total_s"] / one["count"]),
            seconds(one["max_s"]),
            seconds(one["total_s"]),
        ]
        for one in summary["user_spans"]
    ]
    if not rows:
        return []
    columns = (
        Column("span", number=False),
        Column("count"),
        Column("mean s"),
        Column("max s"),
        Column("total s"),
    )
    return [grid("Your spans", columns, rows, head=16, tail=2, what="spans")]


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return Counter(counts).most_common(6)


def _text(value: object) -> str:
    return "" if value is None else clean(value, 16)


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one}" if number == 1 else f"{number:,} {several or one + 's'}"
