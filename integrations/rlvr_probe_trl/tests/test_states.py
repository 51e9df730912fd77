"""What the adapter keeps between hook points: right where one of them did not run, and bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_trl import async_rollouts
from rlvr_probe_trl.async_grpo import Packed
from rlvr_probe_trl.async_rollouts import FINISHED, ROLLOUT_POINTS, Conversation, Finished

from rlvr_probe import guard, hooks
from rlvr_probe.adapter import Call
from rlvr_probe.config import Config
from rlvr_probe.hooks import HookProbe, Patches
from rlvr_probe.recorder import STAGES, Recorder


class Attached:
    """A recorder and a probe that are in use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorder = Recorder(Config(out=folder), "run")
        self.patches = Patches()
        self.probe = HookProbe(self.recorder, self.patches)
        hooks.activate(self.recorder, self.probe)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What was recorded under a name; the recording ends with it."""
        self.recorder.close("exit")
        found: list[dict[str, Any]] = []
        known: dict[int, tuple[str, str, list[str]]] = {}
        for path in self.folder.rglob("*.jsonl"):
            for row in map(json.loads, path.read_text().splitlines()[1:]):
                if row[0] == "def":
                    known[row[1]] = (row[2], row[3], row[4])
                elif isinstance(row[0], int) and known[row[0]][1] == name:
                    kind, _, attributes = known[row[0]]
                    values = row[6 if kind == "span" else 3 :]
                    found.append(dict(zip(attributes, values, strict=False)))
        return found


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
            found = await asyncio.gather(*tasks)
            group = SimpleNamespace(
                group_id=number,
                model_version=1,
                completions=[one[0] for one in found],
                completions_ids=[one[1] for one in found],
                completions_sequences=[one[2] for one in found],
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
    found = rollouts.rows("trajectories")
    assert [lengths(row) for row in found] == [TRUE] * 5
    assert all(len(set(row["spans"])) == 2 for row in found)
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
    assert (row["spans"] is None) is scored
    assert [one["turn"] for one in rollouts.rows("turn")] == ([] if scored else [0, 0])
    assert guard.faults() == {}


@pytest.mark.parametrize("failing", [{0}, {2, 3}, set(range(100))])
def test_turns_that_were_not_seen_make_no_length_shorter_and_none_up(
    rollouts: Attached, monkeypatch: pytest.MonkeyPatch, failing: set[int]
) -> None:
    count = iter(range(100))
    real = async_rollouts._argument

    def argument(call: Call, index: int, name: str) -> Any:
        if name == "prompt_ids" and next(count) in failing:
            raise LookupError
        return real(call, index, name)

    monkeypatch.setattr(async_rollouts, "_argument", argument)
    asyncio.run(_AsyncRolloutLoop().groups(1))
    [row] = rollouts.rows("trajectories")
    assert lengths(row) == TRUE
    # Which turn the others were is not known.
    assert row["spans"] is None
    ends = f"{async_rollouts.__name__}._conversation_end", "LookupError"
    assert guard.faults()[ends] == (1 if failing == {0} else 2)


def test_micro_batches_that_nobody_trains_on_are_unknown_until_the_next_training() -> None:
    packed = Packed(most=3)
    for group in range(3):
        packed.add({group: 1})
    with pytest.raises(OverflowError):
        packed.add({3: 1})
    for group in range(100):
        packed.add({group: 1})
    assert packed.waiting is None
    assert packed.take() is None
    packed.begin()
    packed.add({7: 2})
    assert [packed.take(), packed.take()] == [{7: 2}, None]
