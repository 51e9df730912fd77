"""Answers the same 64 prompts twice with an offline vLLM engine that caches prefixes."""

from __future__ import annotations

import sys

from vllm import LLM, SamplingParams


def main(model: str) -> None:
    prompts = [f"What is {number} plus {number}? Think step by step." for number in range(64)]
    engine = LLM(model=model, enable_prefix_caching=True, max_model_len=1024)
    for _ in range(2):
        engine.generate(prompts, SamplingParams(max_tokens=128, temperature=1.0))


if __name__ == "__main__":
    main(*sys.argv[1:])
