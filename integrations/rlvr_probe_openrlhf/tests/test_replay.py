"""Real jobs of OpenRLHF, recorded and replayed, compared by the books that both of them kept."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections import Counter
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_openrlhf import recorded_rewards
from rlvr_probe_openrlhf.recorded_rewards import PlannedLabel
from rlvr_probe_openrlhf.replay import OpenrlhfReplay, PlannedPrompts, find_misfits
from rlvr_probe_openrlhf.replayed_samples import make_executor
from rlvr_probe_openrlhf.tests.runs import FEW, FILTERED, GROUP, PROMPTS, Runner, Scenario

from rlvr_probe.analysis.fidelity import Lengths
from rlvr_probe.cli.fidelity import make_cards
from rlvr_probe.exceptions import SteeringError
from rlvr_probe.steering import (
    Plan,
    PlannedBatch,
    PlannedCall,
    PlannedGroup,
    PlannedSample,
    PlannedTool,
    PlannedTurn,
    Steering,
)
from tests import today
from tests.planted import Planted

BATCHES = ("OPENRLHF_CPU_MODULE=openrlhf_cpu_batches",)
SCENARIOS = {
    "one rank": Scenario(environment=BATCHES),
    "agent": Scenario(
        agent=True,
        arguments=FEW,
        environment=BATCHES,
        planted=Planted("tool", "step", 1.0),
    ),
    # Only by `make conformance-full`.
    "two ranks": Scenario(ranks=2, engines=2, arguments=FEW, environment=BATCHES),
    "vllm": Scenario(vllm=True, arguments=FEW, environment=BATCHES),
    "filtered": Scenario(arguments=(*FEW, *FILTERED), environment=BATCHES),
    "async": Scenario(asynchronous=True, steps=3, arguments=FEW, environment=BATCHES),
}


def shape(sample: dict[str, Any]) -> tuple[Any, ...]:
    """All that a replay is to repeat of a sample."""
    return (len(sample["prompt"]), tuple(sample["runs"]), sample["truncated"], sample["reward"])


def groups(batch: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    """The prompts of a batch, each with its samples in their order; engines answer in any order."""
    samples = batch["samples"]
    parts = [samples[at : at + GROUP] for at in range(0, len(samples), GROUP)]
    assert all(len({tuple(own["prompt"]) for own in part}) == 1 for part in parts)
    assert len({tuple(part[0]["prompt"]) for part in parts}) == len(parts) == PROMPTS
    return Counter(tuple(map(shape, part)) for part in parts)


@pytest.mark.conformance
@pytest.mark.timeout(2000)
@pytest.mark.parametrize(
    "name",
    [
        *today.some(["one rank", "agent"], 1, pytest.mark.full),
        *(pytest.param(name, marks=pytest.mark.full) for name in list(SCENARIOS)[2:]),
    ],
)
def test_every_sample_of_a_replay_is_what_was_recorded(runner: Runner, name: str) -> None:
    recorded = runner.finished(SCENARIOS[name])
    # The last batch of a job whose prompts are filtered is what is left of them.
    batches = [own for own in recorded.truth.batches if len(own["samples"]) == PROMPTS * GROUP]
    assert len(batches) >= 2
    words = (str(recorded.recording), "--steps", f"1:{len(batches)}")
    replayed = runner.finished(replace(recorded.scenario, replay=words, planted=None))
    assert [*map(groups, replayed.truth.batches)] == [*map(groups, batches)]
    # A response that was not cut ends with the token that ends one.
    ends = [own["last"] for batch in replayed.truth.batches for own in batch["samples"]
            if not own["truncated"]]  # fmt: skip
    assert len(set(ends)) == 1
    assert f"replayed all {len(batches)} batches" in replayed.output
    if recorded.scenario.asynchronous:  # there is no card
        return
    [card] = make_cards(recorded.recording, [replayed.recording])
    if recorded.scenario.agent:
        samples = len(batches) * PROMPTS * GROUP
    else:  # also those that a filter drops; the reward function sleeps 10 ms
        samples = len(replayed.truth.requests) - recorded.scenario.evaluated
        rows = [batch for step in replayed.trace.steps() for batch in step.batches]
        calls = [call for batch in rows for shard in batch.shards for call in shard.calls]
        assert len(calls) >= samples
        assert min(call.end_ns - call.start_ns for call in calls) >= 10_000_000
    assert card.lengths == Lengths(samples, samples, None)
    assert "min_tokens, max_tokens and logit_bias of each request (rung 2 of 5" in replayed.output


@pytest.mark.conformance
@pytest.mark.full
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("half", ["training", "rollout"])
def test_a_half_is_done_alone(runner: Runner, half: str) -> None:
    estimator = ("--algo.advantage.estimator", "rloo")
    recorded = runner.finished(Scenario(arguments=(*FEW, *estimator), environment=BATCHES))
    words = (str(recorded.recording), "--half", half)
    replayed = runner.finished(replace(recorded.scenario, replay=words))
    assert [*map(groups, replayed.truth.batches)] == [*map(groups, recorded.truth.batches)]
    count = len(recorded.truth.batches)
    assert f"replayed all {count} batches" in replayed.output
    # The engine's own book, and what the trainer logs of an update.
    assert bool(replayed.truth.requests) == (half == "rollout")
    logged = [{"policy_loss" in line for line in own.truth.logged().values()}
              for own in (recorded, replayed)]  # fmt: skip
    assert logged == [{True}, {half == "training"}]
    [card] = make_cards(recorded.recording, [replayed.recording])
    samples = count * PROMPTS * GROUP
    assert (card.half, card.lengths) == (half, Lengths(samples, samples, None))
    names = {own.name for own in card.stages}
    assert names & {"rollout", "update"} == {"rollout" if half == "rollout" else "update"}


# ---------------------------------------------------------------- what OpenRLHF cannot replay


def plan(*groups: PlannedGroup, calls: tuple[PlannedCall, ...] = (), functions: int = 1) -> Plan:
    """One batch of these groups."""
    names = tuple(f"reward_{index}" for index in range(functions))
    batch = PlannedBatch(1, groups, calls, 1)
    return Plan("made", "openrlhf", (batch,), names, len(groups[0].samples), 9, ranks=1)


def sample(*rewards: float | None) -> PlannedSample:
    return PlannedSample(4, False, rewards)


TURNS = PlannedSample(9, False, (1.0,), (PlannedTurn(5, 4), PlannedTurn(11, 2)))
"""Two turns: the environment answers the first with 2 tokens, and the last with 1."""


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (plan(PlannedGroup(5, (sample(1.0), sample(0.0)))), ""),
        (plan(PlannedGroup(5, (TURNS,))), ""),
        (
            plan(PlannedGroup(5, (sample(1.0),)), PlannedGroup(5, (sample(1.0), sample(1.0)))),
            "groups have 1, 2 samples",
        ),
        (
            plan(PlannedGroup(5, (sample(1.0),)), calls=(PlannedCall(0, 0, 1.0),)),
            "reward functions of the workload take a whole batch",
        ),
        (plan(PlannedGroup(5, (sample(None),))), "some samples have no reward"),
        (
            plan(PlannedGroup(5, (replace(TURNS, turns=(PlannedTurn(5, 4), PlannedTurn(7, 2))),))),
            "some turns have a shorter context",
        ),
        (plan(PlannedGroup(5, (TURNS,)), functions=0), "turns and tool calls need"),
        (plan(PlannedGroup(5, (sample(),), trained=False), functions=0), "which groups a filter"),
    ],
)
def test_what_openrlhf_cannot_replay_is_refused(wanted: Plan, reason: str) -> None:
    found = OpenrlhfReplay().refusal(wanted)
    assert (found or "").startswith(reason)
    assert (found is None) == (not reason)


SETTINGS: dict[str, dict[str, object]] = {
    "rollout": {"batch_size": 2, "vllm_generate_batch_size": 2, "n_samples_per_prompt": 1,
        "max_new_tokens": 9},
    "data": {"max_len": 14},
    "train": {"partial_rollout_enable": False, "num_episodes": 1},
    "algo": {"dynamic_filtering_enable": False, "dynamic_filtering_range": (0.0, 1.0),
        "advantage": SimpleNamespace(estimator="rloo")},
}  # fmt: skip


def settings(**changed: object) -> Any:
    """Settings that fit but for those that changed, by ``section__name``."""
    args = {section: {**values} for section, values in SETTINGS.items()}
    for name, value in changed.items():
        section, _, setting = name.partition("__")
        args.setdefault(section, {})[setting] = value
    return SimpleNamespace(**{name: SimpleNamespace(**own) for name, own in args.items()})


def misfits(wanted: Plan, **changed: object) -> list[str]:
    return list(find_misfits(wanted, settings(**changed)))


def test_settings_that_do_not_fit_are_named_with_those_that_do() -> None:
    wanted = plan(PlannedGroup(5, (sample(0.5),)), PlannedGroup(5, (sample(0.5),)))
    assert misfits(wanted) == []
    assert misfits(
        wanted,
        rollout__batch_size=3,
        rollout__n_samples_per_prompt=2,
        data__max_len=13,
        train__partial_rollout_enable=True,
        train__num_episodes=2,
    ) == [
        "no train.partial_rollout_enable",
        "rollout.batch_size=2 (found 3)",
        "rollout.n_samples_per_prompt=1 (found 2)",
        "train.num_episodes=1 (found 2)",
        "data.max_len=14 (found 13), or a smaller rollout.max_new_tokens",
    ]
    assert misfits(wanted, rollout__max_new_tokens=None, data__max_len=8) == [
        "data.max_len=14 (found 8)"
    ]
    assert misfits(wanted, rollout__max_new_tokens=3) == ["rollout.max_new_tokens=9 (found 3)"]
    assert misfits(wanted, algo__dynamic_filtering_enable=True) == [
        "no algo.dynamic_filtering_enable"
    ]


@pytest.mark.parametrize("half", [None, "rollout", "training"])
def test_for_the_rollout_half_the_actor_is_frozen_and_a_critic_refused(half: Any) -> None:
    wanted = replace(plan(PlannedGroup(5, (sample(0.5),)), PlannedGroup(5, (sample(0.5),))),
                     half=half)  # fmt: skip
    gae = {"algo__advantage": SimpleNamespace(estimator="gae")}
    refused = [] if half != "rollout" else [
        "another algo.advantage.estimator than gae, whose critic --half rollout would train"
    ]  # fmt: skip
    assert misfits(wanted, **gae) == refused
    trainer: Any = ModuleType("openrlhf.trainer.ppo_trainer")
    trainer.prepare_datasets = lambda strategy, tokenizer: (["a prompt"], None, 0)
    said = list[str]()
    OpenrlhfReplay().steer(trainer, Steering(wanted, said.append, lambda *_: None))
    args = settings(
        critic__freezing_steps=-1, train__batch_size=1, train__max_epochs=1, actor__num_nodes=1,
        actor__num_gpus_per_node=1,
    )  # fmt: skip
    trainer.prepare_datasets(SimpleNamespace(args=args), None)
    # OpenRLHF trains the actor of step n, from 0, if that is more than this.
    assert args.critic.freezing_steps == (1 if half == "rollout" else -1)
    assert sum(line.startswith(f"half: {half}") for line in said) == (half is not None)
    assert any(line.startswith("lengths and ends") for line in said) == (half != "training")


def test_a_filter_has_to_select_the_groups_as_recorded() -> None:
    dropped = PlannedGroup(5, (sample(1.0),), trained=False)
    wanted = plan(PlannedGroup(5, (sample(0.5),)), dropped, PlannedGroup(5, (sample(0.5),)))
    assert misfits(wanted) == ["algo.dynamic_filtering_enable"]
    assert misfits(wanted, algo__dynamic_filtering_enable=True) == []
    [wrong] = misfits(
        wanted, algo__dynamic_filtering_enable=True, algo__dynamic_filtering_range=(0.6, 2.0)
    )
    assert "selects the groups as recorded (found 0.6 to 2.0, by which 3 of 3 differ)" in wrong


def test_prompts_come_in_the_order_in_which_they_were_started() -> None:
    starts = [2.0, 0.0, 1.0]
    groups = [replace(PlannedGroup(5, (sample(1.0),)), start_s=start) for start in starts]
    first = plan(*groups)
    unknown = PlannedBatch(2, tuple(replace(own, start_s=None) for own in groups), (), 1)
    both = replace(first, batches=(*first.batches, unknown))
    rows = [("sums", ["a"], ["left"], [None]), ("sums", ["b"], ["right"], [None])]
    given = list(PlannedPrompts(both, rows))
    assert [row[2][0].group for row in given] == [1, 2, 0, 3, 4, 5]
    assert [(row[1], str(row[2][0])) for row in given[:3]] == [
        (["a"], "left"),
        (["b"], "right"),
        (["a"], "left"),
    ]


def test_a_label_goes_through_a_pickle_with_what_it_knows() -> None:
    label = pickle.loads(pickle.dumps(PlannedLabel.of(3, "left", (0.5,), 1.0)))
    assert (label, label.group, label.own, label.waits, label.reward) == (
        "left", 3, "left", (0.5,), 1.0,
    )  # fmt: skip


class Agents(ModuleType):
    """Stands for OpenRLHF's module of executors: what the one of a replay calls."""

    class AgentInstanceBase:
        pass

    class MultiTurnAgentExecutor:
        def __init__(self, environment: type[Any]) -> None:
            self.environment = environment

        async def execute(self, **given: Any) -> dict[str, Any]:
            environment, made, step = self.environment(), list[Any](), dict[str, Any]()
            while not step.get("done"):
                made += given["hf_tokenizer"](text="")["input_ids"].tolist()
                made.append(await given["llm_engine"].generate([], given["sampling_params"]))
                step = await environment.step({"label": given["label"]})
            return {"made": made, "reward": float(step["rewards"])}

    class SingleTurnAgentExecutor:
        def __init__(self, endpoints: list[str]) -> None:
            assert endpoints == [recorded_rewards.__file__]

        async def execute(self, **given: Any) -> dict[str, Any]:
            [ids] = given["hf_tokenizer"](text=given["prompt"])["input_ids"].tolist()
            made = await given["llm_engine"].generate(ids, given["sampling_params"])
            reward = recorded_rewards.reward_func([""], [""], [given["label"]])["rewards"]
            return {"made": [ids, made], "reward": float(reward)}


