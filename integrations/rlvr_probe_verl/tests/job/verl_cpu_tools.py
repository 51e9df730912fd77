"""Tool of a multi-turn job, which keeps a book of its calls; for verl 0.8 and newer."""

from __future__ import annotations

import asyncio
import time

from planted_sleep import sleep_if_planted_async
from verl.tools.function_tool import function_tool
from verl_cpu_books import CANARY, write


@function_tool
async def calc(a: int, b: int, note: str) -> str:
    """Add two numbers.

    Args:
        a: First number.
        b: Second number.
        note: Ignored.
    """
    start = time.monotonic_ns()
    await asyncio.sleep(0.02 + 0.001 * (a % 100))
    await sleep_if_planted_async("tool", "calc")
    failed = a % 5 == 0
    write("tool", tool="calc", failed=failed, a=a, start=start, end=time.monotonic_ns())
    if failed:
        raise ValueError(CANARY["exception"])
    return f"{CANARY['tool_output']} {a + b}"
