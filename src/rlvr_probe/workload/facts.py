"""Facts about the training that a workload states: those of its last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_probe.model.trace import Attempt, Trace
from rlvr_probe.recording.training import changed_facts, last_training

__all__ = ["Facts", "collect_facts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Values of ``session`` events.

    Attributes:
        notes: Facts that differ between trainings.
    """

    values: dict[str, object]
    notes: tuple[str, ...]

    def text(self, name: str) -> str | None:
        """A text, None if unknown."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def count(self, name: str) -> int | None:
        """A number of at least 1, None if unknown or 0."""
        value = self.values.get(name)
        return value if type(value) is int and value > 0 else None

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, empty if unknown."""
        value = self.values.get(name)
        if not isinstance(value, (list, tuple)):
            return ()
        return tuple(item for item in value if isinstance(item, str))


def collect_facts(trace: Trace, attempts: Sequence[Attempt]) -> Facts:
    """The facts of the last training of ``attempts``; where others differ, that is noted."""
    values = last_training(attempts)
    if "world_size" not in values:
        sizes = [trace.processes[i].world_size for a in attempts for i in a.processes]
        known = [size for size in sizes if size]
        if known:
            values["world_size"] = max(known)
    # By name alone: a value may be what a workload has an alias for.
    notes = tuple(
        f"{name} differs between trainings; the workload states that of the last one"
        for name in changed_facts(attempts)
    )
    return Facts(values, notes)
