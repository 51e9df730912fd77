"""What ``rlvr-probe compare`` says: on one screen, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rlvr_probe.analysis.comparison import Change, Comparison, Side
from rlvr_probe.analysis.comparison.scaling import Scaled, scales, scaling
from rlvr_probe.report.blocks import Block, Columns, Line, amount, clean, count_of, seconds, table

__all__ = ["COMPARE_SCHEMA_VERSION", "headline", "lay_out_comparisons", "to_document"]

COMPARE_SCHEMA_VERSION = 1
"""Version of the JSON; a removed or redefined key raises it."""

_SETTINGS: Final = 30
_CAUSES: Final = 8
_NAMED: Final = 3
_SINGLE: Final = 0.02


def lay_out_comparisons(found: Sequence[Comparison], failed: Sequence[str]) -> list[Block]:
    """The report, for a terminal.

    Args:
        found: The first run with every other one.
        failed: What takes longer than is allowed.
    """
    blocks = list[Block]()
    several = len(found) > 1
    for comparison in found:
        blocks += _titles(comparison)
        blocks.append(Line(headline(comparison), "alarm" if comparison.differs else "plain"))
        blocks += _settings(comparison) + _stages(comparison)
        if not several:
            blocks += _tokens(comparison) + _causes(comparison)
    blocks += _scaling(found)
    if failed:
        names = "; ".join(clean(name, 120) for name in dict.fromkeys(failed))
        blocks.append(Line(f"longer than --fail-above allows: {names}", "alarm"))
    return blocks


def headline(found: Comparison) -> str:
    """What differs, in one sentence."""
    step = found.step
    if step.times is None or step.low is None or step.high is None or step.lengths is None:
        return "too few steps: six of each run, beside the first, show how much they differ"
    interval = f"({_times(step.low)} to {_times(step.high)})"
    same = f"{_times(step.times)} {interval} for as many tokens"
    both = f"a step takes {_times((step.after or 0.0) / (step.before or 1.0))} as long"
    if found.lengths_only:
        return f"they differ in lengths only: {both}, and {same}, which is no more than chance"
    if not found.differs:
        return f"nothing differs beyond chance: a step takes {same}"
    parts = [f"{both}: {_times(step.lengths)} by its lengths, {same}"]
    if found.changed:
        names = [
            f"{change.title} {_maybe(change.times)}{_since(change)}" for change in found.changed
        ]
        parts.append(f"most of it in {', '.join(names[:_NAMED])}")
    if abs((single := step.in_single_steps or 1.0) - 1) >= _SINGLE:
        parts.append(f"{_times(single)} in single steps")
    worse = [clean(cause.title, 160) for cause in found.worse(0.0)]
    if worse:
        parts.append(f"in B {worse[0]}")
    return "; ".join(parts)


def _since(change: Change) -> str:
    return "" if change.since is None else f" since step {change.since}"


def _titles(found: Comparison) -> list[Block]:
    return [
        Line(f"{letter}  {clean(side.source, 64)} · {_steps(side)}", "title")
        for letter, side in (("A", found.before), ("B", found.after))
    ]


def _steps(side: Side) -> str:
    first, last = side.steps
    return (
        f"{side.unit.count(side.gpus)} · {count_of(len(side.numbers), 'step')}, {first} to {last}"
    )


def _settings(found: Comparison) -> list[Block]:
    columns: Columns = {
        "<setting": lambda item: clean(item[0], 32),
        "<A": lambda item: clean(item[1][0] or "unknown", 28),
        "<B": lambda item: clean(item[1][1] or "unknown", 28),
    }
    rows = list(found.settings.items())
    if not rows:
        return [Line("settings and versions: none that was recorded differs")]
    return table("What they were made with", columns, rows, head=_SETTINGS, what="settings")


def _stages(found: Comparison) -> list[Block]:
    columns: Columns = {
        "<stage": lambda change: change.name,
        "A s": lambda change: seconds(change.before),
        "B s": lambda change: seconds(change.after),
        "lengths": lambda change: _maybe(change.lengths),
        "single steps": lambda change: _maybe(change.in_single_steps),
        "as many tokens": lambda change: _maybe(change.times),
        "<between": _interval,
        "<changed": lambda change: _when(change) if change.changed else "",
    }
    return table(
        "Stages (mean s of a step, or of a token; B by A)", columns, [found.step, *found.stages],
        head=16, what="stages",
    )  # fmt: skip


def _when(change: Change) -> str:
    return "yes" if change.since is None else f"since {change.since}"


def _interval(change: Change) -> str:
    if change.low is None or change.high is None:
        return ""
    return f"{_times(change.low)} to {_times(change.high)}"


def _tokens(found: Comparison) -> list[Block]:
    columns: Columns = {
        "<of a step": lambda change: change.name,
        "A": lambda change: amount(round(change.before or 0.0)),
        "B": lambda change: amount(round(change.after or 0.0)),
        "B by A": lambda change: _maybe(change.times),
        "<changed": lambda change: "yes" if change.changed else "",
    }
    return table("Tokens", columns, found.tokens, head=5, what="kinds")


def _causes(found: Comparison) -> list[Block]:
    columns: Columns = {
        "<cause": lambda row: clean(row[0].title, 56),
        "A": lambda row: _share(row[1]),
        "B": lambda row: _share(row[2]),
    }
    title = f"Causes (share of {found.after.unit.say('GPU time')})"
    return table(title, columns, found.causes, head=_CAUSES, what="causes")


def _scaling(found: Sequence[Comparison]) -> list[Block]:
    """Scales of one job, where GPUs differ."""
    sides = scales([found[0].before, *(comparison.after for comparison in found)])
    scaled = scaling(sides) if len(sides) > 1 else []
    if not scaled:
        return []
    columns: Columns = {
        "<stage": lambda stage: stage.name,
        **{f"{side.gpus:,}": _gpu_s(place) for place, side in enumerate(sides)},
        "grows with GPUs^": _exponent,
    }
    unit = sides[0].unit
    time = unit.say("GPU-seconds")
    title = f"Scaling: {time} for a million tokens, by number of {unit.several}"
    first = scaled[0]
    said = (
        f"stops scaling first: {first.title}, which takes {seconds(first.lost)} {time} more"
        if first.lost > 0
        else "every stage scales"
    )
    return [*table(title, columns, scaled, head=12, what="stages"), Line(said)]


def _gpu_s(place: int) -> Callable[[Scaled], str]:
    """What makes the cell of a stage, of the run at this place."""
    return lambda stage: seconds(stage.gpu_s[place])


def _exponent(stage: Scaled) -> str:
    return "" if stage.exponent is None else f"{stage.exponent:.2f}"


def _times(factor: float) -> str:
    return f"{factor:.3f}x" if 0.9 < factor < 1.1 else f"{factor:.2f}x"


def _maybe(factor: float | None) -> str:
    return "" if factor is None else _times(factor)


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def to_document(found: Sequence[Comparison], failed: Sequence[str]) -> dict[str, Any]:
    """The whole comparison, ready for JSON: unknown is null, never 0."""
    return {
        "schema_version": COMPARE_SCHEMA_VERSION,
        "failed": list(dict.fromkeys(failed)),
        "comparisons": [_entry(comparison) for comparison in found],
        "scaling": _scaled(found),
    }


def _scaled(found: Sequence[Comparison]) -> dict[str, Any] | None:
    sides = scales([found[0].before, *(comparison.after for comparison in found)])
    if len(sides) == 1:
        return None
    return {
        "gpus": [side.gpus for side in sides],
        "stages": [
            {"name": stage.name, "gpu_s_per_million_tokens": list(stage.gpu_s),
             "exponent": stage.exponent}
            for stage in scaling(sides)
        ],
    }  # fmt: skip


def _entry(found: Comparison) -> dict[str, Any]:
    return {
        "before": _side(found.before),
        "after": _side(found.after),
        "headline": headline(found),
        "lengths_only": found.lengths_only,
        "settings": {name: list(values) for name, values in found.settings.items()},
        "step": _values(found.step),
        "stages": [_values(change) for change in found.stages],
        "tokens": [_values(change) for change in found.tokens],
        "causes": [
            {"kind": cause.kind, "where": dict(cause.where), "title": cause.title,
             "before": before, "after": after}
            for cause, before, after in found.causes
        ],
    }  # fmt: skip


def _side(side: Side) -> dict[str, Any]:
    first, last = side.steps
    return {
        "source": side.source,
        "unit": side.unit.name,
        "gpus": side.gpus,
        "first_step": first,
        "last_step": last,
        "steps": len(side.numbers),
        "settings": dict(side.settings),
    }


def _values(change: Change) -> dict[str, Any]:
    return {
        "name": change.name, "before": change.before, "after": change.after,
        "times": change.times, "low": change.low, "high": change.high, "lengths": change.lengths,
        "in_single_steps": change.in_single_steps,
        "changed": change.changed, "since": change.since,
    }  # fmt: skip
