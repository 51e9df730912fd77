"""What the readers of the two flavors have in common: the manifest's say, and ``x_rlvr``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rlvr_probe.model.batch import RewardColumn
from rlvr_probe_polytrace.fields import COUNT, is_integer, is_number

__all__ = ["Told", "column", "counts", "reward_columns"]


@dataclass(slots=True)
class Told:
    """What the manifest says, and what the records have in common.

    Attributes:
        unknown: Fields of which some values stand for an unknown one.
        steps: By workload step: ``session``, ``trainer_step``, ``ordinal``.
        caps: Longest responses allowed, tokens, as the records say.
    """

    unknown: frozenset[str] = frozenset()
    steps: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    caps: set[int] = field(default_factory=set)

    def known(self, name: str, value: object, placeholder: object) -> bool:
        """Whether ``value`` of the field ``name`` is a recorded one.

        Where some are not, one that looks like those is none: unknown is never a number.
        """
        return name not in self.unknown or value != placeholder

    def place(self, step: int) -> tuple[int, int, int] | None:
        """Session, trainer step and ordinal of a workload step; None if it is not told."""
        one = self.steps.get(step, {})
        found = [one.get(name) for name in ("session", "trainer_step", "ordinal")]
        numbers = [value for value in found if is_integer(value) and value >= 0]
        return None if len(numbers) < len(found) else (numbers[0], numbers[1], numbers[2])


def column(
    given: Mapping[str, object], name: str, count: int, test: Callable[[object], bool]
) -> Sequence[object | None] | None:
    """A list of ``x_rlvr`` with one entry per sample, None for what is unknown or no such value."""
    values = given.get(name)
    if not isinstance(values, list) or len(values) != count:
        return None
    return [value if test(value) else None for value in values]


def counts(given: Mapping[str, object], name: str, count: int) -> list[int | None]:
    """The same of whole numbers from 0; all unknown where there is no such list."""
    values = column(given, name, count, COUNT.test)
    return [value if is_integer(value) else None for value in values or [None] * count]


def reward_columns(
    given: Sequence[Mapping[str, object]], sizes: Sequence[int]
) -> list[RewardColumn]:
    """Rewards of all samples of ``given``, which are ``x_rlvr`` of groups of such ``sizes``."""
    functions = dict[str, tuple[list[float | None], list[float | None]]]()
    size = 0
    for one, count in zip(given, sizes, strict=True):
        for name, values, times in _functions(one):
            kept = functions.setdefault(name, ([], []))
            for whole, part in zip(kept, (values, times), strict=True):
                whole.extend([None] * (size - len(whole)))
                whole.extend(_numbers(part, count))
        size += count
    found = []
    for index, (name, (values, times)) in enumerate(functions.items()):
        for whole in (values, times):
            whole.extend([None] * (size - len(whole)))
        known = any(time is not None for time in times)
        found.append(RewardColumn(name, index, values, times if known else None))
    return found


def _functions(one: Mapping[str, object]) -> list[tuple[str, object, object]]:
    """Name, values and times of each reward function."""
    several, times = one.get("rewards"), one.get("verify_s")
    if isinstance(several, dict):
        by_name = times if isinstance(times, dict) else {}
        return [(name, values, by_name.get(name)) for name, values in several.items()]
    if "reward" in one:
        name = one.get("verifier")
        return [(name if isinstance(name, str) else "", one["reward"], times)]
    return []


def _numbers(values: object, count: int) -> list[float | None]:
    listed = values if isinstance(values, list) else [values]
    if len(listed) != count:
        return [None] * count
    return [float(value) if is_number(value) and math.isfinite(value) else None for value in listed]
