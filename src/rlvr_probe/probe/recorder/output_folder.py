"""Where a process writes its files: the run folder, or a spool on a local disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlvr_probe import guard, spool
from rlvr_probe.access import PRIVATE
from rlvr_probe.config import Config
from rlvr_probe.model import schema
from rlvr_probe.probe import launcher_notices
from rlvr_probe.probe.election import Keeper
from rlvr_probe.probe.identity import rank
from rlvr_probe.probe.journal import JournalWriter, OpenTable, Space

__all__ = ["OutputFolder"]


_log = logging.getLogger("rlvr_probe")


class NotOurs(PermissionError):
    """The run folder is somebody else's, a link, or open to everybody: another one is used."""


class OutputFolder:
    """Where one process start writes.

    Attributes:
        folder: The run folder.
        path: The folder it writes to.
        space: The room there is.
        access: Who may read what it writes.
    """

    def __init__(self, folder: Path, process: str, config: Config) -> None:
        """Take note of the run folder; nothing is looked at."""
        self.folder = self.path = folder
        self.access = config.access
        self._process = process
        self._config = config
        self.space = Space(folder, process, config.budget_b, config.free_b)

    @guard.fail_open("recorder.spool")
    def settle(self, keeper: Keeper) -> None:
        """Change to a spool if one is wanted; a missing place is counted."""
        path = spool.choose(self.folder, self._config)
        if path != self.folder:
            self.access = PRIVATE
            self._write_to(path)
            keeper.spool = path

    def make_writer(
        self, header: dict[str, Any], definitions: Callable[[int], Sequence[Sequence[Any]]]
    ) -> JournalWriter:
        """The journal, of which nothing is there yet."""
        size_b = self._config.segment_b
        return JournalWriter(self.path, self._process, header, definitions, size_b, self.access)

    def begin(self, writer: JournalWriter, keeper: Keeper) -> None:
        """Write the header of a journal, and go where it could be written.

        A launcher is notified of what keeps it from being written.
        """
        writer.write(())
        if writer.refused:
            launcher_notices.notify("refused", writer.refused)
        elif writer.folder != self.path:
            before, self.folder = self.folder, writer.folder
            self._write_to(writer.folder)
            keeper.follow(writer.folder)
            guard.note("recorder.folder", NotOurs(), log=False)
            # A launcher has said so.
            if keeper.first and launcher_notices.NOTICES not in os.environ and not rank(os.environ):
                _log.warning(
                    "the run folder %s is somebody else's, a link, or open to everybody: recording"
                    " to %s",
                    before,
                    writer.folder,
                )

    def _write_to(self, path: Path) -> None:
        config = self._config
        self.space = Space(path, self._process, config.budget_b, config.free_b)
        self.path = path

    def make_table(self) -> OpenTable:
        """The table of open spans.

        Raises:
            OSError: It cannot be made.
        """
        name = f"p{self._process}{schema.OPEN_SUFFIX}"
        return OpenTable(self.access.own(self.path) / name, self._process, self.access)
