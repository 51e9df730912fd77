"""Stands for the accelerator that a test machine lacks: OpenRLHF takes the CPU for it.

Loaded by every Python process of a job, before anything else, and loads ``OPENRLHF_CPU_MODULE``, if
there is one. Post-import hooks on torch and on two
small modules of OpenRLHF; trainers, workers and algorithms stay as they are. What OpenRLHF logs is
written into the books as well, and prompts come in the same order in each run.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import signal
import time
from typing import Any

import wrapt


class Device(str):
    """The CPU, whose number in ``f"cuda:{number}"`` is 0."""

    __slots__ = ()

    def __format__(self, _: str) -> str:
        return "0"


@wrapt.when_imported("torch.cuda")
def _cuda(module: Any) -> None:
    module.current_device = lambda: Device("cpu")
    for name in ("synchronize", "empty_cache", "set_device", "current_stream"):
        # One for each: torch's compiler knows each function by the one name it has.
        setattr(module, name, lambda *_, **__: None)


@wrapt.when_imported("deepspeed.comm.torch")
def _shared_memory(module: Any) -> None:
    # DeepSpeed has another way between processes of one machine, which would have to be compiled.
    module.build_shm_op = lambda: None


@wrapt.when_imported("openrlhf.utils.deepspeed.deepspeed_utils")
def _optimizer(module: Any) -> None:
    make = module.get_train_ds_config

    @functools.wraps(make)
    def get_train_ds_config(*args: Any, **kwargs: Any) -> Any:
        config = make(*args, **kwargs)
        if config.get("optimizer"):  # the other one would have to be compiled
            config["optimizer"]["params"]["torch_adam"] = True
        return config

    module.get_train_ds_config = get_train_ds_config


@wrapt.when_imported("openrlhf.utils.deepspeed.deepspeed")
def _mesh(module: Any) -> None:
    make = module.init_device_mesh

    @functools.wraps(make)
    def init_device_mesh(_: str, *args: Any, **kwargs: Any) -> Any:
        return make("cpu", *args, **kwargs)

    module.init_device_mesh = init_device_mesh

    # OpenRLHF leaves the order of prompts to chance.
    import torch

    loader = module.StatefulDataLoader

    @functools.wraps(loader)
    def seeded(*args: Any, **kwargs: Any) -> Any:
        generator = torch.Generator().manual_seed(int(os.environ["OPENRLHF_CPU_SEED"]))
        return loader(*args, generator=generator, **kwargs)

    module.StatefulDataLoader = seeded


@wrapt.when_imported("openrlhf.trainer.ray.launcher")
def _mischief(module: Any) -> None:
    """A rank of the policy sleeps or is killed behind its log-probabilities."""
    execute, calls = module.BaseModelActor.execute_batch, itertools.count()

    @functools.wraps(execute)
    def execute_batch(self: Any, method_name: str, *args: Any, **kwargs: Any) -> Any:
        from planted_sleep import sleep_if_planted

        result = execute(self, method_name, *args, **kwargs)
        if method_name == "forward" and "Policy" in type(self).__name__:
            sleep_if_planted("rank", os.environ["RANK"])
            if os.environ.get("OPENRLHF_CPU_MISCHIEF") == f"kill_rank@{next(calls)}":
                time.sleep(0.2)  # as long as a record may take to reach the disk
                os.kill(os.getpid(), signal.SIGKILL)
        return result

    module.BaseModelActor.execute_batch = execute_batch


@wrapt.when_imported("openrlhf.trainer.ray.launcher")
def _given(module: Any) -> None:
    """Where a training is over and its actors are still there, Ray tells which GPUs they have."""
    save = module.RayActorGroup.async_save_model

    @functools.wraps(save)
    def async_save_model(self: Any) -> Any:
        import ray
        from openrlhf_cpu_books import write

        free = ray.available_resources().get("GPU", 0)
        write("gpus", taken=ray.cluster_resources()["GPU"] - free)
        return save(self)

    module.RayActorGroup.async_save_model = async_save_model


@wrapt.when_imported("openrlhf.utils.agent")
def _patience(module: Any) -> None:
    patience = os.environ.get("OPENRLHF_CPU_PATIENCE_S")
    if patience is None:
        return
    timeout = module.aiohttp.ClientTimeout
    # OpenRLHF gives a reward service three minutes.
    module.aiohttp.ClientTimeout = lambda total: timeout(total=float(patience))


@wrapt.when_imported("openrlhf.utils.logging_utils")
def _metrics(module: Any) -> None:
    from openrlhf_cpu_books import write

    def numbers(given: Any) -> dict[str, float]:
        return {
            name: float(value)
            for name, value in (given or {}).items()
            if hasattr(value, "__float__") and name != "generated_samples"
        }

    class Books:
        """In place of the logger to TensorBoard, which the job asks for."""

        def __init__(self, *_: Any) -> None:
            pass

        def log_train(self, step: int, logs: Any) -> None:
            write("metrics", step=step, mode="train", data=numbers(logs))

        def log_eval(self, step: int, logs: Any) -> None:
            write("metrics", step=step, mode="eval", data=numbers(logs))

        def close(self) -> None:
            pass

    module.TensorboardLogger = Books


if module := os.environ.get("OPENRLHF_CPU_MODULE"):
    importlib.import_module(module)
