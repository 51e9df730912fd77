"""What the adapter keeps between hook points: right where one of them did not run, and bounded."""

from __future__ import annotations

import asyncio
import inspect
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_trl import async_rollouts, rewards, stages, steps, tools
from rlvr_probe_trl import trl_below_0_24 as earlier
from rlvr_probe_trl.async_grpo import ASYNC_METHODS, Packed
from rlvr_probe_trl.async_rollouts import FINISHED, ROLLOUT_POINTS, Conversation, Finished
from rlvr_probe_trl.rollouts import GENERATE
from rlvr_probe_trl.tools import TOOL_LOOP
from rlvr_probe_trl.trainer import BATCH, Batch, Training

from rlvr_probe import guard, reading
from rlvr_probe.adapter import Call, user_functions
from rlvr_probe.config import Config
from rlvr_probe.probe import hooks
from rlvr_probe.probe.hooks import HookProbe, Patches
from rlvr_probe.probe.recorder import STAGES, Recorder
from rlvr_probe.reading import attribute


class Attached:
    """A recorder and a probe that are in use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorder = Recorder(Config(out=folder, sidecar=False, free_b=0), "run")
        self.patches = Patches()
        self.probe = HookProbe(self.recorder, self.patches)
        hooks.activate(self.recorder, self.probe)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What was recorded under a name; the recording ends with it."""
        self.recorder.close("exit")
        result: list[dict[str, Any]] = []
        known: dict[int, tuple[str, str, list[str]]] = {}
        for path in self.folder.rglob("*.jsonl"):
            for row in map(json.loads, path.read_text().splitlines()[1:]):
                if row[0] == "def":
                    known[row[1]] = (row[2], row[3], row[4])
                elif isinstance(row[0], int) and known[row[0]][1] == name:
                    kind, _, attributes = known[row[0]]
                    values = row[6 if kind == "span" else 3 :]
                    result.append(dict(zip(attributes, values, strict=False)))
        return result


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[Attached]:
    guard.reset()
    made = Attached(tmp_path)
    yield made
    made.patches.undo()
    made.recorder.close("detach")
    hooks.activate(None)
    guard.reset()


# ---------------------------------------------------------------- asynchronous GRPO

PROMPT, GENERATED, ANSWER, TURNS = 4, 10, 3, 3
GREW = TURNS * GENERATED + (TURNS - 1) * ANSWER


class _AsyncRolloutLoop:
    """TRL's, of which the engine and the tools are left out."""

    model_version = 1
    eos_token_ids = (2,)
    reward_func_names = ("good",)

    def __init__(self, between: Callable[[int], None] = lambda _: None) -> None:
        self.reward_funcs: list[Any] = [lambda **_: [1.0]]
        self.between = between

    async def _generate_one(
        self, prompt: Any, tool_dict: dict[str, Any], tools: Any = None, group_id: int = 0
    ) -> tuple[Any, ...]:
        tokens = [0] * PROMPT
        mask, ids, messages = [0] * PROMPT, list[int](), list[dict[str, str]]()
        for turn in range(TURNS):
            if turn:
                tokens, mask = tokens + [7] * ANSWER, mask + [0] * ANSWER
            made, _ = await self._generate_one_turn(tokens)
            ids.extend(made)
            tokens, mask = tokens + made, mask + [1] * len(made)
            messages.append({})
            self.between(turn)
        sample = SimpleNamespace(input_ids=tokens, completion_mask=mask)
        return messages, ids, [sample], 0, 0, None

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        await asyncio.sleep(0)
        return [5] * (GENERATED - 1) + [2], [0.0] * GENERATED

    async def _execute_tool_calls(self, tool_calls: Any, tool_dict: Any) -> Any:
        return [], 0, 0

    async def _score_group(self, group: Any) -> list[Any]:
        for function in self.reward_funcs:
            function(completions=group.completions)
        return []

    async def groups(self, count: int, scored: bool = True) -> None:
        """Generate groups of two, and score them."""
        for number in range(count):
            tasks = [asyncio.create_task(self._generate_one([], {})) for _ in range(2)]
            result = await asyncio.gather(*tasks)
            group = SimpleNamespace(
                group_id=number,
                model_version=1,
                completions=[answer[0] for answer in result],
                completions_ids=[answer[1] for answer in result],
                completions_sequences=[answer[2] for answer in result],
            )
            if scored:
                await self._score_group(group)


