"""The recipe of the entropy mechanism as verl 0.6 publishes it, in ``recipe/entropy`` and no wheel.

Written after it: it selects as DAPO does, and has another timer.
"""

from __future__ import annotations

import verl_cpu_recipe
from verl.utils.profiler.performance import simple_timer
from verl_cpu_dapo import DynamicTrainer


class EntropyTrainer(DynamicTrainer):
    """Has the training loop of the recipe."""

    timer = staticmethod(simple_timer)


def main() -> None:
    verl_cpu_recipe.main(EntropyTrainer)
