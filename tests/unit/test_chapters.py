"""Chapters on tables made by hand, whose figures can be worked out on paper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import pytest

from rlvr_probe.analysis.metrics import CHAPTERS, DERIVED, make_chapters
from rlvr_probe.analysis.metrics.asynchronous import asynchronous
from rlvr_probe.analysis.metrics.devices import devices
from rlvr_probe.analysis.metrics.imbalance import imbalance
from rlvr_probe.analysis.metrics.lengths import icc, lengths
from rlvr_probe.analysis.metrics.movement import movement
from rlvr_probe.analysis.metrics.occupancy import occupancy
from rlvr_probe.analysis.metrics.registry import DEFINITIONS, SERIES
from rlvr_probe.analysis.metrics.rewards import rewards
from rlvr_probe.analysis.metrics.tools import tools
from rlvr_probe.analysis.results import Answer, query
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording.tables import Tables
from tests import today
from tests.by_hand import tables_of
from tests.chaptered import decoded, said

SECOND = 1_000_000_000


@pytest.fixture
def tables() -> Iterator[Tables]:
    with tables_of(Trace("by-hand", [], [], [], [], {}, [])) as opened:
        opened.sql.execute("DELETE FROM run")
        put(opened, "run", run="by-hand", kind="recording", max_response_tokens=100)
        yield opened


def put(tables: Tables, table: str, **columns: object) -> None:
    """Insert one row; that of a part of a trajectory is of the batch of that."""
    if "trajectory_id" in columns and table != "trajectory":
        found = tables.sql.execute(
            "SELECT batch_id FROM trajectory WHERE trajectory_id = ?", [columns["trajectory_id"]]
        )
        [(columns["batch_id"],)] = found.fetchall()
    names = ", ".join(f'"{name}"' for name in columns)
    marks = ", ".join("?" * len(columns))
    tables.sql.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(columns.values()))


def step(tables: Tables, number: int, *, superseded: int | None = None) -> int:
    """A step of 100 s; its id is one less than its number."""
    begin = (number - 1) * 100 * SECOND
    put(
        tables, "step", step_id=number - 1, attempt=0, session=0, life=0, number=number,
        superseded_by=superseded, done=True, complete=True, is_open=False, ranks=1, ranks_done=1,
        start_ns=begin, end_ns=begin + 100 * SECOND, step_start_ns=begin,
        step_end_ns=begin + 100 * SECOND, lost_batches=0,
    )  # fmt: skip
    return number - 1


def batch(
    tables: Tables,
    number: int,
    lengths: Sequence[Sequence[int]],
    *,
    step: int | None = 0,
    mode: str = "train",
    whole: bool = True,
    queued: bool = False,
    **trajectory: object,
) -> list[int]:
    """A batch of groups; trajectories are numbered on, and these numbers returned."""
    rows = sum(map(len, lengths))
    put(
        tables, "batch", batch_id=number, step_id=step, mode=mode, ordinal=0, group_size=2,
        total=rows, rows=rows, queued=queued, ragged=False, whole=whole,
    )  # fmt: skip
    [(first,)] = tables.sql.execute("SELECT count(*) FROM trajectory").fetchall()
    ids = list[int]()
    for group, members in enumerate(lengths):
        put(tables, "prompt_group", batch_id=number, grp=group, size=len(members),
            rows=len(members))  # fmt: skip
        for sample, tokens in enumerate(members):
            known = {"process": 0, "prompt_tokens": 10 + group, **trajectory}
            put(
                tables, "trajectory", trajectory_id=first + len(ids), batch_id=number,
                step_id=step, mode=mode, row=len(ids), grp=group, sample=sample,
                response_tokens=tokens, **known,
            )  # fmt: skip
            ids.append(first + len(ids))
    return ids


def turn(tables: Tables, trajectory: int, begin: float, end: float, number: int = 0) -> None:
    put(
        tables, "turn", trajectory_id=trajectory, turn=number, prompt_tokens=10,
        response_tokens=20, start_ns=round(begin * SECOND), end_ns=round(end * SECOND),
        took_s=end - begin,
    )  # fmt: skip


def test_lengths_of_two_groups(tables: Tables) -> None:
    step(tables, 1)
    ids = batch(tables, 0, [(10, 30), (40, 100)], truncated=False)

    told = said([lengths(tables)])

    assert told.spread("lengths.response") == pytest.approx(
        {"n": 4, "min": 10, "mean": 45, "p50": 35, "p90": 82, "p99": 98.2, "max": 100}
    )
    assert told.figure("lengths.response.max").evidence["trajectory"].ids[0] == ids[3]
    assert told.value("lengths.response.at_cap") == 0.25
    assert told.value("lengths.response.truncated") == 0.0
    # max / mean of the groups: 30 / 20 and 100 / 70.
    assert told.value("lengths.group.max_over_mean.mean") == pytest.approx((1.5 + 10 / 7) / 2)
    assert told.spread("lengths.unique_prompt")["mean"] == 10.5
    assert told.value("lengths.unique_prompt.count") == 2


def test_the_intra_class_correlation_is_that_of_an_analysis_of_variance() -> None:
    # Groups (10, 30) and (40, 100): MSB = 2 * ((20 - 45)^2 + (70 - 45)^2) = 2500 on 1 degree,
    # MSW = (200 + 1800) / 2 = 1000.
    sums = [2, 4, 8, 180, (40**2 + 140**2) / 2, 10**2 + 30**2 + 40**2 + 100**2]

    assert icc(sums) == pytest.approx((2500 - 1000) / (2500 + 1000))


def test_groups_of_equal_lengths_are_all_between_and_nothing_within(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(10, 10), (40, 40), (90, 90)])

    assert said([lengths(tables)]).value("lengths.response.icc") == 1.0


def test_unknown_has_a_reason_and_is_not_zero(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(10, 30)])

    told = said(make_chapters(tables))

    for name in ("lengths.response.truncated", "lengths.loss.mean", "lengths.turn.cached_share"):
        assert told.value(name) is None
        assert told.figure(name).why
    assert told.value("occupancy.mean") is None
    assert told.value("tools.tool.time") is None
    assert told.value("devices.stage.seconds") is None


def test_a_run_without_anything_has_chapters_that_say_so(tables: Tables) -> None:
    tables.sql.execute("DELETE FROM run")

    chapters = list(make_chapters(tables))

    assert [chapter.name for chapter in chapters] == list(CHAPTERS)
    # Numbers of things that are not there are 0; everything else is unknown.
    values = {one.id: one.value for chapter in chapters for one in chapter.figures}
    assert {name for name, value in values.items() if value is not None} == set()


def test_evaluation_superseded_steps_and_cut_batches_do_not_count(tables: Tables) -> None:
    step(tables, 1)
    step(tables, 2, superseded=1)
    batch(tables, 0, [(10, 30)])
    batch(tables, 1, [(77, 77)], mode="eval")
    batch(tables, 2, [(88, 88)], step=1)
    batch(tables, 3, [(99,)], whole=False)

    told = said([lengths(tables)])

    assert told.value("lengths.response.count") == 2
    assert told.value("lengths.response.max") == 30
    assert any("1 generation batch is not whole (1 trajectories)" in one for one in told.notes)


def test_if_no_batch_is_whole_all_count_and_a_note_warns(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(10, 30)], whole=False)

    told = said([lengths(tables)])

    assert told.value("lengths.response.count") == 2
    assert any("rather too small" in note for note in told.notes)


def test_the_tail_index_of_a_pareto_is_its_exponent(tables: Tables) -> None:
    step(tables, 1)
    count, alpha = 4_000, 2.0
    batch(tables, 0, [])
    tables.sql.execute(
        f"""
        INSERT INTO trajectory BY NAME
        SELECT i AS trajectory_id, 0 AS batch_id, 0 AS step_id, 'train' AS mode, i AS grp,
          round(100 * (1 - (i + 0.5) / {count}) ** (-1 / {alpha})) AS response_tokens
        FROM range({count}) drawn(i)
        """
    )

    # Without a cap, and with one that cuts a hundredth of all.
    tables.sql.execute("UPDATE run SET max_response_tokens = NULL")
    free = said([lengths(tables)]).figure("lengths.response.tail_index")
    tables.sql.execute("UPDATE run SET max_response_tokens = 1000")
    tables.sql.execute("UPDATE trajectory SET response_tokens = least(response_tokens, 1000)")
    cut = said([lengths(tables)]).figure("lengths.response.tail_index")

    for one in (free, cut):
        assert one.value == pytest.approx(alpha, rel=0.1)
        assert one.low is not None
        assert one.high is not None
        assert one.low < alpha < one.high


def test_of_a_tail_that_the_cap_cut_off_nothing_is_said(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(100,)] * 10 + [(50,)] * 90)

    one = said([lengths(tables)]).figure("lengths.response.tail_index")

    assert one.value is None
    assert "cap" in one.why


def test_the_trend_is_the_slope_of_the_means(tables: Tables) -> None:
    for number in range(1, 9):
        batch(tables, number, [(10 * number, 10 * number + 4)], step=step(tables, number))

    one = said([lengths(tables)]).figure("lengths.response.trend_mean")

    assert (one.value, one.low, one.high) == (10.0, 10.0, 10.0)


def test_turns_tools_and_what_lies_between(tables: Tables) -> None:
    step(tables, 1)
    [first, second] = batch(tables, 0, [(60, 20)], own_times=True, loss_tokens=20)
    for number, (sent, made, cached) in enumerate([(10, 20, 0), (45, 25, 30)]):
        put(
            tables, "turn", trajectory_id=first, turn=number, prompt_tokens=sent,
            response_tokens=made, cached_tokens=cached, start_ns=number * 4 * SECOND,
            end_ns=(number * 4 + 2) * SECOND, took_s=2.0,
        )  # fmt: skip
    turn(tables, second, 0, 6)
    for tool, status, begin in (("search", "ok", 2), ("search", "error", 3)):
        put(
            tables, "tool_call", trajectory_id=first, turn=0, tool=tool, status=status,
            error="OSError" if status == "error" else None, start_ns=begin * SECOND,
            end_ns=(begin + 1) * SECOND, took_s=1.0,
        )  # fmt: skip

    told = said([lengths(tables), tools(tables)])

    assert told.value("lengths.turns.mean") == 1.5
    assert told.value("lengths.observation.mean") == 45 - 10 - 20
    assert told.value("lengths.tool_calls.mean") == 1.0
    assert told.value("lengths.turn.cached_share") == 30 / 55
    assert told.value("lengths.loss_share") == 0.5
    assert told.value("tools.tool.calls", tool="search") == 2
    assert told.value("tools.tool.time", tool="search") == 2.0
    assert told.value("tools.tool.concurrency", tool="search") == 1.0
    assert told.value("tools.status", tool="search", status="error") == 1
    assert told.value("tools.error", tool="search", error="OSError") == 1
    # 2 s of tools beside 4 s + 6 s of turns; of the second trajectory none.
    assert told.value("tools.trajectory_share") == 2 / 12
    assert told.value("tools.trajectory_s.min") == 0.0


def test_slots_of_two_engines_over_a_rollout(tables: Tables) -> None:
    step(tables, 1)
    ids = batch(tables, 0, [(10, 10), (10, 10)], own_times=True)
    tables.sql.execute("UPDATE trajectory SET engine = trajectory_id % 2")
    # Of four sequences three go on for 2 s, one for 8 s.
    for one in ids:
        turn(tables, one, 0, 8 if one == ids[3] else 2)

    told = said([occupancy(tables), imbalance(tables)])

    assert told.value("occupancy.slots") == pytest.approx(4)
    assert told.value("occupancy.mean") == pytest.approx((3 * 2 + 8) / (4 * 8))
    assert told.value("occupancy.under_50") == pytest.approx(6 / 8)
    assert told.value("occupancy.under_25") == 0.0
    # Replica 0 is done after 2 s, replica 1 after 8 s.
    assert told.value("imbalance.replica.time.mean") == pytest.approx(8 / 5 - 1)
    assert told.value("imbalance.replica.tokens.mean") == 0.0


def test_what_is_beyond_the_slots_of_an_engine_waits_in_its_queue(tables: Tables) -> None:
    step(tables, 1)
    # Two slots: the third of three sequences is decoded after one of the others ended.
    for one, end in zip(batch(tables, 0, [(10, 10, 10)], own_times=True), (4, 4, 8), strict=True):
        turn(tables, one, 0, end)

    told = said([occupancy(tables, slots=2)])

    assert told.value("occupancy.slots") == 2
    assert told.value("occupancy.mean") == pytest.approx((2 * 4 + 4) / (2 * 8))


def test_time_in_the_queue_is_no_time_in_a_slot(tables: Tables) -> None:
    step(tables, 1)
    for one in batch(tables, 0, [(10, 10)], own_times=True):
        turn(tables, one, 0, 4)
    tables.sql.execute("UPDATE turn SET queue_s = 1 WHERE trajectory_id = 1")

    told = said([occupancy(tables)])

    assert told.value("occupancy.mean") == pytest.approx(7 / 8)
    assert told.value("occupancy.queue_share") == 1 / 4


def test_calls_whose_responses_come_back_together_only_bound_the_slots(tables: Tables) -> None:
    step(tables, 1)
    for one, tokens in zip(batch(tables, 0, [(10, 40)], own_times=False), (10, 40), strict=True):
        turn(tables, one, 0, 4)
        tables.sql.execute(
            f"UPDATE turn SET response_tokens = {tokens} WHERE trajectory_id = {one}"
        )

    told = said([occupancy(tables)])

    assert told.value("occupancy.mean") is None
    assert told.value("occupancy.least") == pytest.approx(50 / (2 * 40))
    assert told.value("occupancy.most") == 1.0


def test_lengths_alone_bound_no_slots_and_a_long_batch_counts_as_long_as_it_is(
    tables: Tables,
) -> None:
    # Of one response among short ones the longest is nearly all of the time.
    batches = [[(10, 30), (40, 100)], [(5, 5), (5, 5)], [(3, 2), (900, 4)]]
    for number, groups in enumerate(batches):
        step(tables, 1 + number)
        batch(tables, number, groups)

    told = said([occupancy(tables)])

    shares = [decoded([[one for group in groups for one in group]]) for groups in batches]
    assert told.value("occupancy.length_idle.mean") == pytest.approx(1 - sum(shares) / 3)
    true = decoded([[one for group in groups for one in group] for groups in batches])
    assert true < 0.3 < sum(shares) / 3
    assert told.value("occupancy.by_lengths") == pytest.approx(true)
    figure = told.figure("occupancy.by_lengths")
    assert figure.low is not None
    assert figure.high is not None
    assert 0.0 <= figure.low < true < figure.high <= 1.0
    assert (told.value("occupancy.least"), told.value("occupancy.most")) == (None, None)


def test_a_small_batch_has_the_slots_of_the_largest(tables: Tables) -> None:
    for number, (groups, begin, end) in enumerate(((8, 0, 1), (1, 100, 199))):
        step(tables, 1 + number)
        for trajectory in batch(tables, number, [[40, 40]] * groups, step=number, own_times=False):
            turn(tables, trajectory, begin, end)
            tables.sql.execute(
                "UPDATE turn SET response_tokens = 40 WHERE trajectory_id = ?", [trajectory]
            )
    told = said([occupancy(tables)])
    assert told.value("occupancy.least") == pytest.approx((16 * 1 + 2 * 99) / (16 * 100))


def verify(tables: Tables, trajectory: int, begin: float, end: float, name: str = "f") -> None:
    put(
        tables, "verification", trajectory_id=trajectory, process=3, function=name,
        start_ns=round(begin * SECOND), end_ns=round(end * SECOND), attempts=2, timeouts=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "begun", "boot"),
    [
        (2, 3.0, "a"),  # one of the calls is missing
        (3, 3.0, "b"),  # another machine's clock
        (3, 2.0, "a"),  # began before they were asked for: other calls than these
        (3, 3.5, "a"),  # ended after their answers were there
    ],
)
def test_what_queues_is_not_told_from_the_way_back_of_other_calls(
    tables: Tables, calls: int, begun: float, boot: str
) -> None:
    step(tables, 1)
    ids = batch(
        tables, 0, [(1, 1), (1, 1)], own_times=True, start_ns=0, end_ns=10 * SECOND
    )  # fmt: skip
    for one, (begin, end) in zip(ids, [(0, 2), (1, 4), (6, 7)], strict=False):
        verify(tables, one, begin, end)
    put(
        tables, "reward_work", process=9, function="f", calls=calls, took_s=float(calls), errors=0,
        mean_start_ns=round(begun * SECOND),
    )  # fmt: skip
    for number, name in ((3, "a"), (9, boot)):
        put(tables, "process", process=number, boot=name)

    told = said([rewards(tables)])

    assert told.value("rewards.function.queue_share", function="f") == pytest.approx(1 / 2)
    assert told.value("rewards.function.before_share", function="f") is None
    assert told.value("rewards.function.after_share", function="f") is None


def test_rewards_that_run_at_once_queue_and_ask_again(tables: Tables) -> None:
    step(tables, 1)
    ids = batch(
        tables, 0, [(1, 1), (1, 1)], own_times=True, start_ns=0, end_ns=10 * SECOND
    )  # fmt: skip
    for one, (begin, end) in zip(ids, [(0, 2), (1, 4), (6, 7)], strict=False):
        verify(tables, one, begin, end)
    verify(tables, ids[3], 8, 10, "g")
    # Workers of f took 1 s for each.
    put(
        tables, "reward_work", process=9, function="f", calls=3, took_s=3.0, errors=2,
        mean_start_ns=3 * SECOND,
    )  # fmt: skip
    for number in (3, 9):
        put(tables, "process", process=number, boot="a")

    told = said([rewards(tables)])

    of = {"function": "f"}
    assert told.value("rewards.function.calls", **of) == 3
    assert told.value("rewards.function.time", **of) == 6.0
    assert told.value("rewards.function.share", **of) == 6 / 8
    assert told.value("rewards.function.busy", **of) == 5.0
    assert told.value("rewards.function.concurrency", **of) == 6 / 5
    assert told.value("rewards.function.retries", **of) == 3
    assert told.value("rewards.function.timeouts", **of) == 3
    assert told.value("rewards.function.work", **of) == 3.0
    assert told.value("rewards.function.queue_share", **of) == pytest.approx(1 - 1 / 2)
    # Asked at 0, 1 and 6 s, begun at 3 s on the average.
    assert told.value("rewards.function.before_share", **of) == pytest.approx((3 - 7 / 3) / 2)
    assert told.value("rewards.function.after_share", **of) == pytest.approx(1 / 2 - 1 / 3)
    assert told.value("rewards.function.before_share", function="g") is None
    assert told.value("rewards.function.errors", **of) == 2
    assert told.value("rewards.function.work", function="g") is None
    assert told.value("rewards.trajectory_share") == 8 / 40
    assert told.figure("rewards.function.max", **of).evidence["trajectory"].ids[0] == ids[1]


def test_calls_of_which_only_durations_are_known_are_open_for_nobody_knows_how_long(
    tables: Tables,
) -> None:
    step(tables, 1)
    batch(tables, 0, [(1, 1)])
    put(tables, "reward_call", batch_id=0, process=0, function="f", took_s=2.0, samples=1)

    told = said([rewards(tables)])

    assert told.value("rewards.function.time", function="f") == 2.0
    assert told.value("rewards.function.busy", function="f") is None
    assert told.value("rewards.function.concurrency", function="f") is None


def test_calls_of_functions_without_a_name_are_open_together(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(1, 1)])
    for begin in (0, 1):
        put(
            tables, "reward_call", batch_id=0, process=0, start_ns=begin * SECOND,
            end_ns=(begin + 2) * SECOND, took_s=2.0, samples=1,
        )  # fmt: skip

    told = said([rewards(tables)])

    assert told.value("rewards.function.busy", function="(unknown)") == 3.0
    assert told.value("rewards.function.concurrency", function="(unknown)") == pytest.approx(4 / 3)


def test_processes_wait_for_the_slowest_of_their_reward_functions(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(1, 1)])
    for process, seconds in ((0, 2.0), (1, 6.0)):
        put(
            tables, "reward_call", batch_id=0, process=process, function="f", start_ns=0,
            end_ns=round(seconds * SECOND), took_s=seconds, samples=1,
        )  # fmt: skip

    told = said([rewards(tables)])

    assert told.value("rewards.skew.mean") == 3.0
    assert told.value("rewards.wait_share") == pytest.approx(1 - 4 / 6)
    assert told.value("rewards.function.concurrency", function="f") == pytest.approx(8 / 6)


def call(tables: Tables, number: int, seconds: float, ranks: Iterable[float]) -> None:
    """A call of a worker group, dispatched at a moment that its ranks' clocks do not know."""
    put(
        tables, "rpc", rpc_id=number, step_id=0, attempt=0, worker_group="w", method="update",
        call=number, process=0, id=number, start_ns=0, end_ns=round(seconds * SECOND),
    )  # fmt: skip
    for rank, length in enumerate(ranks):
        put(
            tables, "rpc_rank", rpc_id=number, rank=rank, process=1 + rank, id=number,
            start_ns=77 * SECOND, end_ns=77 * SECOND + round(length * SECOND),
        )  # fmt: skip


