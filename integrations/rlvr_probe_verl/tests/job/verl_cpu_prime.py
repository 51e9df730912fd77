"""The recipe PRIME as verl 0.6 publishes it, in ``recipe/prime`` and no wheel.

Written after it, in the parts that decide what is generated, scored and trained on: it generates
for more prompts than it trains on, has them verified, puts those in front that are neither too easy
nor too difficult, cuts off the rest, and updates a reward model before that scores what is left.
Advantages are its own; it counts a step before it asks whether that was the last one. Agent loops
generate, where the recipe has its ranks do it; the reward model is a weight for each token; the
verifier is asked in this process and not in 64 others. Keeps books.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import torch
import verl_cpu_recipe
import verl_cpu_reward
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils.metric import reduce_metrics
from verl.utils.profiler.performance import simple_timer
from verl.utils.torch_functional import masked_whiten
from verl_cpu_books import write

LOWER, UPPER = 0.2, 0.8
"""Mean score of a prompt that passes."""


class Verifier:
    """A reward manager as the recipe wants it."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def verify(self, data: Any) -> list[float]:
        """Score of each row, which stays with the batch."""
        texts = self.tokenizer.batch_decode(data.batch["responses"], skip_special_tokens=True)
        recorded = data.non_tensor_batch["extra_info"]
        scores = [
            verl_cpu_reward.compute_score("", text, "", extra_info=info)
            for text, info in zip(texts, recorded, strict=True)
        ]
        data.batch["acc"] = torch.tensor(scores)
        return scores

    def __call__(self, data: Any, return_dict: bool = False) -> Any:
        rewards = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
        lengths = mask_of(data).sum(-1)
        rewards[torch.arange(len(data)), lengths - 1] = torch.tensor(self.verify(data))
        return {"reward_tensor": rewards} if return_dict else rewards


def mask_of(data: Any) -> Any:
    """Which tokens of the responses are none of padding."""
    return data.batch["attention_mask"][:, -data.batch["responses"].shape[1] :]


class RewardModel(Worker):
    """A weight for each token, trained on what was verified."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        self.model = torch.nn.Embedding(512, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def scores(self, data: Any) -> Any:
        return self.model(data.batch["responses"]).squeeze(-1) * mask_of(data)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def update_rm(self, data: Any) -> Any:
        logits, wanted = self.scores(data).sum(-1), data.batch["acc"]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return DataProto.from_dict(meta_info={"metrics": {"reward_model/dpo_loss": float(loss)}})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute_rm_score(self, data: Any) -> Any:
        with torch.no_grad():
            return DataProto.from_dict(tensors={"rm_scores": self.scores(data)})


class DownsamplingTrainer(RayPPOTrainer):
    """Has the training loop of the recipe."""

    def __init__(self, config: Any, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        kwargs |= {"reward_fn": Verifier(tokenizer), "val_reward_fn": Verifier(tokenizer)}
        super().__init__(config, tokenizer, *args, **kwargs)
        self.use_critic = False

    def fit(self) -> None:
        self.global_steps = 1
        samples = int(self.config.actor_rollout_ref.rollout.n)
        for _ in range(self.config.trainer.total_epochs):
            for rows in self.train_dataloader:
                timing: dict[str, float] = {}
                batch = DataProto.from_single_dict(rows)
                sent = self._get_gen_batch(batch).repeat(samples, interleave=True)
                with simple_timer("step", timing):
                    with simple_timer("gen", timing):
                        output = self.async_rollout_manager.generate_sequences(sent)
                        output.meta_info.pop("timing")
                    named = [str(uuid.uuid4()) for _ in range(len(batch.batch))]
                    batch.non_tensor_batch["uid"] = np.array(named, dtype=object)
                    batch = batch.repeat(samples, interleave=True).union(output)
                    tokens = torch.sum(batch.batch["attention_mask"], dim=-1).tolist()
                    batch.meta_info["global_token_num"] = tokens
                    with simple_timer("verify", timing):
                        scores = self.reward_fn.verify(batch)
                    self.downsampled(batch, scores, samples)
                    self.updated(batch, samples, timing)
                write("timed", step=self.global_steps, seconds=timing)
                self.global_steps += 1
                if self.global_steps >= self.total_training_steps:
                    self._validate()
                    return

    def downsampled(self, batch: Any, scores: list[float], samples: int) -> None:
        """Leave the part of a batch that is trained on."""
        means = torch.tensor(scores).reshape(-1, samples).mean(-1)
        passes = (means >= LOWER) & (means <= UPPER)
        order = torch.argsort(passes.int(), descending=True, stable=True)
        chosen = order[: self.config.data.train_batch_size]
        width = batch.batch["prompts"].shape[1]
        mask = batch.batch["attention_mask"]
        write(
            "selected",
            step=self.global_steps,
            inputs=mask[:, :width].sum(1).tolist()[::samples],
            responses=mask[:, width:].sum(1).tolist(),
            rewards=scores,
            passed=int(passes.sum()),
            kept=sorted(chosen.tolist()),
        )
        batch.reorder((chosen.unsqueeze(-1) * samples + torch.arange(samples)).view(-1))

    def updated(self, batch: Any, samples: int, timing: dict[str, float]) -> None:
        """Train on a batch."""
        batch.batch["response_mask"] = mask_of(batch)
        with simple_timer("old_log_prob", timing):
            result = self.actor_rollout_wg.compute_log_prob(batch)
            result.batch.pop("entropys")
            batch = batch.union(result)
        with simple_timer("ref", timing):
            batch = batch.union(self.ref_policy_wg.compute_ref_log_prob(batch))
        with simple_timer("adv", timing):
            self.rm_wg.update_rm(batch)
            batch = batch.union(self.rm_wg.compute_rm_score(batch))
            advantages(batch, samples)
        with simple_timer("update_actor", timing):
            batch.meta_info["multi_turn"] = False
            reduce_metrics(self.actor_rollout_wg.update_actor(batch).meta_info["metrics"])


def advantages(batch: Any, samples: int) -> None:
    """Of both rewards, each against what the others of its prompt got."""
    mask, rewards = mask_of(batch), batch.batch["rm_scores"].clone()
    lengths = mask.sum(-1)
    rewards[torch.arange(len(lengths)), lengths - 1] += batch.batch["acc"]
    sums = rewards.sum(-1).view(-1, samples)
    rest = (sums.sum(-1, keepdim=True) - sums) / (samples - 1)
    rewards -= rest.view(-1, 1) / lengths.unsqueeze(-1)
    returns = (rewards * mask).flip(-1).cumsum(-1).flip(-1)
    batch.batch["returns"] = returns
    batch.batch["advantages"] = masked_whiten(returns, mask)


def main() -> None:
    verl_cpu_recipe.main(DownsamplingTrainer, RewardModel)
