"""A scene of agent_loops.py: replay buffers of verl 0.9, with a stub of TransferQueue's storage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from rlvr_probe_verl.controller import Controller
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

N = 2
"""Trajectories per prompt."""
HOPE = 4
"""Prompts that are tried where none passes."""


class Storage:
    """What TransferQueue keeps, by partition."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {"train": {}, "val": {}}
        self.rewards: dict[str, float] = {}

    def group(
        self,
        uid: str,
        rewards: list[float],
        status: str = "finished",
        step: int = 5,
        partition: str = "train",
    ) -> None:
        """Put a prompt and what became of it."""
        tags = self.tags[partition]
        tags[uid] = {"is_prompt": True, "status": status, "global_steps": step}
        for session, reward in enumerate(rewards):
            key = f"{uid}_{session}_0"
            tags[key] = {"status": "success", "prompt_len": len(uid), "response_len": session + 3}
            self.rewards[key] = reward

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        return {
            name: dict(tags) for name, tags in self.tags.items() if partition_id in (None, name)
        }

    def kv_clear(self, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            self.tags[partition_id].pop(key, None)

    def kv_batch_get(self, keys: list[str], **_: Any) -> dict[str, Any]:
        return {"rm_scores": [torch.tensor([0.0, self.rewards[key]]) for key in keys]}


class Trainer(PPOTrainer):
    """Of verl's trainer only what makes its replay buffer."""

    def __init__(self, mode: str, strategy: str, storage: Storage) -> None:
        self.storage, self.made, self.trainer_mode = storage, 0, mode
        self.hopeless = False
        self.config = OmegaConf.create(
            {
                "trainer": {
                    "v1": {
                        "trainer_mode": mode,
                        "sampler": {
                            "custom_sampler": None,
                            "max_off_policy_threshold": 2,
                            "max_off_policy_strategy": strategy,
                            "sampler_kwargs": {},
                            "sync_refill_failed_groups": False,
                        },
                    }
                },
                "algorithm": {"filter_groups": {"enable": True, "metric": "reward"}},
                "data": {"train_batch_size": 2},
                "reward": {"reward_model": {"enable": False}},
                "actor_rollout_ref": {"rollout": {"n": N, "val_kwargs": {"n": N}}},
            }
        )
        self.global_steps = 5
        # What hooks of the constructor do, which needs a cluster.
        Controller.learn(SimpleNamespace(error=None, args=(self,)))  # type: ignore[arg-type]
        self.replay_buffer = self._build_replay_buffer()
        self.replay_buffer.poll_interval = 0.0

    def _add_prompts_to_generate(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            if self.hopeless and self.made > HOPE:
                raise RuntimeError("too many")
            self.storage.group(f"fresh{self.made}", [0.0, float(not self.hopeless)])

    def on_sample_end(self) -> None:
        """Abstract in verl."""

    def on_step_end(self) -> None:
        """Abstract in verl."""


def play() -> dict[str, Any]:
    """Samples of a buffer of either kind, with groups of every fate."""
    tq_functions = ("kv_list", "kv_clear", "kv_batch_get")
    result: dict[str, Any] = {}
    for mode, strategy in (("sync", "wait"), ("separate_async", "drop")):
        storage = Storage()
        for name in tq_functions:
            setattr(tq, name, getattr(storage, name))
        trainer = Trainer(mode, strategy, storage)
        storage.group("good", [0.0, 1.0])
        storage.group("same", [1.0, 1.0])
        storage.group("half", [0.5], status="failure")
        storage.group("none", [], status="failure")
        if mode != "sync":
            storage.group("stale", [0.0, 1.0], step=1)
        taken = [sampled(trainer, "train", 2)]
        storage.group("eval", [0.0, 0.0], partition="val")
        taken.append(sampled(trainer, "val", 1))
        result[mode] = {"taken": taken, "left": sorted(storage.tags["train"])}
        assert isinstance(trainer.replay_buffer, ReplayBuffer)
    storage = Storage()
    for name in tq_functions:
        setattr(tq, name, getattr(storage, name))
    trainer = Trainer("sync", "wait", storage)
    trainer.hopeless = True
    storage.group("same", [1.0, 1.0])
    storage.group("other", [0.0, 0.0])
    try:
        sampled(trainer, "train", 2)
    except RuntimeError:
        result["gave up"] = True
    return result


def sampled(trainer: Trainer, partition: str, count: int) -> dict[str, Any]:
    batch, metrics = trainer.replay_buffer.sample(
        global_steps=5, partition_id=partition, batch_size=count
    )
    numbers = {name: value for name, value in metrics.items() if isinstance(value, (int, float))}
    return {"keys": list(batch.keys), "metrics": numbers}
