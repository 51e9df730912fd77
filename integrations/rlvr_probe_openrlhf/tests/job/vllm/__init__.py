"""Stands for vLLM, which needs an accelerator: the few names of it that OpenRLHF uses.

The engine (``vllm.v1.engine.async_llm``) generates as many tokens as it draws, takes time for each,
and keeps a book of its requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM as AsyncLLMEngine

__all__ = ["AsyncEngineArgs", "AsyncLLMEngine", "SamplingParams"]

__version__ = "0.29.0"


@dataclass
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int | None = 16
    min_tokens: int = 1
    skip_special_tokens: bool = False
    logprobs: int | None = None
    include_stop_str_in_output: bool = False
    truncate_prompt_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    logit_bias: dict[int, float] | None = None


class AsyncEngineArgs:
    def __init__(self, *_: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)
