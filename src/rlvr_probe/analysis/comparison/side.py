"""One side of a comparison: a run, or a range of its steps, as far as it is compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from rlvr_probe.analysis.causes import Cause, find_causes
from rlvr_probe.analysis.causes.weights_and_queues import own_pace_by_step, pace_by_step
from rlvr_probe.analysis.ledger.ledger import Unit, unit_of
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.stages import ALL, Stage, Taken, finished_steps, stage_times
from rlvr_probe.analysis.statements import statements
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.recording.tables import Tables

__all__ = ["TOKEN", "Side", "Steps", "read_side"]

_SQL: Final = statements(__name__)

TOKEN: Final = Stage("token", "a token of rollout", (), "train")
"""The median time of a token: how long rollout takes is up to its longest trajectory and to tools,
which differ far more; beside the training it takes no time of a step."""

Steps = tuple[int, int]
"""First and last number of a range of steps, as the trainer logs them."""

_OF_RESPONSES: Final = (ALL.name, "reward")
"""Stages that may follow tokens, and that causes do not expect to."""

_OF_A_START: Final = ("session", "rank", "resumed_step", "ids")
"""Facts of a session that belong to one process or start, and differ where no setting does."""


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared of a run. The first step of each session is omitted: it warms up.

    Attributes:
        source: Run id.
        gpus: How many there are.
        unit: What they are.
        numbers: What the trainer logs as the number of each step, by ``step_id``, in their order.
        settings: What the run was made with, by name, as text.
        causes: Of the whole run; none where only some steps are compared.
        taken: What stages took.
        whole: What every step took, by ``step_id``, ns of wall time.
        paces: ns of a token of what was generated in a step, or beside the training for it, by
            ``step_id``; empty unless turns have times of their own.
    """

    source: str
    gpus: int
    unit: Unit
    numbers: Mapping[int, int]
    settings: Mapping[str, str]
    causes: Sequence[Cause]
    taken: Taken
    whole: Mapping[int, float]
    paces: Mapping[int, float]

    @property
    def steps(self) -> Steps:
        """Its first and last step."""
        return min(self.numbers.values()), max(self.numbers.values())

    def times(self, stage: Stage) -> Mapping[int, float]:
        """What it took, by ``step_id``, ns; steps in which it did not take place are absent."""
        apart = {ALL: self.whole, TOKEN: self.paces}
        taken = apart[stage] if stage in apart else self.taken.ns.get(stage.name, {})
        return {step: taken[step] for step in self.numbers if taken.get(step)}

    def mean_s(self, stage: Stage) -> float | None:
        """What it took in the mean of all steps, s; None if it never took place.

        A token: in the mean of the steps in which that is known.
        """
        times = self.times(stage)
        steps = times if stage == TOKEN else self.numbers
        return sum(times.values()) / len(steps) / 1e9 if times else None

    @property
    def whole_s(self) -> float:
        """What a step took in the mean, s."""
        return fmean(self.whole[step] for step in self.numbers) / 1e9

    def tokens(self, stage: Stage) -> list[Sequence[float]]:
        """Kinds of tokens that its time may follow, of the steps of :meth:`times`."""
        mode = "train" if stage.name in _OF_RESPONSES else stage.tokens
        return self.taken.tokens_of(mode, list(self.times(stage)))

    def mean_tokens(self) -> float | None:
        """Tokens of prompts and responses of a step, in the mean."""
        kinds = self.tokens(ALL)
        return fmean(kinds[0]) if kinds else None


def read_side(tables: Tables, steps: Steps | None = None) -> Side:
    """One side of a comparison; the tables get those of the ledger besides.

    Args:
        tables: Of a recording.
        steps: Which of them; all.

    Raises:
        RecordingError: It has no times of steps, or none of these.
    """
    ledger, rows = finished_steps(tables)
    taken = stage_times(tables)
    first, last = steps or (0, max(number for _, number, _ in rows))
    kept = [row for row in rows if first <= row[1] <= last and row[0] not in taken.starts]
    if not kept:
        numbers = [number for _, number, _ in rows]
        raise RecordingError(
            f"{tables.source} has steps {min(numbers)} to {max(numbers)}, of which the first of a"
            f" session warms up and is not compared; expected some of steps {first} to {last}"
        )
    own = {step: ns for step, (ns, _) in own_pace_by_step(tables).items()}
    return Side(
        source=tables.source,
        gpus=len(ledger.gpus),
        unit=unit_of(tables),
        numbers={step: number for step, number, _ in kept},
        settings=_settings(tables, len(ledger.gpus)),
        causes=find_causes(tables) if steps is None else (),
        taken=taken,
        whole={step: ns for step, _, ns in kept},
        paces=own or dict(pace_by_step(tables)[1:]),
    )


def _settings(tables: Tables, gpus: int) -> dict[str, str]:
    """What a run was made with: facts of its last session, and its machines."""
    found = dict[str, object]()
    for (facts,) in query(tables, _SQL["facts"]).rows:
        found.update(json.loads(facts))
    [[hosts, models]] = query(tables, _SQL["machines"]).rows
    found |= {"gpus": gpus, "gpu_model": models, "hosts": hosts}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in sorted(found.items())
        if name not in _OF_A_START and value is not None
    }
