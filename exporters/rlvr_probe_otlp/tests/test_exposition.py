"""Pages for Prometheus say what was counted."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlvr_probe_otlp.planning.data_model import Point
from rlvr_probe_otlp.planning.run_metrics import Meter, Metric
from rlvr_probe_otlp.scraping.exposition import REGISTRY, Board, label_name, prometheus_name

SECONDS = "rl.loop.duration"
LINE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} (\S+)')


def page(meter: Meter, **labels: str) -> str:
    board = Board(labels)
    board.take(meter.points(10))
    return board.page().decode()


def buckets(text: str) -> dict[float, int]:
    return {float(le): int(count) for le, count in re.findall(r'le="([^"]+)"\} (\d+)', text)}


@given(
    st.lists(st.floats(1e-4, 1e5), min_size=1, max_size=60),
    st.lists(st.sampled_from([0.0, 0.25, 1.0, 2.0, 4.0, 1024.0]), max_size=20),
)
def test_a_bucket_counts_what_lies_below_its_bound(some: list[float], exact: list[float]) -> None:
    values = some + exact
    meter = Meter(0, "cumulative", "explicit")
    meter.observe(SECONDS, values)
    text = page(meter)
    found = buckets(text)
    assert len(found) == 48
    for bound, count in found.items():
        assert count == sum(value <= bound for value in values)
    assert found[math.inf] == len(values)
    assert f"rl_loop_duration_seconds_count{{}} {len(values)}" in text


@given(st.lists(st.integers(0, 1 << 22), min_size=1))
def test_nothing_is_lost_of_values_that_are_0_or_large(values: list[int]) -> None:
    meter = Meter(0, "cumulative", "explicit")
    meter.observe("rlvr.staleness", values)
    found = buckets(page(meter))
    assert found[1.0] == sum(value <= 1 for value in values)
    assert found[math.inf] == len(values)
    assert list(found.values()) == sorted(found.values())


def test_bounds_stay_the_same_whatever_is_counted() -> None:
    meter, board = Meter(0, "cumulative", "explicit"), Board({})
    bounds = set[frozenset[float]]()
    for values in ([0.5], [1e-9, 1e9], [3.0] * 1000):
        meter.observe(SECONDS, values)
        board.take(meter.points(1))
        bounds.add(frozenset(buckets(board.page().decode())))
    assert len(bounds) == 1


@given(st.text())
def test_no_text_breaks_a_page(text: str) -> None:
    board = Board({"rl.run.id": text})
    board.take([Point("rl.train.steps", "{step}", "sum", {"rlvr.mode": text}, 0, 1, 3.0)])
    *heads, line = board.page().decode().removesuffix("\n").split("\n")
    assert [head[:6] for head in heads] == ["# HELP", "# TYPE"]
    match = LINE.fullmatch(line)
    assert match is not None
    assert (match[1], match[3]) == ("rl_train_steps_total", "3")


def test_a_series_shows_its_last_point_and_a_name_is_introduced_once() -> None:
    meter, board = Meter(0, "cumulative", "explicit"), Board({"rl.run.id": "run"})
    for mode in ("train", "eval", "train"):
        meter.count("rl.sample.samples", 2, rlvr__mode=mode)
        board.take(meter.points(5))
    assert board.page().decode().splitlines() == [
        "# HELP rl_sample_samples_total trajectories that were generated",
        "# TYPE rl_sample_samples_total counter",
        'rl_sample_samples_total{rl_run_id="run",rlvr_mode="eval"} 2',
        'rl_sample_samples_total{rl_run_id="run",rlvr_mode="train"} 4',
    ]


def test_names_are_those_that_opentelemetry_gives_in_prometheus() -> None:
    expected = {
        "rl.loop.duration": "rl_loop_duration_seconds",
        "rl.train.steps": "rl_train_steps_total",
        "rl.environment.reward.mean": "rl_environment_reward_mean",
        "gen_ai.client.token.usage": "gen_ai_client_token_usage",
        "hw.energy": "hw_energy_joules_total",
        "hw.errors": "hw_errors_total",
        "hw.gpu.memory.usage": "hw_gpu_memory_usage_bytes",
        "rlvr.gpu.throttle.time": "rlvr_gpu_throttle_time_seconds_total",
        "rlvr.spans.open": "rlvr_spans_open",
    }
    assert {name: prometheus_name(REGISTRY[name]) for name in expected} == expected


def test_every_metric_has_a_name_and_labels_of_its_own_there() -> None:
    names = [prometheus_name(metric) for metric in REGISTRY.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)
    assert label_name("gen_ai.tool.name") == "gen_ai_tool_name"


def test_a_unit_without_a_name_is_refused() -> None:
    with pytest.raises(KeyError):
        prometheus_name(Metric("rlvr.new", "furlong", "sum", "new"))
