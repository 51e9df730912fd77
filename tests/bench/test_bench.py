"""The bench measures: each family runs, and what it counts adds up. No time is judged here."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from tests.bench import bars, large, reread, run, slowdown

pytestmark = pytest.mark.conformance


def runs_the_bench(test: Callable[..., None]) -> Callable[..., None]:
    """For a test that measures something for the sake of the bench, which takes seconds each."""
    return pytest.mark.full(test)


def quick(name: str, tmp_path: Path, *more: str) -> dict[str, Any]:
    """Figures of a family that was only tried out."""
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"tests.bench.{name}", "--quick", f"--json={out}", *more]
    done = subprocess.run(command, cwd=run.ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(out.read_text())
    assert done.stdout.strip() == run.FAMILIES[name].tables(figures)
    return figures


@runs_the_bench
def test_every_way_to_record_an_event_is_timed(tmp_path: Path) -> None:
    figures = quick("event", tmp_path)
    kinds = [
        f"{kind}, {count}" for kind in ("append", "hook", "otel", "logfire") for count in (0, 5, 15)
    ]
    assert set(kinds) < set(figures["variants"])
    assert all(row["calls"] > 0 for row in figures["variants"].values())
    assert figures["rows_lost"] == 0


@runs_the_bench
def test_an_export_that_begins_anew_reads_each_byte_twice() -> None:
    found = reread.measure(5_000_000)
    assert found["steps"] == 18
    assert 1.9 < found["read"] < 2.2


@runs_the_bench
def test_what_is_called_is_written_or_counted_as_dropped(tmp_path: Path) -> None:
    figures = quick("rate", tmp_path)
    assert figures["uncounted"] == 0
    assert all(one["called"] > 0 for one in figures["tries"])


@runs_the_bench
def test_devices_are_read_and_told(tmp_path: Path) -> None:
    rows = quick("sampling", tmp_path)["rows"]
    assert [(row["gpus"], row["devices"]) for row in rows[::2]] == [(0, 1), (1, 2), (8, 9)]
    assert all(row["cpu_share"] > 0 and row["rows_per_s"] > 0 for row in rows)


def test_a_queue_that_is_full_drops_and_every_drop_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rlvr_probe.config import Config
    from tests.bench import rate, variants

    monkeypatch.setattr(variants, "Config", partial(Config, queue_rows=50))
    found = rate._sustain(1e9, 0.3)
    assert found["dropped"] > 0
    assert found["called"] == found["written"] + found["dropped"]
    assert found["uncounted"] == 0


@runs_the_bench
def test_a_run_that_is_sent_while_it_goes_on_arrives(tmp_path: Path) -> None:
    [row] = quick("live", tmp_path)["rates"]
    assert row["steps"] > 0
    assert row["memory_b"] > 0


@runs_the_bench
def test_a_row_of_a_batch_takes_bytes_for_each_trajectory(tmp_path: Path) -> None:
    sizes = quick("columns", tmp_path)["sizes"]
    assert [row["trajectories"] for row in sizes] == [8, 64, 512, 4_096]
    assert all(6 < row["bytes_per_trajectory"] < 30 for row in sizes)


@runs_the_bench
def test_a_start_is_timed_with_and_without_the_probe(tmp_path: Path) -> None:
    assert quick("startup", tmp_path)["rounds"] == 5


@runs_the_bench
def test_all_that_was_written_is_converted(tmp_path: Path) -> None:
    cases = quick("conversion", tmp_path)["cases"]
    assert [case["trajectories"] for case in cases] == [2_000, 20_000]
    # Far below the bar already, or the largest of them is not within it.
    assert all(case["memory_b"] < 100_000_000 for case in cases)


@runs_the_bench
def test_every_recorded_trajectory_is_characterized(tmp_path: Path) -> None:
    figures = quick("analysis", tmp_path)
    assert [case["trajectories"] for case in figures["cases"]] == [2_000, 20_000]
    assert figures["processes"]["rows"] > 0
    assert [case["rows"] > 30_000 for case in figures["readings"]] == [True]


@runs_the_bench
def test_a_recording_is_characterized_before_and_after_it_was_compacted(tmp_path: Path) -> None:
    for case in quick("compaction", tmp_path)["cases"]:
        assert case["compacted_b"] < case["plain_b"]
        assert case["compacting_cpu_s"] > 0


@runs_the_bench
@pytest.mark.full
def test_a_recording_is_characterized_here_and_on_ray(tmp_path: Path) -> None:
    cases = quick("ray_engine", tmp_path)["cases"]
    assert [*cases] == ["here", "1 worker", "2 workers", "2 nodes of 1 worker"]
    assert all(case["cpu_s"] > 0 for case in cases.values())


@runs_the_bench
def test_every_step_and_trajectory_of_many_real_processes_is_read_again(tmp_path: Path) -> None:
    figures = quick("ranks", tmp_path)  # which fails if one is missing
    assert [case["ranks"] for case in figures["cases"]] == [16, 32]
    for case in figures["cases"]:
        assert case["trajectories"] == case["ranks"] * figures["steps"] * 8
        # A journal and a table of each rank and sidecar, and .gitignore.
        assert case["files"] >= 2 * (case["ranks"] + case["nodes"]) + 1
        assert case["rank_memory_b"] > case["bare_memory_b"] > 0
        assert case["sidecar_memory_b"] > 0


@runs_the_bench
def test_a_real_training_is_recorded_in_some_blocks_and_not_in_others(tmp_path: Path) -> None:
    for one in quick("slowdown", tmp_path)["trainings"].values():
        assert one["steps"] == one["pairs"] * 2 * one["block_steps"]
        assert one["rows_lost"] == one["reduced"] == 0
        assert one["rows_per_step"] > 10
        assert slowdown.verdict(one) == "not known"


@runs_the_bench
def test_a_sidecar_stands_still_while_nothing_is_recorded_and_sends_the_rest(
    tmp_path: Path,
) -> None:
    figures = quick("beside", tmp_path)
    one = figures["trainings"]["small"]
    assert one["rows_lost"] == one["reduced"] == 0
    assert one["beside"]["missing"] == 0
    assert one["beside"]["core"] > 0
    assert one["beside"]["left"]
    assert figures["spans"] > 0
    assert figures["points"] > 0


# ---------------------------------------------------------------- figures


def blocks(added_ms: float, pairs: int = 100, noise_ms: float = 2.0) -> dict[str, Any]:
    """What a training of 300 ms a step leaves behind, its clock drifting."""
    draw = random.Random(1)
    found = []
    for pair in range(pairs):
        for on in draw.sample([True, False], 2):
            times = [
                1e6 * (300 + 0.2 * pair + on * added_ms + draw.gauss(0, noise_ms)) for _ in range(5)
            ]
            found.append({"on": on, "wall_ns": times, "thread_ns": times, "process_ns": times})
    return {
        "blocks": found,
        "block_steps": 5,
        "reduced": 0,
        "own_ns": 0,
        "lost": 0,
        "rows": 0,
        "journal_b": 0,
        "versions": {},
        "beside": None,
    }


@cache
def summary(added_ms: float, pairs: int = 100, noise_ms: float = 2.0) -> dict[str, Any]:
    return slowdown.summary(blocks(added_ms, pairs, noise_ms))


@pytest.mark.parametrize("added_ms", [0.0, 1.0, 6.0])
def test_an_added_time_is_found_within_its_interval(added_ms: float) -> None:
    clock = summary(added_ms)["wall"]
    added, least, most = clock["added_ms"]
    assert least <= added_ms <= most
    assert math.isclose(added, added_ms, abs_tol=0.4)
    assert math.isclose(clock["ratio"][0], 1 + added_ms / 310, abs_tol=0.002)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ((1.0,), "met"),
        ((6.0,), "missed"),
        ((1.0, 90), "not known"),
        ((1.0, 100, 80.0), "not known"),
    ],
)
def test_a_bar_is_met_by_an_interval_that_is_narrow_and_low(
    found: tuple[Any, ...], verdict: str
) -> None:
    assert slowdown.verdict(summary(*found)) == verdict


def test_each_bar_can_be_missed() -> None:
    whole = json.loads(run.FIGURES.read_text(encoding="utf-8"))
    worse = json.loads(json.dumps(whole))
    worse["event"]["variants"]["hook, 5"]["p50_us"] = 3.1
    worse["rate"] |= {"held_per_s": 199_000, "uncounted": 1}
    worse["conversion"]["cases"][-1]["memory_b"] = 400e6
    worse["conversion"]["cases"][-2]["write_s"] *= 2
    case = {"tables_s": 50.0, "figures_s": 11.0, "memory_b": 1 << 30}
    worse["analysis"] = {
        "cases": [case],
        "processes": case | {"tables_s": 1.0, "memory_b": 3 << 30},
    }
    late = {"s": 50.0, "cpu_s": 96.0, "memory_b": 1 << 30}
    worse["compaction"] = {"cases": [{"compacted": late}]}
    worse["ray_engine"] = {
        "cases": {
            "here": {"s": 80.0, "cpu_s": 140.0},
            "1 worker": {"s": 150.0, "cpu_s": 180.0},
            "2 workers": {"s": 110.0, "cpu_s": 180.0},
        }
    }
    small = {"ranks": 1, "folder_b": 100, "characterize": {"s": 61.0, "memory_b": 1 << 30}}
    worse["ranks"] = {"steps": 1, "cases": [small]}
    for family in ("slowdown", "beside"):
        worse[family] = {"trainings": {"small": summary(6.0)}}
    assert [verdict for *_, verdict in bars.judge(worse)] == ["missed"] * 12


# ---------------------------------------------------------------- documentation


@pytest.mark.parametrize("path", run.PAGES, ids=lambda path: path.stem)
def test_the_documented_figures_are_those_of_one_whole_run(path: Path) -> None:
    figures = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    page = path.read_text(encoding="utf-8")
    # Out of date: make bench ARGS="--read --json docs/explanation/overhead.json --write-docs"
    assert page == run.fill(page, figures)
    assert not figures["quick"]
    assert [name for name in run.PAGES[path] if f"<!-- bench: {name} -->" not in page] == []


@runs_the_bench
def test_replays_take_turns_with_the_original_and_a_naive_one(tmp_path: Path) -> None:
    runs = quick("replay", tmp_path)["runs"]
    assert sorted(run["kind"] for run in runs) == ["ceiling", "naive", "replay"]
    exact = {run["kind"]: run["exact"] for run in runs}
    assert exact["replay"] == exact["ceiling"] == 1.0
    assert exact["naive"] < 0.5


# ---------------------------------------------------------------- what takes an hour, by hand


def test_large_recordings_are_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(large, "_SIZES", (800, 8_000))
    monkeypatch.setattr(large, "LEAST_FREE_B", 0)
    first = large.measure(tmp_path)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    again = large.measure(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert [case["trajectories"] for case in (*first, *again)] == [800, 8_000] * 2
    assert [line.split()[1] for line in large.tables(first).splitlines()[2:]] == ["800", "8,000"]


def test_without_room_for_them_it_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(large, "LEAST_FREE_B", 1 << 60)
    with pytest.raises(SystemExit, match=r"^skipped: .* GB of room, expected"):
        large.measure(tmp_path)
