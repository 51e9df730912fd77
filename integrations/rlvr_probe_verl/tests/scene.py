"""One process of a verl job without the job: ``python scene.py NAME FOLDER`` plays a scene.

Batches, timers, worker groups and advantages are verl's own. What stands in for the rest is said
where it does: a worker group whose ranks are this process, and training loops, since that of the
DAPO recipe is in no wheel. Each scene writes what it did to ``FOLDER/truth.json``.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl import DataProto
from verl.protocol import pad_dataproto_to_divisor, unpad_dataproto
from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch, register
from verl.single_controller.ray.base import func_generator
from verl.trainer.ppo import ray_trainer
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, Role
from verl.utils.debug import marked_timer, simple_timer

PROMPT, RESPONSE, SAMPLES, RANKS = 8, 16, 4, 2


class Ranks:
    """A worker group; its ranks are this process, which generates lengths at random."""

    def __init__(self, draw: random.Random) -> None:
        self.name_prefix, self.world_size, self.draw = "group1", RANKS, draw
        self.scores = False
        self.generate_sequences, self.update_actor = (
            func_generator(self, method, dispatched, collected, self.execute_all, False)
            for method in ("generate_sequences", "update_actor")
        )

    def execute_all(self, method: str, prompts: DataProto) -> DataProto | None:
        if method == "update_actor":
            return None
        rows = len(prompts)
        lengths = [self.draw.randint(1, RESPONSE) for _ in range(rows)]
        responses = torch.tensor(
            [[3] * length + [0] * (RESPONSE - length) for length in lengths], dtype=torch.long
        )
        mask = torch.cat([prompts.batch["attention_mask"], (responses > 0).long()], dim=1)
        tensors = {
            "prompts": prompts.batch["input_ids"],
            "responses": responses,
            "attention_mask": mask,
        }
        made = DataProto.from_dict(tensors=tensors)
        if self.scores:
            made.batch["rm_scores"] = scores_of(made)
        return made


def dispatched(group: Ranks, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return args, kwargs


def collected(group: Ranks, output: Any) -> Any:
    return output


class Manager:
    """A user's reward manager; its reward tells which row it is of."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        self.calls += 1
        scores = data.batch["rm_scores"] if "rm_scores" in data.batch else scores_of(data)
        return {"reward_tensor": scores, "reward_extra_info": {}} if return_dict else scores

    def verify(self, data: DataProto) -> list[float]:
        """As a manager has it for the recipe PRIME."""
        return rewards_of(data)


def scores_of(data: DataProto) -> torch.Tensor:
    """What a row is worth, at its first token."""
    scores = torch.zeros(len(data), RESPONSE)
    scores[:, 0] = torch.tensor(rewards_of(data))
    return scores


def rewards_of(data: DataProto) -> list[float]:
    mask = data.batch["attention_mask"]
    prompt, response = mask[:, :PROMPT].sum(1).tolist(), mask[:, PROMPT:].sum(1).tolist()
    return [100.0 * arguments + other for arguments, other in zip(prompt, response, strict=True)]


def lengths_of(data: DataProto) -> list[list[int]]:
    mask = data.batch["attention_mask"]
    return [mask[:, :PROMPT].sum(1).tolist(), mask[:, PROMPT:].sum(1).tolist()]


class Trainer(RayPPOTrainer):
    """Has no workers and no data of its own."""

    def _validate_config(self) -> None: ...

    def _create_dataloader(self, *_: Any, **__: Any) -> None:
        self.total_training_steps = 2


CONFIG = {
    "actor_rollout_ref": {
        "hybrid_engine": True,
        "model": {},
        "rollout": {"name": "hf", "n": SAMPLES, "val_kwargs": {"n": 2}},
    },
    "algorithm": {"use_kl_in_reward": False, "adv_estimator": "grpo"},
    "custom_reward_function": {"path": "private/place.py", "name": "judge"},
    "trainer": {
        "nnodes": 1,
        "n_gpus_per_node": RANKS,
        "device": "cpu",
        "project_name": "",
        "experiment_name": "",
    },
}


