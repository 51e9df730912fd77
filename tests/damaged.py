"""Damage to the journals of a recording, as disks, kills and copies leave it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

__all__ = ["DAMAGE", "cut", "garble"]

_NO_ROW: Final = b'["\x00"\n'


def cut(run: Path, share: float = 0.6) -> None:
    """Every journal ends after a share of its bytes, as on a disk that was full."""
    for path in _journals(run):
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])


def garble(run: Path, every: int = 17) -> None:
    """One row in ``every`` is no JSON, and one is there twice."""
    for path in _journals(run):
        rows = path.read_bytes().splitlines(keepends=True)
        kept = [_NO_ROW if number % every == 5 else row for number, row in enumerate(rows)]
        path.write_bytes(b"".join((*kept, *rows[7:8])))


def _cut_apart(run: Path, draw: random.Random) -> None:
    for path in _journals(run):
        content = path.read_bytes()
        path.write_bytes(content[: draw.randrange(len(content) + 1)])


def _garble_some(run: Path, draw: random.Random) -> None:
    garble(run, draw.randrange(6, 60))


def _lose_a_file(run: Path, draw: random.Random) -> None:
    draw.choice(_journals(run)).unlink()


def _lose_rows(run: Path, draw: random.Random) -> None:
    every = draw.choice((2, 5, 20))
    for path in _journals(run):
        header, *rows = path.read_bytes().splitlines(keepends=True) or [b""]
        path.write_bytes(b"".join((header, *(row for row in rows if draw.randrange(every)))))


DAMAGE: Final[Mapping[str, Callable[[Path, random.Random], None]]] = {
    "each journal ends somewhere": _cut_apart,
    "rows are no JSON": _garble_some,
    "a file is gone": _lose_a_file,
    "rows are gone": _lose_rows,
}
"""Kinds of damage, each drawn."""


def _journals(run: Path) -> list[Path]:
    return sorted(run.glob("*.jsonl"))