def test_dispatch_is_the_call_less_its_slowest_rank(tables: Tables) -> None:
    step(tables, 1)
    call(tables, 1, 5.0, (2.0, 4.0))
    call(tables, 2, 3.0, (2.5, 2.5))

    told = said([movement(tables), imbalance(tables)])

    of = {"method": "update"}
    assert told.value("movement.call.calls", **of) == 2
    assert told.value("movement.call.dispatch", **of) == pytest.approx(1.5)
    assert told.value("movement.call.dispatch_share", **of) == pytest.approx(1.5 / 8)
    assert told.value("movement.dispatch.mean") == pytest.approx(1.5)
    assert told.value("imbalance.rank.call_time", **of) == pytest.approx((4 / 3 - 1 + 0) / 2)
    assert told.figure("imbalance.rank.call_time", **of).evidence["rank"].ids[0] in (0, 1)


def test_dispatch_of_a_call_whose_ranks_did_not_end_is_unknown(tables: Tables) -> None:
    step(tables, 1)
    call(tables, 1, 5.0, (2.0, 4.0))
    call(tables, 2, 3.0, (2.5, 2.5))
    tables.sql.execute("UPDATE rpc_rank SET end_ns = NULL WHERE rpc_id = 2")

    told = said([movement(tables)])

    of = {"method": "update"}
    assert told.value("movement.call.calls", **of) == 2
    assert told.value("movement.call.time", **of) == pytest.approx(8)
    assert told.value("movement.call.dispatch_mean", **of) == pytest.approx(1)
    assert told.value("movement.call.dispatch_share", **of) == pytest.approx(1 / 5)
    tables.sql.execute("UPDATE rpc_rank SET end_ns = NULL")
    told = said([movement(tables)])
    assert told.value("movement.call.dispatch", **of) is None
    assert told.value("movement.dispatch.mean") is None


