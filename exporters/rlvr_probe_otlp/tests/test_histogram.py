"""The exponential histogram against the definition, and against the SDK's."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ExponentialHistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from rlvr_probe_otlp.planning.data_model import Buckets, Snapshot
from rlvr_probe_otlp.planning.histogram import ExplicitHistogram, ExponentialHistogram, bounds_of


def test_fixed_buckets_count_values_up_to_their_bounds() -> None:
    histogram = ExplicitHistogram([1.0, 2.0, 4.0])
    for value in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 100.0):
        histogram.extend([value])
    assert histogram.snapshot() == Buckets(8, 117.0, 0.5, 100.0, (1.0, 2.0, 4.0), (2, 2, 2, 2))
    assert all(list(bounds_of(unit)) == sorted(set(bounds_of(unit))) for unit in ("s", "{token}"))


def drawn(seed: int) -> list[float]:
    draw = random.Random(seed)
    kind = seed % 4
    if kind == 0:
        return [draw.lognormvariate(0, 2) for _ in range(200)]
    if kind == 1:
        return [float(draw.randrange(0, 4_096)) for _ in range(200)]
    if kind == 2:
        return [2.0 ** draw.randrange(-30, 30) for _ in range(50)]
    return [draw.uniform(1, 1.001) for _ in range(draw.randrange(1, 50))]


def counted(values: list[float]) -> Snapshot:
    histogram = ExponentialHistogram()
    for value in values:
        histogram.extend([value])
    return histogram.snapshot()


def failures(check: Callable[[int], None], cases: Iterable[int]) -> dict[int, str]:
    """What fails of a check, by the case it fails for."""
    found = {}
    for case in cases:
        try:
            check(case)
        except AssertionError as error:
            found[case] = str(error)
    return found


def test_every_value_is_in_the_bucket_whose_bounds_hold_it() -> None:
    assert failures(each_is_in_its_bucket, range(40)) == {}


def each_is_in_its_bucket(seed: int) -> None:
    values = drawn(seed)
    shot = counted(values)
    assert len(shot.counts) <= 160
    assert shot.count == len(values) == shot.zero + sum(shot.counts)
    assert (shot.sum, shot.min, shot.max) == (sum(values), min(values), max(values))
    base = 2.0 ** (2.0**-shot.scale)
    seen = 0
    for index, count in enumerate(shot.counts, shot.offset):
        low, high = base**index, base ** (index + 1)
        fuzz = 1e-9 * high
        sure = sum(low + fuzz < value <= high - fuzz for value in values)
        near = sum(low - fuzz <= value <= high + fuzz for value in values)
        assert sure <= count <= near
        seen += count
    assert seen == sum(value > 0 for value in values)


def test_the_order_of_values_does_not_matter() -> None:
    assert failures(no_order_matters, range(40)) == {}


def no_order_matters(seed: int) -> None:
    values = drawn(seed)
    shuffled = random.Random(seed).sample(values, len(values))
    one, other = counted(values), counted(shuffled)
    assert (one.scale, one.offset, one.counts) == (other.scale, other.offset, other.counts)


def test_a_power_of_two_is_the_upper_bound_of_its_bucket() -> None:
    assert failures(it_is_the_upper_bound, range(-40, 40)) == {}


def it_is_the_upper_bound(exponent: int) -> None:
    shot = counted([math.ldexp(1.0, exponent)])
    assert (shot.offset + 1) == exponent << shot.scale


def test_the_sdk_counts_the_same() -> None:
    assert failures(the_sdk_counts_the_same, range(8)) == {}


def the_sdk_counts_the_same(seed: int) -> None:
    reader = InMemoryMetricReader()
    view = View(instrument_name="h", aggregation=ExponentialBucketHistogramAggregation())
    provider = MeterProvider([reader], views=[view], shutdown_on_exit=False)
    histogram = provider.get_meter("test").create_histogram("h")
    values = drawn(seed)
    for value in values:
        histogram.record(value)
    found = reader.get_metrics_data()
    assert found is not None
    [point] = found.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert isinstance(point, ExponentialHistogramDataPoint)
    provider.shutdown()
    shot = counted(values)
    assert (shot.count, shot.zero) == (point.count, point.zero_count)
    shift = shot.scale - point.scale
    theirs = {
        index: count
        for index, count in enumerate(point.positive.bucket_counts, point.positive.offset)
        if count
    }
    ours = dict[int, int]()
    for index, count in enumerate(shot.counts, shot.offset):
        if count:
            ours[index >> shift] = ours.get(index >> shift, 0) + count
    assert shift >= 0
    assert ours == theirs
