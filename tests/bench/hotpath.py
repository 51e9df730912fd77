"""Cost of one recorded call on the calling thread, beside an OpenTelemetry SDK span and an append.

Every variant runs in turn, round by round, in one process, with its drain running; a figure is the
median (or 99th percentile) over single calls, less the median of calling the bare function.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr_probe import hooks
from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.config import Config
from rlvr_probe.hooks import Hook, HookProbe, Patches, wrap
from rlvr_probe.model.names import Attribute, Name
from rlvr_probe.recorder import Recorder

__all__ = ["event_cost", "sustained"]

_ATTRIBUTES = tuple(f"a{i}" for i in range(15))
_FINE = Name("bench", "", tuple(Attribute(a, "", "") for a in _ATTRIBUTES))
_COARSE = Name("bench_coarse", "", _FINE.attributes, coarse=True)


def _work(a: int, b: int = 3) -> int:
    return a + b


def _read5(call: Call) -> tuple[Any, ...]:
    a, r = call.args[0], call.result
    return ("train", 17, a, r, 4096)


def _read15(call: Call) -> tuple[Any, ...]:
    a, r = call.args[0], call.result
    return ("train", 17, a, r, 4096, "train", 17, a, r, 4096, "train", 17, a, r, 4096)


def _hooked(name: Name, count: int) -> Callable[[int], int]:
    read = {0: None, 5: _read5, 15: _read15}[count]
    point = HookPoint("bench", name, _ATTRIBUTES[:count], read=read)
    return wrap(_work, Hook(point))


def _otel(count: int) -> tuple[Callable[[int], int], Callable[[], None]]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Encode(SpanExporter):
        """What every exporter must do, without the network: encode the batch."""

        def export(self, spans: Any) -> SpanExportResult:
            from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

            encode_spans(spans).SerializeToString()
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Encode(), schedule_delay_millis=100))
    tracer = provider.get_tracer("bench")
    names = _ATTRIBUTES[:count]

    def call(a: int) -> int:
        with tracer.start_as_current_span("bench") as span:
            result = _work(a)
            values: tuple[Any, ...] = ("train", 17, a, result, 4096) * 3
            for name, value in zip(names, values, strict=False):
                span.set_attribute(name, value)
        return result

    return call, provider.shutdown


def _append() -> Callable[[int], int]:
    rows: deque[tuple[Any, ...]] = deque(maxlen=100_000)

    def call(a: int) -> int:
        begin = time.monotonic_ns()
        result = _work(a)
        rows.append((begin, time.monotonic_ns(), "train", 17, a, result, 4096))
        return result

    return call


def _times(call: Callable[[int], int], calls: int) -> list[int]:
    clock = time.perf_counter_ns
    out = []
    for i in range(calls):
        begin = clock()
        call(i)
        out.append(clock() - begin)
    return out


def event_cost(rounds: int = 30, calls: int = 2_000) -> dict[str, dict[str, float]]:
    """us per event by variant: p50 with its spread over rounds, p99."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Config.from_environ({}, out=Path(folder)), "bench")
        hooks.activate(recorder, HookProbe(recorder, Patches()))
        otel, shutdown = _otel(5)
        variants: dict[str, Callable[[int], int]] = {
            "bare call": _work,
            "bare append, 5 values": _append(),
            "hook, 0 attributes": _hooked(_FINE, 0),
            "hook, 5 attributes": _hooked(_FINE, 5),
            "hook, 15 attributes": _hooked(_FINE, 15),
            "hook, 5 attributes, coarse": _hooked(_COARSE, 5),
            "OpenTelemetry SDK span, 5 attributes": otel,
        }
        samples: dict[str, list[list[int]]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, call in variants.items():
                samples[name].append(_times(call, calls))
                time.sleep(0.02)  # the queues empty; a saturated caller is `sustained`
        hooks.activate(None)
        recorder.close("exit")
        lost = sum(recorder.lost.values())
        shutdown()
    base = statistics.median(t for block in samples["bare call"] for t in block)
    figures = {}
    for name, blocks in samples.items():
        medians = sorted(statistics.median(block) - base for block in blocks)
        every = sorted(t for block in blocks for t in block)
        figures[name] = {
            "p50_us": statistics.median(medians) / 1e3,
            "p50_low_us": medians[len(medians) // 20] / 1e3,
            "p50_high_us": medians[-1 - len(medians) // 20] / 1e3,
            "p99_us": (every[int(len(every) * 0.99)] - base) / 1e3,
        }
    figures["rows lost"] = {"count": float(lost)}
    return figures


def sustained(events: int = 600_000) -> dict[str, float]:
    """A caller that does nothing but record: events/s until all is written, losses, bytes."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Config.from_environ({}, out=Path(folder)), "bench")
        hooks.activate(recorder, HookProbe(recorder, Patches()))
        call = _hooked(_FINE, 5)
        cpu, begin = time.process_time(), time.perf_counter()
        for i in range(events):
            call(i)
        calling = time.perf_counter() - begin
        recorder.close("exit", timeout_s=60)
        whole = time.perf_counter() - begin
        cpu = time.process_time() - cpu
        hooks.activate(None)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*.jsonl"))
        lost = sum(recorder.lost.values())
    written = events - lost
    return {
        "events": events,
        "calls_per_s": events / calling,
        "written_per_s": written / whole,
        "lost_counted": lost,
        "cpu_us_per_event": cpu / events * 1e6,
        "bytes_per_event": size / max(1, written),
    }
