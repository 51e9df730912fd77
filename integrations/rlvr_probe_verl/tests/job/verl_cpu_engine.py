"""Stands for what verl 0.6 and newer need and a test machine lacks: an inference engine, a GPU.

Loaded by verl itself (``VERL_USE_EXTERNAL_MODULES``) in every process that imports it.

*   Engine (``rollout.name=verl_cpu``, by verl's registries): a server actor with the real tiny
    model, which gets the trainer's weights whenever verl synchronises them, samples with them,
    stops when it is told to abort, and keeps a book of its requests. How many tokens a request
    gives, and which, follows from the seed, the prompt and the number of requests with this prompt
    before; with verl's ``full_determinism`` from the id of the request instead of that number. It
    is at least ``min_tokens``, before which nothing ends, as in vLLM.
*   Platform of verl 0.9 (``VERL_PLATFORM=cpu``); for older releases see ``verl_cpu_device``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import time
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import verl_cpu_batches  # noqa: F401 - keeps books
import wrapt
from verl_cpu_books import CANARY, booked, write

ENGINE = "verl_cpu"
CACHE_BLOCK = 16


def nothing(*_: Any, **__: Any) -> None:
    """Stands for what only an accelerator does."""


def device_module() -> types.ModuleType:
    """What ``torch.cuda`` would be."""
    module = types.ModuleType("verl_cpu_torch_device")
    for name in dir(torch.cpu):
        if not name.startswith("__"):
            setattr(module, name, getattr(torch.cpu, name))
    idle = ("empty_cache", "ipc_collect", "synchronize", "set_device", "reset_peak_memory_stats")
    for name in (*idle, "manual_seed", "manual_seed_all"):
        setattr(module, name, nothing)
    for name in ("memory_allocated", "memory_reserved"):
        setattr(module, name, lambda *_, **__: 0)
        setattr(module, f"max_{name}", lambda *_, **__: 0)
    given: dict[str, Any] = {
        "mem_get_info": lambda *_, **__: (1 << 33, 1 << 34),
        "current_device": lambda: torch.device("cpu"),
        "get_device_name": lambda *_, **__: "NVIDIA H100 80GB HBM3",  # for a table of peak FLOPS
        "device_count": lambda: 1,
        "get_rng_state": torch.get_rng_state,
        "set_rng_state": torch.set_rng_state,
    }
    for name, value in given.items():
        setattr(module, name, value)
    return module


def register_platform() -> bool:
    """Whether this verl has a place for platforms."""
    try:
        from verl.plugin.platform.platform_base import PlatformBase
        from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform
    except ImportError:
        return False

    class PlatformCPU(PlatformBase):
        device_name = property(lambda self: "cpu")
        vendor_name = property(lambda self: "cpu")
        device_module = property(lambda self: DEVICE)

        def is_available(self) -> bool:
            return True

        def current_device(self) -> Any:
            return torch.device("cpu")

        def device_count(self) -> int:
            return 1

        def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
            return None, None

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "CUDA_VISIBLE_DEVICES"

        @contextlib.contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def ray_resource_name(self) -> str:
            return "GPU"

        def ray_noset_envvars(self) -> list[str]:
            return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

        def is_ipc_supported(self) -> bool:
            return False

        def cudart(self) -> None:
            return None

        set_device = synchronize = set_allocator_settings = empty_cache = nothing
        profiler_start = profiler_stop = nothing

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        manual_seed_all = manual_seed

    PlatformRegistry.register(platform="cpu")(PlatformCPU)
    set_platform(PlatformCPU())
    return True


DEVICE = device_module()
torch.Tensor.pin_memory = lambda self, *_, **__: self

if not register_platform():
    import verl.utils.device

    verl.utils.device.get_torch_device = lambda: DEVICE
    verl.utils.device.get_device_id = lambda: torch.device("cpu")
    verl.utils.device.get_nccl_backend = lambda: "gloo"


def join_ranks(timeout_second: float | None = None, backend: str | None = None) -> None:
    """verl's own, without the backend "cpu:gloo,cpu:gloo", which torch refuses."""
    from datetime import timedelta

    import torch.distributed as dist

    if dist.is_initialized():
        return
    dist.init_process_group(
        backend="gloo",
        rank=int(os.environ.get("RANK", "0")),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        timeout=timedelta(seconds=timeout_second) if timeout_second else None,
        init_method=os.environ.get("DIST_INIT_METHOD"),
    )


