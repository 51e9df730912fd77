"""Joins fine rows with the rows of batches, in SQL: the tables of what was generated.

What a run is, its attempts, steps and batches, is known before. The statements say what belongs
together; this says in which order they are asked, and what was counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.trace import Attempt, Step
from rlvr_probe.recording.bulk import Bulk, real
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.coarse_rows import TrajectoryRow
from rlvr_probe.recording.processes import Recorded
from rlvr_probe.recording.ranges import narrowed, put_together
from rlvr_probe.recording.schema import statements
from rlvr_probe.recording.store import FineStore

if TYPE_CHECKING:
    import duckdb

__all__ = ["Counts", "Part", "all_batches", "join", "numbered", "tidy"]


_FEW: Final = 100_000
"""Of fewer rows a query takes longer to plan than to answer: a quarter less time without it."""

_TOGETHER: Final = 10_000_000
"""Trajectories that are joined at once, at least, where there are more: memory holds them."""

_AS_WRITTEN: Final = "join_order,build_side_probe_side"
"""What DuckDB must not choose itself: it guesses how many rows of compacted segments match, and
holds the wide side of ten million in memory. The statements have the narrow one on the right."""


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one event, by number, and what becomes of them.

    Attributes:
        begun_ns: Start of the rollout that made them, on the clock of the run.
    """

    attempt: int
    row: TrajectoryRow
    shard: BatchShard
    recorded: Recorded
    begun_ns: int | None


@dataclass(slots=True)
class Counts:
    """What could not be joined, by attempt.

    Attributes:
        skipped: Lost, by reason.
        loose: Recorded by one process alone, by what it is.
    """

    skipped: dict[int, Counter[str]] = field(default_factory=dict)
    loose: Counter[str] = field(default_factory=Counter)

    def skip(self, reason: str, by_attempt: Mapping[int, int]) -> None:
        """Count what is lost."""
        for attempt, count in by_attempt.items():
            self.skipped.setdefault(attempt, Counter())[reason] += count


def numbered(attempts: Sequence[Attempt]) -> list[Step]:
    """Every step, at the place that is its ``step_id``: by start; those without go before it."""
    keyed, last = list[tuple[int, int, Step]](), 0
    for attempt in attempts:
        for step in attempt.steps:
            moments = [span.start_ns for span in step.spans]
            moments += [
                shard.recorded_ns
                for batch in (*step.batches, *step.evaluations)
                for shard in batch.shards
                if shard.recorded_ns is not None
            ]
            last = min(moments, default=last)
            keyed.append((last, len(keyed), step))
    return [step for _, _, step in sorted(keyed, key=lambda item: item[:2])]


def all_batches(attempts: Sequence[Attempt]) -> Iterator[tuple[int | None, Batch]]:
    """Every batch, in the order of their ``batch_id``, with the ``step_id``."""
    for at, step in enumerate(numbered(attempts)):
        for batch in (*step.batches, *step.evaluations):
            yield at, batch
    for attempt in attempts:
        for batch in attempt.untrained:
            yield None, batch


