"""Real jobs of verl, recorded and replayed, compared by the tensors that both were trained on."""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from rlvr_probe_verl.recorded_samples import Samples
from rlvr_probe_verl.replay import VerlReplay, misfits
from rlvr_probe_verl.tests.environments import python
from rlvr_probe_verl.tests.runs import JOB, Finished, Runner, Scenario

from rlvr_probe.analysis.fidelity import Lengths
from rlvr_probe.cli.fidelity import make_cards
from rlvr_probe.exceptions import SteeringError
from rlvr_probe.steering import (
    Plan,
    PlannedBatch,
    PlannedCall,
    PlannedGroup,
    PlannedSample,
    PlannedTurn,
    Steering,
)
from tests.published import WORKLOADS
from tests.surroundings import surroundings

SCENARIOS = {
    "v0": Scenario("0.9.1", how="launcher", ranks=2),
    "v1": Scenario("0.9.1", "v1", how="launcher", overrides=("trainer.test_freq=-1",)),
    "0.8": Scenario("0.8.0", how="launcher"),
    "0.7": Scenario("0.7.1", how="launcher"),
    "vllm": Scenario("0.9.1", how="launcher", vllm=True, timeout_s=1500.0),
    "filtered": Scenario(
        "0.9.1", "v1", how="launcher", filtered=True, overrides=("trainer.test_freq=-1",)
    ),
}
TOOLS = Scenario("0.9.1", how="launcher", tools=3, overrides=("trainer.test_freq=-1",))
FULL = frozenset({"v0", "0.8", "0.7", "vllm", "filtered"})
every_job = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in
             SCENARIOS],
)  # fmt: skip


def replayed(recorded: Finished, *options: str, **changes: Any) -> Scenario:
    """The job that replays one: its own rollouts would differ, by another seed."""
    return replace(
        recorded.scenario,
        how="replay",
        workload=(str(recorded.recording), *options),
        environment=(*recorded.scenario.environment, "VERL_CPU_SEED=7", "VERL_CPU_TOOLS="),
        **changes,
    )


def steps(finished: Finished) -> list[list[tuple[int, list[tuple[int, bool, float]]]]]:
    """Of each step, the prompt length of every group, with length, cut and reward of its samples.

    In no order: verl moves rows before it trains on them.
    """
    by_step = defaultdict[int, list[dict[str, Any]]](list)
    for number, line in enumerate(finished.truth.trained):
        by_step[line.get("step", number)] += line["samples"]
    cap = 400 if finished.scenario.tools else 32
    return [groups(by_step[step], cap) for step in sorted(by_step)]


def groups(
    samples: list[dict[str, Any]], cap: int
) -> list[tuple[int, list[tuple[int, bool, float]]]]:
    by_uid = defaultdict[str, list[dict[str, Any]]](list)
    for sample in samples:
        by_uid[sample["uid"]].append(sample)
    prompts = {uid: {tuple(sample["prompt"]) for sample in own} for uid, own in by_uid.items()}
    # A group is one prompt, and two groups are two.
    assert all(len(own) == 1 for own in prompts.values())
    assert len(set.union(*prompts.values())) == len(prompts)
    return sorted(
        (
            len(next(iter(prompts[uid]))),
            # The stand-in for an engine ends some without an end token, which are not cut either.
            sorted(
                (
                    sample["response"],
                    sample["response"] == cap and not sample["ended"],
                    sample["reward"],
                )
                for sample in own
            ),
        )
        for uid, own in by_uid.items()
    )


def requests(finished: Finished) -> Counter[tuple[int, int]]:
    """Prompt and response tokens of all that engines were asked for."""
    return Counter((len(own["prompt"]), len(own["output"])) for own in finished.truth.requests)


