"""Notes which test runs which line of the product, in child processes, too.

A pytest plugin, copied into a folder of its own: the checkout that it looks at may be an older one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import coverage
import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """What runs from here on, and what is started, runs for this test."""
    os.environ["COVERAGE_CONTEXT"] = item.nodeid
    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(item.nodeid)
        running.config.context = item.nodeid  # a child that is forked starts from this
    yield
    if running is not None:
        running.switch_context("")