class Training:
    """A trainer, its ranks, and what a loop does with them; keeps the books."""

    def __init__(self) -> None:
        self.draw, self.timer = random.Random(7), marked_timer
        self.ranks, self.manager = Ranks(self.draw), Manager()
        self.trainer = Trainer(
            OmegaConf.create(CONFIG),
            SimpleNamespace(eos_token_id=2),
            {Role.ActorRollout: object},
            None,
            reward_fn=self.manager,
            val_reward_fn=self.manager,
        )
        self.trainer.global_steps = 1
        self.truth: dict[str, Any] = {"train": [], "eval": [], "kept": [], "used": []}

    def prompts(self, count: int) -> DataProto:
        lengths = [self.draw.randint(1, PROMPT) for _ in range(count)]
        ids = torch.tensor([[0] * (PROMPT - n) + [5] * n for n in lengths], dtype=torch.long)
        tensors = {"input_ids": ids, "attention_mask": (ids > 0).long()}
        return DataProto.from_dict(tensors=tensors)

    def generated(self, count: int, timing: dict[str, float], *, scored: bool = False) -> DataProto:
        """As every trainer of verl 0.5 begins a step: uids come after the generation.

        Args:
            count: Prompts.
            timing: Of the step.
            scored: Rewards come with what is generated, as those of agent loops do.
        """
        prompts = self.prompts(count)
        self.ranks.scores = scored
        with self.timer("gen", timing):
            output = self.ranks.generate_sequences(prompts.repeat(SAMPLES, interleave=True))
        self.truth["train"].append([*lengths_of(output), rewards_of(output)])
        batch = DataProto.from_dict(
            tensors={"index": torch.arange(count)},
            non_tensors={"uid": np.array([str(self.uid()) for _ in range(count)], dtype=object)},
        )
        return batch.repeat(SAMPLES, interleave=True).union(output)

    def uid(self) -> uuid.UUID:
        return uuid.UUID(int=self.draw.getrandbits(128), version=4)

    def baseline(self, timing: dict[str, float]) -> None:
        """As ReMax does it: one more of each prompt, greedily, scored at once."""
        prompts = self.prompts(3)
        prompts.meta_info["do_sample"] = False
        with marked_timer("gen_max", timing):
            self.manager(self.ranks.generate_sequences(prompts))

    def reordered(self, batch: DataProto) -> None:
        order = list(range(len(batch)))
        self.draw.shuffle(order)
        batch.reorder(torch.tensor(order))

    def updated(self, batch: DataProto, timing: dict[str, float]) -> None:
        with marked_timer("adv", timing):
            batch.batch["response_mask"] = batch.batch["attention_mask"][:, PROMPT:]
            batch.batch["token_level_rewards"] = batch.batch["token_level_scores"]
            ray_trainer.compute_advantage(batch, adv_estimator="grpo", num_repeat=SAMPLES)
        with marked_timer("update_actor", timing):
            pass
        self.trainer.global_steps += 1

    def evaluated(self) -> None:
        """As verl 0.5 does it, of three prompts for two ranks."""
        prompts = self.prompts(3).repeat(2, interleave=True)[:5]
        prompts.meta_info = {"validate": True}
        padded, filled = pad_dataproto_to_divisor(prompts, RANKS)
        output = unpad_dataproto(self.ranks.generate_sequences(padded), filled)
        self.manager(output, return_dict=True)
        self.truth["eval"].append([*lengths_of(output), rewards_of(output)])


def standard(training: Training) -> None:
    """Two steps as RayPPOTrainer makes them, the second one scored by another process."""
    for asynchronous in (False, True):
        timing: dict[str, float] = {}
        with marked_timer("step", timing):
            batch = training.generated(3, timing)
            training.baseline(timing)
            training.reordered(batch)
            with marked_timer("reward", timing):
                scores = scores_of(batch)
                if not asynchronous:
                    scores = training.manager(batch, return_dict=True)["reward_tensor"]
            batch.batch["token_level_scores"] = scores
            training.updated(batch, timing)


def fetched(training: Training) -> None:
    """Two trainings in one process, each of two epochs of one step, as RayPPOTrainer fetches."""
    for number in range(2):
        started = Training() if number else training
        started.trainer.global_steps = 0
        loader = StatefulDataLoader([0, 1, 2], batch_size=3)
        assert len(list(loader)) == 1  # by somebody else, before it starts
        started.trainer.global_steps = 1
        for _ in range(2):
            for _ in loader:
                timing: dict[str, float] = {}
                with marked_timer("step", timing):
                    batch = started.generated(3, timing)
                    batch.batch["token_level_scores"] = scores_of(batch)
                    with marked_timer("reward", timing):
                        list(loader)
                    started.updated(batch, timing)


def evaluation(training: Training) -> None:
    """One evaluation inside of a step, by its timer."""
    training.trainer.global_steps = 0
    with marked_timer("testing", {}):
        training.trainer.config.actor_rollout_ref.rollout.val_kwargs.n = 1
        training.evaluated()
        training.evaluated()