def stage(
    tables: Tables, name: str, begin: float, end: float, *, process: int = 0, at: int = 0
) -> None:
    [(number,)] = tables.sql.execute("SELECT count(*) FROM span").fetchall()
    put(
        tables, "span", step_id=at, attempt=0, process=process, id=number + 1, parent=0, name=name,
        mode="train", start_ns=round(begin * SECOND), end_ns=round(end * SECOND),
    )  # fmt: skip


def test_weight_sync_is_that_of_the_rank_that_it_takes_longest(tables: Tables) -> None:
    for number in (1, 2):
        step(tables, number)
    stage(tables, "weight_sync", 0, 4, process=0)
    stage(tables, "weight_sync", 0, 6, process=1)
    stage(tables, "weight_sync", 100, 102, process=0, at=1)

    told = said([movement(tables)])

    assert told.value("movement.weight_sync.mean") == 4.0
    assert told.value("movement.weight_sync.share") == pytest.approx(8 / 200)


def read(tables: Tables, counter: str, begin: float, end: float, value: float) -> None:
    put(
        tables, "reading", device=0, counter=counter, start_ns=round(begin * SECOND),
        end_ns=round(end * SECOND), value=value,
    )  # fmt: skip


def gpu(tables: Tables) -> None:
    """One GPU that process 0 works on."""
    put(tables, "device", device=0, uuid="GPU-0", host="h", boot="b", kind="gpu")
    put(tables, "process", process=0, attempt=0, host="h", boot="b", rank=0)
    put(tables, "device_process", device=0, process=0, how="torch")


