"""What ``rlvr-probe fidelity`` says: on one screen, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

_KINDS: Final = {"replay": "replay", "ceiling": "A/A: again", "naive": "naive replay"}
_BESIDE: Final = {"ceiling": "A/A", "naive": "naive"}
_SMALL: Final = 0.01
"""Share of a step, or of GPU time, below which a stage or category is in the JSON alone."""
_CATEGORIES: Final = 6


def lay_out_cards(cards: Sequence[Card]) -> list[Block]:
    """The report, for a terminal.

    Args:
        cards: Of all runs beside the recorded one; the first is shown in full.
    """
    card, *others = cards
    blocks: list[Block] = [
        Line(f"recorded  {clean(card.recorded.source, 64)} · {card.recorded.extent}", "title"),
        Line(f"replayed  {clean(card.run.source, 64)} · {card.run.extent}", "title"),
    ]
    if (note := card.run.note) is not None and note.source != card.recorded.source:
        blocks.append(Line(f"it is a replay of {clean(note.source, 64)}", "alarm"))
    blocks += [_lengths(card), Line(headline(card)), *_definition(card)]
    if others:
        blocks += _runs(cards)
    blocks += _stages(cards) + _ledger(card)
    if card.flight is not None:
        blocks += _flight(card, card.flight)
    blocks += _last(card)
    return blocks + [Line(f"omitted: {text}", "quiet") for text in card.omitted]


def headline(card: Card) -> str:
    """The accuracy of a run, in one sentence."""
    step = card.step
    if step.accuracy is None or step.bias is None:
        return "accuracy: unknown, because no paired step has a time in both runs"
    between = f" ({_interval(step)})" if step.low is not None else ""
    what = f"{count_of(step.steps, 'step')}{' without what slept' if card.slept else ''}"
    longer = "more" if step.bias > 0 else "less"
    return (
        f"accuracy {_share(step.accuracy)}{between}: {what} took {_share(abs(step.bias))} {longer}"
        f" time than recorded, all together; single steps are off by {_share(step.by_step)} in the"
        " mean"
    )


def _definition(card: Card) -> list[Block]:
    """What is in the time, and what is not."""
    parts = list[str]()
    if (waits := card.waits) is not None:
        named = {"reward": "verification", "tool_call": "tools"}
        what = " and ".join(named.get(name, clean(name, 16)) for name in card.slept)
        parts.append(
            f"{what} slept in the replay, and is apart: {seconds(waits.recorded or 0.0)} s of a"
            f" recorded step, {seconds(waits.replayed or 0.0)} s of a replayed one"
        )
    if card.warm_up:
        warm = "step warms" if card.warm_up == 1 else f"{card.warm_up} steps of sessions warm"
        parts.append(f"the first {warm} up and is omitted")
    if card.step.low is None:
        parts.append("fewer than six steps do not show how sure that is")
    return [Line("; ".join(parts), "quiet")] if parts else []


def _lengths(card: Card) -> Line:
    lengths = card.lengths
    if lengths is None:
        return Line("lengths: unknown")
    what = "the recorded prompt and response length"
    if lengths.scale is not None:
        what += f" times {lengths.scale}"
    all_exact = lengths.exact == lengths.samples
    return Line(
        f"lengths: {lengths.exact:,} of {count_of(lengths.samples, 'sample')} have {what}",
        "plain" if all_exact or card.kind != "replay" else "alarm",
    )


def _runs(cards: Sequence[Card]) -> list[Block]:
    columns: Columns = {
        "<run": lambda card: clean(card.run.source, 30),
        "<as": lambda card: _KINDS[card.kind],
        "steps": lambda card: f"{card.step.steps:,}",
        "accuracy": lambda card: _share(card.step.accuracy),
        "<between": lambda card: _interval(card.step),
        "each step": lambda card: _share(card.step.by_step),
        "bias": lambda card: _signed(card.step.bias),
        "lengths": lambda card: (
            "" if card.lengths is None else f"{card.lengths.exact:,} of {card.lengths.samples:,}"
        ),
    }
    return table("Runs", columns, cards, head=8, what="runs")


def _stages(cards: Sequence[Card]) -> list[Block]:
    card, *others = cards
    least = _SMALL * (card.step.recorded or 0.0)
    shown = [
        stage for stage in card.stages if max(stage.recorded or 0.0, stage.replayed or 0.0) >= least
    ]
    columns: Columns = {
        "<stage": lambda stage: stage.name,
        "recorded": lambda stage: seconds(stage.recorded),
        "replayed": lambda stage: seconds(stage.replayed),
        "accuracy": lambda stage: _share(stage.accuracy),
        "<between": _interval,
        "each step": lambda stage: _share(stage.by_step),
        "bias": lambda stage: _signed(stage.bias),
    }
    for kind, heading in _BESIDE.items():
        beside = [other for other in others if other.kind == kind]
        if beside:
            columns = {**columns, heading: _accuracy_in(beside[0])}
    title = "Stages, without what slept (mean s of a step)" if card.slept else (
        "Stages (mean s of a step)"
    )  # fmt: skip
    return table(title, columns, [card.step, *shown], head=14, what="stages")


def _accuracy_in(card: Card) -> Callable[[Likeness], str]:
    """What makes the cell of a stage: its accuracy in another run."""
    by_name = {stage.name: stage.accuracy for stage in (card.step, *card.stages)}
    return lambda stage: _share(by_name.get(stage.name))


def _ledger(card: Card) -> list[Block]:
    columns: Columns = {
        "<category": lambda row: NAMES[row[0]],
        "recorded": lambda row: _share(row[1][0]),
        "replayed": lambda row: _share(row[1][1]),
        "points": lambda row: f"{100 * (row[1][1] - row[1][0]):+.1f}",
    }
    shown = sorted(
        (row for row in card.ledger.items() if max(row[1]) >= _SMALL), key=lambda row: -max(row[1])
    )
    title = f"Ledger (share of GPU time; {_share(card.elsewhere)} of it is in another category)"
    return table(title, columns, shown, head=_CATEGORIES, what="categories")


def _flight(card: Card, flight: Flight) -> list[Block]:
    tenths = tuple(Column(f"{tenth}") for tenth in range(1, 11))
    ends = [flight.most * tenth / 10 for tenth in range(1, 11)]
    profile = [
        [name, *map(_whole, counts)]
        for name, counts in zip(("recorded", "replayed"), flight.profile, strict=True)
    ]
    speed = [
        [name, *map(_whole, counts)]
        for name, counts in zip(("recorded", "replayed"), zip(*flight.speed, strict=True),
                                strict=True)
    ]  # fmt: skip
    return [
        Grid(
            f"Requests in flight, by tenth of a rollout (off by {_share(flight.off)} in the mean)",
            (Column("tenth", number=False), *tenths), profile,
        ),
        Grid(
            f"Tokens per second, by requests in flight (most: {flight.most:,})",
            (Column("up to", number=False), *(Column(amount(round(end, 1))) for end in ends)),
            speed,
        ),
    ]  # fmt: skip


def _last(card: Card) -> list[Block]:
    last = card.last
    if last is None:
        return []
    return [
        Line(
            f"the last trajectory of a step ended after {seconds(last.recorded)} s, replayed after"
            f" {seconds(last.replayed)} s: bias {_signed(last.bias)}, single steps off by"
            f" {_share(last.by_step)}"
        )
    ]


def _whole(value: float | None) -> str:
    return "" if value is None else amount(round(value, 0 if value >= 10 else 1))


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _signed(share: float | None) -> str:
    return "" if share is None else f"{100 * share:+.1f} %"


def _interval(likeness: Likeness) -> str:
    if likeness.low is None or likeness.high is None:
        return ""
    return f"{100 * likeness.low:.1f} to {_share(likeness.high)}"


def to_document(cards: Sequence[Card]) -> dict[str, Any]:
    """All cards, ready for JSON: unknown is null, never 0."""
    return {
        "schema_version": FIDELITY_SCHEMA_VERSION,
        "recorded": cards[0].recorded.source,
        "runs": [_entry(card) for card in cards],
    }


def _entry(card: Card) -> dict[str, Any]:
    lengths, flight = card.lengths, card.flight
    return {
        "source": card.run.source,
        "kind": card.kind,
        "replays": None if card.run.note is None else card.run.note.source,
        "headline": headline(card),
        "steps": [list(pair) for pair in card.pairs],
        "warm_up": card.warm_up,
        "lengths": None if lengths is None else {
            "exact": lengths.exact, "samples": lengths.samples, "scale": lengths.scale,
        },
        "step": _values(card.step),
        "stages": [_values(stage) for stage in card.stages],
        "slept": None if card.waits is None else {"what": list(card.slept), **_values(card.waits)},
        "last_trajectory": None if card.last is None else _values(card.last),
        "ledger": {name: list(shares) for name, shares in card.ledger.items()},
        "elsewhere": card.elsewhere,
        "in_flight": None if flight is None else {
            "profile": list(map(list, flight.profile)), "off": flight.off, "most": flight.most,
            "tokens_per_s": list(map(list, flight.speed)),
        },
        "omitted": list(card.omitted),
    }  # fmt: skip


def _values(likeness: Likeness) -> dict[str, Any]:
    return {
        "name": likeness.name, "recorded": likeness.recorded, "replayed": likeness.replayed,
        "steps": likeness.steps, "accuracy": likeness.accuracy, "low": likeness.low,
        "high": likeness.high, "by_step": likeness.by_step, "bias": likeness.bias,
    }  # fmt: skip
