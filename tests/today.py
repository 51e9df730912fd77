"""The seed of the day: a test that cannot try everything tries something else every day.

What a failed test printed names it; ``TEST_SEED=739578 make test`` draws the same again.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone

__all__ = ["seed"]


def seed() -> int:
    """The number in ``TEST_SEED``, or that of the day; one more every day. Printed."""
    given = os.environ.get("TEST_SEED")
    number = int(given) if given else datetime.now(timezone.utc).toordinal()
    print(f"drawn with TEST_SEED={number}")
    return number