def test_a_gpu_over_two_stages(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(100, 300)])
    gpu(tables)
    stage(tables, "rollout", 10, 20)
    stage(tables, "update_actor", 20, 40)
    # Windows of 5 s: half busy in rollout, wholly in the update; 100 W, then 300 W.
    for place in range(1, 11):
        moment = 5.0 * place
        read(tables, "sm_active", moment - 5, moment, 0.5 if moment <= 20 else 1.0)
        read(tables, "utilization", moment, moment, 1.0)
        read(tables, "energy_j", moment, moment, 100 * moment + 200 * max(0.0, moment - 20))
        read(tables, "memory_b", moment, moment, 7.0 * moment)

    told = said([devices(tables)])

    rollout, update = {"stage": "rollout"}, {"stage": "update_actor"}
    assert told.value("devices.stage.seconds", **rollout) == 10.0
    assert told.value("devices.stage.sm_active", **rollout) == pytest.approx(0.5)
    assert told.value("devices.stage.sm_active", **update) == pytest.approx(1.0)
    assert told.value("devices.stage.watts", **rollout) == pytest.approx(100)
    assert told.value("devices.stage.energy", **update) == pytest.approx(6_000)
    assert told.value("devices.stage.energy_per_token", **update) == pytest.approx(6_000 / 400)
    assert told.value("devices.stage.busy_but_idle", **rollout) == pytest.approx(0.5)
    assert told.value("devices.stage.memory_b", **rollout) == pytest.approx(7 * 15)
    assert told.value("devices.stage.tensor_active", **rollout) is None
    assert told.value("devices.stage.known", **rollout) == pytest.approx(1.0)
    assert any("busy 100% of the time by NVML, and 50%" in note for note in told.notes)


