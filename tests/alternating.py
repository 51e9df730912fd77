"""Some tests have their day: every second one is run by ``make test``, the others tomorrow.

Until then ``make conformance`` runs them, so that continuous integration runs all of them each
time. A pytest plugin: ``-p tests.alternating``, without which all are run.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final
from zlib import crc32

import pytest

from tests import today

__all__ = ["ALTERNATING", "is_of"]

ALTERNATING: Final = (
    "exporters/rlvr_probe_otlp",
    "integrations/rlvr_probe_openrlhf/tests/test_trainings.py",
    "tests/e2e",
    "tests/unit/test_causes.py",
    "tests/unit/test_causes_groups.py",
    "tests/unit/test_causes_stages.py",
    "tests/unit/test_causes_unfinished.py",
    "tests/unit/test_characterize.py",
    "tests/unit/test_compacted.py",
    "tests/unit/test_compare.py",
    "tests/unit/test_corpus.py",
    "tests/unit/test_denied.py",
    "tests/unit/test_device_reader.py",
    "tests/unit/test_doctor.py",
    "tests/unit/test_fidelity.py",
    "tests/unit/test_lake.py",
    "tests/unit/test_ledger_by_hand.py",
    "tests/unit/test_open_run.py",
    "tests/unit/test_ranges.py",
    "tests/unit/test_uploads.py",
)
"""Whose tests do: each is of one thing, and takes half a second or more."""


def is_of(day: int, nodeid: str) -> bool:
    """Whether a test is run on a day; all parameters of a function are on the same."""
    file, _, function = nodeid.partition("::")
    if not any(PurePosixPath(file).is_relative_to(one) for one in ALTERNATING):
        return True
    return (crc32(function.partition("[")[0].encode()) + day) % 2 == 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave those of another day to ``make conformance``, before marks are looked at."""
    for item in items:
        if not is_of(today.number(), item.nodeid):
            item.add_marker(pytest.mark.conformance)
