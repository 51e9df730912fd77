"""What is open is compared with the past of its kind, and the culprit comes before who waits."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.stuck import LEAST, Finding, examine, is_stuck
from rlvr_probe.model import names
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.report.stuck import lay_out_stuck
from rlvr_probe.trace import read_run
from rlvr_probe.trace.header import Header
from rlvr_probe.trace.pulse import Member, Past, Pulse, Work
from tests.journals import BOOT, SECOND, JournalFile, fake_proc

NOW = 1_000 * SECOND


def member(
    rank: int | None = 0,
    *work: Work,
    state: ProcessState = "running",
    beat_s: float = 1_000.0,
    role: str = "",
    **past: float,
) -> Member:
    """A process that did a hundred spans of each name in so many seconds."""
    header = Header(
        f"{rank or 0:016x}", 0, "run", "job", None, "host", BOOT, 100 + (rank or 0), 1, 1, 0,
        rank or 0, "", 1, "", rank, None, None, {},
    )  # fmt: skip
    found = {(name, ""): Past(100) for name in past}
    for name, seconds in past.items():
        found[name, ""].recent_ns.extend([round(seconds * SECOND)] * 100)
    return Member(header, state, work, found, 0, round(beat_s * SECOND), role, rank)


def work(number: int, name: str, since_s: float, parent: int = 0, detail: str = "") -> Work:
    return Work(number, parent, name, detail, NOW - round(since_s * SECOND))


def verdicts(*members: Member) -> list[tuple[int | None, str, str | None]]:
    return [
        (one.member.rank, one.verdict, None if one.work is None else one.work.name)
        for one in examine(members, BOOT, NOW)
    ]


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
    one = member(0, work(1, "reward_fn", 90), reward_fn=1)
    one.past["reward_fn", ""].recent_ns[0] = 100 * SECOND  # the longest of a hundred
    assert verdicts(one) == [(0, "open", "reward_fn")]


def test_with_too_few_to_compare_nothing_is_said() -> None:
    one = member(0, work(1, "checkpoint", 900))
    one.past["checkpoint", ""] = Past(LEAST - 1)
    one.past["checkpoint", ""].recent_ns.extend([SECOND] * (LEAST - 1))
    assert verdicts(one) == [(0, "unknown", "checkpoint")]
    one.past["checkpoint", ""].add(SECOND)
    assert verdicts(one) == [(0, "overdue", "checkpoint")]


def test_a_process_that_did_few_is_compared_with_the_others() -> None:
    new = member(1, work(1, "turn", 60))
    assert verdicts(member(0, turn=1), new)[0] == (1, "overdue", "turn")


def test_a_function_is_compared_with_itself_first() -> None:
    one = member(0, work(1, "reward_fn", 60, detail="slow"), reward_fn=1)
    one.past["reward_fn", "slow"] = Past(50)
    one.past["reward_fn", "slow"].recent_ns.extend([30 * SECOND] * 50)
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


def test_a_rank_that_is_elsewhere_is_named_even_if_nothing_is_overdue() -> None:
    ranks = [member(rank, work(1, "update_actor", 5)) for rank in range(3)]
    assert verdicts(*ranks, member(3, work(1, "reward", 5)))[0] == (3, "apart", "reward")
    assert verdicts(*ranks, member(3))[0] == (3, "apart", None)
    assert {verdict for _, verdict, _ in verdicts(*ranks)} == {"unknown"}


def test_a_process_that_died_is_named_while_others_go_on() -> None:
    dead = member(1, work(1, "rollout", 300), state="died", beat_s=800.0)
    others = [member(rank, work(1, "rollout", 300), rollout=200) for rank in (0, 2)]
    found = examine([*others, dead], BOOT, NOW)
    assert (found[0].member.rank, found[0].verdict, found[0].age_s) == (1, "died", 100.0)
    assert is_stuck(found)
    # Of a whole run that is dead, nobody waits.
    [alone] = examine([dead], BOOT, NOW)
    assert alone.verdict == "unknown"
    assert not is_stuck([alone])


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
    pulse = Pulse(tmp_path / "run", machine)
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


def test_reading_on_finds_what_reading_at_once_does(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    [path] = (tmp_path / "whole").glob("*.jsonl")
    data = path.read_bytes()
    folder = tmp_path / "grows"
    folder.mkdir()
    pulse = Pulse(folder)
    for end in (*range(300, len(data), 700), len(data)):
        (folder / path.name).write_bytes(data[:end])
        pulse.read()
    [one] = pulse.read()
    [whole] = Pulse(tmp_path / "whole").read()
    pulse.close()
    assert one.past.keys() == whole.past.keys()
    assert {key: past.count for key, past in one.past.items()} == {
        key: past.count for key, past in whole.past.items()
    }
    assert {w.id for w in one.work} == {901, 900}  # without the table, which was not copied


def test_damage_is_passed_over(tmp_path: Path) -> None:
    run(tmp_path / "run")
    [path] = (tmp_path / "run").glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    for at in range(2, len(lines)):
        bad = [*lines]
        bad[at] = b'[["' + b"[" * 50_000 + b"]\n"
        path.write_bytes(b"".join(bad))
        pulse = Pulse(tmp_path / "run")
        for one in pulse.read():
            assert one.past.get(("tool_call", ""), Past()).count <= 30
        pulse.close()


# ---------------------------------------------------------------- saying it


def said(findings: list[Finding]) -> str:
    blocks = lay_out_stuck("run", findings, {}, "")
    return "\n".join(getattr(block, "text", "") for block in blocks)


def test_the_first_line_below_the_title_is_the_answer() -> None:
    tool = member(2, work(1, "tool_call", 600, detail="search"), tool_call=0.5)
    text = said(examine([tool], BOOT, NOW)).splitlines()[1]
    assert text == (
        "rank 2 (pid 102 on host) is stuck: tool_call search open for 10.0 min;"
        " 99 of 100 took 0.500 s or less, of 100"
    )
    assert "nothing is open for unusually long" in said(
        examine([member(0, work(1, "reward", 1), reward=1)], BOOT, NOW)
    )


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
    pulse = Pulse(tmp_path / "run", machine)
    [one] = pulse.read()
    pulse.close()
    assert one.state == "running"
