"""Ledgers that were worked out by hand, of recordings written row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.analysis.ledger import Ledger, make_ledger
from rlvr_probe.analysis.ledger.gpu_owners import find_places
from rlvr_probe.analysis.metrics.ledger import ledger
from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.tables import Tables, open_tables
from tests import today
from tests.chaptered import said
from tests.journals import JournalFile, fake_proc, key
from tests.simulator.draws import SECOND
from tests.simulator.truth import play
from tests.unit.test_simulator import by_hand

OTHER_BOOT = "00000000-0000-4000-8000-000000000002"


class Rank(JournalFile):
    """A rank that tells its own stages."""

    def begin(self, rank: int = 0, ranks: int = 1, **facts: Any) -> None:
        self.event(
            names.SESSION, 0.5, session=0, framework="trl", rank=rank, world_size=ranks,
            **{"resumed_step": 0, **facts},
        )  # fmt: skip

    def stage(self, name: Name, step: int, begin: float, end: float, mode: str = "train") -> None:
        self.span(name, begin, end, session=0, step=step, mode=mode)

    def step(self, step: int, begin: float, end: float) -> None:
        self.span(names.STEP, begin, end, session=0, step=step)


def made(tables: Tables) -> Ledger:
    """The ledger, whose barriers have all that was waited, and no more."""
    found = make_ledger(tables)
    assert found is not None
    told, wanted = (
        dict[str, int](tables.sql.execute(query).fetchall())
        for query in (
            "SELECT 'wait.' || barrier, sum(gpu_ns)::BIGINT FROM barrier_wait JOIN step"
            " USING (step_id) WHERE superseded_by IS NULL GROUP BY barrier",
            "SELECT category, sum(ns)::BIGINT FROM ledger WHERE starts_with(category, 'wait.')"
            " GROUP BY category",
        )
    )
    assert told == wanted
    return found


def ledger_of(folder: Path, machine: Machine | None = None) -> Ledger:
    with open_tables(folder, machine=machine, threads=1) as tables:
        found = made(tables)
        [[told]] = tables.sql.execute("SELECT sum(ns) FROM ledger").fetchall()
    assert told == sum(found.ns.values()) == len(found.gpus) * (found.end_ns - found.begin_ns)
    return found


def seconds(found: Ledger) -> dict[str, float]:
    """What is more than a few ms, as the probe itself takes."""
    return {name: ns / SECOND for name, ns in found.ns.items() if ns > SECOND // 200}


def by_gpu(folder: Path, machine: Machine | None = None) -> list[dict[str, float]]:
    with open_tables(folder, machine=machine, threads=1) as tables:
        found = made(tables)
        rows = tables.sql.execute(
            "SELECT gpu, category, sum(ns) FROM ledger GROUP BY gpu, category ORDER BY 1, 2"
        ).fetchall()
    told: list[dict[str, float]] = [{} for _ in found.gpus]
    for gpu, category, ns in rows:
        told[gpu][category] = ns / SECOND
    return told


# ---------------------------------------------------------------- the example of the docs


@pytest.mark.parametrize("hz", today.some([0.0, 5.0], 1))
def test_one_step_of_two_ranks_with_a_controller(tmp_path: Path, hz: float) -> None:
    one, draws = by_hand("verl", 800, 400, reward_workers=2, hz=hz)
    play(one, draws, (), tmp_path / "run")
    found = ledger_of(tmp_path / "run")
    told = {
        "work.rollout": 15.0, "wait.rollout": 5.0, "wait.reward": 4.02, "work.old_logprob": 2.0,
        "work.ref_logprob": 2.0, "overhead.advantage": 0.2,
    }  # fmt: skip
    # The second rank waits 4 s for the gradients of the first: only tensor cores tell.
    told |= {"work.update_actor": 14.0, "wait.update": 4.0} if hz else {"work.update_actor": 18.0}
    assert seconds(found) == pytest.approx(told, abs=0.25 if hz else 1e-6)
    assert any("inside a collective" in note for note in found.notes) == (not hz)


def test_tensor_cores_say_nothing_of_an_update_that_no_reading_separates(tmp_path: Path) -> None:
    """A reading of 4 s holds log probabilities of 2 s and what comes before them."""
    one, draws = by_hand("verl", 800, 400, reward_workers=2, hz=0.25)
    play(one, draws, (), tmp_path / "run")
    with open_tables(tmp_path / "run", threads=1) as tables:
        made(tables)
        levels = tables.sql.execute("SELECT level FROM tensor_busy").fetchall()
    assert levels == [(None,), (None,)]


# ---------------------------------------------------------------- ranks that do everything


def two_ranks(folder: Path, job: int = 0) -> None:
    """Two steps of two ranks, of which the second generates longer; of the job after another."""
    for rank in (0, 1):
        header = {"rank": rank, "world_size": 2, "job": f"job-{job}"}
        one = Rank(folder, 1 + 2 * job + rank, start_s=100.0 * job, header=header)
        one.begin(rank, 2, resumed_step=2 * job)
        for step, at in ((2 * job + 1, 10), (2 * job + 2, 20)):
            one.stage(names.DATA, step, at, at + 0.5)
            one.stage(names.ROLLOUT, step, at + 1, at + 4)
            batch = one.next_span()
            one.span(names.TURN, at + 1, at + 3 + rank, batch=batch, samples=8, prompt_tokens=80,
                     response_tokens=90)  # fmt: skip
            one.stage(names.REWARD, step, at + 4, at + 6)
            one.stage(names.ADVANTAGE, step, at + 6, at + 6.25)
            one.stage(names.UPDATE_ACTOR, step, at + 6.25, at + 9)
            one.step(step, at + 0.5, at + 9.5)
        one.close()


def test_ranks_that_do_everything(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    assert by_gpu(tmp_path) == [
        {
            "bubble": 2.5, "overhead.advantage": 0.5, "overhead.data": 1.0, "wait.reward": 4.0,
            "wait.rollout": wait, "work.rollout": work, "work.update_actor": 5.5,
        } if wait else {
            "bubble": 2.5, "overhead.advantage": 0.5, "overhead.data": 1.0, "wait.reward": 4.0,
            "work.rollout": work, "work.update_actor": 5.5,
        }
        for wait, work in ((2.0, 4.0), (0.0, 6.0))
    ]  # fmt: skip


def test_what_ranks_waited_in_two_attempts_is_counted_once(tmp_path: Path) -> None:
    for job in (0, 1):
        two_ranks(tmp_path, job)
    with open_tables(tmp_path, threads=1) as tables:
        assert len(made(tables).gpus) == 2
        waited = [one for one in barriers(tables) if one["barrier"] == "rollout"]
    # In each step the first rank waits one second for the second one of its own attempt.
    told = [(one["gpu_s"], one["rank"], one["process"]) for one in waited]
    assert told == [(1.0, 1, 1)] * 2 + [(1.0, 1, 3)] * 2


def test_who_came_last_is_who_was_on_that_gpu_in_that_attempt(tmp_path: Path) -> None:
    for job in (0, 1):
        two_ranks(tmp_path, job)
    with open_tables(tmp_path, threads=1) as tables:
        for device in (0, 1):
            tables.sql.execute(
                "INSERT INTO device BY NAME SELECT ? AS device, ? AS uuid, 'gpu' AS kind,"
                " 'node' AS host, 'boot' AS boot",
                [device, f"GPU-{device}"],
            )
        # The ranks of the second attempt have each other's GPU.
        tables.sql.execute(
            "INSERT INTO device_process BY NAME SELECT device, process, 'torch' AS how"
            " FROM (VALUES (0, 0), (1, 1), (1, 2), (0, 3)) pairs(device, process)"
        )
        assert [one.processes for one in find_places(tables).gpus] == [[0, 3], [1, 2]]
        made(tables)
        waited = [one for one in barriers(tables) if one["barrier"] == "rollout"]
    assert [(one["rank"], one["process"]) for one in waited] == [(1, 1)] * 2 + [(1, 3)] * 2


def test_an_engine_is_on_the_device_of_its_process_in_every_attempt(tmp_path: Path) -> None:
    """Each attempt has engines of its own, in processes of its own."""
    for job in (0, 1):
        two_ranks(tmp_path, job)
    with open_tables(tmp_path, threads=1) as tables:
        for attempt in (0, 1):
            number, at_ns = 10 + attempt, (100 * attempt + 11) * SECOND
            rows: dict[str, dict[str, Any]] = {
                "process": {"process": number, "attempt": attempt, "role": "engine"},
                "device": {"device": number, "uuid": f"GPU-{number}", "kind": "gpu",
                           "host": "node", "boot": "boot"},
                "device_process": {"device": number, "process": number, "how": "torch"},
                "trajectory": {"trajectory_id": number, "process": 2 * attempt, "engine": 0},
                "turn": {"trajectory_id": number, "turn": 0, "start_ns": at_ns,
                         "end_ns": at_ns + SECOND},
                "request": {"attempt": attempt, "process": number, "start_ns": at_ns,
                            "end_ns": at_ns + SECOND},
            }  # fmt: skip
            for table, row in rows.items():
                columns = ", ".join(f"{value!r} AS {name}" for name, value in row.items())
                tables.sql.execute(f"INSERT INTO {table} BY NAME SELECT {columns}")
        find_places(tables)
        owned = "SELECT attempt, engine, process FROM engine_owner ORDER BY attempt"
        placed = (
            "SELECT attempt, engine, device FROM engine_gpu JOIN gpu USING (gpu) ORDER BY attempt"
        )
        assert tables.sql.execute(owned).fetchall() == [(0, 0, 10), (1, 0, 11)]
        assert tables.sql.execute(placed).fetchall() == [(0, 0, 10), (1, 0, 11)]


Times = Sequence[tuple[float, float]]
"""Begin and end of each, s."""


def waits_of_a_rank(folder: Path, turns: Times, tools: Times) -> list[dict[str, Any]]:
    """Barriers of a rank that generates in these turns from second 10 on, with these tool calls."""
    one = Rank(folder, 1, header={"rank": 0, "world_size": 1})
    one.begin()
    end = turns[-1][1]
    one.stage(names.ROLLOUT, 1, 10, end)
    batch = one.next_span()
    for turn, (begin, until) in enumerate(turns):
        one.span(names.TURN, begin, until, batch=batch, samples=2, rows=[0, 1], turn=turn,
                 prompt_tokens=[8, 8], response_tokens=[5, 5])  # fmt: skip
    for begin, until in tools:
        one.span(names.TOOL_CALL, begin, until, batch=batch, row=0, turn=0, tool="search",
                 status="ok")  # fmt: skip
    one.event(
        names.TRAJECTORIES, end + 0.5, session=0, step=1, mode="train", batch=batch, offset=0,
        total=2, group_size=2, prompt_tokens=[8, 8], response_tokens=[5 * len(turns)] * 2,
    )  # fmt: skip
    one.step(1, 10, end)
    one.close()
    with open_tables(folder, threads=1) as tables:
        made(tables)
        return barriers(tables)


@pytest.mark.parametrize(
    "tools", today.some([[(14, 17)], [(13.5, 17)], [(11.5, 12.5), (13.5, 14.5)]], 2)
)
def test_a_rank_that_stands_still_without_a_tool_waits_for_none(
    tools: Times, tmp_path: Path
) -> None:
    """Two calls: 2 s before the first, in which nobody knows what is done if no tool is open, 3 s
    between them, with one that began before or then. Engines have no numbers, and ranks are none.
    """
    between, before = waits_of_a_rank(tmp_path, [(12, 14), (17, 19)], tools)
    rank = {"barrier": "rollout", "process": 0, "rank": 0}
    search = {"last_kind": "tool", "name": "search", "sample": 0, "turn": 0}
    assert between == rank | search | {"gpu_s": 3.0}
    assert before == rank | {"gpu_s": 2.0} | (search if len(tools) > 1 else {})


def test_a_tool_that_is_open_in_two_waits_is_what_both_are_for(tmp_path: Path) -> None:
    waits = waits_of_a_rank(tmp_path, [(10, 12), (15, 16), (18, 22)], [(11, 17)])
    assert [(one["gpu_s"], one["name"]) for one in waits] == [(3.0, "search"), (2.0, "search")]


def barriers(tables: Tables) -> list[dict[str, Any]]:
    """What was waited at each of them, GPU s, and what is known of who came last."""
    done = tables.sql.execute(
        "SELECT barrier, gpu_ns / 1e9 AS gpu_s, last_kind, b.process, b.rank, b.engine, sample,"
        " turn, name FROM barrier_wait b LEFT JOIN trajectory USING (trajectory_id)"
        " ORDER BY gpu_ns DESC, b.step_id"
    )
    columns = [one[0] for one in done.description or ()]
    rows = (dict(zip(columns, row, strict=True)) for row in done.fetchall())
    return [{name: one for name, one in row.items() if one is not None} for row in rows]


def by_category(folder: Path, figure: str) -> dict[str, float]:
    """A figure of the ledger's chapter by category, those that are 0 left out."""
    with open_tables(folder, threads=1) as tables:
        told = said([ledger(tables)])
    return {
        str(one.by["category"]): float(one.value)
        for (name, _), one in told.figures.items()
        if name == figure and isinstance(one.value, float | int) and one.value
    }