def test_a_gap_in_what_was_read_is_not_filled(tables: Tables) -> None:
    step(tables, 1)
    gpu(tables)
    stage(tables, "rollout", 0, 60)
    moments = [*range(21), *range(50, 61)]
    for moment in moments:
        read(tables, "energy_j", moment, moment, 10.0 * moment)

        read(tables, "power_w", moment, moment, 10.0)

    told = said([devices(tables)])

    of = {"stage": "rollout"}
    assert told.value("devices.stage.power_w", **of) == pytest.approx(10)
    assert told.value("devices.stage.known", **of) == pytest.approx(0.5)


# A reader that hung, from 20 to 50 s; what counted up meanwhile, and where stages begin and end.
GAPS = {
    "around it": (400.0, [(0, 60)], 700.0),
    "from its edge to its edge": (400.0, [(20, 50)], 400.0),
    "beside it": (400.0, [(0, 20)], 200.0),
    "a stage ends in it": (400.0, [(0, 30)], None),
    "a stage begins in it": (400.0, [(30, 60)], None),
    "a stage lies in it": (400.0, [(30, 40)], None),
    "the counter began anew": (-190.0, [(0, 60)], None),
}


@pytest.mark.parametrize("where", today.some(list(GAPS), 3))
def test_energy_of_a_gap_is_that_of_its_ends_where_the_counter_went_on(
    tables: Tables, where: str
) -> None:
    meanwhile_j, stages, energy_j = GAPS[where]
    step(tables, 1)
    gpu(tables)
    for begin, end in stages:
        stage(tables, "rollout", begin, end)
    for moment in range(21):
        read(tables, "energy_j", moment, moment, 10.0 * moment)
    for moment in range(50, 61):
        read(tables, "energy_j", moment, moment, 200 + meanwhile_j + 10.0 * (moment - 50))

    told = said([devices(tables)])

    found = told.figures.get(("devices.stage.energy", (("stage", "rollout"),)))
    assert found is not None
    assert found.value == (None if energy_j is None else pytest.approx(energy_j))


