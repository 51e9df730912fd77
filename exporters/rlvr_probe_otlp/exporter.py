"""The destinations ``otlp``, which is sent to, and ``prometheus``, which is scraped."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlvr_probe.exceptions import ConfigError, ProbeError
from rlvr_probe.exporter import LiveSession
from rlvr_probe.model.trace import Trace
from rlvr_probe_otlp.planning.kept_trajectories import Limits
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.plan_json import document
from rlvr_probe_otlp.settings import (
    batch_size,
    destinations,
    disabled,
    exemplars,
    histograms,
    temporality,
)
from rlvr_probe_otlp.wire.offsets import FILE, opened

if TYPE_CHECKING:
    from rlvr_probe_otlp.scraping.endpoint import Endpoint

__all__ = ["VARIABLE", "OTLPExporter", "PrometheusEndpoint", "address_of"]

VARIABLE: Final = "RLVR_PROBE_PROMETHEUS"
"""Address to listen on; without it, none is opened."""

_LOOPBACK: Final = "127.0.0.1"

_SDK: Final = "opentelemetry.exporter.otlp.proto"
_LINKS: Final = 127
"""Most links to trajectories: a span has 128 by OpenTelemetry's limits, and one may be yours."""


class OTLPExporter:
    """A :class:`~rlvr_probe.exporter.TraceExporter` and LiveExporter for OpenTelemetry."""

    name = "otlp"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add what may be chosen; the rest is chosen by the OTEL_* variables."""
        defaults = Limits()
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be sent, and send nothing"
        )
        parser.add_argument(
            "--json", action="store_true", help="with --dry-run: print the whole plan as JSON"
        )
        parser.add_argument(
            "--max-spans",
            metavar="N",
            type=_number(int, 2),
            default=defaults.spans,
            help=f"most spans of one trace: the longest are kept (default: {defaults.spans})",
        )
        parser.add_argument(
            "--max-trajectories",
            metavar="N",
            type=_number(int, 0, _LINKS),
            default=defaults.trajectories,
            help="most trajectories of one step that become traces: slow ones first, then failed"
            f" ones (default: {defaults.trajectories})",
        )
        parser.add_argument(
            "--share",
            metavar="SHARE",
            type=_number(float, 0, 1),
            default=defaults.share,
            help="share of the other trajectories that become traces, 0 to 1"
            f" (default: {defaults.share})",
        )

        parser.add_argument(
            "--endpoint",
            metavar="URL",
            help="collector, for example http://localhost:4318 (default:"
            " OTEL_EXPORTER_OTLP_ENDPOINT)",
        )
        parser.add_argument(
            "--protocol",
            metavar="NAME",
            help="http/protobuf or grpc (default: OTEL_EXPORTER_OTLP_PROTOCOL, else http/protobuf)",
        )
        parser.add_argument(
            "--rejected",
            action="store_true",
            help="send again what the collector refused for good, too",
        )
        parser.add_argument(
            "--state",
            metavar="FILE",
            type=Path,
            help="where it is noted what was sent already (default: otlp.offsets in the run"
            " folder)",
        )

    def export(self, trace: Trace, folder: Path, args: Namespace) -> Iterator[str]:
        """Send ``trace``, or say what would be sent.

        Raises:
            ProbeError: The collector did not take everything; a repetition sends the rest.
        """
        if args.json and not args.dry_run:
            raise ProbeError("--json prints a plan: give --dry-run too")
        limits = Limits(spans=args.max_spans, trajectories=args.max_trajectories, share=args.share)
        counting = temporality(os.environ)
        if args.dry_run:
            plan = Plan(trace, limits, temporality=counting, histograms=histograms(os.environ))
            yield from document(plan) if args.json else _summary(plan)
            return
        if disabled(os.environ):
            yield "OTEL_SDK_DISABLED is true: nothing was sent"
            return
        found = destinations(os.environ, args.endpoint, args.protocol)
        if not found:
            yield "OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER name no otlp: nothing was sent"
            return
        size = batch_size(os.environ)
        try:
            from rlvr_probe_otlp.wire.delivery import deliver
            from rlvr_probe_otlp.wire.sdk_encoding import Encoder

            plan = Plan(trace, limits, temporality=counting, histograms=histograms(os.environ))
            with opened(args.state or folder / FILE, again=args.rejected) as offsets:
                encoder = Encoder(trace, counting, exemplars=exemplars(os.environ, found))
                yield from deliver(plan, found, offsets, encoder, size)
        except ImportError as error:
            raise _not_installed(error) from None

    def wanted(self, environ: Mapping[str, str]) -> bool:
        """Whether a collector is named, and the SDK is there to reach it.

        Raises:
            ConfigError: What is said of it cannot work.
        """
        named = any(
            environ.get(f"OTEL_EXPORTER_OTLP_{which}ENDPOINT")
            for which in ("", "TRACES_", "METRICS_")
        )
        if not named or disabled(environ):
            return False
        try:
            return find_spec(_SDK) is not None and bool(destinations(environ))
        except ImportError:  # a package above it is not there
            return False

    def open(self, folder: Path, environ: Mapping[str, str]) -> LiveSession:
        """Start to send the run in ``folder`` while it goes on.

        Raises:
            ProbeError: The environment asks for something impossible, or the SDK is not there.
        """
        try:
            from rlvr_probe_otlp.live import LiveExport
        except ImportError as error:
            raise _not_installed(error) from None
        return LiveExport(folder, environ)


def _not_installed(error: ImportError) -> ProbeError:
    return ProbeError(
        f"sending needs the exporters of OpenTelemetry ({error}): pip install 'rlvr-probe[otlp]'"
    )


def _summary(plan: Plan) -> Iterator[str]:
    counts = Counter[str]()
    for unit in plan.units():
        counts["traces"] += len(unit.traces)
        counts["spans"] += sum(len(trace.spans) for trace in unit.traces)
        counts["spans omitted from traces that would be too large"] += sum(
            trace.left_out for trace in unit.traces
        )
        counts["points of metrics"] += len(unit.points)
    counts["steps that are going on, to be sent when they are over"] = plan.waiting
    counts["open spans omitted: whether their process runs is unknown here"] = plan.unclear
    yield f"run {plan.context.run}: nothing was sent; it would be"
    for what, count in counts.items():
        if count:
            yield f"  {count:,} {what}"


def _number(kind: Callable[[str], float], low: int, high: float = inf) -> Callable[[str], float]:
    def number(text: str) -> float:
        found = kind(text)
        if not low <= found <= high:
            bounds = f"at least {low}" if high == inf else f"between {low} and {high}"
            raise ArgumentTypeError(f"{text} is not {bounds}")
        return found

    return number


class PrometheusEndpoint:
    """A :class:`~rlvr_probe.exporter.LiveExporter` that is asked rather than sending."""

    name = "prometheus"
    variables = (VARIABLE,)

    def wanted(self, environ: Mapping[str, str]) -> bool:
        """Whether an address is given."""
        return bool(environ.get(VARIABLE, "").strip())

    def open(self, folder: Path, environ: Mapping[str, str]) -> Endpoint:
        """Listen on the address.

        Raises:
            ProbeError: It is not an address, or another process has it.
        """
        from rlvr_probe_otlp.scraping.endpoint import Endpoint

        host, port = address_of(environ.get(VARIABLE, ""))
        try:
            return Endpoint(folder, (host, port))
        except OSError as error:
            raise ProbeError(f"{VARIABLE}: cannot listen on {host}:{port}: {error}") from None


def address_of(text: str) -> tuple[str, int]:
    """Host and port that a text like ``127.0.0.1:9464`` names; without a host, loopback.

    Raises:
        ConfigError: It names none.
    """
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or _LOOPBACK
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"{VARIABLE} is {text!r}; expected an address like {_LOOPBACK}:9464")
    return host, int(port)