def join(
    store: FineStore,
    attempts: Sequence[Attempt],
    parts: Sequence[Part],
    processes: Sequence[Recorded],
    clock: RunClock,
) -> Counts:
    """Fill the tables ``trajectory``, ``turn``, ``tool_call``, ``verification``, ``reward``.

    Also ``request``, and ``engine_call`` with what turns are of no trajectory. ``turn`` has a
    column more, ``number``, until :func:`tidy`. Attempts are given their unjoined requests.

    Args:
        store: All fine rows of the run.
        attempts: With all that is coarse.
        parts: Recorded events of batches; their places are their numbers.
        processes: At the places that are their indices.
        clock: Of the run.
    """
    sql, bulk = store.open()
    if not store.whole and store.rows.total() < _FEW:
        sql.execute("SET threads = 1; PRAGMA disable_optimizer")
    _add_members(bulk, store, attempts, processes, clock)
    _add_parts(bulk, store, parts, clock)
    _add_shards(bulk, attempts, parts)
    bulk.finish()
    counts = Counts()
    sql.execute(f"SET disabled_optimizers = '{_AS_WRITTEN}'")
    sql.execute("ALTER TABLE turn ADD COLUMN number BIGINT")
    ask = _Asking(sql, "join.sql")
    _join_rows(ask, parts)
    _join_trajectories(ask, counts, spans=any(part.row.spans is not None for part in parts))
    ragged = any(batch.ragged for _, batch in all_batches(attempts))
    ask.run("trajectories", *(["samples"] if ragged else []))
    if store.rows["q_turn"] or store.rows["q_tool"]:
        _join_turns(ask, counts, store.rows)
    requests = _Asking(sql, "requests.sql")
    store.has_requests = _join_requests(requests, counts, store.rows)
    if store.has_requests:
        for index, unjoined in requests.by_attempt("unjoined").items():
            attempts[index].unjoined_requests = unjoined
    rewards = _Asking(sql, "rewards.sql")
    if store.rows["q_verification"]:
        _join_rewards(rewards)
    elif store.whole:
        rewards.run("told_alone")
    sql.execute("RESET disabled_optimizers")
    return counts


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks the statements of one file."""

    sql: duckdb.DuckDBPyConnection
    file: str

    def run(self, *names: str) -> int:
        """Run statements; the one number that the last of them gives."""
        known, rows = statements("rlvr_probe.recording.fine", self.file), []
        for name in names:
            rows = self.sql.execute(known[name]).fetchall()
        return int(rows[0][0]) if rows and rows[0] else 0

    def run_by_process(self, name: str, table: str) -> int:
        """Run one that joins places of trajectories with ``table``; the sum of its numbers.

        It does so in ranges of processes, whose rows meet no others.
        """

        def of_processes(first: int, last: int) -> dict[str, str]:
            return dict.fromkeys(("q_place", table), f"p BETWEEN {first} AND {last}")

        counted = "SELECT p, p, count(*) FROM q_place GROUP BY p ORDER BY p"
        ranges = put_together(self.sql.execute(counted).fetchall(), _TOGETHER)
        return sum(self.run(name) for _ in narrowed(self.sql, ranges, of_processes))

    def by_attempt(self, name: str) -> dict[int, int]:
        """A count by attempt."""
        query = statements("rlvr_probe.recording.fine", self.file)[name]
        return dict(self.sql.execute(query).fetchall())


def _add_members(
    bulk: Bulk,
    store: FineStore,
    attempts: Sequence[Attempt],
    processes: Sequence[Recorded],
    clock: RunClock,
) -> None:
    attempt_of = {index: attempt.index for attempt in attempts for index in attempt.processes}
    members = [
        (store.number(process.header.process), index, attempt_of[index], process)
        for index, process in enumerate(processes)
        if index in attempt_of
    ]
    bulk.add(
        "q_member",
        (
            (p, index, attempt, process.header.clock, clock.at(process, process.header.mono_ns))
            for p, index, attempt, process in members
        ),
    )
    bulk.add(
        "q_serve",
        (
            (p, other, process.header.clock == scheduler.header.clock)
            for p, _, attempt, process in members
            for other, _, its, scheduler in members
            if attempt == its and _may_serve(scheduler, process)
        ),
    )


def _may_serve(scheduler: Recorded, client: Recorded) -> bool:
    """Whether a process may schedule what another one, or the same, asks for."""
    if scheduler is client:
        return True
    ours, theirs = client.header, scheduler.header
    child = theirs.clock == ours.clock and theirs.ppid == ours.pid and theirs.host == ours.host
    return child or theirs.owner == ours.process


def _add_parts(bulk: Bulk, store: FineStore, parts: Sequence[Part], clock: RunClock) -> None:
    for number, part in enumerate(parts):
        row, size = part.row, len(part.row.response_tokens)
        bulk.add(
            "q_part",
            [
                (
                    number, part.attempt, size, store.number(part.recorded.header.process),
                    part.recorded.header.clock, clock.at(part.recorded, row.time_ns),
                    part.begun_ns, row.batch, row.k,
                )
            ],
        )  # fmt: skip
        values: dict[str, Sequence[Any] | None] = {
            "local": list(range(size)),
            "prompt_tokens": list(row.prompt_tokens),
            "response_tokens": list(row.response_tokens),
            "cut": None if row.truncated is None else list(row.truncated),
            "engine": None if row.engines is None else list(row.engines),
            "grp": None if row.groups is None else list(row.groups),
            "loss": None if row.loss_runs is None else [sum(runs[::2]) for runs in row.loss_runs],
            "span": None if row.spans is None else list(row.spans),
            "source": row.sources,
        }
        bulk.add_columns("q_batch_row", values, n=number)


def _add_shards(bulk: Bulk, attempts: Sequence[Attempt], parts: Sequence[Part]) -> None:
    number_of = {id(part.shard): number for number, part in enumerate(parts)}
    first = 0
    for batch_id, (step_id, batch) in enumerate(all_batches(attempts)):
        for shard in batch.shards:
            n, size = number_of[id(shard)], len(shard.response_tokens)
            row, told = parts[n].row, shard.rewards
            timed = any(column.verify_s is not None for column in told)
            bulk.add(
                "q_shard",
                [
                    (
                        n, first, batch_id, step_id, batch.mode, shard.process, shard.offset, size,
                        batch.group_size, batch.policy_version, shard.start_ns, shard.end_ns,
                        row.groups is not None, row.engines is not None, row.loss_runs is not None,
                        row.truncated is not None, row.spans is not None, len(told), timed,
                    )
                ],
            )  # fmt: skip
            bulk.add(
                "q_reward",
                (
                    (
                        n, column.function, column.index, list(map(real, column.values)),
                        None if column.verify_s is None else list(column.verify_s),
                    )
                    for column in told
                ),
            )  # fmt: skip
            first += size


def _join_rows(ask: _Asking, parts: Sequence[Part]) -> None:
    """Join rows of batches with their keys, in ranges of events."""
    sizes = ((number, number, len(part.row.response_tokens)) for number, part in enumerate(parts))

    def of_events(first: int, last: int) -> dict[str, str]:
        keyed = [part.row.k for part in parts[first : last + 1] if part.row.k is not None] or [-1]
        return {
            "q_batch_row": f"n BETWEEN {first} AND {last}",
            "q_key": f"k BETWEEN {min(keyed)} AND {max(keyed)}",
        }

    for _ in narrowed(ask.sql, put_together(sizes, _TOGETHER), of_events):
        ask.run("rows")


def _join_trajectories(ask: _Asking, counts: Counts, *, spans: bool) -> None:
    ask.run("alone", "joined", *(["by_span"] if spans else []))
    if ask.run("doubtful"):
        ask.run("twice", "contested")
        claims = ask.by_attempt("claims")
        ask.run("settle", "refuse")
        alone = ask.by_attempt("told_alone")
        counts.loose["trajectories"] += sum(alone.values()) - sum(claims.values())
    counts.skip("unjoined_trajectories", ask.by_attempt("unjoined"))
    ask.run("flags", "places" if spans else "places_apart")


def _join_turns(ask: _Asking, counts: Counts, rows: Mapping[str, int]) -> None:
    ask.run("only", "numbered")
    for kind, table, joined, loose in (
        ("turns", "q_turn", "q_numbered_turn", ["loose_turns"]),
        ("tools", "q_tool", "q_tool", []),
    ):
        if rows[table] and ask.run_by_process(kind, joined) < rows[table]:
            ask.run(f"other_{kind}", f"{kind}_of_batches", *loose)
            counts.skip("unjoined_turns", ask.by_attempt(f"wrong_{kind}"))


def _join_requests(ask: _Asking, counts: Counts, rows: Mapping[str, int]) -> bool:
    """Join requests with turns; whether there are any."""
    if not rows["q_request"] and not (rows["q_turn"] and ask.run("any_told")):
        return False
    ask.run("sides", "asked", "pairs", "found")
    counts.loose["requests"] += sum(ask.by_attempt("unserved").values())
    ask.run("placed", "by_parent", "by_name", "matched", "told", "told_found", "told_matched")
    ask.run("requests", "served")
    return True


def _join_rewards(ask: _Asking) -> None:
    for column in ("n INTEGER", "value DOUBLE"):
        ask.sql.execute(f"ALTER TABLE verification ADD COLUMN {column}")
    ask.run_by_process("verified", "q_verification")
    shared = ask.run("shared")
    ask.run("functions", "told", "each_once")
    if ask.run("odd"):
        ask.run("not_once")
    if shared:
        ask.sql.execute("DELETE FROM verification WHERE start_ns IS NULL")
    for column in ("n", "value"):
        ask.sql.execute(f"ALTER TABLE verification DROP COLUMN {column}")


def tidy(sql: duckdb.DuckDBPyConnection) -> None:
    """Drop what only the joining needed."""
    for kind in ("view", "table"):
        found = sql.execute(
            f"SELECT {kind}_name FROM duckdb_{kind}s() WHERE starts_with({kind}_name, 'q_')"
        )
        for (name,) in found.fetchall():
            sql.execute(f"DROP {kind} {name}")
    # To look for these as well takes as long as all the rest.
    sql.execute("DROP MACRO q_high; DROP MACRO q_low; ALTER TABLE turn DROP COLUMN number")
