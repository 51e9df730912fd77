"""Records what vLLM does for each request, under whatever framework asks it."""

from rlvr_probe_vllm.adapter import VllmAdapter

__all__ = ["VllmAdapter"]
