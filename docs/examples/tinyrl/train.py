"""Trains with tinyrl, and knows nothing of rlvr-probe."""

from __future__ import annotations

import random
import time

import tinyrl


def brief(prompts: list[list[int]], responses: list[list[int]]) -> list[float]:
    """Ten tokens are best."""
    return [-abs(len(response) - 10) / 10 for response in responses]


def even(prompts: list[list[int]], responses: list[list[int]]) -> list[float]:
    """One point if the tokens of prompt and response add up to an even number."""
    time.sleep(0.02)  # stands for a verifier that does real work
    pairs = zip(prompts, responses, strict=True)
    return [float((sum(prompt) + sum(response)) % 2 == 0) for prompt, response in pairs]


if __name__ == "__main__":
    draw = random.Random(1)
    prompts = [[draw.randrange(1, 100) for _ in range(draw.randrange(3, 9))] for _ in range(32)]
    policy = tinyrl.Trainer(tinyrl.Policy(), prompts, [brief, even], steps=6).fit()
    print(f"stops with probability {policy.stop:.4f}")  # noqa: T201 - it is a script
