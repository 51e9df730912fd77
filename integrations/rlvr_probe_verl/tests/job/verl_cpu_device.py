"""Stands for the accelerator that a test machine lacks: verl takes the CPU for it.

Loaded by every Python process of a job, before anything else. Post-import hooks on torch,
transformers and small modules of verl; trainers, workers and algorithms stay as they are. verl 0.9
has a place for other platforms instead, which ``verl_cpu_engine`` fills.

Where verl has its model generate by itself, its calls of ``generate`` are seeded here, which verl
leaves to chance, and written into the books. So are metrics: verl 0.5 cannot log them to a file,
and 0.6 fails where one is a tensor.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import time
from typing import Any

import wrapt


def nothing(*_: Any, **__: Any) -> None:
    """Stands for what only an accelerator does."""


@wrapt.when_imported("torch.distributed.distributed_c10d")
def _process_groups(module: Any) -> None:
    import sys

    start = module.init_process_group

    @functools.wraps(start)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        # torch refuses "cpu:gloo,cpu:gloo", which verl makes of two devices.
        if backend in (None, "nccl") or "cpu:gloo" in str(backend):
            backend = "gloo"
        return start(backend, *args, **kwargs)

    module.init_process_group = init_process_group
    if "torch.distributed" in sys.modules:
        sys.modules["torch.distributed"].init_process_group = init_process_group  # type: ignore[attr-defined]


@wrapt.when_imported("torch.cpu")
def _device(module: Any) -> None:
    import torch

    for name in (
        *("empty_cache", "ipc_collect", "set_device", "reset_peak_memory_stats"),
        *("manual_seed", "manual_seed_all", "_set_allocator_settings"),
    ):
        if not hasattr(module, name):
            setattr(module, name, nothing)
    for name in ("memory_allocated", "memory_reserved"):
        setattr(module, name, lambda *_, **__: 0)
        setattr(module, f"max_{name}", lambda *_, **__: 0)
    module.mem_get_info = lambda *_, **__: (1 << 33, 1 << 34)
    module.get_device_name = lambda *_, **__: "NVIDIA H100 80GB HBM3"  # for a table of peak FLOPS
    module.current_device = lambda: torch.device("cpu")
    module.device_count = lambda: 1
    module.get_rng_state = lambda *_, **__: torch.get_rng_state()
    module.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)

    class memory:
        _set_allocator_settings = staticmethod(nothing)

    module.memory = memory


@wrapt.when_imported("torch.distributed.fsdp")
def _pinned_memory(module: Any) -> None:
    import torch

    torch.Tensor.pin_memory = lambda self, *_, **__: self


@wrapt.when_imported("transformers.models.auto.auto_factory")
def _attention(module: Any) -> None:
    auto = module._BaseAutoModelClass
    load = auto.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        # verl <= 0.6 asks for flash attention whatever its configuration says.
        if kwargs.get("attn_implementation") == "flash_attention_2":
            kwargs["attn_implementation"] = "sdpa"
        config: Any = kwargs.get("config")
        if getattr(config, "_attn_implementation", None) == "flash_attention_2":
            config._attn_implementation = "sdpa"
        return load(cls, *args, **kwargs)

    auto.from_pretrained = classmethod(from_pretrained)


@wrapt.when_imported("transformers.generation.utils")
def _generations(module: Any) -> None:
    import torch

    mixin = module.GenerationMixin
    generate = mixin.generate
    calls = itertools.count()

    @functools.wraps(generate)
    def kept(self: Any, *args: Any, **kwargs: Any) -> Any:
        from verl_cpu_books import write

        weights = hashlib.sha256()
        for parameter in self.parameters():
            local = getattr(parameter, "to_local", lambda p=parameter: p)()
            weights.update(local.detach().float().numpy().tobytes())
        rank = int(os.environ.get("RANK", "0"))
        torch.manual_seed(int(os.environ["VERL_CPU_SEED"]) + 1000 * rank + next(calls))
        start = time.monotonic_ns()
        result = generate(self, *args, **kwargs)
        mask, ended = kwargs["attention_mask"], kwargs["eos_token_id"]
        rows = result.sequences[:, mask.shape[1] :].tolist()
        write(
            "generate",
            rank=rank,
            sampled=bool(kwargs["do_sample"]),
            prompts=mask.sum(-1).tolist(),
            outputs=[ids[: ids.index(ended) + 1] if ended in ids else ids for ids in rows],
            weights=weights.hexdigest(),
            start=start,
            end=time.monotonic_ns(),
        )
        return result

    if os.environ.get("VERL_CPU_GENERATES"):
        mixin.generate = kept


@wrapt.when_imported("verl.workers.actor.dp_actor")
def _log_probs(module: Any) -> None:
    from verl_cpu_books import booked

    actor = module.DataParallelPPOActor
    actor.compute_log_prob = booked(actor.compute_log_prob)


@wrapt.when_imported("verl.utils.tracking")
def _metrics(module: Any) -> None:
    tracking = module.Tracking
    log = tracking.log

    @functools.wraps(log)
    def logged(self: Any, data: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        import json

        with open(os.environ["VERL_FILE_LOGGER_PATH"], "a") as file:
            file.write(json.dumps({"step": step, "data": data}, default=float) + "\n")
        return log(self, data, step, *args, **kwargs)

    tracking.log = logged


@wrapt.when_imported("verl.utils.device")
def _names(module: Any) -> None:
    import torch

    if hasattr(module, "get_nccl_backend"):
        module.get_nccl_backend = lambda: "gloo"
    if hasattr(module, "get_device_id"):
        module.get_device_id = lambda: torch.device("cpu")


@wrapt.when_imported("verl.utils.attention_utils")
def _padding(module: Any) -> None:
    """Functions of flash_attn that verl 0.7 and 0.8 have none of their own for."""
    import torch

    def unpad_input(hidden: Any, mask: Any, *_: Any) -> Any:
        lengths = mask.sum(-1, dtype=torch.int32)
        kept = torch.nonzero(mask.flatten()).flatten()
        ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        return hidden.flatten(0, 1)[kept], kept, ends, int(lengths.max()), lengths

    def pad_input(hidden: Any, kept: Any, batch: int, length: int) -> Any:
        out = hidden.new_zeros((batch * length, *hidden.shape[1:]))
        out[kept] = hidden
        return out.view(batch, length, *hidden.shape[1:])

    def index_first_axis(hidden: Any, kept: Any) -> Any:
        return hidden[kept]

    def rearrange(hidden: Any, pattern: str, **_: Any) -> Any:
        return hidden.flatten(0, 1)

    functions = (index_first_axis, pad_input, rearrange, unpad_input)
    module._get_attention_functions = lambda: functions


@wrapt.when_imported("verl.workers.sharding_manager.base")
def _missing_timing(module: Any) -> None:
    # verl 0.4.1 reads an attribute that it never sets for its own rollout.
    if not hasattr(module.BaseShardingManager, "timing"):
        module.BaseShardingManager.timing = {}