@pytest.mark.conformance
@pytest.mark.timeout(1800)
@every_job
def test_every_sample_of_a_replay_is_what_was_recorded(name: str, runner: Runner) -> None:
    recorded = runner.finished(SCENARIOS[name])
    again = runner.finished(replayed(recorded))
    expected = steps(recorded)
    samples = [sample for step in expected for _, group in step for sample in group]
    trained = 2 * 4 * 4
    assert len(samples) > trained if recorded.scenario.filtered else len(samples) == trained
    assert {cut for _, cut, _ in samples} == {True, False}
    assert len({length for length, *_ in samples}) > 5
    assert steps(again) == expected
    generated = [sample for line in again.truth.trained for sample in line["samples"]]
    assert sum(sample["inner_ends"] for sample in generated) == 0
    assert sum(sample["ended"] for sample in generated) == sum(not cut for _, cut, _ in samples)
    assert "replayed all 2 batches" in again.output
    # What verl logs of the samples that it trains on.
    for metric in ("prompt_length/mean", "response_length/mean", "critic/score/mean"):
        logged = [
            [own.truth.metrics[step][metric] for step in sorted(own.truth.metrics)]
            for own in (recorded, again)
        ]
        assert logged[0] == pytest.approx(logged[1])
        assert len(logged[0]) == 2
    [card] = make_cards(recorded.recording, [again.recording])
    assert card.lengths == Lengths(len(samples), len(samples), None)
    assert "lengths: parameters of each request, by an agent loop (rung 2 of 5)" in again.output


@pytest.mark.conformance
@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("half", ["training", "rollout"])
def test_a_half_is_done_alone(runner: Runner, half: str) -> None:
    recorded = runner.finished(SCENARIOS["v1"])
    again = runner.finished(replayed(recorded, "--half", half))
    assert steps(again) == steps(recorded)
    assert "replayed all 2 batches" in again.output
    # The engine's own book, and what the trainer logs of an update.
    if half == "rollout":
        assert requests(again) == requests(recorded)
    else:
        assert len(again.truth.requests) < len(recorded.truth.requests)
    updated = ["actor/pg_loss" in again.truth.metrics[step] for step in (1, 2)]
    assert updated == [half == "training"] * 2
    [card] = make_cards(recorded.recording, [again.recording])
    assert (card.half, card.lengths) == (half, Lengths(32, 32, None))
    stages = {own.name for own in card.stages}
    assert stages & {"rollout", "update"} == {"rollout" if half == "rollout" else "update"}


@pytest.mark.conformance
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_turns_and_tools_of_a_replay_are_what_was_recorded(runner: Runner) -> None:
    recorded = runner.finished(TOOLS)
    again = runner.finished(replayed(recorded))
    assert requests(recorded).total() > 2 * 4 * 4
    assert requests(again) == requests(recorded)
    assert steps(again) == steps(recorded)
    # By verl's own clock; a busy machine makes both longer.
    name = "timing_s/agent_loop/tool_calls/mean"
    waits = [[own.truth.metrics[step][name] for step in (1, 2)] for own in (recorded, again)]
    assert all(wait > 0.02 for wait in waits[0])
    assert all(0.8 * was < is_now < was + 1 for was, is_now in zip(*waits, strict=True))
    assert "replayed all 2 batches" in again.output


