"""What the processes of a replay report to the command: a file each, a line for each thing."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import msgspec

__all__ = ["PLAN", "Outcome", "Progress", "read_outcome"]

PLAN = "plan.json"
"""Name of the plan in the folder of a replay."""


class Progress:
    """Writes into the folder of the replay. Each line is on disk when the call returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steered(self, framework: str) -> None:
        """A framework was imported here, and is steered."""
        self._write(["steered", framework])

    def done(self, index: int, share: int, shares: int) -> None:
        """One of ``shares`` has done batch ``index`` of the plan."""
        self._write(["done", index, share, shares])

    def failed(self, reason: str) -> None:
        """Nothing can be steered by a plugin in this process."""
        self._write(["failed", reason])

    def _write(self, line: list[object]) -> None:
        # Not kept open: a fork would share it.
        with open(self.folder / f"{os.getpid()}.jsonl", "ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was replayed.

    Attributes:
        frameworks: That were imported and steered, anywhere.
        done: Batches that every share has done, by position in the plan.
        failures: Why plugins could not be loaded.
    """

    frameworks: frozenset[str]
    done: frozenset[int]
    failures: tuple[str, ...]


def read_outcome(folder: Path) -> Outcome:
    """What was reported into ``folder``; a line that was cut short counts as not there."""
    frameworks, failures = set[str](), dict[str, None]()
    shares = defaultdict[int, set[int]](set)
    wanted = dict[int, int]()
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                continue
            kind, *values = msgspec.json.decode(line)
            if kind == "steered":
                frameworks.add(values[0])
            elif kind == "failed":
                failures[values[0]] = None
            else:
                index, share, count = values
                shares[index].add(share)
                wanted[index] = count
    done = frozenset(index for index, found in shares.items() if len(found) == wanted[index])
    return Outcome(frozenset(frameworks), done, tuple(failures))
