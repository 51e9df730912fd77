"""What ``rlvr-probe characterize`` says: on one screen, and as JSON.

The screen is for a tired engineer: where the GPU time went, why, and what stands out. The JSON has
every number with its query, inputs and ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from rlvr_probe.analysis.characterization import (
    LEDGER_QUERY,
    LOST,
    NO_CAUSE,
    Characterization,
    unexplained,
)
from rlvr_probe.analysis.ledger import CATEGORIES, FAMILIES, MEANING, NAMES, Ledger
from rlvr_probe.analysis.results import Figure, Queried
from rlvr_probe.report.blocks import (
    Block,
    Columns,
    Line,
    amount,
    bar,
    clean,
    count_of,
    duration,
    setup,
    table,
)
from rlvr_probe.report.blocks import seconds as digits

__all__ = ["CHARACTERIZE_SCHEMA_VERSION", "lay_out_characterization", "to_document"]

CHARACTERIZE_SCHEMA_VERSION = 1
"""Version of the JSON; a removed or redefined key raises it."""

_ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    NAMES["work.rollout"]: ("work.rollout",),
    "training": (
        "work.update_actor", "work.update_critic", "work.old_logprob", "work.ref_logprob",
        "work.values", "work.other",
    ),
    NAMES["work.weight_sync"]: ("work.weight_sync",),
    **{name: parts for name, parts in LOST.items() if name != "unaccounted"},
    NAMES["eval"]: ("eval",),
    NAMES["checkpoint"]: ("checkpoint",),
    FAMILIES["discarded"]: tuple(name for name in CATEGORIES if name.startswith("discarded.")),
    "unaccounted": LOST["unaccounted"],
}  # fmt: skip
"""Lines of the screen, and what of the ledger is in them: all of it."""

_NO_LEDGER: Final = {
    "recording": "no ledger: no trainer step was recorded with its times",
    "workload": "no ledger: a workload has lengths and no clock",
}
_RAN: Final[Mapping[str | int, str]] = {}
"""Who waited for a call ran it."""
_LEAST: Final = 0.0005
_CAUSES: Final = 3
_WORST: Final = 2
_NOTES: Final = 4


def lay_out_characterization(found: Characterization) -> list[Block]:
    """The report, for a terminal."""
    blocks: list[Block] = [Line(_title(found), "title"), Line(_counts(found))]
    if found.ledger is not None:
        blocks += _ledger(found, found.ledger)
        blocks += _causes(found)
    else:
        blocks.append(Line(_NO_LEDGER[found.kind], "alarm"))
    blocks += [Line(text) for text in _facts(found)]
    notes = dict.fromkeys(
        (*found.notes, *(note for chapter in found.chapters for note in chapter.notes))
    )
    blocks += [Line(f"note: {clean(note, 400)}", "quiet") for note in list(notes)[:_NOTES]]
    if len(notes) > _NOTES:
        blocks.append(Line(f"… and {len(notes) - _NOTES} more notes in --json", "quiet"))
    return blocks


def _title(found: Characterization) -> str:
    parts = [clean(found.source, 64), *setup(found.facts)]
    if found.ledger is not None:
        parts.append(found.unit.count(len(found.ledger.gpus)))
    return " · ".join(parts)


def _counts(found: Characterization) -> str:
    counts = dict(zip(found.counts.columns, found.counts.row, strict=True))
    text = (
        f"{count_of(counts['steps'], 'step')}, {count_of(counts['trajectories'], 'trajectory')} of"
        f" {count_of(counts['groups'], 'prompt')}"
    )
    if counts["response_tokens"] is not None:
        text += f", {counts['response_tokens']:,} tokens in responses"
    ledger = found.ledger
    if ledger is not None:
        hours = _Hours.of(found)
        text += f"; {duration(ledger.wall_s)}, {hours.text(ledger.gpu_s)}"
    return text


@dataclass(frozen=True, slots=True)
class _Hours:
    """The one unit of time that a screen has for all of its GPUs.

    Attributes:
        name: For example ``GPU-hours``.
        seconds: That it has.
    """

    name: str
    seconds: float

    @classmethod
    def of(cls, found: Characterization) -> _Hours:
        """As large as the run."""
        long = found.ledger is not None and found.ledger.gpu_s >= 3600
        name = found.unit.say("GPU-hours" if long else "GPU-seconds")
        return cls(name, 3600.0 if long else 1.0)

    def number(self, gpu_s: float) -> str:
        """GPU time without the name of its unit."""
        hours = gpu_s / self.seconds
        return f"{hours:,.1f}" if self.seconds > 1 and hours >= 1 else digits(hours)

    def text(self, gpu_s: float) -> str:
        """GPU time."""
        return f"{self.number(gpu_s)} {self.name}"


def _ledger(found: Characterization, ledger: Ledger) -> list[Block]:
    hours = _Hours.of(found)
    shares = {name: ledger.share(*categories) for name, categories in _ROWS.items()}
    columns: Columns = {
        "<": lambda name: name,
        hours.name: lambda name: f"{shares[name] * ledger.gpu_s / hours.seconds:,.2f}",
        "share": lambda name: f"{shares[name]:.1%}",
        "< ": lambda name: bar(shares[name], 12),
        "<parts": lambda name: clean(_parts(ledger, _ROWS[name]), 32),
    }
    shown = [name for name in _ROWS if shares[name] >= _LEAST or name == "unaccounted"]
    title = found.unit.say("Where the GPU time went")
    return table(title, columns, shown, head=16, what="lines")


def _parts(ledger: Ledger, categories: Sequence[str]) -> str:
    """What a line of several categories is made of, the largest first."""
    if len(categories) == 1:
        return ""
    parts = sorted(((ledger.share(name), name) for name in categories), key=lambda part: -part[0])
    return ", ".join(f"{NAMES[name]} {share:.1%}" for share, name in parts if share >= _LEAST)


def _causes(found: Characterization) -> list[Block]:
    unknown = unexplained(found)
    if not found.causes:
        return [Line(NO_CAUSE if unknown is None else f"{NO_CAUSE}; {unknown.sentence}")]
    blocks: list[Block] = [Line("Why", "title")]
    if unknown is not None and unknown.first:
        blocks.append(Line(unknown.sentence, "alarm"))
    hours = _Hours.of(found)
    fault = any(not cause.natural for cause in found.causes)
    alarm = fault and not found.causes[0].early and (unknown is None or not unknown.first)
    if not fault:
        blocks.append(Line("no fault found; inherent to the workload:"))
    for number, cause in enumerate(found.causes[:_CAUSES], 1):
        between = f" (no interval: {cause.no_interval})" if cause.no_interval else ""
        if cause.low is not None and cause.high is not None:
            between = f" ({hours.number(max(0.0, cause.low))} to {hours.text(cause.high)})"
        blocks.append(
            Line(
                f"{number}. {clean(cause.title, 300)}",
                "alarm" if alarm and number == 1 else "plain",
            )
        )
        blocks.append(
            Line(f"   removing it would save {hours.text(cause.gpu_s)}{between};"
                 f" what usually helps: {clean(cause.usually_helps, 300)}", "quiet")
        )  # fmt: skip
        if cause.worst:
            worst = "; ".join(clean(case, 300) for case in cause.worst[:_WORST])
            blocks.append(Line(f"   worst: {worst}", "quiet"))
    if len(found.causes) > _CAUSES:
        blocks.append(Line(f"… and {len(found.causes) - _CAUSES} more in --json", "quiet"))
    if unknown is not None and not unknown.first:
        blocks.append(Line(unknown.sentence))
    return blocks


def _facts(found: Characterization) -> Iterable[str]:
    """What stands out of the sections, a line each."""
    figures = {
        figure.id: figure
        for chapter in found.chapters
        for figure in chapter.figures
        if not figure.by
    }

    def known(name: str) -> bool:
        return name in figures and figures[name].value is not None

    def say(*parts: tuple[str, str, Callable[[Any], str]]) -> str:
        said = [f"{text} {form(figures[name].value)}" for text, name, form in parts if known(name)]
        return ", ".join(said)

    stopped = ("stopped by the cap", "lengths.response.truncated", _share)
    as_long = ("as long as the cap", "lengths.response.at_cap", _share)
    slots = (
        ("in use", "occupancy.mean", _share),
        ("under a quarter in use for", "occupancy.under_25", _share),
    )
    # What lengths say is of batches that start at once, and a bound of calls with a time alone.
    bounds = (("in use, by lengths, at least", "occupancy.least", _share),)
    alike = (("in use, by lengths alone,", "occupancy.by_lengths", _share),)
    lines = {
        "responses": say(
            ("p50", "lengths.response.p50", amount), ("p99", "lengths.response.p99", amount),
            ("longest", "lengths.response.max", amount),
            stopped if known("lengths.response.truncated") else as_long,
            ("longest of a group over its mean", "lengths.group.max_over_mean.mean", _times),
        ),
        "decode slots": say(*slots) or say(*bounds) or say(*alike),
        "replicas, maximum above mean": say(
            ("tokens", "imbalance.replica.tokens.mean", _share),
            ("longest response", "imbalance.replica.longest.mean", _share),
        ),
        "reward functions (ended calls)": _slowest(
            found, "rewards.function.time", "function", _waited(found)
        ),
        "rewards": _signal(found),
        "rewards that are NaN or infinite": _odd(found),
        "tools (ended calls)": _slowest(found, "tools.tool.time", "tool"),
    }  # fmt: skip
    return [f"{name}: {text}" for name, text in lines.items() if text]


def _figures(found: Characterization, name: str) -> list[Figure]:
    """The metrics of this id, one for each thing that it is known of."""
    figures = (figure for chapter in found.chapters for figure in chapter.figures)
    return [figure for figure in figures if figure.id == name]


def _odd(found: Characterization) -> str:
    odd = [
        f"{clean(figure.by['function'], 24)} {figure.value:,}"
        for figure in _figures(found, "rewards.value.not_finite")
        if figure.value
    ]
    return ", ".join(odd[:3])


def _signal(found: Characterization) -> str:
    """What training is rewarded, and how that moves from the first to the last third of it."""

    def moved(name: str, form: Callable[[Any], str], by: Mapping[str, str | int]) -> str:
        ids = [f"signal.training.{name}{end}" for end in ("", "_first", "_last")]
        parts = [part for each in ids for part in _figures(found, each) if part.by == by]
        known = [form(part.value) for part in parts if part.value is not None]
        value, *ends = known or ["unknown"]
        return f"{value} (first third {ends[0]}, last {ends[1]})" if len(ends) == 2 else value

    lines = [
        f"{clean(figure.by['function'], 24)} mean {moved('mean', _digits, figure.by)},"
        f" spread {_digits(figure.value)}"
        for figure in _figures(found, "signal.training.std")[:3]
        if isinstance(figure.value, (int, float))
    ]
    for figure in _figures(found, "signal.training.untrained"):
        if figure.value is not None:
            lines.append(f"groups that train nothing {moved('untrained', _share, {})}")
    return ", ".join(lines)


def _waited(found: Characterization) -> dict[str | int, str]:
    """How much of the wait for a reward function it took itself, where another process waited."""
    shares, before, after = (
        {
            figure.by["function"]: figure.value
            for figure in _figures(found, f"rewards.function.{share}")
        }
        for share in ("queue_share", "before_share", "after_share")
    )
    return {
        name: " waited, queues included"
        if share is None
        else f" waited, {1 - float(share):.0%} of it in the function"
        + _around(before.get(name), after.get(name))
        for name, share in shares.items()
        if share != 0
    }


def _around(before: object, after: object) -> str:
    if not isinstance(before, float) or not isinstance(after, float):
        return ""
    return f", {before:.0%} before it (queue and way there), {after:.0%} after it"


def _slowest(
    found: Characterization, name: str, by: str, waited: Mapping[str | int, str] = _RAN
) -> str:
    took = [
        (figure.by.get(by, "?"), float(figure.value))
        for figure in _figures(found, name)
        if isinstance(figure.value, (int, float))
    ]
    took.sort(key=lambda item: -item[1])
    return ", ".join(
        f"{clean(what, 24)} {duration(time_s)}{waited.get(what, '')}" for what, time_s in took[:3]
    )


def _share(value: float) -> str:
    return f"{value:.1%}"


def _digits(value: float) -> str:
    return f"{value:,.3g}"


def _times(value: float) -> str:
    return f"{value:.2f}"


def to_document(found: Characterization) -> dict[str, Any]:
    """The whole characterization, ready for JSON: unknown is null, never 0."""
    return {
        "schema_version": CHARACTERIZE_SCHEMA_VERSION,
        "source": found.source,
        "kind": found.kind,
        "training": dict(found.facts),
        "counts": _plain(found.counts),
        "ledger": None if found.ledger is None else _ledger_entry(found, found.ledger),
        "causes": [_plain(cause) for cause in found.causes],
        "chapters": [_plain(chapter) for chapter in found.chapters],
        "notes": list(found.notes),
    }


def _ledger_entry(found: Characterization, ledger: Ledger) -> dict[str, Any]:
    return {
        "unit": found.unit.name,
        "gpus": [_plain(gpu) for gpu in ledger.gpus],
        "begin_s": ledger.begin_ns / 1e9,
        "end_s": ledger.end_ns / 1e9,
        "gpu_s": ledger.gpu_s,
        "query": LEDGER_QUERY,
        "inputs": ["ledger"],
        "categories": [
            {
                "category": category,
                "meaning": MEANING[category],
                "gpu_s": ns / 1e9,
                "share": ledger.share(category) if ledger.gpu_s else None,
            }
            for category, ns in ledger.ns.items()
        ],
        "by_step": _plain(found.ledger_by_step),
        "waits": _plain(found.waits),
    }


def _plain(value: Any) -> Any:
    """``value`` as JSON knows it."""
    if isinstance(value, Queried):
        return {name: _plain(item) for name, item in value.values().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