def dynamic(training: Training, *, scored: bool = False, most: int = 99) -> None:
    """Three steps as the DAPO recipe makes them, which is in no wheel.

    Prompts whose rewards fail a test are dropped; it generates again, within the same step, until
    there are enough, and cuts off the rest. Each round is timed as a step. In the last step all
    pass, and are enough at once.

    Args:
        training: To make them in.
        scored: Rewards come with what is generated.
        most: Rounds of a step, after which the recipe gives up.
    """
    training.trainer.total_training_steps = 3
    training.trainer.config.algorithm.filter_groups = {"enable": True}
    for wanted in (3, 3, 4):
        batch: DataProto | None = None
        kept: list[str] = []
        for number in count(1):
            timing: dict[str, float] = {}
            with marked_timer("step", timing):
                new = training.generated(4, timing, scored=scored)
                with marked_timer("reward", timing):
                    result = training.manager(new, return_dict=True)
                new.batch["token_level_scores"] = result["reward_tensor"]
                uids = list(dict.fromkeys(new.non_tensor_batch["uid"]))
                passed = [uid for uid in uids if wanted == 4 or int(uid[0], 16) % 2]
                training.truth["kept"].append([uids.index(uid) for uid in passed])
                kept += passed
                new = new[[i for i, uid in enumerate(new.non_tensor_batch["uid"]) if uid in passed]]
                batch = new if batch is None else DataProto.concat([batch, new])
                if len(kept) < wanted:
                    if number == most:
                        raise ValueError("Generated too many.")
                    continue
                batch = batch[: wanted * SAMPLES]
                training.truth["used"].append(wanted)
                training.reordered(batch)
                training.updated(batch, timing)
                break


def given_up(training: Training) -> None:
    """The recipe of DAPO, whose second step gives up after a round that passes too little."""
    with suppress(ValueError):
        dynamic(training, most=1)


def downsampled(training: Training) -> None:
    """Two steps as the recipe PRIME makes them, of which half of the prompts are trained on.

    It has a timer and advantages of its own, scores by ``verify``, and cuts off by reordering.
    """
    training.timer = simple_timer
    for _ in range(2):
        timing: dict[str, float] = {}
        with simple_timer("step", timing):
            batch = training.generated(4, timing)
            with simple_timer("verify", timing):
                training.manager.verify(batch)
            order = list(range(4))
            training.draw.shuffle(order)
            rows = [prompt * SAMPLES + row for prompt in order[:2] for row in range(SAMPLES)]
            batch.reorder(torch.tensor(rows))
            training.truth["kept"].append(sorted(order[:2]))
            with simple_timer("adv", timing):
                pass
            with simple_timer("update_actor", timing):
                training.ranks.update_actor(batch)
        training.trainer.global_steps += 1


def calls() -> dict[str, Any]:
    """Calls of a worker group, and a worker's own methods, as its rank does them."""
    os.environ.update(WG_PREFIX="group1", RANK="1", WORLD_SIZE="2")

    class Worker:
        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        def outer(self, count: int) -> int:
            """Doubles."""
            return self.inner(count) + self.inner(count)

        @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
        def inner(self, count: int) -> int:
            return count

        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        async def later(self, count: int) -> int:
            await asyncio.sleep(0)
            return self.inner(count)

        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        def fails(self) -> None:
            raise KeyError("private")

        @register(dispatch_mode=Dispatch.DIRECT_ROLLOUT_METHOD)
        def direct(self) -> int:
            return 5

    worker = Worker()
    made: dict[str, Any] = {
        "results": [worker.outer(2), asyncio.run(worker.later(4)), worker.inner(1), worker.direct()]
    }
    try:
        worker.fails()
    except KeyError as error:
        made["error"] = error.args
    made["kinds"] = [inspect.iscoroutinefunction(Worker.later), Worker.outer.__doc__]
    made["marks"] = [getattr(Worker.inner, MAGIC_ATTR)["blocking"], Worker.inner.__name__]
    ranks = Ranks(random.Random(1))
    function = ranks.generate_sequences
    made["function"] = [callable(function), function.__class__.__name__]
    tensors = {"input_ids": torch.ones(3, PROMPT), "attention_mask": torch.ones(3, PROMPT)}
    made["output"] = len(function(DataProto.from_dict(tensors=tensors)))
    return made


SCENES: dict[str, Callable[[Training], None]] = {
    "standard": standard,
    "fetched": fetched,
    "evaluation": evaluation,
    "dynamic": dynamic,
    "dynamic_scored": partial(dynamic, scored=True),
    "given_up": given_up,
    "downsampled": downsampled,
}


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    if name == "calls":
        truth = calls()
    else:
        training = Training()
        SCENES[name](training)
        truth = training.truth
    (folder / "truth.json").write_text(json.dumps(truth))


if __name__ == "__main__":
    main()
