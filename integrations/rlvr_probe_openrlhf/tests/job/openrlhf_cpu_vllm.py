"""Stands for what a CPU lacks under OpenRLHF with vLLM's own engine, and keeps its book.

Loaded by every Python process of a job, before anything else. OpenRLHF 0.11 takes new weights into
a tensor on a CUDA device: here an engine takes none, and generates with those of the beginning.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator
from typing import Any

import wrapt


@wrapt.when_imported("openrlhf.trainer.ray.vllm_worker_wrap")
def _weights(module: Any) -> None:
    module.WorkerWrap.update_weight = lambda *_, **__: None


@wrapt.when_imported("vllm.v1.engine.async_llm")
def _requests(module: Any) -> None:
    from openrlhf_cpu_books import write

    engine = module.AsyncLLM
    generate = engine.generate

    @functools.wraps(generate)
    async def kept(self: Any, prompt: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        start, output = time.monotonic_ns(), None
        async for output in generate(self, prompt, *args, **kwargs):
            yield output
        if output is not None:
            [answer] = output.outputs
            write(
                "request",
                prompt=list(output.prompt_token_ids),
                output=list(answer.token_ids),
                cached=output.num_cached_tokens,
                reason=answer.finish_reason,
                start=start,
                end=time.monotonic_ns(),
            )

    engine.generate = kept
