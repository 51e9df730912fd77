"""Requests to the vLLM engine of a trainer, each with a length and an end of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.reading import attribute

__all__ = ["engine_of", "request_forced"]

_FORCED = 100.0
"""Added to the logit of a token that is to come, taken from one that is not."""


def engine_of(trainer: Any) -> Any:
    """The ``vllm.LLM`` in the process of a trainer; None where it generates in another way."""
    engine = attribute(trainer, "vllm_generation", "llm")  # TRL >= 0.28
    return attribute(trainer, "llm") if engine is None else engine


def request_forced(
    own: Callable[..., Any],
    tokenizer: Any,
    targets: Sequence[tuple[int, bool]],
    ids: Callable[[str], list[int]],
    prompts: Sequence[Any],
    sampling_params: Any,
    **options: Any,
) -> Any:
    """Call the engine's ``generate``, and let each sample end where the plan says.

    Args:
        own: It.
        tokenizer: Knows the token that ends a sample, and the one that pads.
        targets: Of each prompt, tokens of its sample, and whether the last of them is an end token.
        ids: Token ids of a prompt: TRL below 0.29.1 hands texts to the engine.
        prompts: One for each sample.
        sampling_params: Of all of them.
        **options: Passed on.

    Raises:
        SteeringError: A sample ended elsewhere.
    """
    if len(prompts) != len(targets):
        raise SteeringError(f"TRL asks for {len(prompts)} samples; expected {len(targets)}")
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    requests = list[Any]()
    for tokens, ends in targets:
        request = copy(sampling_params)
        # vLLM bans the end before the least number of tokens is there; then it is forced. TRL takes
        # a sample that ends with what pads for one that ended by itself.
        request.max_tokens, request.min_tokens = tokens, tokens - ends
        request.logit_bias = {pad: -_FORCED, **({end: _FORCED} if ends else {})}
        request.stop_token_ids = [end]
        requests.append(request)
    rows = [
        {"prompt_token_ids": ids(prompt)} if isinstance(prompt, str) else prompt
        for prompt in prompts
    ]
    made = own(rows, sampling_params=requests, **options)
    for row, (answer, target) in enumerate(zip(made, targets, strict=True)):
        [output] = answer.outputs
        found = len(output.token_ids), output.token_ids[-1] in (end, pad)
        if found != target:
            raise SteeringError(
                f"row {row} was generated with {found[0]} tokens, expected {target[0]}: something"
                " else in the settings of generation decides lengths, as stop strings do"
            )
    return made
