"""What ``rlvr-probe show`` says, in which order: the answer, then what is wrong, then tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rlvr_probe.report.blocks import Block, Line, amount, clean, count_of, duration, setup
from rlvr_probe.report.show_devices import device_alarms
from rlvr_probe.report.show_tables import open_span_table, states, tables

__all__ = ["lay_out", "turns_line"]

_Summary = Mapping[str, Any]


def lay_out(summary: _Summary) -> list[Block]:
    """The report on a summary."""
    return [
        *_heading(summary),
        *open_span_table(summary["open_span_list"]),
        *_losses(summary),
        *device_alarms(summary["devices"]),
        *(Line(f"note: {clean(note, 400)}", "quiet") for note in summary["notes"]),
        *tables(summary),
    ]


def _heading(summary: _Summary) -> list[Block]:
    facts = summary["training"] or {}
    parts = [clean(summary["run"], 64), *setup(facts)]
    if ranks := facts.get("accelerators") or facts.get("world_size"):
        parts.append(count_of(ranks, "rank"))
    parts.append(states(summary["process_list"]))
    steps = count_of(summary["steps"], "step")
    if summary["unfinished_steps"]:
        steps += f" (+{summary['unfinished_steps']} unfinished)"
    sizes = f" of {facts['group_size']}" if facts.get("group_size") else ""
    lines = [
        f"{steps} recorded over {duration(summary['duration_s'])}, "
        f"{count_of(summary['trajectories'], 'trajectory')} in "
        f"{count_of(summary['groups'], 'group')}{sizes}"
    ]
    if summary["trajectories"]:
        lines.append(_tokens(summary))
    if summary["turns"]:
        lines.append(turns_line(summary["turns"]))
    lines += _job(summary)
    evaluation = summary["evaluation"]
    if evaluation["trajectories"]:
        lines.append(
            f"evaluation, counted apart: {evaluation['trajectories']:,} trajectories,"
            f" {evaluation['response_tokens']:,} response tokens"
        )
    if summary["redone_steps"]:
        lines.append(_redone(summary))
    return [Line(" · ".join(parts), "title"), *map(Line, lines)]


def _tokens(summary: _Summary) -> str:
    lengths = summary["lengths"]
    parts = [
        f"{summary[f'{kind}_tokens']:,} {kind} tokens"
        f" (p50 {amount(spread['p50'])}, max {amount(spread['max'])})"
        for kind in ("prompt", "response")
        if (spread := lengths[f"{kind}_tokens"]) is not None
    ]
    share = lengths["truncated_share"]
    return ", ".join(parts) + ("" if share is None else f", {share:.1%} stopped by the cap")


def turns_line(turns: _Summary) -> str:
    """What the heading says of ``turns``."""
    per = turns["per_trajectory"]
    text = (
        f"{turns['turns']:,} turns: {per['mean']:.2f} per trajectory (p50 {amount(per['p50'])}, max"
        f" {amount(per['max'])})"
    )
    if turns["unknown"]:
        known, whole = turns["trajectories"], turns["trajectories"] + turns["unknown"]
        text += f", known for {known:,} trajectories of {whole:,}"
    tokens = turns["loss_tokens"]
    return text if tokens is None else f"{text}, {tokens:,} of the response tokens in the loss"


def _job(summary: _Summary) -> list[str]:
    """Roles of many processes, filtered prompts, old weights."""
    lines = list[str]()
    if summary["roles"]:
        roles = [
            f"{entry['processes']:,} {clean(entry['role'] or 'of unknown role', 32)}"
            + (" (trains)" if entry["trains"] else "")
            for entry in summary["roles"]
        ]
        lines.append(f"processes: {', '.join(roles)}")
    selection = summary["selection"]
    if selection is not None:
        parts = [
            f"{selection[name]:,} {words}"
            for name, words in (("kept", "passed the filter"), ("used", "were trained on"))
            if selection[name] is not None
        ]
        lines.append(f"of {selection['groups']:,} groups " + (", ".join(parts) or "some dropped"))
    staleness = summary["staleness"]
    if staleness is not None and staleness["stale"]:
        per = staleness["steps"]
        lines.append(
            f"{staleness['stale']:,} of {staleness['trajectories']:,} trajectories used stale"
            f" weights: {per['mean']:.2f} steps old (p50 {amount(per['p50'])},"
            f" max {amount(per['max'])})"
        )
    return lines


def _redone(summary: _Summary) -> str:
    numbers = sorted({step["step"] for step in summary["redone"]})
    shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    redone = summary["redone_steps"]
    verb = "step was" if redone == 1 else "steps were"
    return (
        f"{redone} {verb} redone after a resume"
        f" ({'step' if len(numbers) == 1 else 'steps'} {shown}): not counted above"
    )


def _losses(summary: _Summary) -> list[Block]:
    lines = list[str]()
    if summary["lost"]:
        reasons = ", ".join(
            f"{count:,} {clean(reason)}" for reason, count in _most(summary["lost"])
        )
        lines.append(f"LOST: {count_of(summary['lost_records'], 'record')} ({reasons})")
    if summary["faults"]:
        places = ", ".join(
            f"{count:,} in {clean(place, 72)}" for place, count in _most(summary["faults"])
        )
        lines.append(f"FAULTS inside the probe, hidden from the run: {places}")
    reduced = dict[str, list[str]]()
    muted = dict[str, list[str]]()
    for process in summary["process_list"]:
        if process["level"] != "full":
            reasons_of = reduced.setdefault(clean(process["level"]), [])
            reasons_of.append(clean(process["level_reason"], 60))
        for place, reason in process["muted"].items():
            muted.setdefault(clean(place, 60), []).append(clean(reason, 60))
    for word, what in (("REDUCED to", reduced), ("MUTED", muted)):
        for name, why in list(what.items())[:6]:
            many = count_of(len(why), "process")
            lines.append(f"{word} {name} in {many}: {why[0] or 'unknown why'}")
        if len(what) > 6:
            lines.append(f"{word} {len(what) - 6} more, see the notes")
    return [Line(text, "alarm") for text in lines]


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return Counter(counts).most_common(6)
