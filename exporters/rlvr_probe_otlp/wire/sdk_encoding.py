"""A plan in the types of the OpenTelemetry SDK; with ``transport``, all that imports it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import opentelemetry.sdk.metrics
import opentelemetry.sdk.metrics.export as sdk
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from rlvr_probe.model.trace import Trace
from rlvr_probe_otlp.planning.data_model import Buckets, PlannedSpan, PlannedTrace, Point, Snapshot
from rlvr_probe_otlp.planning.device_metrics import DEVICE_METRICS
from rlvr_probe_otlp.planning.identity import process_resources, run_resource
from rlvr_probe_otlp.planning.names import SCHEMA_URL
from rlvr_probe_otlp.planning.run_metrics import METRICS, Temporality

__all__ = ["Encoder"]

_EXEMPLAR: Final[Any] = getattr(opentelemetry.sdk.metrics, "Exemplar", None)
"""None in a release that knows none, before 1.28."""
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Encoder:
    """Makes what the SDK's exporters send.

    A provider of our own decides which traces OTEL_TRACES_SAMPLER keeps; that of an application is
    never touched. OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win over what the recording says;
    OTEL_EXPERIMENTAL_RESOURCE_DETECTORS would describe this machine, not that of the training.
    """

    def __init__(self, trace: Trace, temporality: Temporality, *, exemplars: bool = True) -> None:
        """Take the resources of ``trace``, and the limits and the sampler of the environment.

        Args:
            trace: The run, or a window of it.
            temporality: Of its metrics.
            exemplars: Whether points refer to spans that are sent.
        """
        self._exemplars = exemplars and _EXEMPLAR is not None
        given = OTELResourceDetector().detect()
        self._run = Resource(dict(run_resource(trace)), SCHEMA_URL).merge(given)
        self._processes = [
            Resource(dict(attributes), SCHEMA_URL).merge(given)
            for attributes in process_resources(trace)
        ]
        self._limits = SpanLimits()
        self._sampler = TracerProvider(resource=self._run, shutdown_on_exit=False).sampler
        self._temporality = sdk.AggregationTemporality[temporality.upper()]
        self._scope = InstrumentationScope("rlvr-probe", version("rlvr-probe"), SCHEMA_URL)
        metrics = (*METRICS, *DEVICE_METRICS.values())
        self._meanings = {metric.name: metric.meaning for metric in metrics}

    def keeps(self, trace: PlannedTrace) -> bool:
        """Whether the sampler of the environment keeps a trace."""
        return self._samples(trace.trace_id, trace.spans[0].name)

    def _samples(self, trace_id: str, name: str = "") -> bool:
        decided = self._sampler.should_sample(None, int(trace_id, 16), name)
        return decided.decision is Decision.RECORD_AND_SAMPLE

    def span(self, span: PlannedSpan) -> ReadableSpan:
        """A span as the exporters take it."""
        limits = self._limits
        links = [
            Link(
                _context(link.trace_id, link.span_id),
                BoundedAttributes(limits.max_link_attributes, dict(link.attributes)),
            )
            for link in span.links
        ]
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
            resource=self._processes[span.process],
            attributes=BoundedAttributes(
                limits.max_span_attributes,
                dict(span.attributes),
                max_value_len=limits.max_span_attribute_length,
            ),
            links=BoundedList.from_seq(limits.max_links, links),
            kind=SpanKind[span.kind.upper()],
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )

    def metrics(self, points: Iterable[Point]) -> sdk.MetricsData:
        """Points as the exporters take them: one metric of each name, its points in their order."""
        by_name = dict[str, list[Point]]()
        for point in points:
            by_name.setdefault(point.metric, []).append(point)
        metrics = [self._metric(name, found) for name, found in by_name.items()]
        scope = sdk.ScopeMetrics(self._scope, metrics, SCHEMA_URL)
        return sdk.MetricsData([sdk.ResourceMetrics(self._run, [scope], SCHEMA_URL)])

    def _metric(self, name: str, points: Sequence[Point]) -> sdk.Metric:
        kind = points[0].kind
        found: Any = [self._point(point) for point in points]
        data: sdk.ExponentialHistogram | sdk.Histogram | sdk.Gauge | sdk.Sum
        if kind == "histogram":
            explicit = isinstance(points[0].value, Buckets)
            data = (sdk.Histogram if explicit else sdk.ExponentialHistogram)(
                found, self._temporality
            )
        elif kind == "gauge":
            data = sdk.Gauge(found)
        else:
            # What goes up and down has no meaningful differences, says the specification.
            counted = self._temporality if kind == "sum" else sdk.AggregationTemporality.CUMULATIVE
            data = sdk.Sum(found, counted, kind == "sum")
        return sdk.Metric(name, self._meanings.get(name, ""), points[0].unit, data)

    def _point(
        self, point: Point
    ) -> sdk.NumberDataPoint | sdk.HistogramDataPoint | sdk.ExponentialHistogramDataPoint:
        series = (dict(point.attributes), point.start_ns, point.time_ns)
        value = point.value
        if isinstance(value, Buckets):
            return sdk.HistogramDataPoint(
                *series, value.count, value.sum, list(value.counts), list(value.bounds),
                value.min, value.max, **self._exemplars_of(point),
            )  # fmt: skip
        if isinstance(value, Snapshot):
            return sdk.ExponentialHistogramDataPoint(
                *series, value.count, value.sum, value.scale, value.zero,
                sdk.Buckets(value.offset, list(value.counts)), sdk.Buckets(0, []), 0,
                value.min, value.max, **self._exemplars_of(point),
            )  # fmt: skip
        return sdk.NumberDataPoint(*series, value)

    def _exemplars_of(self, point: Point) -> Mapping[str, Any]:
        """The spans that a point refers to, where they are sent."""
        found = [
            _EXEMPLAR({}, sent.value, sent.time_ns, int(sent.span_id, 16), int(sent.trace_id, 16))
            for sent in point.exemplars
            if self._exemplars and self._samples(sent.trace_id)
        ]
        return {"exemplars": found} if found else {}


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)
