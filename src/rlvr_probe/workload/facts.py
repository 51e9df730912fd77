"""Facts about the training that a workload states, from what its sessions recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_probe.model.trace import Attempt, Trace

__all__ = ["Facts", "collect_facts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Values of ``session`` events, the first that were recorded; None if none was.

    Attributes:
        notes: Facts that changed during the run.
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


_STATED = (
    "framework", "framework_version", "algorithm", "engine", "model_type", "world_size",
    "accelerators", "rollout_tp", "max_prompt_tokens", "max_response_tokens",
    "steps_per_generation", "iterations", "accumulation", "prompts_per_update",
    "reward_functions",
)  # fmt: skip


def collect_facts(trace: Trace, attempts: Sequence[Attempt]) -> Facts:
    """The facts of ``attempts``; where they differ the first ones are stated and the rest noted."""
    values = dict[str, object]()
    changed = list[str]()
    for attempt in attempts:
        for session in attempt.sessions:
            for name in _STATED:
                value = session.facts.get(name)
                if value is None:
                    continue
                if values.setdefault(name, value) != value and name not in changed:
                    changed.append(name)
    if "world_size" not in values:
        sizes = [trace.processes[i].world_size for a in attempts for i in a.processes]
        known = [size for size in sizes if size]
        if known:
            values["world_size"] = max(known)
    notes = tuple(
        f"{name} changed during the run; the workload states the first value" for name in changed
    )
    return Facts(values, notes)
