"""The journal of a sidecar: what it read of devices, and what became of itself."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rlvr_probe import guard
from rlvr_probe.access import PRIVATE, Access
from rlvr_probe.config import Config
from rlvr_probe.filesystem import file_system, is_network
from rlvr_probe.model import names, schema
from rlvr_probe.model.names import Name
from rlvr_probe.probe import identity
from rlvr_probe.probe.journal import JournalWriter, Space
from rlvr_probe.probe.journal.space import FINE
from rlvr_probe.probe.journal.writer import build_header, epoch_pair
from rlvr_probe.probe.recorder import bookkeeping
from rlvr_probe.spool import ROUND_S

__all__ = ["Count", "SidecarJournal"]

Row = Sequence[Any]

_ALWAYS: Final = frozenset(
    name.name for name in (names.PROCESS, names.DEVICE, names.DEVICE_FAULT, names.DEVICE_NOTE)
)
"""What is written where room is short, as stages are."""


_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class Count:
    """Notes beside a journal how many lines it holds, so that a cut or deleted one is seen.

    The file is an open-span table without slots, for the readers of those, and like these absent on
    network file systems.
    """

    def __init__(self, folder: Path, process: str, access: Access = PRIVATE) -> None:
        """Make nothing yet.

        Args:
            folder: Where its journal is.
            process: Process key.
            access: Who may read it.
        """
        self._access = access
        self._path = folder / f"p{process}{schema.OPEN_SUFFIX}"
        self._process = process.encode()
        self._fd = -1
        self._wanted = True

    def note(self, now_ns: int, lost: int, written: int, *, ended: bool = False) -> None:
        """Note that the process was alive at ``now_ns`` (CLOCK_MONOTONIC).

        Where that cannot be written, what the journal lacks is not seen.

        Args:
            now_ns: The moment.
            lost: Rows lost so far.
            written: Lines that its journal holds: they were written before.
            ended: Whether it closed its journal in an orderly way.
        """
        block = schema.pack_block(
            schema.OPEN_HEADER, schema.OPEN_MAGIC, self._process,
            now_ns, 0, 0, int(ended), lost, written,
        )  # fmt: skip
        try:
            if self._ready():
                os.pwrite(self._fd, block.ljust(schema.OPEN_SLOT_BYTES, b"\0"), 0)
        except OSError:  # no room, or it was deleted together with the folder
            self._wanted = False

    def _ready(self) -> bool:
        if self._fd >= 0 and os.fstat(self._fd).st_nlink == 0:
            os.close(self._fd)
            self._fd = -1
        if self._fd < 0 and self._wanted:
            self._wanted = not is_network(file_system(self._path.parent))
            if self._wanted:
                self._fd = self._access.open(self._path, _FLAGS)
        return self._fd >= 0


class SidecarJournal:
    """Writes rows of one sidecar. Nothing is written before :meth:`begin`.

    Attributes:
        process: Its process key.
        mono_ns: CLOCK_MONOTONIC at time 0 of the journal.
    """

    def __init__(self, folder: Path, config: Config, *, spooled: bool = False) -> None:
        """Take note of where to write.

        Args:
            folder: Run folder, or its spool. Never made here: if it is gone, the run was deleted.
            config: Settings of the processes of the run.
            spooled: It is a spool.
        """
        self._spooled = spooled
        self.process = identity.process_key()
        self.mono_ns, self._epoch_ns = epoch_pair()
        self._folder = folder
        self._config = config
        self._space = Space(folder, self.process, config.budget_b, config.free_b)
        self._writer: JournalWriter | None = None
        self._access = Access(config.group_readable and not spooled, claims=False)
        self._count = Count(folder, self.process, self._access)
        self._always: set[object] = set()
        self._told: dict[object, int] = {}
        self.lost = Counter[str]()

    def define(self, name: Name, attributes: Sequence[str]) -> int:
        """Number of the layout of rows for a name with these attributes."""
        number = bookkeeping.define(name, attributes)
        if name.name in _ALWAYS:
            self._always.add(number)
        return number

    def begin(self, run: str) -> None:
        """Write the header and what this process is.

        Args:
            run: Run id, as the other journals of the folder have it.
        """
        header = build_header(
            process=self.process,
            run=run,
            owner=None,
            mono_ns=self.mono_ns,
            epoch_ns=self._epoch_ns,
        )
        # Inherited from the process that happened to start this one.
        header.update(rank=None, local_rank=None, world_size=None, ids={})
        self._writer = JournalWriter(
            self._folder,
            self.process,
            header,
            bookkeeping.definitions_since,
            self._config.segment_b,
            self._access,
        )
        told: dict[str, object] = {"spool_s": ROUND_S} if self._spooled else {}
        told["role"] = names.SIDECAR
        role = self.define(names.PROCESS, tuple(told))
        self.write([(role, time.monotonic_ns() - self.mono_ns, 0, *told.values())])

    def write(self, rows: Sequence[Row]) -> None:
        """Append event rows; those that find no room or no folder are dropped and counted."""
        writer = self._writer
        if writer is None or not rows:
            return
        if not self._folder.is_dir():
            self.lost["deleted"] += len(rows)
            return
        if self._space.look(writer.written_b, time.monotonic_ns()) <= FINE:
            whole = len(rows)
            rows = [row for row in rows if row[0] in self._always]
            self.lost[self._space.reason] += whole - len(rows)
        writer.write(rows)
        self._note(writer)

    def write_totals(self) -> None:
        """Write the running totals that changed: losses, faults, processor time."""
        self._write_service(self._totals())

    def fault(self, place: str, error: str, count: int = 1) -> None:
        """Write that something does not work here, and how often that was, all in all."""
        self._write_service([("fault", time.monotonic_ns() - self.mono_ns, place, error, count)])

    def end(self, reason: str) -> None:
        """Close the journal.

        Args:
            reason: Why the sidecar leaves: ``exit`` or ``signal``.
        """
        time_ns = time.monotonic_ns() - self.mono_ns
        self._write_service([*self._totals(), ("end", time_ns, reason)])
        if self._writer is not None:
            self._writer.close()
            self._note(self._writer, ended=True)

    def _note(self, writer: JournalWriter, *, ended: bool = False) -> None:
        lost = sum((self.lost + writer.lost).values())
        self._count.note(time.monotonic_ns(), lost, writer.written, ended=ended)

    def _totals(self) -> list[Row]:
        time_ns = time.monotonic_ns() - self.mono_ns
        written = Counter[str]() if self._writer is None else self._writer.lost
        rows = list[Row]()
        for reason, total in (self.lost + written).items():
            if self._changed(("lost", reason), total):
                rows.append(("lost", time_ns, reason, total))
        for (place, error), total in guard.faults().items():
            if self._changed((place, error), total):
                rows.append(("fault", time_ns, place, error, total))
        if self._changed("own", time.process_time_ns() // 1_000_000):
            rows.append(("own", time_ns, time.process_time_ns()))
        return rows

    def _write_service(self, rows: Sequence[Row]) -> None:
        if self._writer is None or not rows or not self._folder.is_dir():
            return
        if not self._writer.write(rows, records=False):
            self._told.clear()
        self._note(self._writer)

    def _changed(self, key: object, total: int) -> bool:
        before, self._told[key] = self._told.get(key), total
        return before != total
