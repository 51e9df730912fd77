"""All that the analysis says of one source: the ledger, causes, sections, unexplained time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.causes import Cause, find_causes
from rlvr_probe.analysis.causes.slow_stages import categories_of
from rlvr_probe.analysis.causes.unfinished import dead_processes
from rlvr_probe.analysis.ledger import CATEGORIES, FAMILIES, NAMES, Ledger, make_ledger
from rlvr_probe.analysis.ledger.ledger import Unit, unit_of
from rlvr_probe.analysis.metrics import make_chapters
from rlvr_probe.analysis.results import Answer, Chapter, query
from rlvr_probe.analysis.samples import COUNTS_QUERY
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.journal_files import Decode, decode
from rlvr_probe.recording.tables import Tables

__all__ = [
    "HERE", "LOST", "NO_CAUSE", "PARTS", "Answered", "Characterization", "Engine", "Part", "answer",
    "characterize", "unexplained",
]  # fmt: skip

_SQL: Final = statements(__name__)

Progress = Callable[[str], object]
"""Called with what was done, in a word or two."""

Part = tuple[str, ...]
"""Causes, or sections by name."""

CAUSES: Final[Part] = ("causes",)
PARTS: Final[tuple[Part, ...]] = (
    CAUSES,
    ("ledger",),
    ("lengths",),
    ("occupancy", "imbalance"),
    ("rewards",),
    ("signal",),
    ("tools",),
    ("movement",),
    ("devices",),
    ("asynchronous",),
)
"""What can be answered apart, in the order of the report: every section once."""

Answered = Sequence[Cause | Chapter]
AnswerParts = Callable[[Tables, int | None], Iterator[Answered]]
"""Answers each of :data:`PARTS`, in this order, of tables with those of the ledger; the number is
that of sequences that one engine decodes at once, where it is known."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Does the work: this process, or others for it.

    Attributes:
        decode: Decodes journals.
        answer_parts: Answers questions.
        threads: Of DuckDB in this process; by default one for each core.
    """

    decode: Decode
    answer_parts: AnswerParts
    threads: int | None = None


LEDGER_QUERY: Final = _SQL["ledger"]


@dataclass(frozen=True, slots=True)
class Characterization:
    """What is known of a source.

    Attributes:
        source: Run id, or name of the folder of a workload.
        kind: ``recording`` or ``workload``.
        facts: Of the run: the row of the table ``run``.
        counts: Steps that were finished, trajectories, groups, tokens; of training alone.
        ledger: None where there are no steps with times.
        unit: What the ledger counts.
        ledger_by_step, waits: What the statements of these names gave; None without a ledger.
        causes: Ranked.
        ``chapters``: Sections, in the order of the report.
        notes: What a reader should know of the source, most important first.
    """

    source: str
    kind: str
    facts: Mapping[str, Any]
    counts: Answer
    ledger: Ledger | None
    unit: Unit
    ledger_by_step: Answer | None
    waits: Answer | None
    causes: Sequence[Cause]
    chapters: Sequence[Chapter]
    notes: Sequence[str]


def answer(tables: Tables, part: Part, slots: int | None) -> Answered:
    """What one part says.

    Args:
        tables: Of a recording or a workload, with those of the ledger.
        part: One of :data:`PARTS`.
        slots: Sequences that one engine decodes at once, where that is known.
    """
    if part == CAUSES:
        return tuple(find_causes(tables)) if make_ledger(tables) else ()
    return tuple(make_chapters(tables, slots=slots, names=part))


def answer_here(tables: Tables, slots: int | None) -> Iterator[Answered]:
    """Every part, one after another; see :data:`AnswerParts`."""
    for part in PARTS:
        yield answer(tables, part, slots)


HERE: Final = Engine(decode, answer_here)
"""This process alone."""


def characterize(
    tables: Tables,
    *,
    slots: int | None = None,
    progress: Progress = lambda _: None,
    engine: Engine = HERE,
) -> Characterization:
    """Ask everything; the tables get those of the ledger besides.

    Args:
        tables: Of a recording or a workload.
        slots: Sequences that one engine decodes at once, where that is known.
        progress: Called after each part.
        engine: Answers all that can be answered apart, once the ledger is made.
    """
    ledger = make_ledger(tables)
    progress("ledger")
    causes, chapters = list[Cause](), list[Chapter]()
    for part, answered in zip(PARTS, engine.answer_parts(tables, slots), strict=True):
        for found in answered:
            causes.append(found) if isinstance(found, Cause) else chapters.append(found)
        progress(" ".join(part))
    [facts] = query(tables, _SQL["facts"]).dicts
    return Characterization(
        source=tables.source,
        kind=facts["kind"],
        facts=facts,
        counts=query(tables, COUNTS_QUERY),
        ledger=ledger,
        unit=unit_of(tables),
        ledger_by_step=None if ledger is None else query(tables, _SQL["ledger_by_step"]),
        waits=None if ledger is None else query(tables, _SQL["waits"]),
        causes=tuple(causes),
        chapters=tuple(chapters),
        notes=(*dead_processes(tables), *tables.notes, *(() if ledger is None else ledger.notes)),
    )


LOST: Final[Mapping[str, tuple[str, ...]]] = {
    **{NAMES[name]: (name,) for name in CATEGORIES if name.startswith("wait.")},
    NAMES["bubble"]: ("bubble",),
    FAMILIES["overhead"]: tuple(name for name in CATEGORIES if name.startswith("overhead.")),
    NAMES["unaccounted"]: ("unaccounted",),
}
"""What GPUs did while they did no work, and what of the ledger is in it."""

NO_CAUSE: Final = "no cause found: nothing exceeds the run's own noise"

_MUCH: Final = 0.1
"""Share of the time of all GPUs from which on it is said to be unexplained."""

_WAITED: Final = "wait for "

_TELLS: Final = dict.fromkeys(
    (NAMES["bubble"], NAMES["unaccounted"]), ": mark what happens there with `rlvr_probe.span`"
)
"""What would show the cause, by what is lost."""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The largest part of the lost time that no cause explains.

    Attributes:
        sentence: What is said of it, without a full stop.
        first: Whether it is more than the first cause costs, if there is one.
    """

    sentence: str
    first: bool


def unexplained(found: Characterization) -> Unexplained | None:
    """Lost time without a cause, if that is much.

    What is waited for is explained by whatever cause there is; what goes on between stages by what
    was open when the recording ended, and by causes of that stage.
    """
    ledger, causes = found.ledger, found.causes
    if ledger is None or not ledger.gpu_s or any(cause.kind == "unfinished" for cause in causes):
        return None
    explained = {category: cause.share for cause in causes for category in categories_of(cause)}
    lost = {
        name: ledger.share(*parts) - max(explained.get(part, 0.0) for part in parts)
        for name, parts in LOST.items()
        if not (causes and name.startswith(_WAITED))
    }
    most = max(lost, key=lambda name: lost[name])
    share = lost[most]
    if share < _MUCH:
        return None
    time = found.unit.say("GPU time")
    sentence = f"{100 * share:.0f} % of {time} is {most}, of unknown cause{_TELLS.get(most, '')}"
    return Unexplained(sentence, not causes or share > causes[0].share)
