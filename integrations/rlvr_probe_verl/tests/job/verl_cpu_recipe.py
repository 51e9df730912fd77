"""Starts verl with the trainer of a recipe where it would make its own."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import ray
from hydra import compose, initialize_config_module
from verl.trainer import main_ppo

try:
    from verl.trainer import main_ppo_v0 as runners
except ImportError:  # verl below 0.9
    runners = main_ppo


def runner(trainer: type) -> type:
    """A task runner whose trainer is this one."""
    own: Any = runners.TaskRunner
    if hasattr(own, "__ray_metadata__"):  # verl 0.9: an actor, of which there is no subclass
        own = own.__ray_metadata__.modified_class

    class Runner(own):
        def run(self, config: Any) -> None:
            # Where its class came by value, what it calls is not what its module has.
            inspect.unwrap(super().run).__globals__["RayPPOTrainer"] = trainer
            super().run(config)

    return Runner


def main(trainer: type) -> None:
    """Run verl with it; arguments are those of verl."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=sys.argv[1:])
    if hasattr(main_ppo, "migrate_legacy_reward_impl"):
        config = main_ppo.migrate_legacy_reward_impl(config)
    main_ppo.run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(runner(trainer)))
