"""Points as Prometheus keeps them when they come by OTLP: exponential histograms as native ones.

It is a page of the protobuf exposition format, where such histograms can be said. The messages are
those of ``io.prometheus.client``: https://github.com/prometheus/client_model.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from rlvr_probe_otlp.planning.data_model import Point, Snapshot
from rlvr_probe_otlp.scraping.exposition import REGISTRY, label_name, prometheus_name

__all__ = ["CONTENT_TYPE", "page"]

CONTENT_TYPE = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
_FINEST = 8
_TYPES = {"sum": 0, "updown": 1, "gauge": 1, "histogram": 4}


def page(points: Iterable[Point], labels: Mapping[str, str]) -> bytes:
    """The page: the last of the points of each series."""
    series = {(one.metric, str(sorted(one.attributes.items()))): one for one in points}
    families = dict[str, bytes]()
    for (name, _), point in sorted(series.items()):
        said = {label_name(key): str(text) for key, text in {**labels, **point.attributes}.items()}
        metric = b"".join(
            _field(1, _field(1, key.encode()) + _field(2, text.encode()))
            for key, text in sorted(said.items())
        )
        metric += _value(point)
        families[name] = families.get(name, b"") + _field(4, metric)
    whole = b""
    for name, metrics in families.items():
        metric_of = REGISTRY[name]
        family = _field(1, prometheus_name(metric_of).encode())
        family += _number(3, _TYPES[metric_of.kind]) + metrics
        whole += _varint(len(family)) + family
    return whole


def _value(point: Point) -> bytes:
    if isinstance(point.value, Snapshot):
        return _field(7, _histogram(point.value))
    assert isinstance(point.value, (int, float))
    field = 3 if point.kind == "sum" else 2
    return _field(field, _double(1, point.value))


def _histogram(shot: Snapshot) -> bytes:
    shift = max(0, shot.scale - _FINEST)
    counts = dict[int, int]()
    for place, count in enumerate(shot.counts):
        # A native bucket has the number of its upper bound, an exponential one of its lower.
        index = ((shot.offset + place) >> shift) + 1
        counts[index] = counts.get(index, 0) + count
    text = _number(1, shot.count) + _double(2, shot.sum)
    text += _number(5, _zigzag(shot.scale - shift)) + _double(6, 0.0) + _number(7, shot.zero)
    if counts:
        first = min(counts)
        length = max(counts) - first + 1
        text += _field(12, _number(1, _zigzag(first)) + _number(2, length))
        before = 0
        for index in range(first, first + length):
            now = counts.get(index, 0)
            text += _number(13, _zigzag(now - before))
            before = now
    return text


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