def test_wall_time_of_a_category_is_that_of_any_gpu_once(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    assert by_category(tmp_path, "ledger.wall_time") == {
        "bubble": 2.5, "overhead.advantage": 0.5, "overhead.data": 1.0, "wait.reward": 4.0,
        "wait.rollout": 2.0, "work.rollout": 6.0, "work.update_actor": 5.5,
    }  # fmt: skip


def test_wall_time_is_that_of_what_overlaps_what_is_inside_and_what_is_apart(
    tmp_path: Path,
) -> None:
    at = (((10, 14), (20, 22)), ((12, 17), (20.5, 21)))
    for rank, spans in enumerate(at):
        one = Rank(tmp_path, 1 + rank, header={"rank": rank, "world_size": 2})
        one.begin(rank, 2)
        for step, (begin, end) in enumerate(spans, 1):
            one.stage(names.OLD_LOGPROB, step, begin, end)
            one.step(step, 10 * step, 10 * step + 8)
        one.close()
    stage = names.OLD_LOGPROB.name
    # 10 to 17, and 20 to 22; of the sum over GPUs every second counts.
    assert by_category(tmp_path, "ledger.wall_time")[f"work.{stage}"] == 9.0
    assert by_category(tmp_path, "ledger.time")[f"work.{stage}"] == 11.5


def test_whoever_asks_a_server_waits_for_it(tmp_path: Path) -> None:
    one = Rank(tmp_path)
    one.begin(engine="vllm-server")
    one.stage(names.ROLLOUT, 1, 10, 16)
    one.span(names.TURN, 11, 15, batch=7, samples=8, prompt_tokens=80, response_tokens=90)
    one.stage(names.UPDATE_ACTOR, 1, 16, 20)
    one.step(1, 10, 20)
    one.close()
    found = ledger_of(tmp_path)
    assert seconds(found) == {"wait.rollout": 6.0, "work.update_actor": 4.0}
    assert any("its GPUs are not in the ledger" in note for note in found.notes)
    with open_tables(tmp_path, threads=1) as tables:
        made(tables)
        # Of one call for eight trajectories nothing says which of them was last.
        assert barriers(tables) == [{"barrier": "rollout", "gpu_s": 6.0}]


def test_a_stage_in_another_one_is_taken_out_of_it(tmp_path: Path) -> None:
    one = Rank(tmp_path)
    one.begin()
    one.step(1, 10, 30)
    one.stage(names.ROLLOUT, 1, 10, 20)
    one.stage(names.WEIGHT_SYNC, 1, 10, 12)
    one.stage(names.EVAL, 1, 20, 28, mode="eval")
    one.stage(names.ROLLOUT, 1, 20, 27, mode="eval")
    one.close()
    assert seconds(ledger_of(tmp_path)) == {
        "work.weight_sync": 2.0, "work.rollout": 8.0, "eval": 8.0, "bubble": 2.0,
    }  # fmt: skip


def test_stages_that_overlap_are_counted_once(tmp_path: Path) -> None:
    one = Rank(tmp_path)
    one.begin()
    one.step(1, 10, 20)
    one.stage(names.OLD_LOGPROB, 1, 10, 16)
    one.stage(names.REF_LOGPROB, 1, 12, 14)
    one.stage(names.UPDATE_ACTOR, 1, 15, 20)
    one.close()
    assert seconds(ledger_of(tmp_path)) == {
        "work.old_logprob": 3.0, "work.ref_logprob": 2.0, "work.update_actor": 5.0,
    }  # fmt: skip


def test_of_a_rank_that_is_missing_nothing_is_known(tmp_path: Path) -> None:
    for rank in (0, 2):
        one = Rank(tmp_path, 1 + rank, header={"rank": rank, "world_size": 3})
        one.begin(rank, 3)
        one.stage(names.UPDATE_ACTOR, 1, 10, 14)
        one.step(1, 10, 14)
        one.close()
    assert by_gpu(tmp_path) == [
        {"work.update_actor": 4.0}, {"work.update_actor": 4.0}, {"unaccounted": 4.0},
    ]  # fmt: skip


def test_steps_without_a_stage_are_not_said_to_be_bubbles(tmp_path: Path) -> None:
    one = Rank(tmp_path)
    one.begin()
    for step in (1, 2):
        one.step(step, 10.0 * step, 10.0 * step + 8)
    one.close()
    assert seconds(ledger_of(tmp_path)) == {"unaccounted": 18.0}


def test_a_step_that_is_missing_is_no_bubble(tmp_path: Path) -> None:
    one = Rank(tmp_path)
    one.begin()
    for step in (1, 2, 4):
        one.stage(names.UPDATE_ACTOR, step, 10.0 * step, 10.0 * step + 8)
        one.step(step, 10.0 * step, 10.0 * step + 8)
    one.close()
    # Between 1 and 2 are 2 s; step 3 was somewhere between 28 and 40 s.
    assert seconds(ledger_of(tmp_path)) == {
        "work.update_actor": 24.0, "bubble": 2.0, "unaccounted": 12.0,
    }  # fmt: skip


def test_a_recording_without_a_step_has_no_ledger(tmp_path: Path) -> None:
    one = Rank(tmp_path)
    one.begin()
    one.close()
    with open_tables(tmp_path, threads=1) as tables:
        assert make_ledger(tables) is None


def test_steps_that_were_thrown_away_are_done_again(tmp_path: Path) -> None:
    for job, (start_s, first, resumed) in enumerate(((0.0, 1, 0), (110.0, 2, 1))):
        one = Rank(
            tmp_path, 1 + job, start_s=start_s,
            header={"rank": 0, "world_size": 1, "job": f"job-{job}"},
        )  # fmt: skip
        one.begin(resumed_step=resumed)
        for at, step in enumerate((first, first + 1)):
            begin = 10.0 + 10 * at
            one.stage(names.UPDATE_ACTOR, step, begin, begin + 6)
            one.step(step, begin, begin + 8)
        one.close()
    # Step 2 is done twice; 92 s lie between its end and the first step of the second attempt.
    found = ledger_of(tmp_path)
    assert len(found.gpus) == 1
    assert seconds(found) == {
        "work.update_actor": 18.0, "bubble": 10.0, "discarded.redone": 8.0, "unaccounted": 92.0,
    }  # fmt: skip


def test_what_was_open_when_its_process_died_lasted_until_then(tmp_path: Path) -> None:
    machine = fake_machine(tmp_path)
    one = Rank(tmp_path / "run", header={"rank": 0, "world_size": 1})
    one.begin()
    one.stage(names.ROLLOUT, 1, 10, 15)
    one.close(end=False)
    one.open_table((90, 10.0, "step", ""), (91, 15.0, "update_actor", ""), beat_s=21.0, step=1)
    assert seconds(ledger_of(tmp_path / "run", machine)) == {
        "work.rollout": 5.0, "work.update_actor": 6.0,
    }  # fmt: skip


def fake_machine(folder: Path) -> Machine:
    """One on which nobody runs."""
    (folder / "proc").mkdir()
    return fake_proc(folder / "proc")


# ---------------------------------------------------------------- ranks that a controller calls

Calls = Sequence[tuple[str, Name, float, float, Mapping[int, tuple[float, float]]]]


class Job:
    """A controller and its ranks; times in s."""

    def __init__(
        self, folder: Path, ranks: int, *, apart_s: float | None = None, accelerators: int = 2
    ) -> None:
        """``apart_s``: how much the clock of the second rank's own machine is ahead."""
        self.one = JournalFile(folder, 1, chunk=1_000)
        facts: dict[str, Any] = {
            "framework": "verl",
            "rank": 0,
            "world_size": 1,
            "accelerators": accelerators,
        }
        self.one.event(names.SESSION, 0.5, session=0, resumed_step=0, **facts)
        owner = {"owner": key(1)}
        self.ranks = []
        for rank in range(ranks):
            header: dict[str, Any] = {**owner, "job": f"raylet-{rank}"}
            if apart_s is not None and rank == 1:
                header |= {"boot": OTHER_BOOT, "host": "node-2"}
                header |= {"mono_ns": 77 * SECOND}
                header |= {"epoch_ns": 1_790_000_000 * SECOND + round(apart_s * SECOND)}
            self.ranks.append(JournalFile(folder, 2 + rank, header=header, chunk=1_000))
            self.ranks[-1].event(names.PROCESS, 0.1, role="WorkerDict")
        self.calls = 0

    def step(self, number: int, begin: float, end: float, calls: Calls) -> None:
        where: dict[str, Any] = {"session": 0, "step": number}
        whole = self.one.next_span()
        for method, stage, first, last, parts in calls:
            span = self.one.next_span()
            ranks = len(self.ranks)
            common: dict[str, Any] = {
                "group": "g",
                "method": method,
                "call": self.calls,
                "ranks": ranks,
            }
            self.calls += 1
            self.one.span(names.RPC, first, last, parent=span, side="caller", **common, waits=1)
            for rank, (start, until) in parts.items():
                self.ranks[rank].span(names.RPC, start, until, side="worker", **common, rank=rank)
            self.one.span(stage, first, last, span=span, parent=whole, **where, mode="train")
        self.one.span(names.STEP, begin, end, span=whole, **where)

    def close(self) -> None:
        for one in (self.one, *self.ranks):
            one.close()


def test_a_rank_waits_for_the_last_one_of_its_call(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.step(
        1, 10, 20,
        [
            ("logp", names.OLD_LOGPROB, 10, 13, {0: (10.5, 12.5), 1: (10.5, 11.0)}),
            ("upd", names.UPDATE_ACTOR, 14, 18, {0: (14.5, 16.0), 1: (15.0, 17.5)}),
            ("sync", names.WEIGHT_SYNC, 18, 20, {0: (18.0, 19.0), 1: (18.0, 20.0)}),
        ],
    )  # fmt: skip
    job.close()
    assert by_gpu(tmp_path) == [
        {
            "bubble": 1.0, "overhead.dispatch": 2.0, "wait.refit": 1.0, "wait.update": 1.5,
            "work.old_logprob": 2.0, "work.update_actor": 1.5, "work.weight_sync": 1.0,
        },
        {
            "bubble": 1.0, "overhead.dispatch": 2.5, "wait.update": 1.5, "work.old_logprob": 0.5,
            "work.update_actor": 2.5, "work.weight_sync": 2.0,
        },
    ]  # fmt: skip


@pytest.mark.parametrize(("late", "waits"), [(0.3, 0.0), (3.0, 3.0)])
def test_no_wait_between_two_machines_is_finer_than_their_clocks(
    tmp_path: Path, late: float, waits: float
) -> None:
    # A call leaves 0.5 s of room on either side: so well are the two clocks known.
    job = Job(tmp_path, 2, apart_s=0.1)
    for number, at in ((1, 10), (2, 40)):
        job.step(
            number, at, at + 11,
            [
                ("logp", names.OLD_LOGPROB, at, at + 5.0,
                 {0: (at + 0.5, at + 4.5), 1: (at + 0.5, at + 4.5)}),
                ("upd", names.UPDATE_ACTOR, at + 5, at + 11,
                 {0: (at + 5.5, at + 10.5 - late), 1: (at + 5.5, at + 10.5)}),
            ],
        )  # fmt: skip
    job.close()
    found = seconds(ledger_of(tmp_path))
    assert found.get("wait.update", 0.0) == pytest.approx(2 * waits, abs=0.3)


def test_what_is_told_for_a_rank_that_died_ends_with_it(tmp_path: Path) -> None:
    machine = fake_machine(tmp_path)
    run = tmp_path / "run"
    job = Job(run, 2)
    for number, at in ((1, 10), (2, 20)):
        parts = {0: (at + 0.0, at + 6.0), 1: (at + 0.0, at + 6.0)}
        job.step(number, at, at + 8, [("upd", names.UPDATE_ACTOR, at, at + 6,
                                       parts if number == 1 else {0: parts[0]})])  # fmt: skip
    job.one.close()
    job.ranks[0].close()
    job.ranks[1].close(end=False)
    job.ranks[1].open_table(beat_s=21.0)
    first, second = by_gpu(run, machine)
    assert first == {"bubble": 6.0, "work.update_actor": 12.0}
    assert second == {"bubble": 4.0, "unaccounted": 8.0, "work.update_actor": 6.0}


def test_a_controller_whose_ranks_recorded_nothing_tells_of_stages_alone(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    job.step(1, 10, 20, [("upd", names.UPDATE_ACTOR, 11, 19, {})])
    job.close()
    found = ledger_of(tmp_path)
    assert len(found.gpus) == 2
    assert seconds(found) == {"work.update_actor": 16.0, "bubble": 4.0}
    assert any("only as a whole" in note for note in found.notes)
