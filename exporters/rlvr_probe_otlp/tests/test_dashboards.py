"""Dashboards can be drawn, and ask for metrics and attributes that are exported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp import dashboards
from rlvr_probe_otlp.planning import device_metrics, names
from rlvr_probe_otlp.scraping.exposition import REGISTRY, label_name, prometheus_name

FOLDER = Path(dashboards.__path__[0]) / "grafana" / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return found


def expressions(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_every_dashboard_has_a_uid_of_its_own() -> None:
    uids = [json.loads(path.read_text(encoding="utf-8"))["uid"] for path in FILES]
    assert len(uids) == len(set(uids)) == 5


def test_panels_have_ids_of_their_own_and_do_not_overlap(board: dict[str, Any]) -> None:
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered = [cells(panel["gridPos"]) for panel in panels]
    for cells_of, others in combinations(covered, 2):
        assert not cells_of & others
    assert max(x for cell in covered for x, _ in cell) < 24


def cells(place: dict[str, int]) -> set[tuple[int, int]]:
    across = range(place["x"], place["x"] + place["w"])
    down = range(place["y"], place["y"] + place["h"])
    return {(x, y) for x in across for y in down}


def test_every_metric_of_a_query_is_one_that_goes_out(board: dict[str, Any]) -> None:
    known = set[str]()
    for metric in REGISTRY.values():
        name = prometheus_name(metric)
        parts = ("", "_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        known |= {f"{name}{part}" for part in parts}
    asked = set[str]()
    for text in expressions(board):
        asked |= set(re.findall(r"(\w+)\{", text)) - {"__name__"}
        for several in re.findall(r'__name__=~"([^"]*)"', text):
            asked |= set(several.split("|"))
    assert asked
    assert asked <= known


def test_every_label_of_a_query_is_an_attribute_that_goes_out(board: dict[str, Any]) -> None:
    every = (
        *names.STANDARD,
        *names.OWN,
        *names.ATTRIBUTES.values(),
        *device_metrics.DEVICE_ATTRIBUTES,
    )
    known = {label_name(name) for name in every} | {"le", "__name__"}
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"]
            asked = {name for by in re.findall(r"by \(([^)]*)\)", text) for name in by.split(", ")}
            asked |= set(re.findall(r'(\w+)[!=]=?~?"', text))
            assert asked <= known, text
            for made, source in re.findall(r'"(\w+)", "\$1", "(\w+)"', text):
                assert source in asked, text
                asked.add(made)
            # What a legend names is what the lines are told apart by.
            told = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert told <= asked, text


def test_what_is_drawn_of_a_histogram_over_time_leads_to_traces(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            drawn = panel["type"] == "timeseries" and "histogram_" in target["expr"]
            assert target.get("exemplar", False) is drawn, target["expr"]


def test_every_variable_of_a_query_is_one_of_the_dashboard(board: dict[str, Any]) -> None:
    given = {variable["name"] for variable in board["templating"]["list"]}
    used = {name for text in expressions(board) for name in re.findall(r"\$\{?(\w+)", text)}
    # Of Grafana's own, and a group of a regular expression.
    assert used <= given | {"__rate_interval", "1"}
    assert "run" in used


def test_every_kind_of_metric_is_on_some_dashboard() -> None:
    shown = " ".join(path.read_text(encoding="utf-8") for path in FILES)
    missing = {name for name, metric in REGISTRY.items() if prometheus_name(metric) not in shown}
    assert missing == NOT_SHOWN


NOT_SHOWN = {
    "rlvr.gpu.engine.active",
    "rlvr.gpu.memory.active",
    "rlvr.gpu.sm.occupancy",
}
"""What says less than another metric that is shown."""


def test_only_what_grows_is_asked_for_a_rate(board: dict[str, Any]) -> None:
    grow = {prometheus_name(metric) for metric in REGISTRY.values() if metric.kind == "sum"}
    histograms = {
        prometheus_name(metric) for metric in REGISTRY.values() if metric.kind == "histogram"
    }
    grow |= {f"{name}{part}" for name in histograms for part in ("", "_bucket", "_sum", "_count")}
    for text in expressions(board):
        assert set(re.findall(r"(?:rate|increase)\((\w+)\{", text)) <= grow, text
        gauges = set(re.findall(r"(?:avg|max)_over_time\((\w+)\{", text))
        assert not gauges & grow, text
