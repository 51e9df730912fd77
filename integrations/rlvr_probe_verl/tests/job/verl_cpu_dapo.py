"""The DAPO recipe as verl publishes it, in no wheel.

Written after ``recipe/dapo`` of verl 0.6 and, for 0.7 and newer, after ``dapo`` of
https://github.com/verl-project/verl-recipe (8f9e7ac, ac8b84f for 0.9), in the parts that decide
what is generated and trained on: prompts get their uids behind the generation, groups whose rewards
are all the same are dropped, it generates again until there are enough, and cuts off the rest.
Keeps a book of what it selected.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from typing import Any

import numpy as np
import torch
import verl_cpu_recipe
from verl import DataProto
from verl.trainer.ppo import reward as rewarding
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage, compute_response_mask
from verl.utils.metric import reduce_metrics
from verl.utils.profiler import marked_timer
from verl_cpu_books import write


class DynamicTrainer(RayPPOTrainer):
    """Has the training loop of the recipe."""

    timer = staticmethod(marked_timer)

    def fit(self) -> None:
        self.global_steps = 1
        self.begun()
        batch: Any = None
        kept: list[str] = []
        timing: dict[str, float] = defaultdict(float)
        for _ in range(self.config.trainer.total_epochs):
            for rows in self.train_dataloader:
                with self.timer("step", timing):
                    new, passed = self.generated(DataProto.from_single_dict(rows), timing)
                    kept += passed
                    batch = new if batch is None else DataProto.concat([batch, new])
                    if len(kept) < self.config.data.train_batch_size:
                        continue
                    prompts, samples = self.config.data.train_batch_size, self.samples
                    write("used", step=self.global_steps, prompts=prompts)
                    self.updated(batch[: prompts * samples], timing)
                if self.global_steps >= self.total_training_steps:
                    with self.timer("testing", timing):
                        self._validate()
                    return
                timing, batch, kept = defaultdict(float), None, []
                self.global_steps += 1

    @property
    def samples(self) -> int:
        """Of each prompt."""
        return int(self.config.actor_rollout_ref.rollout.n)

    def generated(self, new: Any, timing: dict[str, float]) -> tuple[Any, list[str]]:
        """The rows of one generation that pass, and the uids of their prompts."""
        new.meta_info["temperature"] = self.config.actor_rollout_ref.rollout.temperature
        sent = self._get_gen_batch(new).repeat(repeat_times=self.samples, interleave=True)
        with self.timer("gen", timing):
            output = self.async_rollout_manager.generate_sequences(sent)
            timing.update(output.meta_info.pop("timing"))
        named = [str(uuid.uuid4()) for _ in range(len(new.batch))]
        new.non_tensor_batch["uid"] = np.array(named, dtype=object)
        new = new.repeat(repeat_times=self.samples, interleave=True).union(output)
        with self.timer("reward", timing):
            scores = self.scores(new)
            new.batch["token_level_scores"] = new.batch["token_level_rewards"] = scores
        rewards: dict[str, list[float]] = defaultdict(list)
        uids = list(new.non_tensor_batch["uid"])
        for uid, reward in zip(uids, scores.sum(dim=-1).tolist(), strict=True):
            rewards[uid].append(reward)
        passed = [uid for uid, values in rewards.items() if np.std(values) > 0]
        width = new.batch["prompts"].shape[1]
        mask = new.batch["attention_mask"]
        write(
            "selected",
            step=self.global_steps,
            inputs=mask[:, :width].sum(1).tolist()[:: self.samples],
            responses=mask[:, width:].sum(1).tolist(),
            rewards=scores.sum(dim=-1).tolist(),
            kept=[at for at, uid in enumerate(rewards) if uid in passed],
        )
        return new[[row for row, uid in enumerate(uids) if uid in passed]], passed

    def updated(self, batch: Any, timing: dict[str, float]) -> None:
        """Train on a batch."""
        self.generated_enough()
        batch.batch["response_mask"] = compute_response_mask(batch)
        if self.config.trainer.balance_batch:
            self._balance_batch(batch, metrics={})
        tokens = torch.sum(batch.batch["attention_mask"], dim=-1).tolist()
        batch.meta_info["global_token_num"] = tokens
        with self.timer("old_log_prob", timing):
            result = self.old_log_probs(batch)
            result.batch.pop("entropys")
            batch = batch.union(result)
        with self.timer("ref", timing):
            batch = batch.union(self.reference_log_probs(batch))
        with self.timer("adv", timing):
            batch = compute_advantage(
                batch,
                adv_estimator=self.config.algorithm.adv_estimator,
                num_repeat=self.samples,
                config=self.config.algorithm,
            )
        self.update(batch, timing)

    # ------------------------------------------------------------ as verl 0.6 has them

    def begun(self) -> None:
        """Before the first step."""

    def generated_enough(self) -> None:
        """Before a batch is trained on."""

    def scores(self, batch: Any) -> Any:
        """Rewards of each row."""
        return rewarding.compute_reward(batch, self.reward_fn)[0]

    def old_log_probs(self, batch: Any) -> Any:
        """Log-probabilities and entropies."""
        return self.actor_rollout_wg.compute_log_prob(batch)

    def reference_log_probs(self, batch: Any) -> Any:
        """Log-probabilities of the reference policy."""
        group = self.actor_rollout_wg if self.ref_in_actor else self.ref_policy_wg
        return group.compute_ref_log_prob(batch)

    def update(self, batch: Any, timing: dict[str, float]) -> None:
        """Update the policy."""
        with self.timer("update_actor", timing):
            batch.meta_info["multi_turn"] = False
            reduce_metrics(self.actor_rollout_wg.update_actor(batch).meta_info["metrics"])


class Since07(DynamicTrainer):
    """From verl 0.7 on rewards come with the generation, and weights are sent by the trainer."""

    def begun(self) -> None:
        self.checkpoint_manager.update_weights()

    def generated_enough(self) -> None:
        self.checkpoint_manager.sleep_replicas()

    def scores(self, batch: Any) -> Any:
        return rewarding.extract_reward(batch)[0]

    def old_log_probs(self, batch: Any) -> Any:
        return self._compute_old_log_prob(batch)[0]

    def reference_log_probs(self, batch: Any) -> Any:
        return self._compute_ref_log_prob(batch)

    def update(self, batch: Any, timing: dict[str, float]) -> None:
        with self.timer("update_actor", timing):
            reduce_metrics(self._update_actor(batch).meta_info["metrics"])
        with self.timer("update_weights", timing):
            self.checkpoint_manager.update_weights()


def main() -> None:
    since_07 = hasattr(rewarding, "extract_reward")
    verl_cpu_recipe.main(Since07 if since_07 else DynamicTrainer)
