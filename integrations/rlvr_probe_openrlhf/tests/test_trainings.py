"""Trainings as their loops run: prompts used up, resumed, filtered, failed, beside a generator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rlvr_probe_openrlhf.tests import pretend

from rlvr_probe.model.batch import Batch
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import find_run, read_run
from rlvr_probe.recording.follow.activity import Activity
from tests.summarized import summary_of
from tests.surroundings import surroundings


def play(
    folder: Path, body: str, *, status: int = 0, faults: Mapping[str, int] | None = None
) -> Trace:
    """What a script with the loops of OpenRLHF recorded."""
    pretend.install(folder / "site")
    script = folder / "train.py"
    script.write_text(pretend.script(folder / "out", body))
    done = subprocess.run(
        [sys.executable, str(script)],
        env=surroundings() | {"PYTHONPATH": str(folder / "site"), "RLVR_PROBE_OWN_SHARE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    trace = read_run(find_run(folder / "out"))
    result = [dict(process.faults) for process in trace.processes if process.faults]
    assert result == ([] if faults is None else [faults])
    return trace


SYNC = """
generator = SamplesGenerator(args, [[answer("a", 3, 4)], [answer("b", 5, 6)]], [answer("e", 1, 2)])
PPOTrainer(args, RemoteExperienceMaker(), generator).fit()
"""


def test_prompts_that_are_used_up_begin_no_step_and_end_the_training(tmp_path: Path) -> None:
    trace = play(tmp_path, "args.eval_steps = 2" + SYNC)
    steps = [step for step in trace.steps() if step.started]
    assert [(step.number, step.complete) for step in steps] == [(1, True), (2, True)]
    assert trace.open_spans == []
    lengths = [
        [sample.response_tokens for group in batch.groups() for sample in group.trajectories]
        for step in steps
        for batch in step.batches
    ]
    assert lengths == [[3, 4], [5, 6]]
    assert [batch.kept for step in steps for batch in step.batches] == [None, None]
    assert [batch.rows for step in trace.steps() for batch in step.evaluations] == [2]
    for step in steps:
        names = {span.name for span in step.spans}
        assert names >= {
            "data",
            "rollout",
            "old_logprob",
            "advantage",
            "update_actor",
            "weight_sync",
        }
    [session] = trace.attempts[0].sessions
    assert session.facts["algorithm"] == "rloo"


def test_each_pass_over_the_prompts_goes_on_counting(tmp_path: Path) -> None:
    trace = play(tmp_path, "args.num_episodes = 2" + SYNC)
    assert [step.number for step in trace.steps() if step.complete] == [1, 2, 3, 4]
    assert trace.open_spans == []


def test_a_training_that_goes_on_from_a_checkpoint_says_so(tmp_path: Path) -> None:
    trace = play(tmp_path, "args.resumed = 7" + SYNC)
    assert [step.number for step in trace.steps() if step.complete] == [8, 9]
    [session] = trace.attempts[0].sessions
    assert session.facts["resumed_step"] == 7


def test_what_a_filter_threw_away_is_known(tmp_path: Path) -> None:
    body = """
    rows = [answer("a", 3, 4), answer("b", 5, 6, passes=False), answer("c", 7, 8)]
    PPOTrainer(args, RemoteExperienceMaker(), SamplesGenerator(args, [rows])).fit()
    """
    trace = play(tmp_path, body)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    groups = list(batch.groups())
    kept = [
        [trajectory.response_tokens for trajectory in groups[at].trajectories]
        for at in batch.kept or ()
    ]
    assert sorted(kept) == [[3, 4], [7, 8]]
    assert batch.used == batch.kept
    assert batch.rows == 6


def lengths_by_group(batch: Batch) -> list[list[int]]:
    return [
        [trajectory.response_tokens for trajectory in group.trajectories]
        for group in batch.groups()
    ]


def test_what_a_filter_throws_away_is_there_while_nothing_passes(tmp_path: Path) -> None:
    body = """
    import os, time

    args.dynamic_filtering = True
    more = iter([answer("b", 5, 6, passes=False), answer("c", 7, 8, passes=False)])

    def replaced():
        found = next(more, None)
        if found is None:  # killed
            time.sleep(1)
            os._exit(3)
        return found

    rows = [answer("a", 3, 4, passes=False), answer("d", 9, 9, passes=False), *[replaced] * 3]
    PPOTrainer(args, RemoteExperienceMaker(), SamplesGenerator(args, [rows])).fit()
    """
    trace = play(tmp_path, body, status=3)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    assert lengths_by_group(batch) == [[3, 4], [9, 9]]
    assert (batch.kept, batch.used, batch.whole) == (frozenset(), None, True)
    assert "unjoined_prompts" not in trace.lost
    pulse = Activity(find_run(tmp_path / "out"))
    [member] = pulse.read()
    pulse.close()
    assert (member.sifting.discarded, member.sifting.passed) == (2, 0)


def test_what_was_told_while_it_was_generated_is_of_one_batch(tmp_path: Path) -> None:
    body = """
    args.dynamic_filtering = True
    more = iter([answer("b", 5, 6, passes=False), answer("c", 7, 8)])
    rows = [answer("a", 3, 4, passes=False), answer("d", 9, 9), *[lambda: next(more)] * 2]
    PPOTrainer(args, RemoteExperienceMaker(), SamplesGenerator(args, [rows])).fit()
    """
    trace = play(tmp_path, body)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    assert lengths_by_group(batch) == [[3, 4], [5, 6], [9, 9], [7, 8]]
    assert batch.kept == batch.used == frozenset({2, 3})
    rows = [trajectory for group in batch.groups() for trajectory in group.trajectories]
    assert [row.rewards[0].value for row in rows] == [0.5] * 8
    assert (batch.rows, batch.total, batch.whole) == (8, 8, True)
    assert trace.notes == []
    assert trace.lost == {"unjoined_trajectories": 8}  # nobody executed any


@pytest.mark.parametrize("episodes", [1, 2])
def test_a_step_for_which_nothing_was_left_has_what_was_thrown_away(
    tmp_path: Path, episodes: int
) -> None:
    body = f"""
    args.dynamic_filtering, args.num_episodes = True, {episodes}
    lost = answer("c", 7, 8, passes=False)
    used_up = [lost, answer("d", 9, 9, passes=False), lambda: answer("e", 1, 1), lambda: None]
    rows = [[answer("a", 3, 4)], used_up, [answer("b", 5, 6)]]
    PPOTrainer(args, RemoteExperienceMaker(), SamplesGenerator(args, rows)).fit()
    """
    trace = play(tmp_path, body)
    recorded = [
        (step.number, step.done, [(batch.rows, batch.kept, batch.used) for batch in step.batches])
        for step in trace.steps()
    ]
    none, only = frozenset[int](), frozenset({0})
    first, passed = (1, True, [(2, only, only)]), (2, only, only)
    if episodes == 1:
        assert recorded == [first, (2, False, [(2, none, None)])]
    else:
        assert recorded == [first, (2, True, [(2, none, none), passed])]
    assert trace.attempts[0].sessions[0].facts["filters"] == 1
    assert (trace.open_spans, trace.notes) == ([], [])


def test_what_was_told_while_it_was_generated_for_a_queue_is_that_of_the_step(
    tmp_path: Path,
) -> None:
    body = """
    import os

    args.dynamic_filtering = True
    rows = [answer("a", 3, 4, passes=False), answer("b", 5, 6), lambda: answer("c", 7, 8)]
    generator = SamplesGenerator(args, [rows, [answer("d", 9, 9)]], [answer("e", 1, 2)])
    generator.generate_samples()
    generator.generate_eval_samples()
    generator.generate_samples()
    if not os.fork():
        queue = Queue(([1], {}), ([2], {}), "done")
        TrainingActor(args, RemoteExperienceMaker(), queue).fit(0)
        sys.exit()
    os.wait()
    """
    trace = play(tmp_path, body)
    recorded = [
        (step.number, lengths_by_group(batch), batch.kept, batch.used)
        for step in trace.steps()
        for batch in step.batches
    ]
    kept, only = frozenset({1, 2}), frozenset({0})
    assert recorded == [(1, [[3, 4], [5, 6], [7, 8]], kept, kept), (2, [[9, 9]], only, only)]
    assert trace.notes == []
    assert "unjoined_prompts" not in trace.lost


def test_what_a_filter_threw_away_beside_the_training_is_that_of_the_step(tmp_path: Path) -> None:
    body = """
    import os

    args.dynamic_filtering = True
    rows = [answer("a", 3, 4), answer("b", 5, 6, passes=False)], [answer("c", 7, 8)]
    generator = SamplesGenerator(args, rows, [answer("e", 1, 2)])
    generator.generate_samples()
    generator.generate_eval_samples()
    generator.generate_samples()
    if not os.fork():
        queue = Queue(([1], {}), ([2], {}), "done")
        TrainingActor(args, RemoteExperienceMaker(), queue).fit(0)
        sys.exit()
    os.wait()
    """
    trace = play(tmp_path, body)
    recorded = [
        (step.number, batch.rows, batch.kept, batch.used)
        for step in trace.steps()
        for batch in step.batches
    ]
    first = frozenset({0})
    assert recorded == [(1, 4, first, first), (2, 2, first, first)]
    assert trace.notes == []
    assert "unjoined_prompts" not in trace.lost


def test_a_step_that_filters_nothing_tells_so(tmp_path: Path) -> None:
    body = """
    args.dynamic_filtering = True
    rows = [[answer("a", 3, 4), answer("b", 5, 6, passes=False)], [answer("c", 7, 8)]]
    PPOTrainer(args, RemoteExperienceMaker(), SamplesGenerator(args, rows)).fit()
    """
    trace = play(tmp_path, body)
    recorded = [(batch.kept, batch.used) for step in trace.steps() for batch in step.batches]
    assert recorded == [(frozenset({0}), frozenset({0}))] * 2
    assert summary_of(tmp_path / "out")["selection"] == {"groups": 3, "kept": 2, "used": 2}
    assert trace.notes == []


def test_a_reward_may_be_the_list_of_one_that_openrlhfs_own_server_answers(tmp_path: Path) -> None:
    body = """
    one = answer("a", 3, 4)
    for at, response in enumerate(one.responses):
        response["reward"] = [at + 0.5]
    PPOTrainer(args, RemoteExperienceMaker(), SamplesGenerator(args, [[one]])).fit()
    """
    trace = play(tmp_path, body)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    [group] = batch.groups()
    assert [trajectory.rewards[0].value for trajectory in group.trajectories] == [0.5, 1.5]


def test_a_sample_of_another_shape_is_missing_and_the_others_are_there(tmp_path: Path) -> None:
    body = """
    one, other = answer("a", 3, 4), answer("b", 5, 6)
    one.responses[1]["action_ranges"] = [("what", "is this")]
    PPOTrainer(args, RemoteExperienceMaker(), SamplesGenerator(args, [[one, other]])).fit()
    """
    trace = play(tmp_path, body, faults={"rlvr_probe_openrlhf.samples._answered: LookupError": 1})
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    assert (batch.rows, batch.total, batch.complete) == (3, 4, False)
    groups = {group.index: group.trajectories for group in batch.groups()}
    lengths = {at: [row.response_tokens for row in rows] for at, rows in groups.items()}
    assert lengths == {0: [3], 1: [5, 6]}
    values = [r.value for rows in groups.values() for row in rows for r in row.rewards]
    assert values == [0.5] * 3


def test_a_prompt_all_of_whose_samples_are_of_another_shape_is_missing(tmp_path: Path) -> None:
    body = """
    one, other = answer("a", 3, 4), answer("b", 5, 6)
    for response in one.responses:
        response["action_ranges"] = [("what", "is this")]
    PPOTrainer(args, RemoteExperienceMaker(), SamplesGenerator(args, [[one, other]])).fit()
    """
    place = "rlvr_probe_openrlhf.samples._answered: LookupError"
    trace = play(tmp_path, body, faults={place: 2})
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    assert (batch.rows, batch.total) == (2, 4)
    [group] = batch.groups()
    assert [trajectory.response_tokens for trajectory in group.trajectories] == [5, 6]
    assert list(batch.prompts()) == [(0, "b")]


def test_a_step_that_fails_is_told_and_ends_nothing_else(tmp_path: Path) -> None:
    body = """
    maker = RemoteExperienceMaker(ValueError("secret"))
    PPOTrainer(args, maker, SamplesGenerator(args, [[answer("a", 3, 4)]])).fit()
    """
    trace = play(tmp_path, body, status=1)
    [step] = [step for step in trace.steps() if step.started]
    assert not step.done
    errors = {span.name: span.error for span in step.spans if span.error}
    assert errors == {"step": "ValueError", "old_logprob": "ValueError"}
    assert trace.open_spans == []


@pytest.mark.parametrize("resumed", [0, 4])
def test_a_step_beside_a_generator_begins_with_the_wait_for_it(
    tmp_path: Path, resumed: int
) -> None:
    body = f"""
    queue = Queue(([1, 2], {{}}), ("eval", 1, {{}}), ([3], {{}}), "done")
    TrainingActor(args, RemoteExperienceMaker(), queue).fit({resumed})
    """
    trace = play(tmp_path, body)
    steps = [step for step in trace.steps() if step.started]
    assert [step.number for step in steps if step.done] == [resumed + 1, resumed + 2]
    for step in steps:
        [wait] = [span for span in step.spans if span.name == "wait"]
        assert wait.attributes["on"] == "rollout_queue"
    assert trace.open_spans == []


def test_prompts_of_an_evaluation_pass_no_filter(tmp_path: Path) -> None:
    trace = play(tmp_path, "args.dynamic_filtering, args.eval_steps = True, 1" + SYNC)
    assert [len(step.evaluations) for step in trace.steps() if step.started] == [1, 1]
    assert summary_of(tmp_path / "out")["selection"] == {"groups": 2, "kept": 2, "used": 2}
    assert "unjoined_prompts" not in trace.lost
