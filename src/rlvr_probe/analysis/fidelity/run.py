"""What is known of a run for a card: times of its steps, what was in flight, and its lengths."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rlvr_probe.analysis.metrics import occupancy
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.samples import prepare
from rlvr_probe.analysis.stages import STAGES, finished_steps, stage_times
from rlvr_probe.analysis.statements import statements
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model.replay_note import ReplayNote
from rlvr_probe.recording.tables import Tables

__all__ = ["Batch", "Group", "Run", "read_run"]

_SQL: Final = statements(__name__)

_UNKNOWN: Final = -1
"""In the place of a length that was not recorded."""


Group = tuple[tuple[int, int] | None, ...]
"""Lengths of prompt and response of the samples of one prompt, tokens; None where unknown."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Lengths of a batch, by row, tokens.

    Attributes:
        step: In which it was generated.
        prompts, responses: Of each row.
        prompt_of_row: Which prompt of the batch each row is of; all the same one if empty.
    """

    step: int
    prompts: Sequence[int]
    responses: Sequence[int]
    prompt_of_row: Sequence[int] = ()

    def groups(self, length: Callable[[int], int] = int) -> list[Group]:
        """The groups, ``length`` of every length.

        Prompts are in the order of their first row, which in some frameworks is that of answers.
        """
        found = defaultdict[int, list[tuple[int, int] | None]](list)
        of_rows = self.prompt_of_row or [0] * len(self.prompts)
        for group, *row in zip(of_rows, self.prompts, self.responses, strict=True):
            found[group].append((length(row[0]), length(row[1])) if min(row) > 0 else None)
        return list(map(tuple, found.values()))


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Steps are numbers, as its trainer logs them; what is unknown of a step is absent.

    Attributes:
        source: Run id, or name of a log.
        whole: Wall time of each step, s.
        stages: The same by name of the stage; 0 in steps in which it did not take place.
        starts: First steps of sessions, which warm up.
        note: What it was to repeat; None if it was not a replay.
        in_order: Whether steps have no number, so that they are paired in their order.
        batches: Those of training; none of a log.
        verified: Steps of which it is known how long verification took.
        tools: Time in which tools ran and nothing was generated, s.
        last: From the start of the first trajectory to the end of the last one, s.
        categories: GPU time by category, s.
        profile: Mean number of requests in flight in each tenth of the rollout.
        speed: By number of requests in flight, seconds and generated tokens.
    """

    source: str
    whole: Mapping[int, float]
    stages: Mapping[str, Mapping[int, float]]
    starts: frozenset[int] = frozenset()
    note: ReplayNote | None = None
    in_order: bool = False
    batches: Sequence[Batch] = ()
    verified: frozenset[int] = frozenset()
    tools: Mapping[int, float] = field(default_factory=dict)
    last: Mapping[int, float] = field(default_factory=dict)
    categories: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    profile: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    speed: Mapping[int, Sequence[tuple[int, float, float]]] = field(default_factory=dict)

    @property
    def extent(self) -> str:
        """Its steps, in words."""
        return f"steps {min(self.whole)} to {max(self.whole)}"


def read_run(tables: Tables, note: ReplayNote | None = None) -> Run:
    """What a recording says; the tables get those of the ledger and of the flight besides.

    Args:
        tables: Of a recording.
        note: What it was to repeat.

    Raises:
        RecordingError: Its steps have no times, or cannot be paired with those of another run.
    """
    _, rows = finished_steps(tables)
    numbers = {step: number for step, number, _ in rows}
    if len(set(numbers.values())) < len(numbers):
        raise RecordingError(
            f"{tables.source} has steps of the same number, of several sessions: they cannot be"
            " paired"
        )
    [[queued, lost]] = query(tables, _SQL["unpaired"]).rows
    if queued:
        raise RecordingError(
            f"{tables.source} generated for a queue: steps of asynchronous runs cannot be paired"
        )
    if note is not None and lost:
        raise RecordingError(
            f"{tables.source} lost the lengths of {lost:,} batches: which of the plan the others"
            " are is unknown"
        )
    taken = stage_times(tables)
    prepare(tables)
    occupancy.observe(tables, None)
    return Run(
        source=tables.source,
        whole={number: ns / 1e9 for _, number, ns in rows},
        stages={
            stage.name: {
                number: taken.ns[stage.name].get(step, 0.0) / 1e9
                for step, number in numbers.items()
            }
            for stage in STAGES
            if stage.name in taken.ns
        },
        starts=frozenset(numbers[step] for step in taken.starts & numbers.keys()),
        note=note,
        batches=_batches(tables),
        verified=frozenset(number for (number,) in query(tables, _SQL["verified"]).rows),
        tools=dict(query(tables, _SQL["tools"]).rows),
        last=dict(query(tables, _SQL["last"]).rows),
        categories={step: dict(known) for step, known in _by_step(tables, "categories").items()},
        profile={step: dict(known) for step, known in _by_step(tables, "profile").items()},
        speed=_by_step(tables, "speed"),
    )


def _by_step(tables: Tables, name: str) -> dict[int, list[Any]]:
    """Rows of a statement by the number of the step, which comes first."""
    found = defaultdict[int, list[Any]](list)
    for number, *row in query(tables, _SQL[name]).rows:
        found[number].append(row)
    return found


def _batches(tables: Tables) -> list[Batch]:
    found, rows = list[Batch](), tables.sql.execute(_SQL["batches"])
    # One by one: as Python's numbers they would take eight times the room.
    while (row := rows.fetchone()) is not None:
        number, *columns = row
        prompts, responses, of_rows = (
            array("q", [_UNKNOWN if value is None else value for value in values])
            for values in columns
        )
        found.append(Batch(number, prompts, responses, of_rows))
    return found
