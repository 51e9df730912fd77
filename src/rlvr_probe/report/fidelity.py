"""What ``rlvr-probe fidelity`` says: on one screen, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from rlvr_probe.analysis.fidelity import Card, Flight, Likeness
from rlvr_probe.analysis.ledger.categories import NAMES
from rlvr_probe.report.blocks import (
    Block,
    Column,
    Columns,
    Grid,
    Line,
    amount,
    clean,
    count_of,
    seconds,
    table,
)

__all__ = ["FIDELITY_SCHEMA_VERSION", "headline", "lay_out_cards", "to_document"]

FIDELITY_SCHEMA_VERSION = 1
"""Version of the JSON; a removed or redefined key raises it."""

_KINDS: Final = {"replay": "replay", "ceiling": "A/A", "naive": "naive"}
_SLEPT: Final = {"reward": "verification", "tool_call": "tools"}
_SMALL: Final = 0.01
"""Share of a step, or of GPU time, below which a stage or category is in the JSON alone."""
_CATEGORIES: Final = 5


def lay_out_cards(cards: Sequence[Card]) -> list[Block]:
    """The report, for a terminal.

    Args:
        cards: Of all runs beside the recorded one; the first is shown in full.
    """
    card = cards[0]
    sides = zip(("recorded", "replayed"), (card.recorded, card.run), zip(*card.pairs, strict=True),
                strict=True)  # fmt: skip
    blocks: list[Block] = [
        Line(f"{what}  {clean(run.source, 64)} · steps {min(steps)} to {max(steps)}", "title")
        for what, run, steps in sides
    ]
    if (note := card.run.note) is not None and note.source != card.recorded.source:
        blocks.append(Line(f"it is a replay of {clean(note.source, 64)}", "alarm"))
    blocks += [*_lengths(card), Line(headline(card)), *_definition(card)]
    if len(cards) > 1:
        blocks += _runs(cards)
    blocks += _stages(cards) + _ledger(card)
    if card.flight is not None:
        blocks += _flight(card.flight)
    if (last := card.last).bias is not None:
        times = f"{seconds(last.recorded)} s recorded, {seconds(last.replayed)} s replayed"
        off = f"bias {_signed(last.bias)}, by step {_share(last.by_step)}"
        blocks.append(Line(f"until the last trajectory of a step: {times}, {off}"))
    return blocks + [Line(f"omitted: {text}", "quiet") for text in card.omitted]


def headline(card: Card) -> str:
    """The accuracy of a run, in one sentence."""
    step = card.step
    if card.half is not None:
        return f"accuracy: of stages alone, because the {card.half} half of each step was replayed"
    if step.bias is None:
        return "accuracy: unknown, because no paired step has a time in both runs"
    between = f" ({_interval(step)})" if step.low is not None else ""
    what = f"{count_of(step.steps, 'step')}{' without what slept' if card.slept else ''}"
    return (
        f"accuracy {_share(step.accuracy)}{between}: {what} took {_share(abs(step.bias))}"
        f" {'more' if step.bias > 0 else 'less'} time than recorded, all together; single steps are"
        f" off by {_share(step.by_step)} in the mean"
    )


def _definition(card: Card) -> list[Block]:
    """What is in the time, and what is not."""
    parts, waits = list[str](), card.waits
    if card.slept:
        parts.append(
            f"{' and '.join(_SLEPT.get(what, clean(what, 16)) for what in card.slept)} slept in the"
            f" replay, and is apart: {seconds(waits.recorded or 0.0)} s of a recorded step,"
            f" {seconds(waits.replayed or 0.0)} s of a replayed one"
        )
    if card.warm_up:
        warm = "step warms" if card.warm_up == 1 else f"{card.warm_up} steps of sessions warm"
        parts.append(f"the first {warm} up and is omitted")
    if all(own.low is None for own in (card.step, *card.stages)):
        parts.append("fewer than six steps do not show how sure that is")
    return [Line("; ".join(parts), "quiet")] if parts else []


def _lengths(card: Card) -> list[Block]:
    if (lengths := card.lengths) is None:
        return []
    scale = "" if lengths.scale is None else f" times {lengths.scale}"
    samples = count_of(lengths.samples, "sample")
    wrong = lengths.exact < lengths.samples and card.kind == "replay"
    text = f"{lengths.exact:,} of {samples} have the recorded prompt and response length{scale}"
    return [Line(f"lengths: {text}", "alarm" if wrong else "plain")]


def _how_like(of: Callable[[Any], Likeness]) -> Columns:
    """Columns of entries that have a likeness."""
    return {
        "accuracy": lambda row: _share(of(row).accuracy),
        "<between": lambda row: _interval(of(row)),
        "by step": lambda row: _share(of(row).by_step),
        "bias": lambda row: _signed(of(row).bias),
    }


def _runs(cards: Sequence[Card]) -> list[Block]:
    columns: Columns = {
        "<run": lambda card: clean(card.run.source, 30),
        "<as": lambda card: _KINDS[card.kind],
        "steps": lambda card: f"{len(card.pairs):,}",
        **_how_like(lambda card: card.step),
        "lengths": lambda card: (known := card.lengths) and _share(known.exact / known.samples),
    }
    return table("Runs", columns, cards, head=8, what="runs")


def _stages(cards: Sequence[Card]) -> list[Block]:
    card, least = cards[0], _SMALL * (cards[0].step.recorded or 0.0)
    columns: dict[str, Callable[[Any], str]] = {
        "<stage": lambda stage: stage.name,
        "recorded": lambda stage: seconds(stage.recorded),
        "replayed": lambda stage: seconds(stage.replayed),
        **_how_like(lambda stage: stage),
    }
    for other in cards[1:]:
        if other.kind != "replay":
            columns.setdefault(_KINDS[other.kind], _accuracy_in(other))
    shown = [own for own in card.stages if max(own.recorded or 0, own.replayed or 0) >= least]
    title = f"Stages{', without what slept' if card.slept else ''} (mean s of a step)"
    whole = [card.step] if card.half is None else []
    return table(title, columns, [*whole, *shown], head=14, what="stages")


def _accuracy_in(card: Card) -> Callable[[Likeness], str]:
    """What makes the cell of a stage: its accuracy in another run."""
    accuracies = {stage.name: stage.accuracy for stage in (card.step, *card.stages)}
    return lambda stage: _share(accuracies.get(stage.name))


def _ledger(card: Card) -> list[Block]:
    columns: Columns = {
        "<category": lambda row: NAMES[row[0]],
        "recorded": lambda row: _share(row[1][0]),
        "replayed": lambda row: _share(row[1][1]),
        "points": lambda row: f"{100 * (row[1][1] - row[1][0]):+.1f}",
    }
    rows = sorted(card.ledger.items(), key=lambda row: -max(row[1]))
    shown = [row for row in rows if max(row[1]) >= _SMALL]
    title = f"Ledger (share of GPU time; {_share(card.elsewhere)} of it is in another category)"
    return table(title, columns, shown, head=_CATEGORIES, what="categories")


def _flight(flight: Flight) -> list[Block]:
    off = f"off by {_share(flight.off)} in the mean"
    ends = [amount(round(flight.most * tenth / 10, 1)) for tenth in range(1, 11)]
    return [
        _tenths(f"Requests in flight ({off})", "tenth of a rollout", range(1, 11), flight.profile),
        _tenths("Tokens per second", "in flight, up to", ends, flight.tokens_per_s),
    ]


def _tenths(
    title: str, what: str, headings: Sequence[object], pairs: Sequence[tuple[Any, Any]]
) -> Grid:
    rows = zip(("recorded", "replayed"), zip(*pairs, strict=True), strict=True)
    cells = [[name, *map(_whole, values)] for name, values in rows]
    return Grid(title, (Column(what, number=False), *map(Column, map(str, headings))), cells)


def _whole(value: float | None) -> str:
    return "" if value is None else amount(round(value, 0 if value >= 10 else 1))


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _signed(share: float | None) -> str:
    return "" if share is None else f"{share:+.1%}"


def _interval(likeness: Likeness) -> str:
    low, high = likeness.low, likeness.high
    return "" if low is None or high is None else f"{100 * low:.1f} to {_share(high)}"


def to_document(cards: Sequence[Card]) -> dict[str, Any]:
    """All cards, ready for JSON: unknown is null, never 0."""
    return {
        "schema_version": FIDELITY_SCHEMA_VERSION,
        "recorded": cards[0].recorded.source,
        "runs": [_entry(card) for card in cards],
    }


def _entry(card: Card) -> dict[str, Any]:
    return {
        "source": card.run.source,
        "kind": card.kind,
        "replays": None if card.run.note is None else card.run.note.source,
        "headline": headline(card),
        "steps": card.pairs,
        "warm_up": card.warm_up,
        "lengths": card.lengths and asdict(card.lengths),
        "half": card.half,
        "step": asdict(card.step) if card.half is None else None,
        "stages": [asdict(stage) for stage in card.stages],
        "slept": {"what": card.slept, **asdict(card.waits)} if card.slept else None,
        "last_trajectory": None if card.last.bias is None else asdict(card.last),
        "ledger": card.ledger,
        "elsewhere": card.elsewhere if card.ledger else None,
        "in_flight": card.flight and asdict(card.flight),
        "omitted": card.omitted,
    }
