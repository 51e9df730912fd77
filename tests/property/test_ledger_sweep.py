"""Whatever is painted on GPUs, each of their ticks gets one name, that of the highest layer."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest

from rlvr_probe.analysis.ledger.categories import LAYERS
from rlvr_probe.analysis.ledger.timeline import begin_paint, sweep
from rlvr_probe.analysis.statements import insert
from rlvr_probe.recording.tables import Tables
from tests import today

BEGIN, END = 100, 260


def tables() -> Tables:
    """Three GPUs: the second one's process is dead at 200, the third has no process."""
    found = Tables(duckdb.connect(":memory:"), "by-hand", ())
    insert(found, "gpu", "gpu INTEGER", [(0,), (1,), (2,)])
    insert(
        found, "gpu_teller", "gpu INTEGER, process INTEGER, until_ns BIGINT",
        [(0, 0, None), (1, 1, 200)],
    )  # fmt: skip
    insert(found, "engine_gpu", "attempt INTEGER, engine BIGINT, gpu INTEGER", [])
    insert(
        found, "ledger_window",
        "process INTEGER, step_id INTEGER, attempt INTEGER, number BIGINT, start_ns BIGINT",
        [(process, step, 0, step + 1, 100 + 40 * step + process)
         for process in (0, 1) for step in range(4)],
    )  # fmt: skip
    begin_paint(found)
    return found


@pytest.mark.parametrize("seed", today.some(range(20), 8))
def test_every_tick_has_the_name_of_its_highest_layer(seed: int) -> None:
    draw = random.Random(seed)
    found = tables()
    painted = []
    for _ in range(draw.randrange(60)):
        begin = draw.randrange(80, 280)
        end = begin + draw.randrange(-3, 50)
        painted.append((draw.randrange(3), draw.randrange(len(LAYERS)), begin, end))
    if painted:
        found.sql.executemany("INSERT INTO paint VALUES (?, ?, ?, ?)", painted)
    sweep(found, BEGIN, END)
    segments = found.sql.execute(
        "SELECT gpu, step_id, start_ns, end_ns, category FROM segment ORDER BY gpu, start_ns"
    ).fetchall()
    for gpu in range(3):
        mine = [segment for segment in segments if segment[0] == gpu]
        assert [BEGIN, *(end for *_, end, _ in mine)] == [*(item[2] for item in mine), END]
    expected: Counter[tuple[int, int, str]] = Counter()
    categories = list(LAYERS.values())
    for gpu in range(3):
        for tick in range(BEGIN, END):
            layers = [
                layer for who, layer, begin, end in painted
                if who == gpu and begin <= tick < end and not (gpu == 1 and tick >= 200)
            ]  # fmt: skip
            name = categories[max(layers)] if layers else "unaccounted"
            # The third GPU goes on to a step with the first process that does.
            step = max(0, min(3, (tick - 100 - (gpu == 1)) // 40))
            expected[gpu, step, name] += 1
    told: Counter[tuple[int, int, str]] = Counter()
    for gpu, step, begin, end, category in segments:
        told[gpu, step, category] += end - begin
    assert told == expected
