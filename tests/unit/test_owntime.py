"""The probe's own cost: what is counted as such, and what happens when it is too much."""

from __future__ import annotations

import functools
import io
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import rlvr_probe
from rlvr_probe import guard
from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model import names
from rlvr_probe.probe import hooks
from rlvr_probe.probe.hooks import Hook, HookProbe, Patches, wrap
from rlvr_probe.probe.recorder import FULL, OFF, STAGES, Recorder, bookkeeping, owntime
from rlvr_probe.probe.recorder.owntime import CAP_NS, SAMPLE, Account, before, culprits
from rlvr_probe.recording import read_run
from rlvr_probe.report import render
from tests.jobs import wait_for
from tests.summarized import summary_of
from tests.unit.test_recorder import rows

Make = Callable[..., Recorder]
MS = 1_000_000


class Machine:
    """A thread whose clocks are turned by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cpu_ns = self.switches = 0
        monkeypatch.setattr(time, "thread_time_ns", lambda: self.cpu_ns)
        monkeypatch.setattr(owntime, "_switches", lambda: self.switches)

    def visit(self, account: Account, wall_ns: int, cpu_ns: int, *, gave_way: bool) -> int:
        """A visit of the place as a hook makes it; what it counts."""
        timed = account.watched or account.tick() % SAMPLE == 0
        began = before(account) if timed else None
        self.cpu_ns += cpu_ns
        self.switches += gave_way
        return account.charge(wall_ns, began) if timed or wall_ns > owntime.LONG_NS else 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_short_visits_count_their_processor_time_by_a_sample(machine: Machine) -> None:
    account = Account("place", None)
    counted = [machine.visit(account, 5_000, 3_000, gave_way=False) for _ in range(310)]
    assert sum(counted) == account.own_ns == 310 * 3_000
    assert sorted(set(counted)) == [0, SAMPLE * 3_000]


def test_a_place_that_waits_counts_its_wall_time_from_the_second_visit_on(
    machine: Machine,
) -> None:
    account = Account("place", None)
    counted = [machine.visit(account, 50 * MS, 10_000, gave_way=True) for _ in range(5)]
    assert counted == [0, 50 * MS, 50 * MS, 50 * MS, 50 * MS]


def test_losing_the_processor_is_not_the_probes_own_time(machine: Machine) -> None:
    account = Account("place", None)
    counted = [machine.visit(account, 20 * MS, 10_000, gave_way=False) for _ in range(100)]
    assert sum(counted) <= 100 * 10_000


def test_one_very_long_visit_counts_little_and_a_habit_counts_in_full(machine: Machine) -> None:
    account = Account("place", None)
    machine.visit(account, 2 * MS, 0, gave_way=True)
    counted = [machine.visit(account, 5_000 * MS, 0, gave_way=True) for _ in range(4)]
    assert counted == [CAP_NS, CAP_NS, 5_000 * MS, 5_000 * MS]


def test_a_long_visit_among_many_short_ones_never_becomes_a_habit(machine: Machine) -> None:
    account = Account("place", None)
    counted = []
    for _ in range(40):
        counted.append(machine.visit(account, 400 * MS, 400 * MS, gave_way=False))
        counted += [machine.visit(account, 10_000, 10_000, gave_way=False) for _ in range(9)]
    assert max(counted) == CAP_NS


def test_a_place_that_is_quick_again_is_watched_no_longer(machine: Machine) -> None:
    account = Account("place", None)
    machine.visit(account, 50 * MS, 0, gave_way=True)
    machine.visit(account, 50 * MS, 0, gave_way=True)
    for _ in range(500):
        machine.visit(account, 5_000, 3_000, gave_way=False)
    assert not account.watched


def test_culprits_are_few_and_explain_most_of_it() -> None:
    def accounts(*own_ms: int) -> list[Account]:
        made = [Account(f"place{i}", None) for i in range(len(own_ms))]
        for account, own in zip(made, own_ms, strict=True):
            account.own_ns = own * MS
        return made

    def found(spent_ms: int, *own_ms: int) -> list[str]:
        return [account.place for account in culprits(accounts(*own_ms), spent_ms * MS, 300 * MS)]

    assert found(1_900, 20, 1_850, 10) == ["place1"]
    assert found(1_900, 900, 950, 10) == ["place1", "place0"]
    assert found(310, 40, 50, 45, 60, 55) == []  # a bit everywhere
    assert found(900, 200, 200, 200, 200) == []
    assert found(5_000, 2_600, 2_200) == ["place0", "place1"]  # one alone would not be enough
    assert found(400, 30) == []  # the flush thread

    muted, kept = accounts(1_850, 10), accounts(1_850, 10)
    muted[0].muted, kept[0].mutable = True, False
    assert culprits(muted, 1_900 * MS, 300 * MS) == []  # it costs as much as before
    assert culprits(kept, 1_900 * MS, 300 * MS) == []


# ---------------------------------------------------------------- in a toy trainer


def _values(call: Call) -> tuple[Any, ...]:
    return (0, 1)


def _text(call: Call) -> str:
    return "detail"


def _step(call: Call) -> int:
    return 1


def _nothing(call: Call) -> None: ...


def _yes(call: Call) -> bool:
    return True


READERS: dict[str, Callable[[Call], Any]] = {
    "when": _yes,
    "detail": _text,
    "step": _step,
    "read": _values,
}
KEEPERS: dict[str, Callable[[Call], Any]] = {"before": _nothing, "after": _nothing}
NAMES = (names.STEP, names.ROLLOUT, names.REWARD, names.UPDATE_ACTOR, names.CHECKPOINT)
POINTS = [
    HookPoint(f"toy:Trainer.{name.name}", name, ("session", "step"), **READERS)  # type: ignore[arg-type]
    for name in NAMES
]
KEEPING = [replace(point, **KEEPERS) for point in POINTS]  # type: ignore[arg-type]


def slow(function: Callable[[Call], Any]) -> Callable[[Call], Any]:
    def slowed(call: Call) -> Any:
        time.sleep(0.05)
        return function(call)

    return slowed


@pytest.fixture
def recorder(record: Make) -> Iterator[Recorder]:
    made = record()
    hooks.activate(made, HookProbe(made, Patches()))
    yield made
    hooks.activate(None)


@pytest.fixture
def lenient(record: Make) -> Iterator[Recorder]:
    """Allows as much as five places cost together when each was visited six times."""
    made = record(own_share=0.05)
    hooks.activate(made, HookProbe(made, Patches()))
    yield made
    hooks.activate(None)


def train(points: list[HookPoint], enough: Callable[[], bool]) -> int:
    """Steps until ``enough``, which must come; every stage of every step is really done."""
    stages = [wrap(lambda i: i + 1, Hook(point)) for point in points]
    for step in range(2_000):
        for stage in stages:
            assert stage(step) == step + 1
        if enough():
            return step
        time.sleep(0.002)
    raise AssertionError("nothing happened")


def shown(recorder: Recorder) -> str:
    file = io.StringIO()
    render(summary_of(recorder.folder), file, color=False)
    return " ".join(file.getvalue().split())


@pytest.mark.parametrize("role", READERS)
def test_a_reader_that_sleeps_is_muted_alone_and_by_name(recorder: Recorder, role: str) -> None:
    victim = POINTS[1]
    slowed = replace(victim, **{role: slow(READERS[role])})  # type: ignore[arg-type]
    points = [slowed if point is victim else point for point in POINTS]
    train(points, lambda: any(account.muted for account in recorder.accounts.values()))
    before_ns = recorder.accounts[victim.target].own_ns
    steps = itertools.count()
    train(points, lambda: next(steps) > 20)  # goes on, without it
    assert recorder.accounts[victim.target].own_ns == before_ns
    assert recorder.level == FULL
    recorder.close("exit")
    [(_, _, place, why)] = rows(recorder.folder, "muted")
    assert place == victim.target
    assert why.startswith(("own_time 0.", "own_time 1."))
    assert float(why.split()[-2]) <= bookkeeping.WINDOW_NS / 1e9
    assert not rows(recorder.folder, "level")
    [process] = read_run(recorder.folder).processes
    assert process.muted == {place: why}
    assert f"MUTED {place} in 1 process: {why}" in shown(recorder)


def test_what_others_rely_on_goes_on_where_a_slow_reader_beside_it_is_muted(
    recorder: Recorder,
) -> None:
    victim, kept = KEEPING[1], list[int]()
    slowed = replace(victim, read=slow(_values), after=lambda call: kept.append(call.end_ns))
    points = [slowed if point is victim else point for point in KEEPING]
    train(points, lambda: recorder.accounts[victim.target].muted)
    done = len(kept)
    steps = itertools.count()
    train(points, lambda: next(steps) >= 20)
    assert len(kept) == done + 21
    recorder.close("exit")
    given = [row[6:] for row in rows(recorder.folder) if row[0] == slowed_definition(recorder)]
    assert given[0] == [0, 1]
    assert given[-20:] == [[]] * 20
    assert recorder.accounts[victim.target].muted


def slowed_definition(recorder: Recorder) -> int:
    return recorder.define(names.ROLLOUT, ("session", "step"))


@pytest.mark.parametrize("role", KEEPERS)
def test_what_others_rely_on_is_never_muted_alone(recorder: Recorder, role: str) -> None:
    victim = KEEPING[1]
    slowed = replace(victim, **{role: slow(_nothing)})  # type: ignore[arg-type]
    points = [slowed if point is victim else point for point in KEEPING]
    train(points, lambda: recorder.level == OFF)
    recorder.close("exit")
    assert [row[2] for row in rows(recorder.folder, "level")][-1] == "off"
    assert "REDUCED to off in 1 process: own_time" in shown(recorder)


def test_a_callback_that_sleeps_is_never_muted_alone(recorder: Recorder) -> None:
    calls = []

    def on_step_begin() -> None:
        calls.append(1)
        time.sleep(0.05)

    run = HookProbe(recorder, Patches()).guarded(on_step_begin)

    def enough() -> bool:
        run()
        return recorder.level == OFF

    train(POINTS, enough)
    done = len(calls)
    run()
    assert len(calls) == done
    assert not recorder.accounts[guard.place(on_step_begin)].muted


def test_a_probe_that_is_slow_everywhere_records_stages_then_nothing(
    lenient: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = lenient
    # By the clocks of a busy machine, one place may be late so often that it is to blame.
    machine = Machine(monkeypatch)
    real = Recorder.append

    def append(self: Recorder, row: tuple[Any, ...]) -> None:
        time.sleep(0.002)
        machine.cpu_ns += 50 * MS
        real(self, row)

    monkeypatch.setattr(Recorder, "append", append)
    train(POINTS, lambda: recorder.level == OFF)
    wait_for(lambda: not recorder.open)
    recorder.close("exit")
    assert [row[2] for row in rows(recorder.folder, "level")] == ["stages", "off"]
    assert not rows(recorder.folder, "muted")
    text = shown(recorder)
    assert "REDUCED to off in 1 process: own_time" in text
    assert "the probe took too much of its time" in text


def test_a_share_that_the_user_allows_is_no_reason_to_record_less(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_NS", 1_000_000)
    recorder = record(own_share=0.5)
    recorder.event_row(recorder.define(names.REWARDS, ()), 0, ())
    recorder.own_ns += 10_000 * MS
    recorder.flush()
    assert recorder.level == FULL
    recorder.own_ns += 10_000 * MS
    time.sleep(0.01)
    recorder.flush()
    assert recorder.level == STAGES


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_inherits_what_is_muted_and_says_so(recorder: Recorder) -> None:
    recorder.account("toy:Trainer.rollout").muted = True
    recorder.after_fork()
    stages = [wrap(lambda: None, Hook(point)) for point in POINTS]
    for stage in stages:
        stage()
    recorder.close("exit")
    assert [row[2:] for row in rows(recorder.folder, "muted")] == [
        ["toy:Trainer.rollout", "inherited"]
    ]
    [process] = read_run(recorder.folder).processes
    assert process.muted == {"toy:Trainer.rollout": "inherited"}
    recorded = {row[0] for row in rows(recorder.folder)}
    assert len(recorded) == len(POINTS) - 1


def test_spans_of_the_user_are_accounted_for_by_block_and_by_decorator_alike(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Recorder.append

    def append(self: Recorder, row: tuple[Any, ...]) -> None:
        time.sleep(0.05)
        real(self, row)

    monkeypatch.setattr(Recorder, "append", append)

    @rlvr_probe.span("decorated")
    def decorated() -> None: ...

    for _ in range(4):
        decorated()
        with rlvr_probe.span("block"):
            pass
    [place] = recorder.accounts
    assert place == "rlvr_probe.probe.user_span:user"
    assert recorder.own_ns > 200 * MS
    recorder.accounts[place].muted = True
    written = recorder.next_id()
    decorated()
    with rlvr_probe.span("block"):
        pass
    assert recorder.next_id() == written + 1


def test_points_made_anew_for_every_call_share_an_account_by_name(recorder: Recorder) -> None:
    point = HookPoint("reward_function", names.REWARD_FN, read=lambda call: ())
    for _ in range(3):
        wrap(functools.partial(int, "1"), Hook(point))()
    assert [place for place in recorder.accounts if "reward_function" in place] == [
        f"{__name__}:reward_function"
    ]
