"""What is known of the GPUs of a run while :mod:`~.places` and :mod:`~.engines` look for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["Gpu", "Places", "Process", "Search", "insert"]

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

    process: int
    attempt: int
    host: str
    boot: str
    rank: int | None
    world_size: int | None
    role: str
    state: str
    last_seen_ns: int


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
        self.processes = {row[0]: Process(*row) for row in rows}
        self.works = self._devices()
        self.given = self._given()
        self._known = {
            names[0]: self.works[process][0]
            for process, names in self.given.items()
            if len(names) == len(self.works.get(process, ())) == 1
        }
        self._apart = self._concurrent()

    def ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.sql.execute(query, values).fetchall()

    def numbers(self, query: str) -> set[int]:
        """The values of its only column."""
        return {number for (number,) in self.ask(query)}

    def _devices(self) -> dict[int, list[tuple[int, str, str]]]:
        """Devices that a process surely works on; which of several it may use is unknown."""
        told = dict[int, list[tuple[int, str, str, str]]]()
        for process, device, how, host, boot in self.ask(_SQL["devices"]):
            told.setdefault(process, []).append((device, how, host, boot))
        return {
            process: [(device, host, boot) for device, _, host, boot in some]
            for process, some in told.items()
            if len(some) == 1 or some[0][1] == "torch"
        }

    def _given(self) -> dict[int, list[str]]:
        """Accelerators of a machine that a cluster gave: a number is the same in every attempt."""
        given = dict[int, list[str]]()
        for process, accelerator in self.ask(_SQL["accelerators"]):
            if process in self.processes:
                host = self.processes[process].host
                given.setdefault(process, []).append(f"given {host} {accelerator}")
        return given

    def has_place(self, process: int) -> bool:
        """Whether it is known which GPUs a process works on."""
        return process in self.works or process in self.given

    def _concurrent(self) -> bool:
        """Whether two attempts ran at the same time, so that a rank has no place of its own."""
        [[both]] = self.ask(_SQL["concurrent"])
        return bool(both)

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


def insert(tables: Tables, name: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    """Make a temporary table of rows from Python."""
    types = [column.strip().split(" ") for column in columns.split(",")]
    tables.sql.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({columns})")
    values = [list(column) for column in zip(*rows, strict=True)]
    if values:
        parts = ", ".join(f"unnest(?::{kind}[])" for _, kind in types)
        tables.sql.execute(f"INSERT INTO {name} SELECT {parts}", values)
