"""Where a process writes its files: the run folder, or a spool on a local disk."""

from __future__ import annotations

from pathlib import Path

from rlvr_probe import guard, spool
from rlvr_probe.config import Config
from rlvr_probe.election import Keeper
from rlvr_probe.journal import OpenTable, Space
from rlvr_probe.model import schema

__all__ = ["Place"]


class Place:
    """The place of one process start.

    Attributes:
        path: The folder it writes to.
        space: The room there is.
    """

    def __init__(self, folder: Path, process: str, config: Config) -> None:
        """Take note of the run folder; nothing is looked at."""
        self.path = folder
        self._folder = folder
        self._process = process
        self._config = config
        self.space = Space(folder, process, config.budget_b, config.free_b)

    @guard.fail_open("recorder.spool")
    def settle(self, keeper: Keeper) -> None:
        """Change to a spool if one is wanted; where there is no place for it, that is counted."""
        path = spool.choose(self._folder, self._config)
        if path != self._folder:
            config = self._config
            self.space = Space(path, self._process, config.budget_b, config.free_b)
            self.path = keeper.spool = path

    def make_table(self) -> OpenTable:
        """The table of open spans.

        Raises:
            OSError: It cannot be made.
        """
        self.path.mkdir(0o700, parents=True, exist_ok=True)
        return OpenTable(self.path / f"p{self._process}{schema.OPEN_SUFFIX}", self._process)
