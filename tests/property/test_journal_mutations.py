"""A damaged recording: a clear error or a counted loss, never a traceback or another number.

What is still read of it is exactly what was recorded, and whatever differs is said.
"""

from __future__ import annotations

import multiprocessing
from functools import partial

import pytest

from tests import today
from tests.property.damage import failures

HERE = ((False, 100), (True, 50))
"""Whether the recording has a second attempt, which takes twice as long, and how many mutations."""
CONFORMANCE = ((False, 1_000), (True, 500))
"""Other ones every day."""
FULL = ((False, 80_000), (True, 20_000))
BATCH = 500


@pytest.mark.parametrize(("resumed", "count"), HERE)
def test_damage_gives_an_error_or_a_counted_loss_and_never_another_number(
    resumed: bool, count: int
) -> None:
    begin = today.seed() * count % dict(FULL)[resumed]
    assert failures(range(begin, begin + count), resumed=resumed) == []


@pytest.mark.conformance
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("resumed", "count"),
    [*CONFORMANCE, *(pytest.param(*item, marks=pytest.mark.full) for item in FULL)],
)
def test_so_it_is_however_often_one_tries(resumed: bool, count: int) -> None:
    first = 0 if count == dict(FULL)[resumed] else today.seed() * count % dict(FULL)[resumed]
    batches = [range(begin, begin + BATCH) for begin in range(first, first + count, BATCH)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.imap_unordered(partial(failures, resumed=resumed), batches)
        assert [line for lines in found for line in lines] == []
