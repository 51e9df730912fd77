"""Dashboards as Grafana takes them, made from the tables beside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlvr_probe_otlp.scraping.exposition import REGISTRY, prometheus_name
from rlvr_probe_otlp.views.gpus import GPUS
from rlvr_probe_otlp.views.health import HEALTH
from rlvr_probe_otlp.views.rewards import REWARDS
from rlvr_probe_otlp.views.steps import STEPS
from rlvr_probe_otlp.views.table import Board, Panel
from rlvr_probe_otlp.views.tail import TAIL

__all__ = ["DASHBOARDS", "FOLDER", "dashboard", "files"]

DASHBOARDS: Final = (STEPS, TAIL, GPUS, REWARDS, HEALTH)
"""Every dashboard."""

FOLDER: Final = Path(__file__).with_name("grafana") / "dashboards"
"""Where they lie."""

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHTS: Final = {"timeseries": 8, "stat": 4}
_COLUMNS: Final = 24


def dashboard(board: Board) -> dict[str, Any]:
    """One dashboard."""
    return {
        "uid": f"rlvr-probe-{board.name}",
        "title": board.title,
        "description": board.meaning,
        "tags": ["rlvr-probe"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        # One cross hair for all panels: a stage and what the GPUs did in it.
        "graphTooltip": 1,
        "links": [
            {
                "type": "dashboards",
                "title": "rlvr-probe",
                "tags": ["rlvr-probe"],
                "asDropdown": True,
            }
        ],
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": list(_panels(board)),
    }


def files() -> Iterator[tuple[Path, str]]:
    """Every file and what it holds."""
    for board in DASHBOARDS:
        text = json.dumps(dashboard(board), indent=2, ensure_ascii=False)
        yield FOLDER / f"{board.name}.json", f"{text}\n"


def _variables() -> list[dict[str, Any]]:
    steps = prometheus_name(REGISTRY["rl.train.steps"])
    query = f"label_values({steps}, rl_run_id)"
    widths = ("5m", "15m", "1h", "6h", "1d", "7d")
    chosen = {"text": "1h", "value": "1h"}
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "run",
            "label": "Run",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": "run"},
            "refresh": 2,
            "sort": 2,
            "multi": True,
            "includeAll": True,
            # Of a series without the label, too.
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        },
        {
            "name": "window",
            "label": "Looks back",
            "description": "Not shorter than two steps take.",
            "type": "custom",
            "query": ",".join(widths),
            "options": [
                {"text": one, "value": one, "selected": one == chosen["value"]} for one in widths
            ],
            "current": chosen,
        },
    ]


def _panels(board: Board) -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for title, panels in board.rows:
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        number, top = number + 1, top + 1
        left = height = 0
        for panel in panels:
            if left + panel.width > _COLUMNS:
                left, top, height = 0, top + height, 0
            high = _HEIGHTS[panel.kind]
            place = {"x": left, "y": top, "w": panel.width, "h": high}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left, height, number = left + panel.width, max(height, high), number + 1
        top += height


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend or panel.title,
                "range": True,
                **_leading(panel, query),
            }
            for place, (legend, query) in enumerate(panel.queries)
        ],
    }


def _leading(panel: Panel, query: str) -> dict[str, Any]:
    """Where the points of a histogram are drawn, they lead to traces."""
    drawn = panel.kind == "timeseries" and "histogram_" in query
    return {"exemplar": True} if drawn else {}


def _defaults(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": panel.unit}
    if not panel.signed:
        found["min"] = 0
    if panel.whole:
        found["max"] = 1
    if panel.decimals is not None:
        found["decimals"] = panel.decimals
    if panel.alarms:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
        found["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.kind == "timeseries":
        # A stage and a GPU have one colour in every panel.
        found["color"] = {"mode": "palette-classic-by-name"}
        found["noValue"] = panel.empty
        found["custom"] = _drawn(panel)
    return found


def _drawn(panel: Panel) -> dict[str, Any]:
    # A gap is a gap: no line is drawn over a time of which nothing is known.
    found: dict[str, Any] = {
        "lineWidth": 1, "fillOpacity": 0, "spanNulls": False, "showPoints": "auto",
    }  # fmt: skip
    if panel.axis:
        found["axisLabel"] = panel.axis
    if panel.stacked:
        found |= {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 60}
    return found


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "graphMode": "area",
            "colorMode": "value" if panel.alarms else "none",
        }
    return {
        "legend": {
            "displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": [],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }  # fmt: skip
