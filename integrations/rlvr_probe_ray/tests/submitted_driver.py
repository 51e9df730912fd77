"""What a user submits with its folder; it names no folder for recordings."""

import os

import ray

import rlvr_probe

rlvr_probe.attach()
ray.init()


@ray.remote(num_cpus=0)
def step() -> str:
    with rlvr_probe.span("step of a worker"):
        return os.getcwd()


with rlvr_probe.span("stage of a driver"):
    print("WORKED IN", os.getcwd(), ray.get(step.remote()))
