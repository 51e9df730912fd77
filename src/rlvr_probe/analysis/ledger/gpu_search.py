"""The search for the GPUs of a run: what is found so far, and how a process gets its own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["Gpu", "Places", "Search"]

_SQL: Final = statements(__name__)


@dataclass(slots=True)
class Gpu:
    """One GPU of the ledger, or what stands for one.

    Attributes:
        index: Its number, from 0.
        key: What names it in every attempt.
        device: Its row in ``device``; None if no device is known.
        process: The first process that is known to work on it; None if none is.
        rank: Of that process, in the training or in its group.
        part: ``train``, ``rollout`` or ``both``.
    """

    index: int
    key: str
    device: int | None = None
    process: int | None = None
    rank: int | None = None
    host: str = ""
    boot: str = ""
    part: str = "train"
    processes: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Process:
    """One process of an attempt, as the table says."""

    attempt: int
    host: str
    boot: str
    rank: int | None
    world_size: int | None
    role: str


@dataclass(slots=True)
class Places:
    """What was found.

    Attributes:
        gpus: All GPUs.
        controllers: By attempt, processes that call the ranks for each stage.
        ranks: By attempt, processes that train and call no ranks.
        notes: What was assumed, where it is not sure.
    """

    gpus: list[Gpu] = field(default_factory=list)
    controllers: dict[int, list[int]] = field(default_factory=dict)
    ranks: dict[int, list[int]] = field(default_factory=dict)
    engines: list[tuple[int, int, int]] = field(default_factory=list)
    """Attempt, engine and index of a GPU."""
    owners: list[tuple[int, int, int]] = field(default_factory=list)
    """Attempt, engine and the process that has it."""
    first: dict[tuple[int, int], tuple[int | None, int | None]] = field(default_factory=dict)
    """By index of a GPU and attempt: the first process that works on it then, and its rank."""
    notes: list[str] = field(default_factory=list)


class Search:
    """Asks the tables, and gives every GPU its place.

    Attributes:
        found: What was found so far.
        processes: By number.
        works: Device, host and boot of what a process surely works on.
        given: Keys of what a cluster gave a process to work on.
    """

    def __init__(self, tables: Tables) -> None:
        """Start with nothing found."""
        self.sql = tables.sql
        self.found = Places()
        self._by_key: dict[str, Gpu] = {}
        rows = self.ask(_SQL["processes"])
        self.processes = {process: Process(*facts) for process, *facts in rows}
        self.works = self._devices()
        # A number is the same in every attempt.
        self.given = defaultdict[int, list[str]](list)
        for process, accelerator in self.ask(_SQL["accelerators"]):
            if process in self.processes:
                self.given[process].append(f"given {self.processes[process].host} {accelerator}")
        self._known = {
            names[0]: self.works[process][0]
            for process, names in self.given.items()
            if len(names) == len(self.works.get(process, ())) == 1
        }
        # Attempts that ran at the same time: a rank has no place of its own.
        self._apart = self.ask(_SQL["concurrent"]) == [(True,)]

    def ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.sql.execute(query, values).fetchall()

    def numbers(self, query: str) -> set[int]:
        """The values of its only column."""
        return {number for (number,) in self.ask(query)}

    def _devices(self) -> dict[int, list[tuple[int, str, str]]]:
        """Devices that a process surely works on; which of several it may use is unknown."""
        rows = groupby(self.ask(_SQL["devices"]), key=itemgetter(0))
        known = {process: [row[1:] for row in some] for process, some in rows}
        return {
            process: [(device, host, boot) for device, host, boot, _ in some]
            for process, some in known.items()
            if len(some) == 1 or some[0][-1] == "torch"
        }

    def gpu(self, key: str, attempt: int) -> Gpu:
        """The GPU of that name; a new one if there is none."""
        if self._apart and not key.startswith(("device", "given")):
            key = f"{key} of {attempt}"
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Gpu(len(self._by_key), key)
            self.found.gpus.append(found)
        return found

    def put(self, process: int, key: str, rank: int | None) -> list[Gpu]:
        """The GPUs of a process that works on some."""
        recorded = self.processes[process]
        gpus = list[Gpu]()
        places: list[tuple[str, int | None, str, str]] = [
            (f"device {device}", device, host, boot)
            for device, host, boot in self.works.get(process, ())
        ]
        if not places:
            for name in self.given.get(process, [key]):
                device, host, boot = self._known.get(name, (None, recorded.host, recorded.boot))
                places.append((name if device is None else f"device {device}", device, host, boot))
        for name, device, host, boot in places:
            gpu = self.gpu(name, recorded.attempt)
            gpu.device = device
            if not gpu.processes:
                gpu.process, gpu.rank, gpu.host, gpu.boot = process, rank, host, boot
            gpu.processes.append(process)
            self.found.first.setdefault((gpu.index, recorded.attempt), (process, rank))
            gpus.append(gpu)
        return gpus