def test_two_processes_on_one_gpu_count_each_moment_once(tables: Tables) -> None:
    step(tables, 1)
    gpu(tables)
    put(tables, "process", process=1, attempt=0, host="h", boot="b", rank=1)
    put(tables, "device_process", device=0, process=1, how="torch")
    stage(tables, "rollout", 0, 10)
    stage(tables, "rollout", 4, 16, process=1)
    for moment in range(21):
        read(tables, "power_w", moment, moment, 5.0)

    told = said([devices(tables)])

    assert told.value("devices.stage.seconds", stage="rollout") == 16.0
    assert told.value("devices.stage.power_w", stage="rollout") == pytest.approx(5)


def test_how_old_the_policy_was_and_who_waited(tables: Tables) -> None:
    put(tables, "process", process=0, attempt=0, host="h", boot="b", rank=0)
    for number in (1, 2):
        step(tables, number)
    ids = batch(tables, 0, [(10, 10)], step=0, queued=True, policy_version=0)
    ids += batch(tables, 1, [(10, 10)], step=1, queued=True, policy_version=0)
    for number in (0, 1):
        put(tables, "trained", step_id=number, batch_id=number, grp=0)
        stage(tables, "step", 100 * number, 100 * number + 100, at=number)
        stage(tables, "data", 100 * number, 100 * number + 30, at=number)
        stage(tables, "wait", 100 * number + 10, 100 * number + 20, at=number)
    for one in ids:
        turn(tables, one, 0, 150)

    told = said([asynchronous(tables)])

    assert told.value("asynchronous.lag.mean") == 0.5
    assert told.value("asynchronous.lag.max") == 1
    # The wait lies inside fetching data.
    assert told.value("asynchronous.trainer_wait") == pytest.approx(60 / 200)
    assert told.value("asynchronous.rollout_wait") == pytest.approx(50 / 200)


