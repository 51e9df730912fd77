"""Facts about a training that begins, and how many began before in this process."""

from __future__ import annotations

import re
import sys
from typing import Any

from rlvr_probe.reading import attribute, foreign_ids, number, word
from rlvr_probe_trl.reading import is_module
from rlvr_probe_trl.releases import version

__all__ = ["Sessions", "algorithm", "facts", "reward_names"]

_TRAINER = re.compile(r"_?(?:Unsloth)?(\w+?)Trainer")


class Sessions:
    """Counts the trainings of this process that began from step 0, from 0.

    A resumed training goes on with the number that its process has: it continues one.
    """

    def __init__(self) -> None:
        self.number = 0
        self._begun = False

    def begin(self, resumed_step: int) -> int:
        """Number of the training that begins after ``resumed_step`` trainer steps."""
        if resumed_step == 0 and self._begun:
            self.number += 1
        self._begun = True
        return self.number


def facts(trainer: Any) -> dict[str, Any]:
    """Attributes of ``names.SESSION`` that a trainer knows, without those of the session itself."""
    args = trainer.args
    micro, accumulation = (
        number(args, "per_device_train_batch_size"),
        number(args, "gradient_accumulation_steps"),
    )
    # TRL 0.17 generates for a whole trainer step.
    per_batch = number(args, "steps_per_generation") or accumulation
    engine = _engine(trainer)
    return {
        "framework": "trl",
        "framework_version": version(),
        "algorithm": algorithm(type(trainer)),
        "rank": number(trainer, "accelerator", "process_index"),
        "world_size": number(trainer, "accelerator", "num_processes"),
        "rollout_tp": _rollout_tp(args, engine),
        "engine": engine,
        "group_size": number(trainer, "num_generations"),
        "group_size_eval": number(trainer, "num_generations_eval"),
        "batch_per_rank": micro * per_batch if micro and per_batch else None,
        "max_prompt_tokens": number(args, "max_prompt_length"),
        "max_response_tokens": number(trainer, "max_completion_length"),
        "steps_per_generation": per_batch,
        "iterations": number(trainer, "num_iterations"),
        "accumulation": accumulation,
        "model_type": word(attribute(trainer, "model", "config", "model_type")),
        "reward_functions": reward_names(trainer),
        "ids": foreign_ids(sys.modules),
    }


def algorithm(trainer: type) -> str | None:
    """'grpo', 'rloo', ...: from the first class of TRL or Unsloth, never from the user's own."""
    for kind in trainer.__mro__:
        # Unsloth 2026.10: writes TRL's trainer anew as UnslothGRPOTrainer, in a module of its own.
        own = kind.__module__.split(".")[0] == "trl" or "Unsloth" in kind.__name__
        named = _TRAINER.fullmatch(kind.__name__)
        if own and named:
            return named[1].lower()
    return None


def reward_names(trainer: Any) -> list[str]:
    """Names of the reward functions, as TRL logs them; a reward model is named by its position.

    TRL names a reward model after the folder or repository it came from, which is not ours to keep.
    """
    functions = attribute(trainer, "reward_funcs") or ()
    given = attribute(trainer, "reward_func_names") or ()
    return [
        f"reward_model_{index}"
        if is_module(function)
        else word(given[index] if index < len(given) else None) or _name(function)
        for index, function in enumerate(functions)
    ]


def _engine(trainer: Any) -> str:
    if attribute(trainer, "use_vllm"):
        mode = attribute(trainer, "vllm_mode")
        return f"vllm-{mode}" if mode in ("colocate", "server") else "vllm"
    batching = ("use_transformers_continuous_batching", "use_transformers_paged")  # TRL 1.7, 0.20
    continuous = any(attribute(trainer, name) for name in batching)
    return "transformers-continuous" if continuous else "transformers"


def _rollout_tp(args: Any, engine: str) -> int | None:
    if engine.startswith("transformers"):
        return 1
    # A server decides for itself.
    return number(args, "vllm_tensor_parallel_size") if engine == "vllm-colocate" else None


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
