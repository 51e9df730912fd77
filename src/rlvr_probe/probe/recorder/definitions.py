"""Layouts of rows: one number for each name with its attributes, the same in every fork."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.probe.journal.space import ALWAYS, FINE, SAMPLES

__all__ = ["define", "since", "worth"]

Definition = tuple[str, int, str, str, tuple[str, ...]]

_BY_SAMPLE = frozenset({names.TRAJECTORIES.name, names.REWARDS.name, names.USER.name})

_definitions: list[Definition] = []
_by_layout: dict[tuple[str, tuple[str, ...]], int] = {}
_numbers = itertools.count()
_worth: dict[int, int] = {}


def define(name: Name, attributes: Sequence[str]) -> int:
    """Number of the layout of rows for ``name`` with these attributes."""
    layout = (name.name, tuple(attributes))
    number = _by_layout.get(layout)
    if number is None:
        # No lock, which a signal handler could meet again: two numbers for one layout do no harm,
        # one number for two layouts would.
        number = next(_numbers)
        kind = "event" if name.event else "span"
        if not name.event and not name.coarse:
            _worth[number] = FINE
        elif name.name in _BY_SAMPLE:
            _worth[number] = SAMPLES
        _definitions.append(("def", number, kind, *layout))
        _by_layout[layout] = number
    return number


def since(number: int) -> list[Definition]:
    """Every definition from ``number`` on, as rows of the journal."""
    return _definitions[number:]


def worth(number: int) -> int:
    """What rows of a definition are worth where room is short, as ``journal.space`` has it."""
    return _worth.get(number, ALWAYS)
