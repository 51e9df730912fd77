"""The recipe SPPO as verl 0.6 publishes it, in ``recipe/sppo`` and no wheel.

Written after it, in the parts that decide what is generated, timed and trained on: its trainer does
not call the constructor of verl's, times only the generation as the step, has advantages of its
own, and counts epochs as steps. The loss is verl's. Keeps books.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import torch
import verl_cpu_recipe
from verl import DataProto
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_response_mask
from verl.trainer.ppo.reward import compute_reward
from verl.trainer.ppo.utils import need_reference_policy, need_reward_model
from verl.utils.metric import reduce_metrics
from verl.utils.profiler.performance import simple_timer
from verl.utils.tracking import ValidationGenerationsLogger
from verl_cpu_books import write


class SelfPlayTrainer(RayPPOTrainer):
    """Has the constructor and the training loop of the recipe."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        role_worker_mapping: Any,
        resource_pool_manager: Any,
        ray_worker_group_cls: Any,
        processor: Any,
        reward_fn: Any,
        val_reward_fn: Any,
        train_dataset: Any,
        val_dataset: Any,
        collate_fn: Any,
        train_sampler: Any,
    ) -> None:
        self.tokenizer, self.processor, self.config = tokenizer, processor, config
        self.reward_fn, self.val_reward_fn = reward_fn, val_reward_fn
        self.hybrid_engine = config.actor_rollout_ref.hybrid_engine
        self.role_worker_mapping = role_worker_mapping
        self.resource_pool_manager = resource_pool_manager
        self.use_reference_policy = need_reference_policy(role_worker_mapping)
        self.use_rm = need_reward_model(role_worker_mapping)
        self.use_critic = self.ref_in_actor = False
        self.ray_worker_group_cls = ray_worker_group_cls
        self.validation_generations_logger = ValidationGenerationsLogger("", "")
        self.device_name = config.trainer.device
        self._create_dataloader(train_dataset, val_dataset, collate_fn, train_sampler)

    def fit(self) -> None:
        self.global_steps = 1
        for _ in range(self.config.trainer.total_epochs):
            is_last_step = self.global_steps >= self.total_training_steps
            for rows in self.train_dataloader:
                timing: dict[str, float] = {}
                with simple_timer("step", timing):
                    batch = self.generated(DataProto.from_single_dict(rows), timing)
                self.updated(batch, timing)
                write("timed", step=self.global_steps, seconds=timing)
                if is_last_step:
                    with simple_timer("testing", timing):
                        self._validate()
            if is_last_step:
                return
            self.global_steps += 1

    def generated(self, batch: Any, timing: dict[str, float]) -> Any:
        samples = int(self.config.actor_rollout_ref.rollout.n)
        sent = self._get_gen_batch(batch).repeat(samples, interleave=True)
        with simple_timer("gen", timing):
            output = self.async_rollout_manager.generate_sequences(sent)
            output.meta_info.pop("timing")
        named = [str(uuid.uuid4()) for _ in range(len(batch.batch))]
        batch.non_tensor_batch["uid"] = np.array(named, dtype=object)
        batch = batch.repeat(samples, interleave=True).union(output)
        batch.batch["response_mask"] = compute_response_mask(batch)
        width = batch.batch["prompts"].shape[1]
        mask = batch.batch["attention_mask"]
        write(
            "selected",
            step=self.global_steps,
            inputs=mask[:, :width].sum(1).tolist()[::samples],
            responses=mask[:, width:].sum(1).tolist(),
            rewards=output.batch["rm_scores"].sum(-1).tolist(),
        )
        self._balance_batch(batch, metrics={})
        tokens = torch.sum(batch.batch["attention_mask"], dim=-1).tolist()
        batch.meta_info["global_token_num"] = tokens
        return batch

    def updated(self, batch: Any, timing: dict[str, float]) -> None:
        """Train on a batch."""
        with simple_timer("reward", timing):
            rewards, _ = compute_reward(batch, self.reward_fn)
        with simple_timer("old_log_prob", timing):
            result = self.actor_rollout_wg.compute_log_prob(batch)
            result.batch.pop("entropys")
            batch = batch.union(result)
        with simple_timer("ref", timing):
            batch = batch.union(self.ref_policy_wg.compute_ref_log_prob(batch))
        with simple_timer("adv", timing):
            batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = rewards
            scores = rewards.sum(-1)
            scores = scores - (torch.logsumexp(scores, 0) - np.log(len(scores)))
            batch.batch["seq_level_rewards"] = scores
            batch.batch["advantages"] = scores.unsqueeze(-1) * batch.batch["response_mask"]
        with simple_timer("update_actor", timing):
            batch.meta_info["multi_turn"] = False
            reduce_metrics(self.actor_rollout_wg.update_actor(batch).meta_info["metrics"])


def main() -> None:
    verl_cpu_recipe.main(SelfPlayTrainer)
