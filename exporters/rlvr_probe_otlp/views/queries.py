"""Queries of the dashboards, in PromQL; a metric that does not go out is an error.

A histogram is a native one where it came by OTLP, and has buckets where it was scraped from the
probe: each query asks for both, and one of them answers. A point comes at the end of a step, which
may be an hour after the one before: queries look back over ``$window``. Of devices there is one
every 15 s: what is drawn of them over time is as fine as Grafana asks for.
"""

from __future__ import annotations

from typing import Final, Literal

from rlvr_probe.model import names
from rlvr_probe_otlp.planning.devices import DEVICE_METRICS
from rlvr_probe_otlp.planning.metrics import Metric
from rlvr_probe_otlp.planning.names import duration_metric
from rlvr_probe_otlp.scraping.exposition import REGISTRY, label_name, prometheus_name

__all__ = [
    "NOT_EVAL",
    "RUN",
    "grown",
    "held",
    "mean",
    "quantile",
    "rate",
    "seconds_of_stages",
    "share",
    "short",
    "taken",
    "total",
]

RUN: Final = 'rl_run_id=~"$run"'
NOT_EVAL: Final = ', rlvr_mode!="eval"'
"""Leaves out what was done for an evaluation."""


def grown(metric: str, *by: str, where: str = "") -> str:
    """How much a sum grew within the window."""
    return f"sum{_by(by)} (increase({_name(metric, 'sum')}{_where(where)}[$window]))"


def rate(metric: str, *by: str, where: str = "") -> str:
    """How much a sum grows in a second."""
    return f"sum{_by(by)} (rate({_name(metric, 'sum')}{_where(where)}[{_width(metric)}]))"


def total(metric: str, *by: str, where: str = "") -> str:
    """How far a sum has come, or what is counted now."""
    name = _name(metric, "sum", "updown")
    return f"sum{_by(by)} (last_over_time({name}{_where(where)}[$window]))"


def short(query: str) -> str:
    """``query`` with a label ``gpu``, the first digits of ``hw.id``: a whole one is 40 long."""
    return f'label_replace({query}, "gpu", "$1", "{label_name("hw.id")}", "(.{{1,12}}).*")'


def held(metric: str, *by: str, how: Literal["avg", "max"] = "avg", where: str = "") -> str:
    """What gauges show: of devices their mean or maximum, of others what was last said."""
    over = how if metric in DEVICE_METRICS else "last"
    chosen = f"{_name(metric, 'gauge', 'updown')}{_where(where)}[{_width(metric)}]"
    return f"{how}{_by(by)} ({over}_over_time({chosen}))"


def quantile(share: float, metric: str, *by: str, where: str = "") -> str:
    """The value that this share of what a histogram took lies below."""
    name, chosen = _name(metric, "histogram"), _where(where)
    classic = f"sum{_by(('le', *by))} (rate({name}_bucket{chosen}[$window]))"
    native = f"sum{_by(by)} (rate({name}{chosen}[$window]))"
    return f"histogram_quantile({share:g}, {classic}) or histogram_quantile({share:g}, {native})"


def taken(metric: str, *by: str, what: str = "count", where: str = "", per: str = "rate") -> str:
    """How many values a histogram took, or their ``sum``: in a second, or by ``increase``."""
    name, chosen = _name(metric, "histogram"), _where(where)
    classic = f"sum{_by(by)} ({per}({name}_{what}{chosen}[$window]))"
    native = f"sum{_by(by)} (histogram_{what}({per}({name}{chosen}[$window])))"
    return f"({classic} or {native})"


def mean(metric: str, *by: str, where: str = "") -> str:
    """Mean of what a histogram took."""
    sums = taken(metric, *by, what="sum", where=where)
    return f"{sums} / {taken(metric, *by, where=where)}"


def share(metric: str, *by: str, where: str) -> str:
    """Of what a histogram took, the share that ``where`` chooses."""
    every = taken(metric, *by)
    return f"({taken(metric, *by, where=where)} or 0 * {every}) / {every}"


def seconds_of_stages() -> str:
    """Time that ranks spent in each stage, in a second: how many ranks are in it on average."""
    every = dict.fromkeys(duration_metric(stage) for stage in names.STAGES)
    stages = "|".join(sorted(_name(metric, "histogram") for metric in every))
    sums = "|".join(sorted(f"{_name(metric, 'histogram')}_sum" for metric in every))
    by = _by(("rlvr.stage",))
    classic = f'sum{by} (rate({{__name__=~"{sums}", {RUN}{NOT_EVAL}}}[$window]))'
    native = f'sum{by} (histogram_sum(rate({{__name__=~"{stages}", {RUN}{NOT_EVAL}}}[$window])))'
    return f"{classic} or {native}"


def _name(metric: str, *kinds: str) -> str:
    found: Metric = REGISTRY[metric]
    if found.kind not in kinds:
        raise ValueError(f"{metric} is a {found.kind}, expected {' or '.join(kinds)}")
    return prometheus_name(found)


def _width(metric: str) -> str:
    return "$__rate_interval" if metric in DEVICE_METRICS else "$window"


def _by(attributes: tuple[str, ...]) -> str:
    return f" by ({', '.join(map(label_name, attributes))})" if attributes else ""


def _where(more: str) -> str:
    return f"{{{RUN}{more}}}"