@pytest.mark.conformance
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_published_workload_with_turns_is_replayed_on_a_tiny_model(runner: Runner) -> None:
    """Turns of 512 trajectories, read here from their file, at 1/64."""
    file = WORKLOADS / "search_r1" / "0617_0223" / "multiturn_workload_step_0.jsonl"
    if not file.is_file():
        pytest.skip("POLYTRACE_DATA: no published workloads there")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    longest = max(shorter(line["prompt_len"]) for line in lines)
    overrides = (
        f"data.train_batch_size={len(lines) // 8}",
        "actor_rollout_ref.rollout.n=8",
        f"data.max_prompt_length={longest}",
        f"data.max_response_length={shorter(lines[0]['max_response_len'])}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={len(lines) // 8}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "trainer.test_freq=-1",
    )
    workload = (str(file.parent), "--scale-lengths", "1/64", "--rewards", "real")
    scenario = Scenario(
        "0.9.1", "v1", how="replay", workload=workload, steps=1, overrides=overrides
    )
    replayed = runner.finished(scenario)
    assert requests(replayed) == Counter(
        (shorter(turn["prompt_tokens"]), shorter(turn["completion_tokens"]))
        for line in lines
        for turn in line["turns"]
    )
    trained = [sample for line in replayed.truth.trained for sample in line["samples"]]
    assert Counter((len(own["prompt"]), own["response"]) for own in trained) == Counter(
        (shorter(line["prompt_len"]), shorter(line["final_response_len"])) for line in lines
    )
    assert Counter(Counter(own["uid"] for own in trained).values()) == {8: len(lines) // 8}
    assert "lengths as recorded: " in replayed.output
    assert "lengths x 1/64: " in replayed.output
    assert "replayed all 1 batches" in replayed.output


def shorter(tokens: int) -> int:
    """As many tokens at 1/64."""
    return max(1, round(Fraction(tokens, 64)))


@pytest.mark.conformance
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "release", ["0.9.1", *(pytest.param(old, marks=pytest.mark.full) for old in ("0.8.0", "0.7.1"))]
)
def test_the_plugins_give_verl_what_is_planned(release: str, runner: Runner) -> None:
    check_whole(plugins(release, runner))


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_the_plugins_ask_no_engine_for_training_alone(runner: Runner) -> None:
    seen = plugins("0.9.1", runner, "training")
    assert seen["asked"] == []
    one, turns = seen["outputs"]
    assert [len(own["response"]) for own in (one, turns)] == [4, 11]
    assert (one["response"][-1], seen["end"] in one["response"][:-1]) == (seen["end"], False)
    assert one["log_probs"] == [one["log_probs"][0]] * 4
    assert one["log_probs"][0] < 0
    assert turns["mask"] == [1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0]
    assert seen["reported"] == [[0, 0, 2], [0, 1, 2]]