def test_where_rollout_and_training_take_turns_nothing_lags(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(10, 10)], policy_version=0)

    told = said([asynchronous(tables)])

    assert told.value("asynchronous.trainer_wait") is None
    assert told.notes == (
        "rollout and training take turns: nothing is generated beside the training",
    )


def test_a_workload_is_not_taken_for_a_synchronous_run(tables: Tables) -> None:
    tables.sql.execute("UPDATE run SET kind = 'workload'")
    step(tables, 1)
    batch(tables, 0, [(10, 10)])

    told = said(make_chapters(tables))

    assert told.value("asynchronous.trainer_wait") is None
    assert not any("take turns" in note for note in told.notes)
    for what in ("which weights generated it", "readings of devices", "data and weights are moved"):
        assert any(note.startswith("a workload") and what in note for note in told.notes)


def test_of_very_many_rows_a_series_has_some_and_says_how_many_there_were(tables: Tables) -> None:
    step(tables, 1)
    for number in range(2):
        batch(tables, number, [])
    # Two batches of 1,500 replicas.
    tables.sql.execute(
        """
        INSERT INTO trajectory BY NAME
        SELECT i AS trajectory_id, i % 2 AS batch_id, 0 AS step_id, 'train' AS mode, i AS grp,
          1 + i % 7 AS response_tokens, i // 2 AS engine
        FROM range(3000) drawn(i)
        """
    )

    told = said([imbalance(tables)])

    one = told.series["imbalance.replica.by_batch"]
    assert one.total == 3_000
    assert {row["batch_id"] for row in told.rows(one.id)} == {0}
    assert len(one.rows) == 1_500
    # What is drawn is some of it; what is counted is all.
    assert told.value("imbalance.replica.tokens.count") == 2


