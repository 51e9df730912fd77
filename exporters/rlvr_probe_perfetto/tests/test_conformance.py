"""A reader that is not ours: Perfetto's own, asked for everything that was drawn."""

from __future__ import annotations

import random
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest
from rlvr_probe_perfetto.drawing import draw
from rlvr_probe_perfetto.slices import Slice
from rlvr_probe_perfetto.tests.processor import processor
from rlvr_probe_perfetto.tests.reading import Timeline
from rlvr_probe_perfetto.tests.recordings import MADE, read
from rlvr_probe_perfetto.trace_events import NAMED
from rlvr_probe_perfetto.trace_events import Timeline as Writer

pytestmark = pytest.mark.conformance

SLICES = """
    select process.name, thread.name, slice.name, slice.category, slice.ts, slice.dur,
        parent.name, parent.ts
    from slice join thread_track on slice.track_id = thread_track.id
    join thread using (utid) join process using (upid)
    left join slice parent on slice.parent_id = parent.id
"""
ARROWS = """
    select one.name, one.ts, other.name, other.ts
    from flow join slice one on slice_out = one.id join slice other on slice_in = other.id
"""
COUNTERS = """
    select process.name, process_counter_track.name, counter.ts, counter.value
    from counter join process_counter_track on counter.track_id = process_counter_track.id
    join process using (upid)
"""
TROUBLE = "select name, value from stats where value > 0 and severity != 'info'"


@pytest.mark.parametrize("made", ["actors", "died", "devices", "two machines", "resumed"])
def test_perfetto_finds_every_slice_arrow_and_value_where_it_was_drawn(
    made: str, tmp_path: Path
) -> None:
    MADE[made](tmp_path / "run")
    stream = BytesIO()
    draw(read(tmp_path / "run", tmp_path), stream)
    timeline = Timeline(stream.getvalue())
    with processor() as perfetto:
        perfetto.load(stream.getvalue())
        assert perfetto.query(TROUBLE) == []
        expected = Counter(
            (
                bar.track + NAMED, bar.line + NAMED, bar.name, bar.kind, bar.start_ns,
                bar.end_ns - bar.start_ns,
                bar.parent and bar.parent.name, bar.parent and bar.parent.start_ns,
            )
            for bar in timeline.bars
        )  # fmt: skip
        expected.update(
            (
                timeline.tracks[event["pid"]] + NAMED, timeline.lines[event["tid"]][1] + NAMED,
                event["name"],
                event["cat"], round(event["ts"] * 1000), 0, None, None,
            )
            for event in timeline.events
            if event["ph"] == "i"
        )  # fmt: skip
        assert Counter(perfetto.query(SLICES)) == expected
        assert expected.total() > 30
        assert Counter(perfetto.query(ARROWS)) == Counter(
            (one.name, one.start_ns, other.name, other.start_ns) for one, other in timeline.arrows()
        )
        values = {
            (track + NAMED, name, time_ns): value
            for track, name, time_ns, value in timeline.values()
        }
        rows = perfetto.query(COUNTERS)
        assert len(rows) == len(values)
        # It reads decimals to within the last bit.
        assert {tuple(row[:3]): row[3] for row in rows} == pytest.approx(values, rel=1e-14)
        assert bool(values) == (made == "devices")


def test_perfetto_reads_times_of_a_month_to_the_nanosecond() -> None:
    draw_from = random.Random(5)
    stream = BytesIO()
    timeline = Writer(stream)
    track = timeline.track("run")
    expected = Counter[tuple[str, int, int, int]]()

    def add(name: str, parent: str | None, start_ns: int, end_ns: int) -> None:
        track.slice(Slice(0, name, parent, name, "x", start_ns, end_ns), "line")
        expected[name, start_ns, end_ns - start_ns, int(parent is not None)] += 1

    for number in range(1_000):
        start_ns = 30 * 86_400 * 10**9 + number * 10**6 + draw_from.randrange(1000)
        end_ns = start_ns + draw_from.randrange(1_000, 900_000)
        middle_ns = draw_from.randrange(start_ns, end_ns)
        add(f"outer {number}", None, start_ns, end_ns)
        add(f"first {number}", f"outer {number}", start_ns, middle_ns)
        add(f"second {number}", f"outer {number}", middle_ns, end_ns)
    timeline.finish()
    with processor() as perfetto:
        perfetto.load(stream.getvalue())
        assert perfetto.query(TROUBLE) == []
        found = perfetto.query("select name, ts, dur, depth from slice")
        assert Counter(found) == expected
