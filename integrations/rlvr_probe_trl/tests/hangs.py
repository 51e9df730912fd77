"""A real training that hangs for good where it is told to: ``train.py`` otherwise.

HANGS=reward@12 python hangs.py ...     the first reward function, from its twelfth call on
HANGS=generation@12 python hangs.py ... the engine, the same

With ``HANGS_RANK`` only in that rank. What a rank is about to hang in it says to its standard
output: ``hangs PID CLOCK_MONOTONIC``, ns.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from rlvr_probe_trl.tests import train


def never_comes_back() -> None:
    """Stands for a sandbox, a socket or a collective that nobody answers."""
    print(f"hangs {os.getpid()} {time.monotonic_ns()}", flush=True)
    time.sleep(1_000)


def hanging(function: Callable[..., Any], call: int) -> Callable[..., Any]:
    """The function, whose call of that number never returns."""
    numbers = count(1)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if next(numbers) == call:
            never_comes_back()
        return function(*args, **kwargs)

    return called


def main() -> None:
    place, _, call = os.environ["HANGS"].partition("@")
    build = train.build

    def build_hanging(*args: Any) -> Any:
        trainer = build(*args)
        if os.environ.get("HANGS_RANK", "0") == os.environ.get("RANK", "0"):
            if place == "reward":
                trainer.reward_funcs[0] = hanging(trainer.reward_funcs[0], int(call))
            else:
                trainer.model.generate = hanging(trainer.model.generate, int(call))
        return trainer

    train.build = build_hanging  # type: ignore[assignment]
    train.main()


if __name__ == "__main__":
    main()