def test_every_figure_has_a_name_of_its_own_and_is_documented() -> None:
    ids = [*DEFINITIONS, *SERIES]

    assert len(ids) == len(set(ids))
    assert {name.split(".")[0] for name in ids} == set(CHAPTERS)
    for one in DEFINITIONS.values():
        assert one.meaning.endswith("."), one.id
        assert one.unit, one.id
        assert one.unknown, one.id
    assert all(meaning and sql for meaning, sql in DERIVED.values())


def test_what_is_said_carries_its_query_and_is_finite(tables: Tables) -> None:
    step(tables, 1)
    ids = batch(tables, 0, [(10, 30), (40, 100)], own_times=True, start_ns=0, end_ns=SECOND)
    for one in ids:
        turn(tables, one, 0, 1)
        verify(tables, one, 0, 1)

    told = said(make_chapters(tables))

    for figure in told.figures.values():
        definition = DEFINITIONS[figure.id]
        as_documented = definition.title, definition.meaning, definition.unit
        # Where no GPU is known the ledger speaks of ranks.
        names = (text.replace("GPU", "rank") for text in as_documented)
        assert (figure.title, figure.meaning, figure.unit) in (as_documented, tuple(names))
        assert tuple(figure.by) == definition.by or figure.value is None, figure.id
        if figure.value is not None:
            assert figure.query, figure.id
            assert figure.inputs, figure.id
        for end in (figure.low, figure.high):
            assert end is None or math.isfinite(end)
    assert set(told.series) <= set(SERIES)


def test_inputs_of_a_query_are_tables_and_views_and_not_what_it_defines_itself(
    tables: Tables,
) -> None:
    asked = """
    WITH a AS (SELECT step_id FROM step),
      b AS (SELECT step_id FROM a JOIN kept_step USING (step_id))
    SELECT count(*) FROM b, range(3), (SELECT $number) WHERE step_id IN (SELECT step_id FROM batch)
    """

    inputs = query(tables, asked, number=1).inputs

    assert inputs == ("batch", "kept_step", "step")
    assert Answer((), (), "no statement at all").inputs == ()
    assert Answer((), (), "").inputs == ()
