"""Start a trainer of verl on a machine without an accelerator.

python verl_cpu_launch.py [hydra overrides]

With ``VERL_CPU_RECIPE=dapo`` it is the trainer of a recipe, that of ``verl_cpu_dapo.py``.

Arguments are added to ``ray.init`` that verl gives none for: GPUs that do not exist, one for each
rank, and a folder and a size that suit many jobs on one machine.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys


def main() -> None:
    if os.environ.get("VERL_CPU_ATTACH"):
        import rlvr_probe

        rlvr_probe.attach()

    import patient_ray

    patient_ray.start_with(
        num_cpus=16,
        num_gpus=int(os.environ["VERL_CPU_RANKS"]),
        include_dashboard=False,
        object_store_memory=200 << 20,
        _temp_dir=os.environ["VERL_CPU_RAY"],
    )
    if recipe := os.environ.get("VERL_CPU_RECIPE"):
        importlib.import_module(f"verl_cpu_{recipe}").main()
        return
    sys.argv = ["verl.trainer.main_ppo", *sys.argv[1:]]
    runpy.run_module("verl.trainer.main_ppo", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