class Engine:
    """Does what vLLM does with these parameters."""

    def __init__(self, more: int = 0) -> None:
        self.more = more

    async def generate(self, ids: list[int], params: Any) -> Any:
        ends = params.logit_bias == {1: 100.0} and params.stop_token_ids == [1]
        count = params.min_tokens + ends + self.more
        output = SimpleNamespace(
            token_ids=[7] * count,
            finish_reason="length" if count == params.max_tokens and not ends else "stop",
        )
        return SimpleNamespace(outputs=[output])


TOKENIZER = SimpleNamespace(all_special_ids=[0, 1], vocab_size=9, eos_token_id=1)


def replayed(wanted: Plan, group: int, count: int, engine: Engine) -> list[dict[str, Any]]:
    """What an executor makes of the first samples of a group."""
    executor = make_executor(wanted, Agents("agents"), own=None)
    params = SimpleNamespace(max_tokens=9, min_tokens=1, stop_token_ids=None, logit_bias=None)
    label = PlannedLabel.of(group, "left")
    made = [
        asyncio.run(executor.execute("a prompt", label, params, 99, TOKENIZER, engine))
        for _ in range(count)
    ]
    assert vars(params) == {
        "max_tokens": 9, "min_tokens": 1, "stop_token_ids": None, "logit_bias": None,
    }  # fmt: skip
    return made


