"""Keeps books of what is trained on, from tensors of verl: a line for each batch, or sample.

V0 has its batch where it computes advantages. V1 takes each sample to its queue.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import wrapt
from verl_cpu_books import write

EOS = 2
"""Id of ``<|im_end|>`` (``verl_cpu_assets``)."""
NAMES = {"attention_mask", "prompts", "responses", "token_level_scores"}


def line_of(uid: Any, prompt: list[int], response: list[int], reward: float) -> dict[str, Any]:
    """What a sample is, with its prompt to tell prompts apart."""
    return {
        "uid": str(uid),
        "prompt": prompt,
        "response": len(response),
        "ended": response[-1] == EOS,
        "inner_ends": response[:-1].count(EOS),
        "reward": reward,
    }


@wrapt.when_imported("verl.trainer.ppo.ray_trainer")
def _batches(module: Any) -> None:
    compute = module.compute_advantage

    @functools.wraps(compute)
    def kept(data: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = data.batch
        # V1 has not all of them here, and recipes may not.
        if set(tensors.keys()) >= NAMES and "uid" in data.non_tensor_batch:
            width = tensors["prompts"].shape[1]
            rows = zip(
                data.non_tensor_batch["uid"],
                tensors["prompts"],
                tensors["responses"],
                tensors["attention_mask"].bool(),
                tensors["token_level_scores"].sum(-1).tolist(),
                strict=True,
            )
            samples = [
                line_of(uid, prompt[mask[:width]].tolist(), ids[mask[width:]].tolist(), reward)
                for uid, prompt, ids, mask, reward in rows
            ]
            write("trained", samples=samples, end=time.monotonic_ns())
        return compute(data, *args, **kwargs)

    module.compute_advantage = kept


@wrapt.when_imported("transfer_queue")
def _samples(module: Any) -> None:
    put = module.async_kv_batch_put

    @functools.wraps(put)
    async def kept(*args: Any, **kwargs: Any) -> Any:
        fields = kwargs.get("fields")
        if kwargs.get("partition_id") == "train" and fields is not None and "rm_scores" in fields:
            rows = zip(
                kwargs["keys"],
                kwargs["tags"],
                *(fields[name].unbind() for name in ("prompts", "responses", "rm_scores")),
                strict=True,
            )
            for key, tag, prompt, response, scores in rows:
                line = line_of(
                    key.split("_")[0], prompt.tolist(), response.tolist(), float(scores.sum())
                )
                step = int(tag["global_steps"])
                write("trained", step=step, samples=[line], end=time.monotonic_ns())
        return await put(*args, **kwargs)

    module.async_kv_batch_put = kept
