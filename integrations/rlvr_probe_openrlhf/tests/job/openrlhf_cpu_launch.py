"""Start OpenRLHF on a machine without an accelerator.

python openrlhf_cpu_launch.py [arguments of openrlhf.cli.train_ppo_ray]

Arguments are added to ``ray.init`` that OpenRLHF gives none for: GPUs that do not exist, and a
folder and a size that suit many jobs on one machine.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    if os.environ.get("OPENRLHF_CPU_ATTACH"):
        import rlvr_probe

        rlvr_probe.attach()

    import patient_ray

    patient_ray.start_with(
        num_cpus=16,
        num_gpus=16,
        include_dashboard=False,
        object_store_memory=200 << 20,
        _temp_dir=os.environ["OPENRLHF_CPU_RAY"],
    )
    sys.argv = ["openrlhf.cli.train_ppo_ray", *sys.argv[1:]]
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
