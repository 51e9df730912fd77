"""What is open is compared with the past of its kind, and the culprit comes before who waits."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path

import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.limits import LEAST
from rlvr_probe.analysis.stuck import examine, is_stuck
from rlvr_probe.model import names
from rlvr_probe.recording import read_run
from rlvr_probe.recording.files import list_files
from rlvr_probe.recording.follow.activity import Activity
from rlvr_probe.recording.follow.member import Member, Past
from rlvr_probe.recording.processes import load
from tests.journals import BOOT, SECOND, JournalFile, Training, fake_proc
from tests.stuck_members import NOW, member, said, times, verdicts, work


def test_the_innermost_of_what_is_open_is_what_a_process_is_at() -> None:
    at = member(0, work(1, "step", 500), work(2, "rollout", 400, 1), work(3, "turn", 50, 2), turn=1)
    [found] = examine([at], BOOT, NOW)
    assert found.work is not None
    assert (found.work.name, found.verdict) == ("turn", "overdue")
    assert [span.name for span in found.inside] == ["rollout", "step"]
    assert (found.age_s, found.p99_s, found.times, found.before) == (50.0, 1.0, 50.0, 100)


@pytest.mark.parametrize(
    ("age_s", "took_s", "verdict"),
    [
        (9.9, 0.1, "open"),  # however short others are
        (10.1, 0.1, "overdue"),
        (29.0, 10.0, "open"),
        (31.0, 10.0, "overdue"),
    ],
)
def test_overdue_is_three_times_the_99th_percentile_and_ten_seconds(
    age_s: float, took_s: float, verdict: str
) -> None:
    assert verdicts(member(0, work(1, "reward_fn", age_s), reward_fn=took_s)) == [
        (0, verdict, "reward_fn")
    ]


def test_what_took_as_long_before_is_not_overdue() -> None:
    one = member(0, work(1, "reward_fn", 90))
    one.past["reward_fn", ""] = times(100, *[1] * 99)
    assert verdicts(one) == [(0, "open", "reward_fn")]


def test_with_too_few_to_compare_it_is_not_known_until_the_fallback_speaks() -> None:
    one = member(0, work(1, "checkpoint", 100))
    one.past["checkpoint", ""] = times(*[1] * (LEAST - 1))
    assert verdicts(one) == [(0, "unknown", "checkpoint")]
    one.past["checkpoint", ""].add(SECOND)
    assert verdicts(one) == [(0, "overdue", "checkpoint")]


def test_a_process_that_did_few_is_compared_with_the_others() -> None:
    new = member(1, work(1, "turn", 60))
    assert verdicts(member(0, turn=1), new)[0] == (1, "overdue", "turn")


def test_the_longest_of_a_process_counts_however_long_ago() -> None:
    one = member(0, work(1, "turn", 60))
    one.past["turn", ""] = times(100, *[1] * 5_000)
    assert verdicts(one) == [(0, "open", "turn")]


def test_the_longest_of_any_process_counts_for_one_that_did_few() -> None:
    first = member(0)
    first.past["turn", ""] = times(100, *[1] * 999)
    others = [member(rank) for rank in range(1, 4)]
    for other in others:
        other.past["turn", ""] = times(*[1] * 1_000)
    [found] = [
        one
        for one in examine([first, *others, member(4, work(1, "turn", 60))], BOOT, NOW)
        if one.work is not None
    ]
    assert (found.before, found.longest_s, found.verdict) == (4_000, 100.0, "open")


def test_quantiles_of_all_processes_are_of_all_of_them() -> None:
    """Of whoever began first, too."""
    first, second = member(0), member(1)
    first.past["turn", ""] = times(*[1] * 1_000)
    second.past["turn", ""] = times(*[3] * 999)
    new = member(2, work(1, "turn", 60))
    [found] = [one for one in examine([first, second, new], BOOT, NOW) if one.work is not None]
    assert (found.p50_s, found.p99_s, found.before) == (1.0, 3.0, 1_999)


def test_a_function_is_compared_with_itself_first() -> None:
    one = member(0, work(1, "reward_fn", 60, detail="slow"), reward_fn=1)
    one.past["reward_fn", "slow"] = times(*[30] * 50)
    assert verdicts(one) == [(0, "open", "reward_fn")]


def test_who_waits_comes_after_what_is_waited_for() -> None:
    waiting = [member(rank, work(1, "rpc", 300, detail="generate"), rpc=1) for rank in (1, 2, 3)]
    tool = member(0, work(1, "trajectory", 300), work(2, "tool_call", 290, 1), tool_call=0.5)
    assert verdicts(*waiting, tool)[0] == (0, "overdue", "tool_call")


def test_who_does_a_call_comes_before_who_made_it_and_waits() -> None:
    caller = member(
        None, work(1, "step", 350), work(2, "old_logprob", 320, 1), work(3, "rpc", 310, 2), rpc=1
    )
    worker = member(1, work(1, "rpc", 300), rpc=1)
    assert verdicts(caller, worker) == [(1, "overdue", "rpc"), (None, "overdue", "rpc")]


def test_who_does_a_call_is_named_as_soon_as_who_waits_for_it() -> None:
    """It began a little later. Another call, and a rank that has done its part, are not meant."""
    waits = member(None, work(1, "step", 10.02), work(2, "rpc", 10.01, 1, "log_prob"), rpc=0.1)
    does = member(1, work(1, "rpc", 9.99, detail="log_prob"), rpc=0.1)
    other = member(2, work(1, "rpc", 9.99, detail="generate"), rpc=0.1)
    first, second, *rest = verdicts(waits, does, other, member(3, rpc=0.1))
    assert [first, second] == [(1, "overdue", "rpc"), (None, "overdue", "rpc")]
    assert (2, "open", "rpc") in rest


def test_who_began_a_call_anew_is_not_who_does_the_overdue_one() -> None:
    """Nor is who does one of that method in another launch, however long it has."""
    waits = member(
        None,
        work(1, "step", 320),
        work(2, "rpc", 300, 1, "generate"), work(3, "rpc", 2, 1, "generate"),
        rpc=1,
    )  # fmt: skip
    old, young = (
        member(rank, work(1, "rpc", since_s, detail="generate"), rpc=150)
        for rank, since_s in ((1, 299.9), (2, 1.9))
    )
    alien = member(3, work(1, "rpc", 299.9, detail="generate"), job="other", rpc=150)
    assert verdicts(waits, old, young, alien) == [
        (1, "overdue", "rpc"), (None, "overdue", "rpc"),
        (3, "open", "rpc"), (2, "open", "rpc"), (None, "open", "rpc"),
    ]  # fmt: skip


def test_a_call_of_a_launch_that_died_began_when_its_caller_says() -> None:
    """However long before the other each gave its last sign of life."""
    waits = member(
        None, work(1, "step", 120), work(2, "rpc", 110.01, 1, "generate"), rpc=1,
        state="died", beat_s=910.0,
    )  # fmt: skip
    does = member(1, work(1, "rpc", 110, detail="generate"), state="died", beat_s=895.0, rpc=150)
    assert verdicts(waits, does) == [(1, "overdue", "rpc"), (None, "overdue", "rpc")]


def test_a_rank_that_is_elsewhere_is_named_even_if_nothing_is_overdue() -> None:
    ranks = [member(rank, work(1, "update_actor", 5)) for rank in range(3)]
    assert verdicts(*ranks, member(3, work(1, "reward", 5)))[0] == (3, "apart", "reward")
    assert verdicts(*ranks, member(3))[0] == (3, "apart", None)
    assert {verdict for _, verdict, _ in verdicts(*ranks)} == {"unknown"}
    beside = member(0, work(1, "reward", 5), job="other")
    assert {verdict for _, verdict, _ in verdicts(*ranks, beside)} == {"unknown"}


def test_ranks_of_another_role_are_at_something_else_by_right() -> None:
    """As the model of the reference while that of the policy is updated."""
    ranks = [member(rank, work(1, "rpc", 5), role="PolicyModelActor") for rank in range(3)]
    reference = [member(rank, role="ReferenceModelActor") for rank in range(2)]
    assert {verdict for _, verdict, _ in verdicts(*ranks, *reference)} == {"unknown", "idle"}
    late = member(3, role="PolicyModelActor")
    assert verdicts(*ranks, late, *reference)[0] == (3, "apart", None)


def test_a_process_that_died_is_named_while_others_go_on() -> None:
    dead = member(1, work(1, "rollout", 300), state="died", beat_s=800.0)
    others = [member(rank, work(1, "rollout", 300), rollout=200) for rank in (0, 2)]
    found = examine([*others, dead], BOOT, NOW)
    assert (found[0].member.rank, found[0].verdict, found[0].age_s) == (1, "died", 100.0)
    assert is_stuck(found)
    [alone] = examine([dead], BOOT, NOW)
    assert alone.verdict == "gone"
    assert is_stuck([alone])


def crashed(*ranks: int | None, trained: bool = False) -> list[Member]:
    """A launch that hung for 300 s, and was killed at 800 s."""
    hung = work(1, "rollout", 500)
    return [
        member(rank, hung, state="died", beat_s=800.0, job="first", trained=trained, rollout=1)
        for rank in ranks
    ]


def test_a_launch_that_crashed_is_stuck_until_it_is_launched_again() -> None:
    assert [verdict for _, verdict, _ in verdicts(*crashed(0, 1))] == ["overdue", "overdue"]
    again = [
        member(rank, work(1, "rollout", 5), job="second", begun_s=900.0, rollout=10)
        for rank in (0, 1)
    ]
    found = examine([*crashed(0, 1), *again], BOOT, NOW)
    assert {(one.member.header.job, one.verdict) for one in found} == {("second", "open")}
    assert not is_stuck(found)
    done = [member(rank, state="exited", job="second", begun_s=900.0) for rank in (0, 1)]
    assert examine([*crashed(0, 1), *done], BOOT, NOW) == []


def test_what_an_earlier_launch_did_is_compared_with() -> None:
    again = member(0, work(1, "rollout", 50), job="second", begun_s=900.0)
    assert verdicts(*crashed(0), again) == [(0, "overdue", "rollout")]


def test_a_launch_that_went_on_beside_another_one_is_not_past() -> None:
    beside = member(0, work(1, "rollout", 5), job="second", begun_s=700.0, rollout=10)
    assert (0, "overdue", "rollout") in verdicts(*crashed(0), beside)


@pytest.mark.parametrize("trained", [False, True])
def test_a_launch_of_other_ranks_takes_nobodys_place(trained: bool) -> None:
    """A server that is started again tells nothing of the training that it is for."""
    server = member(None, work(1, "verify", 5), job="second", begun_s=900.0, verify=10)
    assert (0, "overdue", "rollout") in verdicts(*crashed(0, trained=trained), server)


@pytest.mark.parametrize("rank", [None, 0])
def test_a_training_is_past_once_one_of_its_ranks_trains_again(rank: int | None) -> None:
    """Not once anything is started that has no rank, as its controller had none, or the rank 0."""
    dead = [*crashed(0, 1, trained=True), *crashed(None)]
    later = member(rank, work(1, "verify", 5), job="second", begun_s=900.0, verify=10)
    overdue = [(one, "overdue", "rollout") for one in (0, 1, None)]
    assert verdicts(*dead, later) == [*overdue, (rank, "open", "verify")]
    again = member(0, work(1, "rollout", 5), job="third", begun_s=900.0, trained=True, rollout=10)
    assert verdicts(*dead, again) == [(0, "open", "rollout")]


def test_a_launch_that_was_over_before_it_trained_is_past_once_its_ranks_train() -> None:
    again = member(0, work(1, "rollout", 5), job="second", begun_s=900.0, trained=True, rollout=10)
    assert verdicts(*crashed(0, 1), again) == [(0, "open", "rollout")]


def test_who_goes_on_in_another_launch_makes_none_of_this_one_dead() -> None:
    beside = member(1, work(1, "rollout", 5), job="second", begun_s=700.0, rollout=10)
    dead = member(0, work(1, "rollout", 220), state="died", beat_s=800.0, rollout=30)
    assert verdicts(dead, beside) == [(0, "gone", "rollout"), (1, "open", "rollout")]


def test_a_process_that_gives_no_sign_of_life_is_silent_and_one_elsewhere_is_not() -> None:
    still = member(0, work(1, "reward", 30), beat_s=970.0, reward=30)
    assert verdicts(still) == [(0, "silent", "reward")]
    assert verdicts(member(0, work(1, "reward", 30), beat_s=990.0, reward=30)) == [
        (0, "open", "reward")
    ]
    far = member(0, work(1, "reward", 30), state="unknown", beat_s=990.0, reward=30)
    [found] = examine([far], "another boot", NOW)
    assert (found.verdict, found.silent_s, found.age_s) == ("open", None, 20.0)


def test_several_trajectories_of_one_process_are_several_findings() -> None:
    busy = member(
        None,
        work(1, "trajectory", 50), work(2, "turn", 40, 1),
        work(3, "trajectory", 30), work(4, "tool_call", 20, 3),
        tool_call=1, turn=100,
    )  # fmt: skip
    assert verdicts(busy) == [(None, "overdue", "tool_call"), (None, "open", "turn")]


def test_a_parent_that_is_its_own_ends_no_reader() -> None:
    [found] = examine([member(0, work(1, "step", 5), work(2, "turn", 5, 2))], BOOT, NOW)[:1]
    assert found.work is not None


# ---------------------------------------------------------------- reading


def run(folder: Path, *, packed: bool = False) -> None:
    """A process with two segments that was killed in a tool call of its third step."""
    journal = JournalFile(folder, header={"rank": 3})
    journal.event(names.PROCESS, 0.0, role="job.<locals>.Worker", actor="", node="")
    for at in range(30):
        journal.span(names.TOOL_CALL, at, at + 0.5, tool="search")
    for name, span, start_s, parent in (
        (names.TRAJECTORY, 900, 31, 0), (names.TOOL_CALL, 901, 33, 900), (names.TURN, 902, 32, 900),
    ):  # fmt: skip
        number = journal.definition(name, ["batch"])
        journal.row("open", number, start_s * SECOND, span, parent)
    journal.span(names.TURN, 32.0, 33.0, span=902, parent=900, batch=900)
    journal.close(end=False)
    journal.open_table((800, 30.0, "step", ""), beat_s=60.0, step=3)
    if packed:
        [path] = folder.glob("*.jsonl")
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_open_is_what_the_whole_reader_finds(tmp_path: Path, packed: bool) -> None:
    run(tmp_path / "run", packed=packed)
    machine = fake_proc(tmp_path / "proc")
    pulse = Activity(tmp_path / "run", machine)
    [one] = pulse.read()
    pulse.close()
    trace = read_run(tmp_path / "run", machine=machine)
    ages = {(w.id, w.name, w.step, (one.heartbeat_ns - w.start_ns) / SECOND) for w in one.work}
    assert ages == {(w.id, w.name, w.step, w.age_s) for w in trace.open_spans}
    assert (one.role, one.rank, one.state) == ("Worker", 3, "died")
    assert {w.name: w.turns for w in one.work} == {"step": 0, "trajectory": 1, "tool_call": 0}
    assert one.past["tool_call", "search"].count == one.past["tool_call", ""].count == 30
    [found, step] = examine([one], pulse.machine.boot, 0)
    assert found.work is not None
    assert (found.work.name, found.verdict, found.age_s) == ("tool_call", "overdue", 27.0)
    assert step.work is not None
    assert step.work.name == "step"


@pytest.mark.parametrize("queue_group", [None, 0])
@pytest.mark.parametrize(
    ("does", "trained"),
    [("verify", False), ("session", True), ("step", True), ("trajectories", True), ("all", True)],
)
def test_who_trained_is_who_the_whole_reader_says(
    tmp_path: Path, does: str, trained: bool, queue_group: int | None
) -> None:
    """One that fills a queue did not, whatever else it did."""
    journal = JournalFile(tmp_path / "run")
    journal.span(names.VERIFY, 0.0, 1.0)
    if does in ("session", "all"):
        journal.event(names.SESSION, 0.0, session=0, rank=0)
    if does in ("step", "all"):
        journal.span(names.STEP, 0.0, 1.0, session=0, step=1)
    if does in ("trajectories", "all"):
        journal.event(
            names.TRAJECTORIES, 1.0, batch=1, step=1, offset=0, total=1, group_size=1,
            prompt_tokens=[1], response_tokens=[1], queue_group=queue_group,
        )  # fmt: skip
    journal.close()
    machine = fake_proc(tmp_path / "proc")
    pulse = Activity(tmp_path / "run", machine)
    [one] = pulse.read()
    pulse.close()
    [whole] = load(list_files(tmp_path / "run"), machine).recorded
    queues = does in ("trajectories", "all") and queue_group is not None
    assert (one.trained, whole.trained) == (trained and not queues,) * 2


def test_a_span_that_ended_builds_no_object_but_the_first_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = list[Past]()

    def build() -> Past:
        built.append(Past())
        return built[-1]

    run(tmp_path / "run")
    monkeypatch.setattr("rlvr_probe.recording.follow.activity.Past", build)
    pulse = Activity(tmp_path / "run")
    [one] = pulse.read()
    pulse.close()
    assert sum(past.count for past in one.past.values()) == 61
    assert len(built) == len(one.past) == 3


def test_reading_on_finds_what_reading_at_once_does(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    [path] = (tmp_path / "whole").glob("*.jsonl")
    data = path.read_bytes()
    folder = tmp_path / "grows"
    folder.mkdir()
    pulse = Activity(folder)
    for end in (*range(300, len(data), 700), len(data)):
        (folder / path.name).write_bytes(data[:end])
        pulse.read()
    [one] = pulse.read()
    with closing(Activity(tmp_path / "whole")) as activity:
        [whole] = activity.read()
    pulse.close()
    assert one.past.keys() == whole.past.keys()
    assert {key: past.count for key, past in one.past.items()} == {
        key: past.count for key, past in whole.past.items()
    }
    assert {w.id for w in one.work} == {901, 900}  # without the table, which was not copied


def test_ranks_that_crashed_are_past_once_the_run_is_resumed(tmp_path: Path) -> None:
    """The launch that its journal names is what a rank belongs to; the run is one."""
    for number, job, start_s in ((1, "first", 0.0), (2, "first", 0.0), (3, "second", 100.0)):
        journal = JournalFile(
            tmp_path / "run", number, start_s=start_s, header={"job": job, "ppid": 900 + number}
        )
        Training(journal, rank=(number - 1) % 2, ranks=2).begin()
        for at in range(LEAST):
            journal.span(names.ROLLOUT, at / 10, at / 10 + 0.1)
        journal.close(end=False)
        since_s = 20.0 if job == "first" else 3.0
        journal.open_table((900, since_s, "rollout", ""), beat_s=60.0 if job == "first" else 4.0)

    def found(*alive: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        machine = fake_proc(
            tmp_path / "-".join(("proc", *alive)), BOOT, **dict.fromkeys(alive, ("S", 77))
        )
        pulse = Activity(tmp_path / "run", machine)
        members = pulse.read()
        pulse.close()
        now_ns = max(one.heartbeat_ns for one in members)
        return [(one.header.pid, one.state) for one in members], [
            (one.member.header.pid, one.verdict) for one in examine(members, machine.boot, now_ns)
        ]

    states, told = found("p1003")
    assert states == [(1001, "died"), (1002, "died"), (1003, "running")]
    assert told == [(1003, "open")]
    # While a rank of the first launch lives, that is not over, and the other one is missing.
    _, told = found("p1001", "p1003")
    assert set(told) == {(1001, "silent"), (1002, "died"), (1003, "open")}


DAMAGE = b'[["' + b"[" * 50_000 + b"]\n"


def test_of_a_damaged_file_the_chunks_that_are_sound_are_used(tmp_path: Path) -> None:
    """The first chunk defines what a tool call is and has 17 of them, the second has 13."""
    run(tmp_path / "run")
    [path] = (tmp_path / "run").glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    sums = [at for at, line in enumerate(lines) if line.startswith(b'["sum"')]
    assert sums == [1, 22, 43]
    found = list[tuple[int, ...]]()
    for at in range(2, len(lines)):
        path.write_bytes(b"".join([*lines[:at], DAMAGE, *lines[at + 1 :]]))
        pulse = Activity(tmp_path / "run")
        [one] = pulse.read()
        pulse.close()
        found.append(
            tuple(one.past.get((name, ""), Past()).count for name in ("tool_call", "turn"))
        )
    # Where the first sum is damaged, both chunks are one, which has the wrong sum.
    assert found == [(0, 1)] * 20 + [(0, 0)] + [(17, 0)] * 21


def test_a_row_that_means_nothing_costs_no_other(tmp_path: Path) -> None:
    """Whatever wrote it, its chunk has the right sum."""
    journal = JournalFile(tmp_path / "run")
    journal.span(names.TURN, 0, 1)
    journal.rows += [DAMAGE[:-1], b"[", b"[]", b"{}", b"[99,0,1,1,0]", b'[0,"",1,1,0]', b"[0,0]"]
    journal.rows += [b"[0,0,-1,5,0]", b"[0,1e400,1,5,0]", b'["open"]', b'["def",{}]', b"\xff"]
    journal.span(names.TURN, 1, 3)
    journal.close()
    pulse = Activity(tmp_path / "run")
    [one] = pulse.read()
    pulse.close()
    assert (one.past["turn", ""].count, one.past["turn", ""].longest_ns) == (2, 2 * SECOND)
    assert one.work == ()


# ---------------------------------------------------------------- saying it


def test_the_first_line_below_the_title_is_the_answer() -> None:
    tool = member(2, work(1, "tool_call", 600, detail="search"), tool_call=0.5)
    text = said(tool).splitlines()[1]
    assert text == (
        "rank 2 (pid 102 on host) is stuck: tool_call search open for 10.0 min;"
        " P99 of 100 before: 0.500 s"
    )
    assert said(member(0, work(1, "reward", 1), reward=1)).splitlines() == [
        "run · 1 running", "OK: nothing takes unusually long",
    ]  # fmt: skip


def test_the_command_exits_with_1_if_something_is_stuck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run")
    assert cli.main(["stuck", str(tmp_path)]) == cli.UNSOUND
    assert "tool_call" in capsys.readouterr().out
    assert cli.main(["stuck", str(tmp_path), "--json"]) == cli.UNSOUND
    found = json.loads(capsys.readouterr().out)
    assert (found["stuck"], found["findings"][0]["open_s"]) == (True, 27.0)
    assert cli.main(["stuck", str(tmp_path / "none")]) == cli.UNABLE


def test_a_process_of_this_machine_is_open_until_now(tmp_path: Path) -> None:
    run(tmp_path / "run")
    machine = fake_proc(tmp_path / "proc", p1001=("S", 77))
    pulse = Activity(tmp_path / "run", machine)
    [one] = pulse.read()
    pulse.close()
    assert one.state == "running"
