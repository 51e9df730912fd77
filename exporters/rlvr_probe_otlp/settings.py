"""What to send, and where, from options and OTEL_* variables, as OpenTelemetry specifies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from rlvr_probe.exceptions import ConfigError
from rlvr_probe_otlp.planning.run_metrics import Histograms, Temporality
from rlvr_probe_otlp.wire.connection import GRPC, PROTOCOLS, Destination, Signal, connect

__all__ = ["batch_size", "destinations", "disabled", "exemplars", "histograms", "temporality"]

_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics")
_BATCH: Final = 512


def disabled(environ: Mapping[str, str]) -> bool:
    """Whether OTEL_SDK_DISABLED says that nothing may be sent."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def destinations(
    environ: Mapping[str, str], endpoint: str | None = None, protocol: str | None = None
) -> list[Destination]:
    """Where each signal goes; one that was switched off, or has no endpoint, goes nowhere.

    Args:
        environ: The environment.
        endpoint: Of all signals, without their paths; wins over the environment.
        protocol: Of all signals; wins over the environment.

    Raises:
        ConfigError: No endpoint is given, or a setting cannot work.
    """
    found = list[Destination]()
    wanted: list[Signal] = [signal for signal in _SIGNALS if _wanted(environ, signal)]
    for signal in wanted:
        spoken = protocol or _protocol(environ, signal)
        if spoken not in PROTOCOLS:
            raise ConfigError(
                f"protocol {spoken[:20]!r} is not spoken here; expected {' or '.join(PROTOCOLS)}:"
                " set OTEL_EXPORTER_OTLP_PROTOCOL or --protocol"
            )
        name = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
        own = "" if endpoint else environ.get(name, "").strip()
        base = endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
        target = own or (base if spoken == GRPC else _with_path(base, signal))
        if target:
            found.append(connect(environ, signal, spoken, target))
    if wanted and not found:
        raise ConfigError(
            "no endpoint: set OTEL_EXPORTER_OTLP_ENDPOINT, for example to http://localhost:4318,"
            " or give --endpoint; --dry-run prints what would be sent"
        )
    return found


def _wanted(environ: Mapping[str, str], signal: Signal) -> bool:
    """Whether OTEL_TRACES_EXPORTER and its like leave the signal to us."""
    chosen = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip()
    names = {name.strip() for name in chosen.split(",")}
    return not chosen or bool(names & {"otlp", "otlp_proto_http", "otlp_proto_grpc"})


def _protocol(environ: Mapping[str, str], signal: Signal) -> str:
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "").strip()
    return own or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip() or PROTOCOLS[0]


def _with_path(base: str, signal: Signal) -> str:
    """The address of a signal below one of all signals, whose query stays where it is."""
    try:
        parts = urlsplit(base)
    except ValueError:
        return base
    if not base.isprintable():  # which the line before takes out
        return base
    path = f"{parts.path.rstrip('/')}/v1/{signal}"
    return base and urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def temporality(environ: Mapping[str, str]) -> Temporality:
    """What points count from."""
    asked = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
    return "delta" if asked in ("delta", "lowmemory") else "cumulative"


def histograms(environ: Mapping[str, str]) -> Histograms:
    """Which histograms: exponential ones, unless those of fixed bounds are asked for by name."""
    name = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
    asked = environ.get(name, "").strip().lower()
    return "explicit" if asked == "explicit_bucket_histogram" else "exponential"


def exemplars(environ: Mapping[str, str], found: Sequence[Destination]) -> bool:
    """Whether points refer to spans: unless they are not wanted, or no spans are sent."""
    asked = environ.get("OTEL_METRICS_EXEMPLAR_FILTER", "").strip().lower()
    return asked != "always_off" and any(destination.signal == "traces" for destination in found)


def batch_size(environ: Mapping[str, str]) -> int:
    """Most spans or points in one request.

    Raises:
        ConfigError: It is not a number.
    """
    text = environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "").strip()
    if text and not (text.isdecimal() and int(text) > 0):
        raise ConfigError(f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE is {text!r}; expected a number from 1")
    return int(text) if text else _BATCH
