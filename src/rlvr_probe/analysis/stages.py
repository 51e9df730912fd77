"""What every stage of every step took, waits included, and the tokens that its time may follow.

The table ``ledger`` has the time of every GPU by step and category; here it is added up by stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.ledger import Ledger, make_ledger
from rlvr_probe.analysis.results import Answer, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.recording.tables import Tables

__all__ = ["ALL", "STAGES", "Stage", "Taken", "finished_steps", "stage_times"]

_SQL: Final = statements(__name__)


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the ledger.

    Attributes:
        name: As a place of a cause.
        title: What takes the time, in words.
        categories: Its categories.
        tokens: ``train`` or ``eval``: whose tokens its time may follow; empty of none.
    """

    name: str
    title: str
    categories: tuple[str, ...]
    tokens: str = ""


STAGES: Final = (
    Stage("data", "fetching prompts", ("overhead.data",)),
    Stage(
        "rollout", "rollout",
        ("work.rollout", "wait.rollout", "discarded.filtered", "discarded.surplus",
         "discarded.truncated", "discarded.stale"), "train",
    ),
    Stage("reward", "verification", ("wait.reward",)),
    Stage(
        "logprob", "log-probs and values",
        ("work.old_logprob", "work.ref_logprob", "work.values"), "train",
    ),
    Stage(
        "update", "the update", ("work.update_actor", "work.update_critic", "wait.update"),
        "train",
    ),
    Stage("weight_sync", "moving weights", ("work.weight_sync", "wait.refit")),
    Stage("checkpoint", "a checkpoint", ("checkpoint",)),
    Stage("evaluation", "an evaluation", ("eval",), "eval"),
    Stage("between_steps", "what lies between stages", ("bubble",)),
    Stage("dispatch", "dispatch", ("overhead.dispatch",)),
    Stage("probe", "the probe", ("overhead.probe",)),
)  # fmt: skip

ALL: Final = Stage("step", "a step", ())
"""All stages together."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What stages took.

    Attributes:
        ns: By name of the stage and ``step_id``, ns of wall time; stages that took none are absent.
        tokens: By mode and ``step_id``, kinds of tokens of the step; the first three are prompts
            and responses, responses, the longest of them.
        starts: First step of each session.
        answer: What was asked for the times.
    """

    ns: Mapping[str, Mapping[int, float]]
    tokens: Mapping[tuple[str, int], Sequence[float]]
    starts: frozenset[int]
    answer: Answer

    def tokens_of(self, mode: str, steps: Sequence[int]) -> list[Sequence[float]]:
        """Kinds of tokens that its time may follow, for every step; none if one is unknown."""
        counts = [self.tokens.get((mode, step)) for step in steps]
        known = [count for count in counts if count is not None]
        return list(zip(*known, strict=True)) if len(known) == len(steps) else []


def finished_steps(tables: Tables) -> tuple[Ledger, Sequence[tuple[int, int, float]]]:
    """The ledger, and of each finished step ``step_id``, its number, and its wall time, ns.

    Raises:
        RecordingError: There is none with its times.
    """
    ledger = make_ledger(tables)
    rows = [] if ledger is None else query(tables, _SQL["steps"]).rows
    if ledger is None or not rows:
        raise RecordingError(f"{tables.source} has no finished step with its times: expected a run")
    return ledger, rows


def stage_times(tables: Tables) -> Taken:
    """What the stages of a run took, whose ledger is made."""
    answer = query(
        tables,
        _SQL["series"],
        categories=[category for stage in STAGES for category in stage.categories],
        stages=[stage.name for stage in STAGES for _ in stage.categories],
    )
    taken = dict[str, dict[int, float]]()
    for name, step, ns in answer.rows:
        taken.setdefault(name, {})[step] = ns
    tokens = query(tables, _SQL["tokens"]).rows
    return Taken(
        ns={stage.name: taken[stage.name] for stage in STAGES if stage.name in taken},
        tokens={(mode, step): tuple(counts) for mode, step, *counts in tokens},
        starts=frozenset(step for (step,) in query(tables, _SQL["starts"]).rows),
        answer=answer,
    )
