"""Columns that several tables have, and a word for each type of a column."""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording.columns import Column

__all__ = [
    "ATTEMPT",
    "BATCH",
    "DEVICE",
    "FUNCTION",
    "GROUP",
    "NUMBER",
    "PROCESS",
    "REAL",
    "STEP",
    "TOOK",
    "TRAJECTORY",
    "TURN",
    "id_",
    "ns",
    "number",
    "seconds",
    "text",
    "tokens",
    "yes",
]

_ID: Final = "INTEGER"
NUMBER: Final = "BIGINT"
_TEXT: Final = "VARCHAR"
_YES: Final = "BOOLEAN"
REAL: Final = "DOUBLE"


def id_(name: str, meaning: str) -> Column:
    """A number that runs from 0 without a gap."""
    return Column(name, _ID, meaning)


def number(name: str, meaning: str) -> Column:
    """Any other whole number."""
    return Column(name, NUMBER, meaning)


def tokens(name: str, meaning: str) -> Column:
    """A count of tokens."""
    return Column(name, NUMBER, meaning, "tokens")


def text(name: str, meaning: str) -> Column:
    """A text."""
    return Column(name, _TEXT, meaning)


def yes(name: str, meaning: str) -> Column:
    """True or false."""
    return Column(name, _YES, meaning)


def ns(name: str, meaning: str) -> Column:
    """A moment on the clock of the run, ns."""
    return Column(name, NUMBER, meaning, "ns")


def seconds(name: str, meaning: str) -> Column:
    """A length of time, s."""
    return Column(name, REAL, meaning, "s")


STEP = id_("step_id", "its step in `step`; NULL if it belongs to none")
BATCH = id_("batch_id", "its batch in `batch`")
TRAJECTORY = id_("trajectory_id", "its trajectory in `trajectory`")
PROCESS = id_("process", "its process in `process`")
ATTEMPT = id_("attempt", "launch of the job, from 0")
TURN = number("turn", "turns that the trajectory had before it")
FUNCTION = text("function", "name of the reward function")
DEVICE = id_("device", "its device in `device`")
GROUP = number("grp", "position of its prompt in the batch, from 0")
TOOK = seconds("took_s", "how long it took, also where a workload does not say when")
