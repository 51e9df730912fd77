"""``ray.init`` with what a test gives it beside its framework, and on a machine that is busy.

Stands alone, for jobs in environments of their own: its folder is in their ``PYTHONPATH``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import ray
from ray._private import services

__all__ = ["start_with"]

PATIENCE_S = 300.0
"""A node may take so long to start."""


def start_with(**given: Any) -> None:
    """Have ``ray.init`` take these arguments where it is given no others, and wait for its node.

    Ray waits 30 s, a number in its source, for a node whose own two Python processes have to come
    up first: with three busy processes more than usual on two cores, that is too short.
    """
    services.get_node = patient(services.get_node)
    start = ray.init

    @functools.wraps(start)
    def init(*args: Any, **kwargs: Any) -> Any:
        missing = {name: value for name, value in given.items() if kwargs.get(name) is None}
        return start(*args, **(kwargs | missing))

    ray.init = init


def patient(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """``get_node``, which raises RuntimeError while a node is not there, with time for that."""

    @functools.wraps(get_node)
    def wait(*args: Any, **kwargs: Any) -> Any:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return get_node(*args, **kwargs)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.2)

    return wait