@pytest.fixture
def rollouts(attached: Attached) -> Iterator[Attached]:
    module = ModuleType("worker")
    kept = {name: vars(_AsyncRolloutLoop)[name] for name in vars(_AsyncRolloutLoop)}
    module._AsyncRolloutLoop = _AsyncRolloutLoop  # type: ignore[attr-defined]
    for point in ROLLOUT_POINTS:
        assert attached.patches.function(module, point.target.split(":")[1], point)
    yield attached
    attached.patches.undo()
    assert all(vars(_AsyncRolloutLoop)[name] is kept[name] for name in kept)
    assert len(FINISHED) == 0


def lengths(row: dict[str, Any]) -> tuple[list[int], list[int], list[list[int]] | None]:
    return row["prompt_tokens"], row["response_tokens"], row["loss_runs"]


TRUE = ([PROMPT] * 2, [GREW] * 2, [[GENERATED, ANSWER] * (TURNS - 1) + [GENERATED]] * 2)


def test_nothing_is_kept_of_conversations_whose_group_was_scored(rollouts: Attached) -> None:
    asyncio.run(_AsyncRolloutLoop().groups(5))
    assert len(FINISHED) == 0
    result = rollouts.rows("trajectories")
    assert [lengths(row) for row in result] == [TRUE] * 5
    assert all(len(set(row["spans"])) == 2 for row in result)
    assert [row["turn"] for row in rollouts.rows("turn")].count(TURNS - 1) == 10
    assert guard.faults() == {}


def test_conversations_that_nobody_scores_are_forgotten_oldest_first_and_counted(
    rollouts: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FINISHED, "_most", 4 * (TURNS * GENERATED + 1))
    asyncio.run(_AsyncRolloutLoop().groups(5, scored=False))
    assert len(FINISHED) == 4
    place = f"{async_rollouts.__name__}._conversation_end"
    assert guard.faults() == {(place, "OverflowError"): 6}
    rollouts.patches.undo()
    assert len(FINISHED) == 0


def test_what_ends_after_a_detach_is_not_kept(attached: Attached) -> None:
    kept, ids = Finished(), [1, 2]
    kept.follow(attached.probe)
    assert kept.add(ids, Conversation(), attached.probe) == 0
    assert len(kept) == 1
    attached.patches.undo()
    kept.add([3], Conversation(), attached.probe)
    assert len(kept) == 0


@pytest.mark.parametrize("scored", [True, False])
def test_lengths_survive_the_level_stages(rollouts: Attached, scored: bool) -> None:
    def lower(turn: int) -> None:
        if scored or turn == 0:
            rollouts.recorder.level = STAGES

    if scored:
        rollouts.recorder.level = STAGES
    asyncio.run(_AsyncRolloutLoop(lower).groups(1))
    [row] = rollouts.rows("trajectories")
    assert lengths(row) == TRUE
    # Those that began before the level was lowered have a span, and their first turn.
    assert (row.get("spans") is None) is scored
    assert [row["turn"] for row in rollouts.rows("turn")] == ([] if scored else [0, 0])
    assert guard.faults() == {}


@pytest.mark.parametrize("failing", [{0}, {2, 3}, set(range(100))])
def test_turns_that_were_not_seen_make_no_length_shorter_and_none_up(
    rollouts: Attached, monkeypatch: pytest.MonkeyPatch, failing: set[int]
) -> None:
    count = iter(range(100))
    real = reading.argument

    def argument(call: Call, index: int, name: str) -> Any:
        if name == "prompt_ids" and next(count) in failing:
            raise LookupError
        return real(call, index, name)

    monkeypatch.setattr(async_rollouts, "argument", argument)
    asyncio.run(_AsyncRolloutLoop().groups(1))
    [row] = rollouts.rows("trajectories")
    assert lengths(row) == TRUE
    # Which turn the others were is not known.
    assert row.get("spans") is None
    ends = f"{async_rollouts.__name__}._conversation_end", "LookupError"
    assert guard.faults()[ends] == (1 if failing == {0} else 2)


def test_micro_batches_that_nobody_trains_on_are_unknown_until_the_next_training() -> None:
    packed = Packed(most=3)
    for group in range(3):
        packed.add([group])
    with pytest.raises(OverflowError):
        packed.add([3])
    for group in range(100):
        packed.add([group])
    assert packed.waiting is None
    assert packed.take() is None
    packed.begin()
    packed.add([7])
    assert [packed.take(), packed.take()] == [[7], None]