def common_prefix(tokens: list[int], other: list[int]) -> int:
    """Number of tokens with which both begin."""
    same = (a == b for a, b in zip(tokens, other, strict=False))
    return next((at for at, equal in enumerate(same) if not equal), min(len(tokens), len(other)))


class Server:
    """The engine of one replica, with the surface of verl's own servers; a Ray actor."""

    def __init__(self, config: Any, model_config: Any, replica_rank: int) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        # A dict, a configuration of omegaconf, or a dataclass, by release.
        path = model_config["path"] if hasattr(model_config, "keys") else model_config.path
        settings = AutoConfig.from_pretrained(path, attn_implementation="sdpa")
        self._model = AutoModelForCausalLM.from_config(settings).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(path)
        self._config = config
        self._replica = replica_rank
        self._version: int | None = None
        self._aborting = False
        self._slots = asyncio.Semaphore(8)
        self._asked: Counter[tuple[int, ...]] = Counter()
        self._served: list[list[int]] = []

    def ready(self) -> None:
        """Answer when the model is loaded."""

    async def load_weights(self, weights: dict[str, Any], version: int | None) -> None:
        digest = hashlib.sha256()
        for name in sorted(weights):
            digest.update(weights[name].tobytes())
        state = {name: torch.as_tensor(value) for name, value in weights.items()}
        self._model.load_state_dict(state, strict=False)
        self._version = version
        write(
            "weights",
            engine=self._replica,
            version=version,
            weights=digest.hexdigest(),
            end=time.monotonic_ns(),
        )

    async def set_global_steps(self, global_steps: int) -> None:
        self._version = global_steps

    async def abort_all_requests(self, **_: Any) -> None:
        self._aborting = True

    async def resume_generation(self) -> None:
        self._aborting = False

    async def wake_up(self, *_: Any, **__: Any) -> None:
        pass

    async def sleep(self, *_: Any, **__: Any) -> None:
        pass

    async def clear_kv_cache(self) -> None:
        pass

    async def release_kv_cache(self) -> None:
        pass

    async def resume_kv_cache(self) -> None:
        pass

    async def start_profile(self, **_: Any) -> None:
        pass

    async def stop_profile(self) -> None:
        pass

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        **_: Any,
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        start = time.monotonic_ns()
        prompt = list(map(int, prompt_ids))
        cached = max((common_prefix(prompt, tokens) for tokens in self._served), default=0)
        cached -= cached % CACHE_BLOCK
        draw = self._draw(request_id, prompt)
        tool_call = self._tool_call(draw, prompt)
        if tool_call is not None:
            await asyncio.sleep(0.02)
            ids, scores, ended = tool_call, [-1.0] * len(tool_call), "completed"
        else:
            cap = min(self._config.response_length, sampling_params.get("max_tokens") or 1 << 30)
            least = sampling_params.get("min_tokens") or 0
            count = max(least, self._length(draw, cap))
            heat = sampling_params.get("temperature") or 0.0
            async with self._slots:
                ids, scores, ended = await asyncio.to_thread(
                    self._sample, prompt, (least, count), heat, draw.getrandbits(63)
                )
        self._served = [*self._served[-63:], prompt + ids]
        write(
            "request",
            engine=self._replica,
            request=request_id,
            prompt=prompt,
            output=ids,
            cached=cached,
            ended=ended,
            version=self._version,
            start=start,
            end=time.monotonic_ns(),
        )
        result: dict[str, Any] = {"token_ids": ids}
        result["log_probs"] = scores if sampling_params.get("logprobs") else None
        if "stop_reason" in TokenOutput.model_fields:
            result["stop_reason"] = ended
        if "extra_fields" in TokenOutput.model_fields:
            extra = {"global_steps": self._version, "num_cached_tokens": cached}
            result["extra_fields"] = extra
        return TokenOutput(**result)

    def _draw(self, request_id: str, prompt: list[int]) -> random.Random:
        number: Any = self._asked[tuple(prompt)]
        self._asked[tuple(prompt)] += 1
        if request_id.startswith("det-"):
            number = (request_id, self._version)
        return random.Random(repr((os.environ["VERL_CPU_SEED"], prompt, number)))

    def _length(self, draw: random.Random, cap: int) -> int:
        """How many tokens a request is to give."""
        return min(draw.choice([draw.randint(2, 12), draw.randint(2, 24), cap]), cap)

    def _tool_call(self, draw: random.Random, prompt: list[int]) -> list[int] | None:
        """One call per conversation or more, each with arguments of its own."""
        if not os.environ.get("VERL_CPU_TOOLS"):
            return None
        results = self._tokenizer.decode(prompt).count("<|im_start|>tool")
        most = int(os.environ["VERL_CPU_TOOLS"])
        if results >= most or (results and draw.random() < 0.5):
            return None
        call = (
            '<tool_call>{"name": "calc", "arguments": {"a": %d, "b": %d, "note": "%s"}}</tool_call>'
        )
        text = call % (draw.randrange(10**6), draw.randrange(100), CANARY["tool_argument"])
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return [*ids, self._tokenizer.eos_token_id]

    @torch.no_grad()
    def _sample(
        self, prompt: list[int], lengths: tuple[int, int], heat: float, seed: int
    ) -> tuple[list[int], list[float], str]:
        generator = torch.Generator().manual_seed(seed)
        ids: list[int] = []
        scores: list[float] = []
        past, given = None, torch.tensor([prompt])
        least, count = lengths
        for number in range(count):
            if self._aborting:
                return ids, scores, "aborted"
            step = self._model(input_ids=given, past_key_values=past, use_cache=True)
            past, logits = step.past_key_values, step.logits[0, -1, :400].float()
            if number < least:
                logits[self._tokenizer.eos_token_id] = -torch.inf
            shares = torch.softmax(logits / max(heat, 1e-3), -1)
            chosen = torch.multinomial(shares, 1, generator=generator) if heat else shares.argmax()
            token = int(chosen)
            ids.append(token)
            scores.append(float(torch.log(shares[token] + 1e-9)))
            given = torch.tensor([[token]])
            if token == self._tokenizer.eos_token_id:
                break
        return ids, scores, "completed"


