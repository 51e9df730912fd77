"""Seeds of simulated runs that something is scored on: drawn, or named on a command line."""

from __future__ import annotations

import argparse
import random

__all__ = ["FIXED", "add_seeds", "draw", "seeds_of"]

FIXED = range(500)
"""Seeds that thresholds were fixed on; none of them is drawn."""


def draw(count: int) -> list[int]:
    """So many seeds that nobody has seen."""
    return random.SystemRandom().sample(range(FIXED.stop, 1 << 31), count)


def add_seeds(parser: argparse.ArgumentParser, runs: int) -> None:
    """Let seeds be named, or drawn: as many as ``runs`` if nothing is said."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--runs", type=int, default=runs, help="how many seeds to draw")
    either.add_argument("--seeds", type=_span, metavar="FIRST-LAST", help="these; 7 is one")


def seeds_of(given: argparse.Namespace) -> list[int]:
    """The seeds that were asked for."""
    return draw(given.runs) if given.seeds is None else list(given.seeds)


def _span(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
