"""Points as Prometheus reads them, under the names that OpenTelemetry gives them there.

The names are those of its `compatibility specification
<https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/>`_, so that a
dashboard finds the same ones whether points came by OTLP or were scraped here. Histograms have
fixed bounds: native ones have no text form.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from itertools import accumulate
from typing import Final

from rlvr_probe_otlp.planning.data_model import Attributes, Buckets, Point, Value
from rlvr_probe_otlp.planning.device_metrics import DEVICE_METRICS
from rlvr_probe_otlp.planning.run_metrics import METRICS, Metric

__all__ = ["CONTENT_TYPE", "REGISTRY", "Board", "label_name", "prometheus_name"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

REGISTRY: Final[Mapping[str, Metric]] = {
    **{metric.name: metric for metric in METRICS},
    **DEVICE_METRICS,
}
"""Every metric that goes out, by its name in OpenTelemetry."""

_UNITS: Final = {
    "s": "seconds",
    "By": "bytes",
    "By/s": "bytes_per_second",
    "J": "joules",
    "W": "watts",
    "Hz": "hertz",
    "Cel": "celsius",
}
_TYPES: Final = {"sum": "counter", "updown": "gauge", "gauge": "gauge", "histogram": "histogram"}
_OTHER = re.compile(r"[^a-zA-Z0-9_]+")


def prometheus_name(metric: Metric) -> str:
    """Name of a metric in Prometheus; that of a histogram has no ``_bucket`` yet.

    Raises:
        KeyError: Its unit has no name here.
    """
    name = _OTHER.sub("_", metric.name).strip("_")
    if metric.unit == "1":
        suffix = "ratio" if metric.kind == "gauge" else ""
    else:
        suffix = "" if metric.unit.startswith("{") else _UNITS[metric.unit]
    if suffix and not name.endswith(f"_{suffix}"):
        name = f"{name}_{suffix}"
    return f"{name}_total" if metric.kind == "sum" else name


def label_name(attribute: str) -> str:
    """Name of an attribute as a label."""
    return _OTHER.sub("_", attribute)


class Board:
    """The last point of every series, as a page for Prometheus.

    It expects cumulative points, and histograms of fixed bounds.
    """

    def __init__(self, labels: Attributes) -> None:
        """Start empty; ``labels`` are added to every series."""
        self._labels = dict(labels)
        self._points = dict[tuple[str, str], Point]()

    def take(self, points: Iterable[Point]) -> None:
        """Show ``points`` in place of earlier ones of their series."""
        for point in points:
            self._points[point.metric, self._said(point.attributes)] = point

    def drop(self, metrics: Container[str], before_ns: int | None = None) -> None:
        """Show no points of these metrics any more, or none of before a time, ns since 1970."""
        for key, point in list(self._points.items()):
            if key[0] in metrics and (before_ns is None or point.time_ns < before_ns):
                del self._points[key]

    def page(self) -> bytes:
        """The page: metrics by name, series by labels."""
        lines = list[str]()
        last = ""
        for (name, labels), point in sorted(self._points.items(), key=lambda item: item[0]):
            metric = REGISTRY[name]
            shown = prometheus_name(metric)
            if name != last:
                lines.append(f"# HELP {shown} {metric.meaning}")
                lines.append(f"# TYPE {shown} {_TYPES[metric.kind]}")
                last = name
            if isinstance(point.value, Buckets):
                lines += _histogram(shown, labels, point.value)
            elif isinstance(point.value, (int, float)):
                lines.append(f"{shown}{{{labels}}} {_number(point.value)}")
        return "".join(f"{line}\n" for line in lines).encode()

    def _said(self, attributes: Attributes) -> str:
        named = {label_name(name): value for name, value in {**self._labels, **attributes}.items()}
        return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(named.items()))


def _histogram(name: str, labels: str, given: Buckets) -> Iterable[str]:
    before = f"{labels}," if labels else ""
    below = accumulate(given.counts)
    for bound, count in zip((*map(_number, given.bounds), "+Inf"), below, strict=True):
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}'
    yield f"{name}_sum{{{labels}}} {_number(given.sum)}"
    yield f"{name}_count{{{labels}}} {given.count}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _escaped(value: Value) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
