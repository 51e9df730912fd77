"""vLLM's own Scheduler and OutputProcessor in one process, one step at a time.

The model is what is missing here, and so is every GPU: what a model runner would return is made by
hand, one token for each request whose prompt is through. The clock moves only where this says so,
so that what vLLM measures and what the probe measures can be equal. Prints what vLLM says, as JSON.
"""

from __future__ import annotations

import json
import time
from typing import Any


class Clock:
    """CLOCK_MONOTONIC, moved by hand; set before anything has taken the real one."""

    now_ns = time.monotonic_ns()

    def __init__(self) -> None:
        time.monotonic_ns = lambda: self.now_ns
        time.monotonic = lambda: self.now_ns / 1e9

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


CLOCK = Clock()

from rlvr_probe_vllm.tests import scene  # noqa: E402 - the clock first

BLOCK = 4
TOKENS = 64


class Model:
    """What the scheduler asks of a model: nothing that is special."""

    max_model_len = TOKENS
    runner_type = "generate"

    def __getattr__(self, name: str) -> Any:
        return None


class Grammars:
    """No output has a structure here."""

    def accept_tokens(self, *_: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Engine:
    """A scheduler with room for few tokens, and who asks it."""

    def __init__(self, *, blocks: int, log_stats: bool) -> None:
        import torch
        from vllm.config import CacheConfig, DeviceConfig, SchedulerConfig, VllmConfig
        from vllm.v1 import kv_cache_interface as cache
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.scheduler import Scheduler

        try:
            from vllm.utils.hashing import sha256
        except ImportError:  # before 0.11.1
            from vllm.utils import sha256
        config = VllmConfig(
            scheduler_config=SchedulerConfig(
                max_num_seqs=4, max_num_batched_tokens=TOKENS, max_model_len=TOKENS,
                enable_chunked_prefill=True, is_encoder_decoder=False, async_scheduling=False,
            ),
            cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
            device_config=DeviceConfig(device="cpu"),
        )  # fmt: skip
        config.cache_config.num_gpu_blocks = blocks
        config.model_config = Model()
        spec = cache.FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        group = cache.KVCacheGroupSpec(["layer"], spec)
        held = cache.KVCacheConfig(blocks, kv_cache_tensors=[], kv_cache_groups=[group])
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(BLOCK, sha256)
        more = {"block_size": BLOCK} if "block_size" in scene.names_of(Scheduler) else {}
        self.scheduler = Scheduler(config, held, Grammars(), log_stats=log_stats, **more)
        self.client = scene.Scene(log_stats=log_stats)

    def ask(self, name: str, prompt: list[int], tokens: int) -> str:
        from vllm.v1.request import Request

        request = self.client.request(name, prompt, tokens)
        self.client.processor.add_request(request, None, None, 0, None)
        CLOCK.pass_s(0.0625)
        self.scheduler.add_request(Request.from_engine_core_request(request, self.hasher))
        return str(request.request_id)

    def abort(self, own: str) -> None:
        from vllm.v1.request import RequestStatus

        self.client.processor.abort_requests(*scene.aborted(self.client, [own]))
        self.scheduler.finish_requests(own, RequestStatus.FINISHED_ABORTED)

    def step(self) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        planned = self.scheduler.schedule()
        CLOCK.pass_s(0.25)
        asked = list(planned.num_scheduled_tokens)
        requests = [self.scheduler.requests[request] for request in asked]
        made = ModelRunnerOutput(
            req_ids=asked,
            req_id_to_index={name: at for at, name in enumerate(asked)},
            sampled_token_ids=[
                [7] if request.num_computed_tokens >= request.num_tokens else []
                for request in requests
            ],
        )
        for outputs in self.scheduler.update_from_output(planned, made).values():
            self.client.step(outputs.timestamp, *outputs.outputs)
        CLOCK.pass_s(0.125)

    def run(self) -> None:
        while self.scheduler.requests:
            self.step()


def served(*, log_stats: bool) -> Any:
    """Requests that wait, find their prompt in the cache, lose their place and are given up."""
    engine = Engine(blocks=14, log_stats=log_stats)
    engine.ask("first", list(range(20)), 13)
    engine.step()
    CLOCK.pass_s(1)
    engine.ask("same prompt", list(range(20)), 9)
    engine.ask("other", list(range(100, 118)), 14)
    given_up = engine.ask("given up", list(range(200, 212)), 20)
    engine.step()
    engine.step()
    engine.abort(given_up)
    engine.run()
    engine.ask("one token", list(range(20)), 1)
    engine.run()
    return {"finished": engine.client.finished_as_json()}


def main() -> None:
    said = {
        "stats": scene.recorded("stats", lambda: served(log_stats=True)),
        "none": scene.recorded("none", lambda: served(log_stats=False)),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
