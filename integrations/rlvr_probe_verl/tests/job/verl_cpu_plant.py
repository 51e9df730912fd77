"""A user's trainer of verl, and a user's data set, in which something may be slow.

What sleeps is told by the variables of ``planted_sleep``; what sleeps in workers is in
``verl_cpu_slow``. Says when steps begin, as ``planted_steps`` has it.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import planted_steps
import verl_cpu_recipe
from planted_sleep import sleep_if_planted
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.tracking import Tracking
from verl_cpu_books import step_now

BOOKS = os.environ["VERL_CPU_BOOKS"]


class PlantedDataset(RLHFDataset):
    def __getitem__(self, item: int) -> Any:
        sleep_if_planted("data", "__getitem__", step_now())
        return super().__getitem__(item)


class PlantedTrainer(RayPPOTrainer):
    def init_workers(self) -> None:
        super().init_workers()
        manager = self.async_rollout_manager
        generate = manager.generate_sequences

        @functools.wraps(generate)
        def generate_sequences(*args: Any, **kwargs: Any) -> Any:
            result = generate(*args, **kwargs)
            sleep_if_planted("dispatch", "generate_sequences", self.global_steps)
            return result

        manager.generate_sequences = generate_sequences

    def _save_checkpoint(self) -> None:
        sleep_if_planted("checkpoint", "_save_checkpoint", self.global_steps)
        super()._save_checkpoint()

    def fit(self) -> None:
        log = Tracking.log

        @functools.wraps(log)
        def logged(tracking: Any, data: Any, step: int, *args: Any, **kwargs: Any) -> None:
            log(tracking, data, step, *args, **kwargs)
            sleep_if_planted("callback", "log", step)
            if step < self.total_training_steps:
                planted_steps.begin(BOOKS, step + 1)

        Tracking.log = logged
        planted_steps.start(BOOKS)
        planted_steps.begin(BOOKS, 1)
        super().fit()
        planted_steps.end(BOOKS)


def main() -> None:
    verl_cpu_recipe.main(PlantedTrainer)
