"""Writes down what a trainer gets to train on, as its own tensors have it."""

from __future__ import annotations

import functools
from typing import Any

import wrapt
from openrlhf_cpu_books import write


@wrapt.when_imported("openrlhf.trainer.ppo_utils.experience_maker")
def _batches(module: Any) -> None:
    make = module.RemoteExperienceMaker.make_experience_batch

    @functools.wraps(make)
    def make_experience_batch(self: Any, rollout_samples: Any) -> Any:
        write("batch", samples=[_sample(own) for own in rollout_samples])
        return make(self, rollout_samples)

    module.RemoteExperienceMaker.make_experience_batch = make_experience_batch


def _sample(experience: Any) -> dict[str, Any]:
    [ids], [mask] = experience.sequences.tolist(), experience.action_mask.tolist()
    # The mask begins with the second token; what an environment answered has none.
    prompt = mask.index(1) + 1
    changes = [at for at in range(prompt, len(mask)) if mask[at] != mask[at - 1]]
    runs = [
        end - start
        for start, end in zip([prompt - 1, *changes], [*changes, len(mask)], strict=True)
    ]
    return {
        "prompt": ids[:prompt],
        "runs": runs,
        "last": ids[-1],
        "truncated": bool(experience.truncated),
        "reward": float(experience.rewards),
    }
