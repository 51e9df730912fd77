"""Makes causes of what queries found in a run, unless it is noise; and the laps that they replay.

A *lap* is what one rank does from one barrier to the next. The step waits for the longest; with
another duration of one of its parts another rank may be the longest. ``cause_lap`` has a row for
each step, barrier and rank:

*   ``own_ns`` is what its GPU worked, so that a faster GPU makes it shorter;
*   ``tool_ns`` and ``reward_ns`` are what it waited for its own tools and reward functions: what
    ran at the same time counts once.

``cause_path`` has a row for each trajectory that goes its own way, from its start until it was
verified. ``cause_called`` has the calls of tools and reward functions that a rank waits for itself.
``cause_hidden`` has the stages whose ranks end together, because a collective in them
makes all wait for the last: how long each of them worked is not in its spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rlvr_probe.analysis.causes.cause import (
    HAPPENED,
    HELPS,
    REFUTED,
    Cause,
    Saving,
    is_early,
    per_cent,
    seconds,
)
from rlvr_probe.analysis.causes.thresholds import CONFIDENCE, NOISE
from rlvr_probe.analysis.ledger import Extent
from rlvr_probe.analysis.ledger.ledger import Unit, unit_of
from rlvr_probe.analysis.results import Answer, Evidence, query
from rlvr_probe.analysis.statements import covered, fill, make, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["WITHOUT", "Run"]

_SQL: Final = statements(__name__)

_KEYS: Final = "step_id, process, part"
WITHOUT: Final = covered(_SQL["other_calls"], _KEYS)
"""Time in which a rank waits for a tool or a reward function, but for those of ``$names``."""


def _waited(row: Mapping[str, Any], unit: Unit) -> str:
    """How long a step waited at a barrier, and for whom."""
    time = unit.say("GPU time")
    waited = f"; {seconds(row['gpu_ns'])} of {time} at its {row['barrier']} barrier"
    who = ", ".join(_last(row))
    return waited + (f", for {who}" if who else "")


def _last(row: Mapping[str, Any]) -> Iterator[str]:
    """Who came last to a barrier, part by part."""
    kind, name = row["last_kind"], row["name"]
    if row["trajectory_id"] is not None:
        known = None not in (row["grp"], row["sample"])
        place = f" (sample {row['sample']} of group {row['grp']})" if known else ""
        yield f"trajectory {row['trajectory_id']}{place}"
    if row["trajectory_id"] is not None and row["engine"] is not None:
        yield f"engine {row['engine']}"
    elif row["rank"] is not None:
        yield f"rank {row['rank']}"
    if kind == "turn" and row["turn"] is not None:
        yield f"turn {row['turn']}"
    elif kind in ("tool", "reward") and name is not None:
        yield str(name)
    elif kind is not None and kind not in ("turn", "tool"):
        yield str(kind)


_WORST = 3
"""Worst cases that are shown."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose laps are made, and how large it is.

    Attributes:
        unit: What has the time.
        numbers: What the trainer logs as the number of a step, by ``step_id``.
        found: Causes that were made, and what each would save.
        allowed: Share of the GPU time that may go into what a kind is about, where that is all that
            it is compared with.
        usual: Share up to which a kind belongs to the workload.
    """

    tables: Tables
    extent: Extent
    unit: Unit
    numbers: Mapping[int, int]
    found: list[tuple[Cause, Saving]] = field(default_factory=list)
    allowed: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=lambda: {"long_tail": 1.0})

    @classmethod
    def of(cls, tables: Tables, extent: Extent) -> Run:
        """The run of these tables, which have those of GPUs; makes those of this module."""
        for name in ("work", "calls", "called", "parts", "laps", "hidden", "hot"):
            tables.sql.execute(fill(_SQL[name], waited=covered("cause_called", _KEYS)))
        make(tables, _SQL.derived("cause_path"), by_step=True)
        rows = tables.sql.execute(_SQL["numbers"]).fetchall()
        return cls(tables, extent, unit_of(tables), dict(rows))

    def number(self, step: int) -> int:
        """What the trainer logs as the number of a step, by its ``step_id``."""
        return self.numbers.get(step, step)

    def ask(self, sql: str, **values: object) -> Answer:
        """As :func:`rlvr_probe.analysis.results.query`."""
        return query(self.tables, sql, **values)

    def share(self, saving: Saving) -> float:
        """Of wall time, and so of the time of all GPUs, 0..1."""
        return max(0.0, saving.wall_ns) / self.extent.wall_ns

    def is_noise(self, saving: Saving) -> bool:
        """Whether nothing is to be said of it."""
        return self.share(saving) < NOISE

    def worst_steps(self, saving: Saving, count: int) -> list[str]:
        """The first of the steps that it cost most, in words, and whom each waited for most."""
        steps, last, gpus = list(saving.worst_steps[:count]), dict[int, str](), self.extent.gpus
        if steps and self.tables.has("barrier_wait"):
            rows = self.ask(_SQL["last"], steps=steps).dicts
            last = {row["step_id"]: _waited(row, self.unit) for row in rows}
        whose = f" of all {self.unit.count(gpus)}" if gpus > 1 else ""
        return [
            f"step {self.number(step)}: {seconds(saving.by_step[step])}{whose}{last.get(step, '')}"
            for step in steps
        ]

    def cause(
        self,
        kind: str,
        title: str,
        answer: Answer,
        saving: Saving | None = None,
        *,
        noise: float = NOISE,
        where: Mapping[str, str | int] | None = None,
        evidence: Mapping[str, Evidence] | None = None,
        worst: Iterable[str] | None = None,
    ) -> list[Cause]:
        """The cause, unless it is noise.

        Args:
            kind: What it is.
            title: What is wrong and where; its share is put behind it.
            answer: The query that gave the saving.
            saving: What a run without it would not have needed; that of the rows of the answer.
            noise: Share of the run below which it is noise.
            where: The place.
            evidence: Ids beside the steps.
            worst: Worst cases; without them, the steps that it cost most.
        """
        saving = Saving.of(answer.rows) if saving is None else saving
        share, gpus, error = self.share(saving), self.extent.gpus, saving.error_ns
        if share < noise:
            return []
        gpu_s = gpus * max(0.0, saving.wall_ns) / 1e9
        error_s = None if error is None else gpus * error / 1e9
        ids = {"step": Evidence.of(saving.worst_steps), **(evidence or {})}
        cause = Cause(
            kind=kind,
            title=f"{title}: {per_cent(share)} of {self.unit.say('GPU time')}" if gpu_s else title,
            gpu_s=gpu_s,
            share=share,
            low=None if error_s is None else max(0.0, gpu_s - error_s),
            high=None if error_s is None else gpu_s + error_s,
            confidence=CONFIDENCE.get(kind),
            where=dict(where or {}),
            evidence={kind: some for kind, some in ids.items() if some.count},
            worst=tuple(self.worst_steps(saving, _WORST) if worst is None else worst),
            usually_helps=self.unit.say(HELPS[kind]),
            refuted_by=self.unit.say(REFUTED[kind]),
            query=answer.query,
            no_interval="" if kind in HAPPENED else saving.no_interval(self.extent.steps),
            early=kind not in HAPPENED and is_early(self.extent.steps),
            natural=kind in self.usual and share <= self.usual[kind],
        )
        self.found.append((cause, saving))
        return [cause]