def answer(made: Any) -> tuple[int, str]:
    [output] = made.outputs
    return len(output.token_ids), output.finish_reason


def test_each_sample_gets_its_length_end_wait_and_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    monkeypatch.setattr("time.sleep", slept.append)
    cut = replace(sample(0.0), cut=True)
    first, then = PlannedGroup(5, (sample(1.0),) * 2), PlannedGroup(3, (sample(0.5), cut))
    calls = tuple(PlannedCall(0, 0, float(row), row=row) for row in range(4))
    wanted = plan(first, then, calls=calls)
    made = replayed(wanted, 1, 2, Engine())
    assert [(own["reward"], answer(own["made"][1])) for own in made] == [
        (0.5, (4, "stop")),
        (0.0, (4, "length")),
    ]
    assert slept == [2.0, 3.0]
    prompts = [own["made"][0] for own in made]
    assert (len(prompts[0]), prompts[0]) == (3, prompts[1])
    assert not {0, 1} & set(prompts[0])
    with pytest.raises(SteeringError, match="gave 5 tokens and ended by stop; expected 4 and stop"):
        replayed(wanted, 0, 1, Engine(more=1))


@pytest.mark.parametrize("logprobs", [None, 1])
def test_for_the_training_half_no_engine_is_asked(logprobs: int | None) -> None:
    cut = replace(sample(0.0), cut=True)
    wanted = plan(PlannedGroup(5, (sample(1.0), cut, sample(0.5), TURNS)))
    executor = make_executor(replace(wanted, half="training"), Agents("agents"), own=None)
    label, params = PlannedLabel.of(0, "left"), SimpleNamespace(logprobs=logprobs)
    given = ("a prompt", label, params, 99, TOKENIZER, None)
    made = [asyncio.run(executor.execute(*given)) for _ in range(5)]
    assert [own["reward"] for own in made] == [1.0, 0.0, 0.5, 1.0, 1.0]
    first, second, third, _, again = [own["made"][1].outputs[0] for own in made]
    assert (len(first.token_ids), first.finish_reason) == (4, "stop")
    assert (len(second.token_ids), second.finish_reason) == (4, "length")
    # Its last token alone is the one that ends a response, which no other is.
    assert first.token_ids[-1] == 1
    assert not {0, 1} & {*first.token_ids[:-1], *second.token_ids}
    assert (again.token_ids, first.token_ids != third.token_ids) == (first.token_ids, True)
    turns = [len(part.outputs[0].token_ids) for part in made[3]["made"][1::2]]
    assert turns == [4, 2]
    if logprobs is None:
        assert first.logprobs is None
    else:
        scores = [known[token].logprob for token, known in
                  zip(first.token_ids, first.logprobs, strict=True)]  # fmt: skip
        assert scores == [pytest.approx(math.log(1 / 7))] * 4


def test_turns_wait_for_tools_and_the_last_one_for_the_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept = list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    turns = replace(TURNS, tools=(PlannedTool(0, 0.5), PlannedTool(0, 0.25)))
    calls = (PlannedCall(0, 0, 2.0, row=0),)
    [made] = replayed(plan(PlannedGroup(5, (turns,)), calls=calls), 0, 1, Engine())
    first, answered, then, last = made["made"]
    assert (len(first), answer(answered), len(then), answer(last)) == (
        5,
        (4, "stop"),
        2,
        (2, "stop"),
    )
    assert slept == [0.75, 2.0]
    assert made["reward"] == 1.0
