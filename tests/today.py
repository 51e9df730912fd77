"""The seed of the day: a test that cannot try everything tries something else every day.

What a failed test printed names it; ``TEST_SEED=739578 make test`` draws the same again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pytest

__all__ = ["VARIABLE", "number", "seed", "some"]

VARIABLE = "TEST_SEED"


def seed() -> int:
    """The number in ``TEST_SEED``, or that of the day; one more every day. Printed."""
    found = number()
    print(f"drawn with {VARIABLE}={found}")
    return found


def some(
    cases: Sequence[Any], count: int, others: pytest.MarkDecorator = pytest.mark.conformance
) -> list[Any]:
    """Cases to parametrize a test with: ``count`` of them today, the ``others`` with that mark.

    A case that is a tuple has a value for each argument.
    """
    first = number() * count
    today = {(first + i) % len(cases) for i in range(count)}
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if i in today else others,
        )
        for i, case in enumerate(cases)
    ]


def number() -> int:
    """The seed, without a word."""
    return int(os.environ.get(VARIABLE) or datetime.now(timezone.utc).toordinal())