def server_name(replica: int) -> str:
    return f"{ENGINE}_server_{replica}_0"


def replica_class() -> Any:
    import ray
    from verl.workers.rollout.replica import RolloutReplica

    class Replica(RolloutReplica):
        async def launch_servers(self) -> None:
            actor = ray.remote(Server).options(
                name=server_name(self.replica_rank), num_cpus=0, max_concurrency=1000
            )
            handle = actor.remote(self.config, self.model_config, self.replica_rank)
            self._server_handle = handle
            self.servers.append(handle)
            await handle.ready.remote()
            self._server_address = f"127.0.0.1:{9000 + self.replica_rank}"

    # verl 0.6 and 0.7 declare methods that only servers with ranks of their own need.
    for name in getattr(Replica, "__abstractmethods__", ()):
        setattr(Replica, name, nothing)
    Replica.__abstractmethods__ = frozenset()
    return Replica


class Rollout:
    """What a rank has of the engine: it sends its weights there."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        import ray
        from verl.workers.rollout.base import BaseRollout

        class Adapter(BaseRollout):
            async def resume(self, tags: Any) -> None:
                pass

            async def release(self) -> None:
                pass

            async def update_weights(
                self, weights: Any, global_steps: int | None = None, **_: Any
            ) -> None:
                rank = int(os.environ["RANK"])
                ranks = self.config.tensor_model_parallel_size
                sent = {}
                for name, value in weights:
                    whole = value.full_tensor() if hasattr(value, "full_tensor") else value
                    sent[name] = whole.detach().float().cpu().clone().numpy()
                if rank % ranks == 0:
                    server = ray.get_actor(server_name(rank // ranks))
                    await server.load_weights.remote(sent, global_steps)

        return Adapter(*args, **kwargs)


@wrapt.when_imported("verl.workers.engine_workers")
def _log_probs(module: Any) -> None:
    """Those of verl 0.9; for older releases see ``verl_cpu_device``."""
    worker = getattr(module, "TrainingWorker", None)
    if worker is not None and hasattr(worker, "infer_batch"):
        worker.infer_batch = booked(worker.infer_batch)


def register_engine() -> None:
    import verl.utils.distributed
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    verl.utils.distributed.initialize_global_process_group_ray = join_ranks
    base._ROLLOUT_REGISTRY[(ENGINE, "async")] = f"{__name__}.Rollout"
    RolloutReplicaRegistry.register(ENGINE, replica_class)
    try:
        from verl.workers.engine import EngineRegistry
    except ImportError:  # verl 0.6
        return
    for backends in EngineRegistry._engines.values():
        for devices in backends.values():
            if "cuda" in devices:
                devices.setdefault("cpu", devices["cuda"])


register_engine()
