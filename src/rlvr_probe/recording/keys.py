"""Joins trajectories of the processes that generated them with the rows of who trains on them.

A key names a trajectory in both. It is accepted only if it was told once on either side, at a time
and with lengths that agree; what is not, is counted.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.columns import PairColumn, RaggedColumn, SparseColumn
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.generated import TrajectoryRow
from rlvr_probe.recording.load import Recorded
from rlvr_probe.recording.lone import KeyColumn, LoneSpans

__all__ = ["KeyedRows"]

_LOCAL = 0xFFFFFFFF
"""A place is the number of a shard, or of a process, and a row of it in the lower 32 bits."""


@dataclass(slots=True)
class _Keyed:
    """A shard whose rows have keys.

    Attributes:
        seen: How many trajectories claim each row; 2 is several.
        source: Process and place of the one that was joined with each row; -1 for none.
    """

    row: TrajectoryRow
    keys: KeyColumn
    shard: BatchShard
    recorded: Recorded
    begun_ns: int | None
    seen: bytearray
    source: array[int]


class KeyedRows:
    """The rows with keys of one attempt, by key.

    Attributes:
        untold: Trajectories of which no trainer told.
    """

    def __init__(self, clock: RunClock) -> None:
        """Hold none; times are on ``clock``."""
        self._clock = clock
        self._shards = list[_Keyed]()
        self._place = dict[int, int]()
        self._processes = list[Recorded]()
        self.untold = 0

    def add(
        self, row: TrajectoryRow, shard: BatchShard, recorded: Recorded, begun_ns: int | None
    ) -> None:
        """Take the rows of a shard.

        Args:
            row: Its event.
            shard: What becomes of it.
            recorded: The process that told it.
            begun_ns: When the rollout that made it began, on the clock of the run.
        """
        if row.keys is None:
            return
        size, number = len(row.keys), len(self._shards)
        source = array("q", [-1]) * size
        self._shards.append(
            _Keyed(row, row.keys, shard, recorded, begun_ns, bytearray(size), source)
        )
        for local, high in enumerate(row.keys.high):
            if high:
                # Told twice: neither of them can be joined.
                self._place[high] = -1 if high in self._place else number << 32 | local

    def note(self, recorded: Recorded) -> None:
        """Note which rows the trajectories of a process claim; all do, before any is joined."""
        for _, keyed, local in self._claims(recorded.journal.alone):
            keyed.seen[local] = min(2, keyed.seen[local] + 1)

    def join(self, recorded: Recorded) -> dict[int, tuple[BatchShard, int]]:
        """Shard and row of the trajectories of one process, by span id."""
        alone = recorded.journal.alone
        found = dict[int, tuple[BatchShard, int]]()
        number, claimed = len(self._processes), 0
        self._processes.append(recorded)
        for at, keyed, local in self._claims(alone):
            claimed += 1
            if keyed.seen[local] == 1 and self._agrees(keyed, local, recorded, at):
                keyed.source[local] = number << 32 | at
                found[alone.span[at]] = (keyed.shard, local)
        self.untold += sum(map(bool, alone.keys.high)) - claimed
        return found

    def finish(self, skipped: Counter[str]) -> None:
        """Give the shards what their trajectories say; count the rows that have none."""
        for keyed in self._shards:
            named = sum(map(bool, keyed.keys.high))
            joined = sum(place >= 0 for place in keyed.source)
            skipped["unjoined_trajectories"] += named - joined
            if named:
                self._fill(keyed, whole=joined == len(keyed.source))

    def _claims(self, alone: LoneSpans) -> Iterator[tuple[int, _Keyed, int]]:
        """Place of each trajectory that has the key of a row, with that row."""
        keys = alone.keys
        for at, high in enumerate(keys.high):
            place = self._place.get(high, -1) if high else -1
            if place >= 0:
                keyed, local = self._shards[place >> 32], place & _LOCAL
                if keyed.keys.low[local] == keys.low[at]:
                    yield at, keyed, local

    def _agrees(self, keyed: _Keyed, local: int, recorded: Recorded, at: int) -> bool:
        """Whether lengths and time of a trajectory are those of the row."""
        row, alone = keyed.row, recorded.journal.alone
        prompt, response = alone.prompt_tokens[at], alone.response_tokens[at]
        if prompt not in (None, row.prompt_tokens[local]):
            return False
        if response not in (None, row.response_tokens[local]):
            return False
        narrow = bool(alone.keys.narrow[at])
        one_clock = recorded.header.clock == keyed.recorded.header.clock
        if not narrow and not one_clock:
            return True
        told_ns, begun_ns = self._clock.at(keyed.recorded, row.time_ns), keyed.begun_ns
        start_ns = self._clock.at(recorded, alone.start_ns[at])
        end_ns = self._clock.at(recorded, alone.end_ns[at])
        if not one_clock:
            # Between two machines both ends may be off by as much as their clocks.
            start_ns = end_ns = (start_ns + end_ns) // 2
        if end_ns > told_ns:
            return False
        return not narrow or (begun_ns is not None and start_ns >= begun_ns)

    def _fill(self, keyed: _Keyed, *, whole: bool) -> None:
        shard, size = keyed.shard, len(keyed.source)
        times = PairColumn(size)
        versions = PairColumn(size)
        engines, cut = SparseColumn.unknown(size), SparseColumn.unknown(size)
        masked = whole
        for local, place in enumerate(keyed.source):
            if place < 0:
                continue
            recorded, at = self._processes[place >> 32], place & _LOCAL
            alone = recorded.journal.alone
            start_ns, end_ns = alone.start_ns[at], alone.end_ns[at]
            times[local] = (self._clock.at(recorded, start_ns), self._clock.at(recorded, end_ns))
            oldest, newest = alone.oldest[at], alone.newest[at]
            if oldest is not None and newest is not None:
                versions[local] = (oldest, newest)
            engines[local] = alone.engine[at]
            cut[local] = alone.truncated[at]
            masked = masked and bool(alone.masked[at])
        shard.times_ns = times
        if any(pair is not None for pair in versions):
            shard.policy_versions = versions
        if shard.engines is None and any(engine is not None for engine in engines):
            shard.engines = engines
        if shard.truncated is None and None not in cut:
            shard.truncated = bytes(map(bool, cut))
        if shard.loss_runs is None and masked:
            shard.loss_runs = RaggedColumn(
                self._processes[place >> 32].journal.alone.loss_runs[place & _LOCAL]
                for place in keyed.source
            )
