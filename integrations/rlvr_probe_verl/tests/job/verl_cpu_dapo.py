"""The DAPO recipe as verl 0.6 publishes it, in ``recipe/dapo/dapo_ray_trainer.py`` and no wheel.

Written after it, in the parts that decide what is generated and trained on: prompts get their uids
behind the generation, groups whose rewards are all the same are dropped, it generates again until
there are enough, and cuts off the rest. Keeps a book of what it selected.
"""

from __future__ import annotations

import sys
import uuid
from collections import defaultdict
from typing import Any

import numpy as np
import ray
import torch
from hydra import compose, initialize_config_module
from verl import DataProto
from verl.trainer import main_ppo
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage, compute_response_mask
from verl.trainer.ppo.reward import compute_reward
from verl.utils.metric import reduce_metrics
from verl.utils.profiler import marked_timer
from verl_cpu_books import write


class DynamicTrainer(RayPPOTrainer):
    """Has the training loop of the recipe."""

    def fit(self) -> None:
        self.global_steps = 1
        batch: Any = None
        kept: list[str] = []
        timing: dict[str, float] = defaultdict(float)
        for _ in range(self.config.trainer.total_epochs):
            for rows in self.train_dataloader:
                with marked_timer("step", timing):
                    new, passed = self.generated(DataProto.from_single_dict(rows), timing)
                    kept += passed
                    batch = new if batch is None else DataProto.concat([batch, new])
                    if len(kept) < self.config.data.train_batch_size:
                        continue
                    prompts, samples = self.config.data.train_batch_size, self.samples
                    write("used", step=self.global_steps, prompts=prompts)
                    self.updated(batch[: prompts * samples], timing)
                timing, batch, kept = defaultdict(float), None, []
                if self.global_steps >= self.total_training_steps:
                    return
                self.global_steps += 1

    @property
    def samples(self) -> int:
        """Of each prompt."""
        return int(self.config.actor_rollout_ref.rollout.n)

    def generated(self, new: Any, timing: dict[str, float]) -> tuple[Any, list[str]]:
        """The rows of one generation that pass, and the uids of their prompts."""
        sent = self._get_gen_batch(new).repeat(repeat_times=self.samples, interleave=True)
        with marked_timer("gen", timing, "red"):
            output = self.async_rollout_manager.generate_sequences(sent)
            timing.update(output.meta_info.pop("timing"))
        named = [str(uuid.uuid4()) for _ in range(len(new.batch))]
        new.non_tensor_batch["uid"] = np.array(named, dtype=object)
        new = new.repeat(repeat_times=self.samples, interleave=True).union(output)
        with marked_timer("reward", timing, "yellow"):
            scores, _ = compute_reward(new, self.reward_fn)
            new.batch["token_level_scores"] = new.batch["token_level_rewards"] = scores
        rewards: dict[str, list[float]] = defaultdict(list)
        uids = list(new.non_tensor_batch["uid"])
        for uid, reward in zip(uids, scores.sum(dim=-1).tolist(), strict=True):
            rewards[uid].append(reward)
        passed = [uid for uid, values in rewards.items() if np.std(values) > 0]
        width = new.batch["prompts"].shape[1]
        mask = new.batch["attention_mask"][:, :width]
        write(
            "selected",
            step=self.global_steps,
            inputs=mask.sum(1).tolist()[:: self.samples],
            kept=[at for at, uid in enumerate(rewards) if uid in passed],
        )
        return new[[row for row, uid in enumerate(uids) if uid in passed]], passed

    def updated(self, batch: Any, timing: dict[str, float]) -> None:
        """Train on a batch."""
        batch.batch["response_mask"] = compute_response_mask(batch)
        if self.config.trainer.balance_batch:
            self._balance_batch(batch, metrics={})
        tokens = torch.sum(batch.batch["attention_mask"], dim=-1).tolist()
        batch.meta_info["global_token_num"] = tokens
        with marked_timer("old_log_prob", timing, "blue"):
            found = self.actor_rollout_wg.compute_log_prob(batch)
            found.batch.pop("entropys")
            batch = batch.union(found)
        with marked_timer("ref", timing, "olive"):
            group = self.actor_rollout_wg if self.ref_in_actor else self.ref_policy_wg
            batch = batch.union(group.compute_ref_log_prob(batch))
        with marked_timer("adv", timing, "brown"):
            batch = compute_advantage(
                batch,
                adv_estimator=self.config.algorithm.adv_estimator,
                num_repeat=self.samples,
                config=self.config.algorithm,
            )
        with marked_timer("update_actor", timing, "red"):
            batch.meta_info["multi_turn"] = False
            reduce_metrics(self.actor_rollout_wg.update_actor(batch).meta_info["metrics"])


class Runner(main_ppo.TaskRunner):
    """Makes the trainer of the recipe where verl's would make its own."""

    def run(self, config: Any) -> None:
        main_ppo.RayPPOTrainer = DynamicTrainer
        super().run(config)


def main() -> None:
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=sys.argv[1:])
    main_ppo.run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(Runner))