# ---------------------------------------------------------------- tools


def add(a: int, b: int) -> int:
    return a + b


async def fetch(a: int) -> int:
    return a


class Adder:
    __name__ = "adder"

    def __call__(self, a: int, b: int) -> int:
        return a + b


CALLS: tuple[tuple[str, Any], ...] = (
    ("add", {"a": 1, "b": 2}),
    ("fetch", {"a": 1}),
    ("adder", {"a": 1, "b": 2}),
    ("add", {"c": 1}),
    ("gone", {}),
    ("add", "no mapping"),
    ("fetch", None),
    ("", None),
)


class ToolTrainer:
    """What TRL does with tools. A call without a name is of a type that it does not know."""

    def __init__(self) -> None:
        self._sync_tool_dicts: list[Any] = [{"add": add, "adder": Adder()}]
        self._async_tool_dicts: list[Any] = [{"fetch": fetch}]
        self.calls = CALLS

    def _tool_call_loop(
        self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any
    ) -> tuple[Any, ...]:
        sync, later = self._sync_tool_dicts[0], self._async_tool_dicts[0]
        for name, arguments in self.calls:
            try:
                if not name:
                    continue
                if name in sync:
                    sync[name](**arguments)
                elif name in later:
                    tool = later[name]
                    assert inspect.iscoroutinefunction(tool)
                    asyncio.run(tool(**arguments))
            except TypeError:
                pass
        return [], completions, completion_ids, None, len(self.calls), 0, []


def statuses(attached: Attached, runs: int = 1, trainer: ToolTrainer | None = None) -> Counter[str]:
    trainer = trainer or ToolTrainer()
    training = Training(batch=Batch(trainer, 7, (0, 1, "train")))
    attached.probe.state(trainer)["Training"] = training
    attached.patches.method(trainer, TOOL_LOOP)
    for _ in range(runs):
        trainer._tool_call_loop([], [], [], [])
    assert all(
        type(tools) is dict for tools in trainer._sync_tool_dicts + trainer._async_tool_dicts
    )
    return Counter(row["status"] for row in attached.rows("tool_call"))


def test_calls_that_trl_could_not_make_are_told_from_those_it_made(attached: Attached) -> None:
    expected = {"ok": 3, "error": 1, "not_found": 1, "bad_call": 3}
    assert statuses(attached) == expected


def test_calls_that_fail_to_be_recorded_are_no_bad_calls(
    attached: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Call) -> None:
        raise LookupError

    monkeypatch.setattr(tools, "start_tool", fail)
    monkeypatch.setattr(tools, "_missing", lambda *_: fail(Call()))
    assert statuses(attached) == {"bad_call": 3}


def test_calls_whose_hook_is_muted_are_no_bad_calls(attached: Attached) -> None:
    trainer = ToolTrainer()
    trainer.calls = CALLS[:3] * 2
    for place in (f"{tools.__name__}:tool", f"{tools.__name__}._missing"):
        attached.recorder.account(place).muted = True
    assert statuses(attached, 2, trainer)["bad_call"] == 0


