"""The ways to record one call that are compared: hooks, OpenTelemetry, logfire, a bare append.

Each records the same function with 0, 5 or 15 values, and has its background work running.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.config import Config
from rlvr_probe.model.names import Attribute, Name
from rlvr_probe.probe import hooks
from rlvr_probe.probe.hooks import Hook, HookProbe, Patches, wrap
from rlvr_probe.probe.recorder import Recorder

__all__ = ["COUNTS", "Recording", "Variant", "hooked", "others", "recording", "work"]

COUNTS = (0, 5, 15)
"""Attributes of an event."""

_ATTRIBUTES = tuple(f"a{i}" for i in range(15))
_FINE = Name("bench", "", tuple(Attribute(a, "", "") for a in _ATTRIBUTES))
_COARSE = Name("bench_coarse", "", _FINE.attributes, coarse=True)
_ROOM = 131_072
"""Rows or spans that may wait, the same for all: none is faster because it drops."""


@dataclass(frozen=True)
class Variant:
    """A way to record one call; ``settle`` returns once its background work is done."""

    call: Callable[[int], int]
    settle: Callable[[], None]


@dataclass(frozen=True)
class Recording:
    """A recorder in use, and its run folder."""

    recorder: Recorder
    probe: HookProbe
    folder: Path

    def close(self) -> None:
        """Write everything and stop."""
        hooks.activate(None)
        self.recorder.close("exit", timeout_s=60)


@contextmanager
def recording() -> Iterator[Recording]:
    """A recorder with the settings that users get, its hooks active, in a folder of its own.

    But for the guard, which would pass over a function that does nothing but be recorded, for the
    sidecar, whose readings would be counted with what was called, and for the room on the disk.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Config(out=Path(folder), own_share=1.0, sidecar=False, free_b=0)
        recorder = Recorder(config, "bench")
        probe = HookProbe(recorder, Patches())
        hooks.activate(recorder, probe)
        used = Recording(recorder, probe, recorder.folder)
        try:
            yield used
        finally:
            used.close()


def work(a: int, b: int = 3) -> int:
    """The function that is recorded."""
    return a + b


def _read5(call: Call) -> tuple[Any, ...]:
    a, r = call.args[0], call.result
    return ("train", 17, a, r, 4096)


def _read15(call: Call) -> tuple[Any, ...]:
    a, r = call.args[0], call.result
    return ("train", 17, a, r, 4096, "train", 17, a, r, 4096, "train", 17, a, r, 4096)


def hooked(count: int, *, coarse: bool = False) -> Callable[[int], int]:
    """:func:`work` behind a hook that reads ``count`` values."""
    read = {0: None, 5: _read5, 15: _read15}[count]
    point = HookPoint("bench", _COARSE if coarse else _FINE, _ATTRIBUTES[:count], read=read)
    return wrap(work, Hook(point))


def _append(count: int) -> Callable[[int], int]:
    rows: deque[tuple[Any, ...]] = deque(maxlen=100_000)
    more = 0 if count < 5 else count // 5

    def call(a: int) -> int:
        begin = time.monotonic_ns()
        result = work(a)
        rows.append((begin, time.monotonic_ns(), *("train", 17, a, result, 4096) * more))
        return result

    return call


def _batch_processor() -> Any:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Encode(SpanExporter):
        """What every exporter must do, without the network: encode the batch."""

        def export(self, spans: Any) -> SpanExportResult:
            from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

            encode_spans(spans).SerializeToString()
            return SpanExportResult.SUCCESS

    return BatchSpanProcessor(Encode(), max_queue_size=_ROOM, schedule_delay_millis=100)


def _otel(count: int, tracer: Any) -> Callable[[int], int]:
    names = _ATTRIBUTES[:count]

    def call(a: int) -> int:
        with tracer.start_as_current_span("bench") as span:
            result = work(a)
            values: tuple[Any, ...] = ("train", 17, a, result, 4096) * 3
            for name, value in zip(names, values, strict=False):
                span.set_attribute(name, value)
        return result

    return call


def _logfire(count: int, instance: Any) -> Callable[[int], int]:
    def call(a: int) -> int:
        result = a + 3
        values: tuple[Any, ...] = ("train", 17, a, result, 4096) * 3
        with instance.span("bench", **dict(zip(_ATTRIBUTES[:count], values, strict=False))):
            return work(a)

    return call


@contextmanager
def others(counts: tuple[int, ...] = COUNTS) -> Iterator[dict[str, Variant]]:
    """OpenTelemetry's SDK, logfire and a bare append, each with ``counts`` values, by name."""
    import logfire
    from opentelemetry.sdk.trace import TracerProvider

    sdk, fire = _batch_processor(), _batch_processor()
    provider = TracerProvider()
    provider.add_span_processor(sdk)
    instance = logfire.configure(
        local=True,
        send_to_logfire=False,
        console=False,
        metrics=False,
        additional_span_processors=[fire],
    )
    tracer = provider.get_tracer("bench")
    found: dict[str, Variant] = {}
    for count in counts:
        found[f"append, {count}"] = Variant(_append(count), lambda: None)
    for count in counts:
        found[f"otel, {count}"] = Variant(_otel(count, tracer), sdk.force_flush)
    for count in counts:
        found[f"logfire, {count}"] = Variant(_logfire(count, instance), fire.force_flush)
    try:
        yield found
    finally:
        provider.shutdown()
        instance.shutdown()
