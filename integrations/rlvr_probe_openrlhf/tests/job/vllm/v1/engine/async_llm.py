"""The engine: how many tokens a request gives, and which, follows from its prompt and its turn.

Requests wait for one of a few slots, in the order in which they come or in that of their prompts; a
prompt that begins as another one did finds whole blocks of it cached. Times are those that vLLM
tells of a request.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from openrlhf_cpu_books import write

_BLOCK = 16
_SECONDS_PER_TOKEN = 0.004
_APART_S = 0.5

_Request = tuple[list[int], int]
"""Ids of its prompt, and its number among those of that prompt."""


@dataclass
class RequestStateStats:
    """As vLLM has it in ``vllm.v1.metrics.stats``; times of ``time.monotonic``, s."""

    num_generation_tokens: int = 0
    arrival_time: float = 0.0
    queued_ts: float = 0.0
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0


@dataclass
class OutputProcessor:
    open: int = 0

    def get_num_unfinished_requests(self) -> int:
        return self.open


class _Slots:
    """A few at once, in the order in which they come."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(8)

    @asynccontextmanager
    async def take(self, request: _Request) -> AsyncIterator[None]:
        async with self._free:
            yield


class _InOrder:
    """One after the other, prompts in an order of their own and far apart.

    Ray starts the tasks that ask in no fixed order, and a trainer takes answers as they come: here
    they come in the same order in every job.
    """

    def __init__(self) -> None:
        self._waiting: list[_Request] = []
        self._taken: _Request | None = None
        self._last: list[int] = []
        self._since = 0.0

    @asynccontextmanager
    async def take(self, request: _Request) -> AsyncIterator[None]:
        self._waiting.append(request)
        self._since = time.monotonic()
        try:
            while not self._is_next(request):  # noqa: ASYNC110 - some of it is time that passes
                await asyncio.sleep(_SECONDS_PER_TOKEN)
            self._taken, self._last = request, request[0]
            yield
        finally:
            self._waiting.remove(request)
            if self._taken == request:
                self._taken, self._since = None, time.monotonic()

    def _is_next(self, request: _Request) -> bool:
        if self._taken is not None:
            return False
        same = [one for one in self._waiting if one[0] == self._last]
        if same:
            return request == min(same)
        return request == min(self._waiting) and time.monotonic() - self._since > _APART_S


@dataclass
class AsyncLLM:
    args: Any
    output_processor: OutputProcessor = field(default_factory=OutputProcessor)

    def __post_init__(self) -> None:
        from transformers import AutoTokenizer

        self._engine = int(self.args.seed) - int(os.environ["OPENRLHF_CPU_SEED"])
        self._tokenizer = AutoTokenizer.from_pretrained(self.args.model)
        self._slots = _InOrder() if os.environ.get("OPENRLHF_CPU_IN_ORDER") else _Slots()
        self._running = asyncio.Event()
        self._running.set()
        self._asked: Counter[tuple[int, ...]] = Counter()
        self._served: list[list[int]] = []
        self._version = 0
        self._workers = _workers()

    @classmethod
    def from_engine_args(cls, args: Any) -> AsyncLLM:
        return cls(args)

    async def is_sleeping(self) -> bool:
        return False

    async def collective_rpc(
        self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), **_: Any
    ) -> list[None]:
        # OpenRLHF empties the caches with the last parameter.
        if method.startswith("update_weight") and args[-1]:
            self._version += 1
            write("sync", engine=self._engine, version=self._version, end=time.monotonic_ns())
        return [None]

    async def reset_prefix_cache(self) -> None:
        self._served.clear()

    async def pause_generation(self, **_: Any) -> None:
        self._running.clear()

    async def resume_generation(self) -> None:
        self._running.set()

    async def sleep(self, level: int = 1) -> None:
        pass

    async def wake_up(self, tags: Any = None) -> None:
        pass

    async def generate(
        self, prompt: dict[str, Any], sampling_params: Any, request_id: str
    ) -> AsyncIterator[Any]:
        ids = list(prompt["prompt_token_ids"])
        start = time.monotonic_ns()
        stats = RequestStateStats(arrival_time=time.time(), queued_ts=time.monotonic())
        self.output_processor.open += 1
        number = self._asked[tuple(ids)]
        self._asked[tuple(ids)] += 1
        seed = hashlib.sha256(f"{self.args.seed - self._engine} {number} {ids}".encode()).digest()
        rng = random.Random(seed)
        most = sampling_params.max_tokens
        count = max(self._length(rng, most), sampling_params.min_tokens)
        tokens = [rng.randint(3, 258) for _ in range(count)]
        if sampling_params.logit_bias:  # what it favours comes as soon as it may
            count = sampling_params.min_tokens + 1
            tokens = [*tokens[: count - 1], *sampling_params.logit_bias]
        elif count < most:
            tokens[-1] = self._tokenizer.eos_token_id
        try:
            async with self._slots.take((ids, number)):
                stats.scheduled_ts = time.monotonic()
                version, cached = self._version, self._cached(ids)
                for at in range(count):
                    await self._running.wait()
                    await asyncio.sleep(_SECONDS_PER_TOKEN)
                    stats.last_token_ts = time.monotonic()
                    if not at:
                        stats.first_token_ts = stats.last_token_ts
        finally:
            self.output_processor.open -= 1
        stats.num_generation_tokens = count
        self._served.append(ids + tokens)
        reason = "stop" if tokens[-1] == self._tokenizer.eos_token_id else "length"
        write(
            "request",
            engine=self._engine,
            prompt=ids,
            output=tokens,
            cached=cached,
            reason=reason,
            versions=[version, self._version],
            queue_s=stats.scheduled_ts - stats.queued_ts,
            start=start,
            end=time.monotonic_ns(),
        )
        text = self._tokenizer.decode(tokens)
        output = SimpleNamespace(token_ids=tokens, text=text, logprobs=None, finish_reason=reason)
        yield SimpleNamespace(
            request_id=request_id,
            prompt_token_ids=ids,
            outputs=[output],
            num_cached_tokens=cached,
            metrics=stats,
            finished=True,
        )

    def _length(self, rng: random.Random, most: int) -> int:
        """How many tokens a request gives."""
        return min(max(1, int(rng.lognormvariate(2.5, 0.8))), most)

    def _cached(self, ids: list[int]) -> int:
        """Tokens of a prompt in whole blocks that were there before, the last one left out."""
        same = (_common(ids[:-1], served) for served in self._served)
        return max(same, default=0) // _BLOCK * _BLOCK


class RayWorkerWrapper:
    """Has a GPU of an engine that has several."""


def _workers() -> list[Any]:
    """What vLLM starts on the bundles that OpenRLHF names, where one GPU is not enough."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return [
        ray.remote(
            num_cpus=0,
            num_gpus=float(os.environ["VLLM_RAY_PER_WORKER_GPUS"]),
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=ray.util.get_current_placement_group(),
                placement_group_capture_child_tasks=True,
                placement_group_bundle_index=int(bundle),
            ),
        )(RayWorkerWrapper).remote()
        for bundle in os.environ.get("VLLM_RAY_BUNDLE_INDICES", "").split(",")
        if bundle
    ]


def _common(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
