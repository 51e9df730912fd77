"""Executors of OpenRLHF without its trainer, asking a reward service that misbehaves.

python openrlhf_cpu_scene.py

Prints, as JSON, what the executors returned and what the service was asked.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import rlvr_probe

rlvr_probe.attach()

import aiohttp  # noqa: E402
from aiohttp import web  # noqa: E402
from openrlhf.utils import agent  # noqa: E402

_TIMEOUT_S = 1.0
_Timeout = aiohttp.ClientTimeout


def timeout(total: float) -> Any:
    """OpenRLHF waits three minutes."""
    return _Timeout(total=_TIMEOUT_S)


aiohttp.ClientTimeout = timeout  # type: ignore[assignment, misc]


class Service:
    """Does to each prompt what it says: ``good``, ``slow``, ``500``, ``hang``, ``half``, ``dead``.

    Of ``half`` the head of the answer comes in time, and the rest does not.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        [prompt] = (await request.json())["prompts"]
        self.asked[prompt] += 1
        first = self.asked[prompt] == 1
        if prompt == "dead" or (prompt == "500" and first):
            return web.Response(status=500)
        if prompt == "hang" and first:
            await asyncio.sleep(60)
        if prompt == "half" and first:
            begun = web.StreamResponse(headers={"Content-Type": "application/json"})
            await begun.prepare(request)
            await asyncio.sleep(60)
        if prompt == "slow":
            await asyncio.sleep(0.3)
        return web.json_response({"rewards": [0.5]})


class Engine:
    """Generates three tokens."""

    async def generate(self, prompt_token_ids: list[int], params: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        output = SimpleNamespace(token_ids=[7, 8, 9], text="", logprobs=None, finish_reason="stop")
        return SimpleNamespace(outputs=[output], num_cached_tokens=0, metrics=None)


class Row(list[int]):
    def tolist(self) -> list[int]:
        return list(self)


class Tokenizer:
    def __call__(self, *args: str, text: str = "", **_: Any) -> dict[str, Any]:
        return {"input_ids": [Row(range(5))]}

    def decode(self, tokens: list[int], **_: Any) -> str:
        return ""


async def main() -> None:
    service = Service()
    application = web.Application()
    application.router.add_post("/", service.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    _, port = runner.addresses[0]
    executor = agent.SingleTurnAgentExecutor(f"http://127.0.0.1:{port}/")
    params = SimpleNamespace(max_tokens=16, logprobs=None)
    prompts = ["good", "slow", "500", "hang", "half", "dead"]
    result = await asyncio.gather(
        *(executor.execute(prompt, "", params, 64, Tokenizer(), Engine()) for prompt in prompts)
    )
    await runner.cleanup()
    rewards = dict(zip(prompts, (row["reward"] for row in result), strict=True))
    print(json.dumps({"rewards": rewards, "asked": service.asked}))


if __name__ == "__main__":
    asyncio.run(main())