class Alarm(Exception):
    """The user's, raised while a line of ours happens to run."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, ring)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def at(name: str, ring: Callable[[], None], once: Iterator[int]) -> Callable[..., Any]:
    def found(owner: object, *path: str) -> Any:
        if name in path and next(once, None):
            ring()
        return attribute(owner, *path)

    return found


def test_tools_that_an_alarm_left_wrapped_are_put_back_at_the_next_begin(
    attached: Attached, monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None]
) -> None:
    trainer = ToolTrainer()
    users = trainer._sync_tool_dicts[0]
    training = Training(batch=Batch(trainer, 7, (0, 1, "train")))
    attached.probe.state(trainer)["Training"] = training
    attached.patches.method(trainer, TOOL_LOOP)
    monkeypatch.setattr(tools, "attribute", at("_async_tool_dicts", alarm, iter([1])))
    with pytest.raises(Alarm):
        trainer._tool_call_loop([], [], [], [])
    trainer._tool_call_loop([], [], [], [])
    assert trainer._sync_tool_dicts[0] is users
    assert user_functions._in_place == []
    assert Counter(row["status"] for row in attached.rows("tool_call"))["ok"] == 3


def test_reward_functions_that_an_alarm_left_wrapped_are_not_wrapped_again(
    attached: Attached, monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None]
) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.reward_funcs: list[Any] = [lambda **_: [1.0]]
            self.reward_func_names = ["good"]

        def _calculate_rewards(self, inputs: Any, prompts: Any) -> None:
            for function in self.reward_funcs:
                function(completions=[0])

    trainer = Trainer()
    users = list(trainer.reward_funcs)
    batch = Batch(trainer, 7, (0, 1, "train"))
    attached.probe.state(trainer)["Training"] = Training(batch=batch)
    BATCH.set(batch)
    attached.patches.method(trainer, replace(rewards.CALCULATE, step=None))
    monkeypatch.setattr(rewards, "attribute", at("ProfilingContext", alarm, iter([1])))
    with pytest.raises(Alarm):
        trainer._calculate_rewards([], [])
    trainer._calculate_rewards([], [])
    BATCH.set(None)
    assert trainer.reward_funcs == users
    assert len(attached.rows("rewards")) == 1


# ---------------------------------------------------------------- steps, batches


class _Trainer:
    """A trainer of the user's whose training ends by an exception."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(global_step=6)
        self.model = SimpleNamespace(training=True)

    def _inner_training_loop(self, step: Callable[[Any], None]) -> None:
        step(self.state)
        raise MemoryError

    def _calculate_rewards(self) -> None: ...

    def _generate_and_score_completions(self) -> None: ...


class _AsyncTrainer(_Trainer):
    def _inner_training_loop(self, step: Callable[[Any], None]) -> None:
        super()._inner_training_loop(step)

    def _sync_weight(self) -> None: ...

    def _streaming_iter(self) -> None: ...


@pytest.mark.parametrize("kind", [_Trainer, _AsyncTrainer])
def test_what_a_thread_trains_after_a_training_that_failed_is_not_of_its_last_step(
    attached: Attached, kind: type[_Trainer]
) -> None:
    trainer, probe = kind(), attached.probe
    [point] = [
        point
        for point in (ASYNC_METHODS if kind is _AsyncTrainer else [stages.TRAIN])
        if point.target == "_inner_training_loop"
    ]
    assert attached.patches.method(trainer, point)
    followed = steps.Steps(probe, trainer)
    with pytest.raises(MemoryError):
        trainer._inner_training_loop(lambda state: followed.on_step_begin(None, state, None))
    for _ in range(3):
        steps._optimizer_begin(probe)
        steps._optimizer_end(probe)
    assert attached.rows("optimizer_step") == []
    assert [row["step"] for row in attached.rows("step")] == [7]
    assert guard.faults() == {}


def prepared(mask: object) -> Call:
    call = Call()
    call.args, call.kwargs = (BATCH.get().trainer, {"attention_mask": mask}), {}  # type: ignore[union-attr]
    return call


def test_inputs_of_a_reward_model_are_never_taken_for_prompts() -> None:
    batch = Batch(object(), 7, (0, 1, "train"), rollout_open=True)
    BATCH.set(batch)
    unreadable, reward = prepared(object()), prepared(object())
    assert earlier.PROMPTS.when is not None
    assert earlier.PROMPTS.before is not None
    assert earlier.PROMPTS.when(unreadable)
    earlier.PROMPTS.before(unreadable)
    assert not earlier.PROMPTS.when(reward)
    # Nor where the prompts themselves were not seen.
    BATCH.set(Batch(object(), 7, (0, 1, "train"), rollout_open=False))
    assert not earlier.PROMPTS.when(prepared(object()))
    BATCH.set(None)


def test_a_generation_whose_lengths_are_unreadable_has_its_place_all_the_same(
    attached: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Trainer:
        eos_token_ids = (2,)

        def __init__(self) -> None:
            self.results: list[Any] = [([[1]], [[1, 2]]), ("text", None), ([[1]], [[1, 2]])]
            self.state = SimpleNamespace(global_step=6)
            self.model = SimpleNamespace(training=True)

        def _generate(self) -> Any:
            return self.results.pop(0)

    trainer = Trainer()
    attached.patches.method(trainer, GENERATE)
    for _ in range(3):
        trainer._generate()
    assert [row["ordinal"] for row in attached.rows("trajectories")] == [0, 2]
