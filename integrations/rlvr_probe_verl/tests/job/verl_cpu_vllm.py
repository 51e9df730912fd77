"""Stands for what a CPU lacks under verl's servers of vLLM, and keeps the book of their requests.

Loaded by every Python process of a job, before anything else. A CPU packs weights once and throws
them away, so that a trainer can load no new ones: here it multiplies with those that it has.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import wrapt


@wrapt.when_imported("vllm._custom_ops")
def _weights(module: Any) -> None:
    module._supports_onednn = False


@wrapt.when_imported("verl.workers.rollout.vllm_rollout.vllm_async_server")
def _requests(module: Any) -> None:
    from verl_cpu_books import write

    server = module.vLLMHttpServer
    generate = server.generate

    @functools.wraps(generate)
    async def kept(self: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        prompt, start = list(map(int, prompt_ids)), time.monotonic_ns()
        result = await generate(self, prompt_ids, *args, **kwargs)
        write(
            "request",
            engine=self.replica_rank,
            prompt=prompt,
            output=list(result.token_ids),
            ended=result.stop_reason,
            start=start,
            end=time.monotonic_ns(),
        )
        return result

    server.generate = kept