def plugins(release: str, runner: Runner, *half: str) -> Any:
    """What the plug-ins gave verl, without a job."""
    interpreter = python(release)
    model = runner.assets(interpreter) / "tiny-qwen2"
    environment = {"PYTHONPATH": str(JOB), "HF_HUB_OFFLINE": "1", "VERL_PLATFORM": "cpu"}
    if release != "0.9.1":
        environment = {"PYTHONPATH": str(JOB), "HF_HUB_OFFLINE": "1", "VERL_CPU_DEVICE": "1"}
    done = subprocess.run(
        [str(interpreter), str(JOB / "verl_cpu_replayed.py"), str(model), *half],
        env=surroundings("PYTEST_", "RAY_", "VERL_", "PYTHONPATH") | environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def check_whole(seen: Any) -> None:
    """That all of it is as planned."""
    end, asked, (one, turns) = seen["end"], seen["asked"], seen["outputs"]
    assert (seen["rows"], seen["group"], seen["shuffle"]) == (1, 0, False)
    assert len({own["request"] for own in asked}) == 2
    assert [len(own["prompt"]) for own in asked] == [5, 5, 12, 8]
    assert [own["max_tokens"] for own in asked] == [4, 3, 2, 1]
    assert all(own["min_tokens"] == own["max_tokens"] and own["ignore_eos"] for own in asked)
    assert one["prompt"] == turns["prompt"] == asked[0]["prompt"]
    assert one["response"] == [7, 7, 7, end]
    # What is generated, what tools add, and a token that came after all.
    assert turns["mask"] == [1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0]
    assert turns["response"][:3] == [7, 7, end]
    assert turns["response"][7:10] == [7, end, 7]
    assert asked[2]["prompt"] == turns["prompt"] + turns["response"][:7]
    assert asked[3]["prompt"] == asked[2]["prompt"][:8]
    assert turns["log_probs"] == [-float(own) for own in turns["mask"]]
    # Tools of a turn are waited for at the same time: 0.3 s, and 0.1 s.
    assert turns["tools"] >= 0.4
    assert asked[3]["at"] - asked[1]["at"] >= 0.4
    assert (one["reward"], turns["reward"]) == (0.5, 0.25)
    assert one["seconds"] >= 0.15
    assert seen["reported"] == [[0, 0, 2], [0, 1, 2]]
    assert len(seen["said"]) == len(set(seen["said"]))


@pytest.mark.conformance
@pytest.mark.timeout(1800)
def test_a_job_that_does_not_fit_is_refused_with_the_settings_to_change(runner: Runner) -> None:
    overrides = (
        "data.train_batch_size=3",
        "data.max_prompt_length=32",
        "data.max_response_length=33",
        "actor_rollout_ref.rollout.n=2",
        "trainer.total_training_steps=3",
        "trainer.v1.trainer_mode=colocate_async",
        "algorithm.filter_groups.enable=True",
    )
    recorded = runner.finished(SCENARIOS["v1"])
    again = runner.finished(replayed(recorded, overrides=overrides, exit_status=1))
    longest = max(
        len(sample["prompt"]) for own in recorded.truth.trained for sample in own["samples"]
    )
    for setting in (
        "data.train_batch_size=4 (found 3)",
        f"data.max_prompt_length={longest} (found 32)",
        "data.max_response_length=32 (found 33)",
        "actor_rollout_ref.rollout.n=4 (found 2)",
        "trainer.total_training_steps=2 (found 3)",
        "trainer.v1.trainer_mode=sync (found colocate_async)",
        "algorithm.filter_groups.enable=False (found True)",
    ):
        assert setting in again.output
    assert "nothing was replayed: verl was imported" in again.output


# ---------------------------------------------------------------- plans


def plan(*batches: list[list[PlannedSample]], calls: tuple[PlannedCall, ...] = ()) -> Plan:
    """Batches of groups of samples, generated by two shares."""
    made = tuple(
        PlannedBatch(step, tuple(PlannedGroup(5, tuple(group)) for group in groups), calls, 2)
        for step, groups in enumerate(batches, 1)
    )
    return Plan("made", "verl", made, ("score",), len(batches[0][0]), 9)


ONE = PlannedSample(4, False, (0.5,))


def test_what_verl_cannot_replay_is_refused() -> None:
    replay = VerlReplay()
    assert replay.refusal(plan([[ONE]])) is None
    assert replay.refusal(plan([[ONE, ONE]], [[ONE, ONE]])) is None
    assert replay.refusal(plan([[ONE, ONE], [ONE]])) == (
        "groups have 1, 2 samples; verl needs the same number in each"
    )
    assert replay.refusal(plan([[ONE]], [[ONE]] * 2)) == (
        "batches have 1, 2 prompts; choose steps of one size with --steps"
    )


def test_the_settings_are_those_of_the_plan() -> None:
    assert VerlReplay().settings(plan(*[[[ONE, ONE]] * 3] * 2)) == {
        "data.train_batch_size": 3,
        "actor_rollout_ref.rollout.n": 2,
        "data.max_prompt_length": 5,
        "data.max_response_length": 9,
        "trainer.total_training_steps": 2,
    }


DROPPED = PlannedGroup(5, (ONE, ONE), trained=False)
KEPT = PlannedGroup(5, (ONE, ONE))


def filtered(*batches: tuple[PlannedGroup, ...]) -> Plan:
    """Batches of groups."""
    made = plan([[ONE, ONE]])
    numbered = enumerate(batches, 1)
    return replace(
        made, batches=tuple(PlannedBatch(step, groups, (), 1) for step, groups in numbered)
    )


def test_a_filter_of_the_same_number_of_groups_is_replayed() -> None:
    made = filtered((DROPPED, KEPT, KEPT), (KEPT, DROPPED, DROPPED, KEPT))
    replay = VerlReplay()
    assert replay.refusal(made) is None
    assert replay.settings(made)["data.train_batch_size"] == 2
    assert "groups that take the place of dropped ones start with the others" in replay.losses(made)
    v1 = {
        "trainer__v1": {
            "trainer_mode": "sync",
            "sampler": {"sync_refill_failed_groups": False, "custom_sampler": {"path": None}},
        }
    }
    assert list(misfits(fitting(made, **v1), made)) == []
    # Of all prompts an epoch has more steps.
    epoch: dict[str, Any] = {"trainer__total_training_steps": None, "trainer__total_epochs": 1}
    assert list(misfits(fitting(made, **v1, **epoch), made)) == [
        "trainer.total_training_steps=2 (found None)"
    ]
    wrong = fitting(made, algorithm__filter_groups__enable=False, trainer__use_v1=False)
    assert list(misfits(wrong, made)) == [
        "trainer.use_v1=True (found False)",
        "algorithm.filter_groups.enable=True (found False)",
        "verl 0.9 or newer, whose trainer V1 can drop the groups that were dropped",
    ]
    reported = list[tuple[int, int, int]]()
    steering = Steering(made, print, lambda *values: reported.append(values))
    for number in (0, 5, 6, 13):
        Samples(steering).report(number)
    assert reported == [(0, 0, 6), (0, 5, 6), (1, 0, 8), (1, 7, 8)]
    assert Samples(steering).trained == 4


def test_a_filter_of_several_batches_to_a_step_is_not() -> None:
    made = filtered((DROPPED, KEPT, KEPT), (KEPT, DROPPED, DROPPED))
    twice = filtered((DROPPED, KEPT, KEPT), (KEPT, DROPPED, KEPT))
    twice = replace(twice, batches=tuple(replace(batch, step=1) for batch in twice.batches))
    replay = VerlReplay()
    for wanted, dropped in ((made, 3), (twice, 2)):
        assert replay.refusal(wanted) is None
        assert replay.settings(wanted)["data.train_batch_size"] == 3
        lost = f"{dropped} groups that a filter dropped are trained on"
        assert lost in replay.losses(wanted)


def test_what_is_not_reproduced_is_listed() -> None:
    turns = (PlannedTurn(5, 2), PlannedTurn(8, 1))
    none = replace(ONE, rewards=(None, 1.0), turns=turns)
    made = plan([[none, replace(ONE, rewards=(0.5, 1.0))]])
    lost = VerlReplay().losses(replace(made, functions=("first", "second")))
    assert "verl has one reward function: it gives the sum of 2" in lost
    assert any(own.startswith("tools are waits") for own in lost)
    assert "1 samples for which a reward function gave nothing get 0 of it" in lost


def fitting(made: Plan, **changed: object) -> dict[str, Any]:
    """Settings that fit a plan, as verl has them, but for some; of their names dots are ``__``."""
    config: dict[str, Any] = {}
    names = {name.replace("__", "."): value for name, value in changed.items()}
    for name, value in {**VerlReplay().settings(made), **names}.items():
        *sections, last = name.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return config


CUT = replace(ONE, response_tokens=9, cut=True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data__gen_batch_size": 1}, ""),
        ({"data__gen_batch_size": 2}, "data.gen_batch_size=null (found 2)"),
        ({"data__max_prompt_length": 6}, ""),
        ({"data__max_prompt_length": 4}, "data.max_prompt_length=5 (found 4)"),
        ({"data__max_response_length": 10}, "data.max_response_length=9 (found 10)"),
        ({"trainer__total_training_steps": None, "trainer__total_epochs": 1}, ""),
        (
            {"trainer__total_training_steps": None, "trainer__total_epochs": 2},
            "trainer.total_training_steps=1 (found None)",
        ),
        (
            {"reward__reward_model": {"enable": True}},
            "reward.reward_model.enable=False (found True)",
        ),
        ({"data__sampler": {"class_path": "a.py"}}, "data.sampler.class_path=null (found a.py)"),
        ({"trainer__use_v1": True, "trainer__v1": {"trainer_mode": "sync"}}, ""),
        (
            {"trainer__use_v1": True, "trainer__v1": {"trainer_mode": "separate_async"}},
            "trainer.v1.trainer_mode=sync (found separate_async)",
        ),
        (
            {"actor_rollout_ref__rollout__max_model_len": 13},
            "actor_rollout_ref.rollout.max_model_len=14 (found 13)",
        ),
        (
            {"actor_rollout_ref__rollout__name": "trtllm"},
            "another actor_rollout_ref.rollout.name than trtllm, which does not let a request have"
            " its length",
        ),
        (
            {"algorithm__adv_estimator": "remax"},
            "another algorithm.adv_estimator than remax, which generates answers of its own",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(changed: dict[str, Any], said: str) -> None:
    made = plan([[ONE, CUT]])
    assert list(misfits(fitting(made, **changed), made)) == [said][: bool(said)]


def test_rollout_alone_trains_no_critic() -> None:
    made = replace(plan([[ONE, ONE]]), half="rollout")
    assert VerlReplay().refusal(made) is None
    assert list(misfits(fitting(made), made)) == []
    assert list(misfits(fitting(made, critic__enable=True), made)) == [
        "critic.enable=False (found True)"
    ]
    assert list(misfits(fitting(made, algorithm__adv_estimator="gae"), made)) == [
        "critic.enable=False, or another algorithm.adv_estimator than gae"
    ]


def test_before_0_8_engines_sleep_without_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(plan([[ONE, ONE]]), half="rollout")
    monkeypatch.setattr("rlvr_probe_verl.replay.version_of", lambda _: "0.7.1")
    sleeping = "actor_rollout_ref.rollout.free_cache_engine"
    assert list(misfits(fitting(made), made)) == [f"{sleeping}=False (found None), or verl 0.8"]
    awake = {sleeping.replace(".", "__"): False}
    assert list(misfits(fitting(made, **awake), made)) == []


def test_a_longer_cap_fits_where_nothing_was_cut() -> None:
    made = plan([[ONE, ONE]])
    assert list(misfits(fitting(made, data__max_response_length=100), made)) == []
    assert list(misfits(fitting(made, data__max_response_length=4), made)) == []
    assert list(misfits(fitting(made, data__max_response_length=3), made)) == [
        "data.max_response_length=4 (found 3)"
    ]


def given(made: Plan) -> Samples:
    return Samples(Steering(made, print, lambda *_: None))


def test_a_reward_takes_as_long_as_its_own_calls_and_those_of_its_batch() -> None:
    calls = (
        PlannedCall(0, 0, 2.0, start_s=-5.0, row=0),
        PlannedCall(0, 0, 2.0, start_s=-4.0, row=0),  # at the same time, for a second
        PlannedCall(0, 0, 1.5, row=1),
        PlannedCall(0, 0, 0.25),
        PlannedCall(0, 1, 0.75),
    )
    made = given(plan([[ONE, ONE], [ONE, ONE]], [[ONE, ONE], [ONE, ONE]], calls=calls))
    assert [made.seconds(number) for number in range(4, 8)] == [3.75, 2.25, 0.75, 0.75]


def test_a_sample_is_known_by_its_group_and_its_number_there() -> None:
    samples = [replace(ONE, response_tokens=tokens) for tokens in range(1, 9)]
    made = given(plan([samples[:2], samples[2:4]], [samples[4:6], samples[6:]]))
    assert made.sample(made.number(2, 1)).response_tokens == 6
    for group, row in ((4, 0), (0, 2), (-1, 0)):
        with pytest.raises(SteeringError, match=f"sample {row} of group {group}"):
            made.number(group, row)


def test_a_reward_is_the_sum_of_what_functions_gave() -> None:
    made = given(plan([[replace(ONE, rewards=(0.5, None, 0.25)), replace(ONE, rewards=(None,))]]))
    assert [made.reward(number) for number in (0, 1)] == [0.75, 0.0]
