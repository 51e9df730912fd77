"""Where and how to send, from options and OTEL_* variables, as OpenTelemetry's specification says.

What concerns a connection (headers, TLS, compression, timeouts) is read by the SDK's exporters
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal
from urllib.parse import urlsplit, urlunsplit

from rlvr_probe.exceptions import ConfigError
from rlvr_probe_otlp.metrics import Histograms, Temporality

__all__ = [
    "Destination",
    "Signal",
    "batch_size",
    "destinations",
    "disabled",
    "histograms",
    "temporality",
]

Signal = Literal["traces", "metrics"]

_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics")
_PROTOCOLS: Final = ("http/protobuf", "grpc")
_BATCH: Final = 512


@dataclass(frozen=True, slots=True)
class Destination:
    """A collector for one signal.

    Attributes:
        signal: What is sent there.
        protocol: ``http/protobuf`` or ``grpc``.
        endpoint: As the SDK's exporter takes it: with the path of the signal for HTTP.
        compressed: Whether gzip is asked for.
    """

    signal: Signal
    protocol: str
    endpoint: str
    compressed: bool = False

    @property
    def shown(self) -> str:
        """The endpoint for people: no user, password or query."""
        parts = urlsplit(self.endpoint)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "", "")) or self.endpoint

    @property
    def key(self) -> str:
        """Tells it from other ones without saying where it is."""
        text = f"{self.signal}\0{self.endpoint}".encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=8).hexdigest()


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
        ConfigError: There is no endpoint at all, or a protocol that is not spoken here.
    """
    found = list[Destination]()
    wanted: list[Signal] = [signal for signal in _SIGNALS if _wanted(environ, signal)]
    for signal in wanted:
        spoken = protocol or _of_signal(environ, signal, "PROTOCOL") or _PROTOCOLS[0]
        if spoken not in _PROTOCOLS:
            raise ConfigError(
                f"protocol {spoken!r} is not spoken here; expected {' or '.join(_PROTOCOLS)}: set"
                " OTEL_EXPORTER_OTLP_PROTOCOL or --protocol"
            )
        own = None if endpoint else environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        base = endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        if spoken == "grpc":
            _check_grpc(environ, signal)
        target = own or (base and (base if spoken == "grpc" else _path(base, signal)))
        if target:
            gzip = _of_signal(environ, signal, "COMPRESSION").lower() == "gzip"
            found.append(Destination(signal, spoken, _checked(target, spoken), gzip))
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


def _of_signal(environ: Mapping[str, str], signal: Signal, what: str) -> str:
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", "").strip()
    return own or environ.get(f"OTEL_EXPORTER_OTLP_{what}", "").strip()


def _check_grpc(environ: Mapping[str, str], signal: Signal) -> None:
    """Refuse what the SDK would only find once it connects, in words of its own."""
    compression = _of_signal(environ, signal, "COMPRESSION").lower()
    if compression not in ("", "none", "gzip"):
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_COMPRESSION is {compression!r}; expected gzip or none with gRPC"
        )
    timeout = _of_signal(environ, signal, "TIMEOUT")
    try:
        sound = not timeout or float(timeout) > 0
    except ValueError:
        sound = False
    if not sound:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_TIMEOUT is {timeout!r}; expected seconds")


def _path(base: str, signal: Signal) -> str:
    return f"{base.rstrip('/')}/v1/{signal}"


def _checked(endpoint: str, protocol: str) -> str:
    try:
        parts = urlsplit(endpoint)
        sound = bool(parts.scheme and parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    # gRPC takes host:port too.
    if not sound and (protocol != "grpc" or "/" in endpoint or ":" not in endpoint):
        raise ConfigError(
            "the endpoint is no URL; expected one like http://localhost:4318, or with --protocol"
            " grpc http://localhost:4317"
        )
    return endpoint


def temporality(environ: Mapping[str, str]) -> Temporality:
    """What points count from."""
    asked = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
    return "delta" if asked in ("delta", "lowmemory") else "cumulative"


def histograms(environ: Mapping[str, str]) -> Histograms:
    """Which histograms: exponential ones, unless those of fixed bounds are asked for by name."""
    name = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
    asked = environ.get(name, "").strip().lower()
    return "explicit" if asked == "explicit_bucket_histogram" else "exponential"


def batch_size(environ: Mapping[str, str]) -> int:
    """Most spans or points in one request.

    Raises:
        ConfigError: It is no number.
    """
    text = environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "").strip()
    if text and not (text.isdecimal() and int(text) > 0):
        raise ConfigError(f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE is {text!r}; expected a number from 1")
    return int(text) if text else _BATCH
