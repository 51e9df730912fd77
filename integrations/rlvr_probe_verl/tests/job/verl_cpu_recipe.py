"""Starts verl with the trainer of a recipe where it would make its own."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

import ray
from hydra import compose, initialize_config_module
from verl.trainer import main_ppo
from verl.trainer.ppo.ray_trainer import Role
from verl_cpu_books import write

try:
    from verl.trainer import main_ppo_v0 as runners
except ImportError:  # verl below 0.9
    runners = main_ppo


def counted(fit: Any) -> Any:
    """A training loop, behind which Ray tells which GPUs the actors of the training have."""

    @functools.wraps(fit)
    def done(self: Any) -> None:
        fit(self)
        free = ray.available_resources().get("GPU", 0)
        write("gpus", taken=ray.cluster_resources()["GPU"] - free)

    return done


def runner(trainer: Any, reward_model: type | None) -> type:
    """A task runner whose trainer, and whose worker of a reward model, is this one."""
    own: Any = runners.TaskRunner
    if hasattr(own, "__ray_metadata__"):  # verl 0.9: an actor, of which there is no subclass
        own = own.__ray_metadata__.modified_class

    class Runner(own):
        def run(self, config: Any) -> None:
            # Where its class came by value, what it calls is not what its module has.
            trainer.fit = counted(trainer.fit)
            inspect.unwrap(super().run).__globals__["RayPPOTrainer"] = trainer
            super().run(config)

        def add_reward_model_worker(self, config: Any) -> None:
            if reward_model is None:
                super().add_reward_model_worker(config)
            else:
                self.role_worker_mapping[Role.RewardModel] = ray.remote(reward_model)
                self.mapping[Role.RewardModel] = "global_pool"

    return Runner


def main(trainer: Any, reward_model: type | None = None) -> None:
    """Run verl with them; arguments are those of verl."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=sys.argv[1:])
    if hasattr(main_ppo, "migrate_legacy_reward_impl"):
        config = main_ppo.migrate_legacy_reward_impl(config)
    main_ppo.run_ppo(
        config, task_runner_class=ray.remote(num_cpus=1)(runner(trainer, reward_model))
    )
