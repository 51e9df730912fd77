"""What to send, and how to reach a collector, from options and OTEL_* variables.

As OpenTelemetry specifies them. An error never repeats a value of a header or an endpoint: it may
hold a secret.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isfinite
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from rlvr_probe.exceptions import ConfigError
from rlvr_probe_otlp.planning.run_metrics import Histograms, Temporality

__all__ = [
    "GRPC",
    "Destination",
    "batch_size",
    "destinations",
    "disabled",
    "exemplars",
    "histograms",
    "temporality",
]

Signal = Literal["traces", "metrics"]

GRPC: Final = "grpc"

_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics")
_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_TIMEOUT_S: Final = 10.0
_BATCH: Final = 512
_COMPRESSIONS: Final = {"http/protobuf": ("gzip", "deflate", "none"), GRPC: ("gzip", "none")}
"""What each protocol can compress with; the first protocol is the default."""
_KEY: Final = re.compile(r"[a-z0-9_.!#$%&'*+^`|~-]+")
_METADATA: Final = re.compile(r"(?!grpc-)[a-z0-9_.-]+(?<!-bin)")
"""What gRPC takes as a key of text."""
_NAMED: Final = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract):\S+")
"""Addresses in gRPC's own way."""
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\s/@:\[\]]+):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Destination:
    """A collector for one signal.

    Attributes:
        signal: What is sent there.
        protocol: ``http/protobuf`` or ``grpc``.
        endpoint: As it was given, with the path of the signal for HTTP.
        address: Where to connect, without credentials: a URL for HTTP, else a target of gRPC.
        secure: Whether by TLS.
        headers: Names in lower case.
        compression: ``none``, ``gzip`` or ``deflate``.
        timeout_s: What one request may take, repetitions included, s.
        certificate: File of who signs the collector's; None for those of the system.
        client_certificate, client_key: Files of ours; the key may be in the other one.
    """

    signal: Signal
    protocol: str
    endpoint: str = field(repr=False)
    address: str = field(repr=False)
    secure: bool
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    compression: str = "none"
    timeout_s: float = _TIMEOUT_S
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None

    @property
    def shown(self) -> str:
        """The endpoint for people: no user, password or query."""
        parts = urlsplit(self.endpoint)
        if not parts.netloc:
            return self.endpoint
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def key(self) -> str:
        """Distinguishes it from others without saying where it is."""
        text = f"{self.signal}\0{self.endpoint}".encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=8).hexdigest()

    @property
    def secrets(self) -> set[str]:
        """What must not be shown, should the collector repeat it."""
        parts = urlsplit(self.endpoint)
        found = {parts.password or "", parts.query, *self.headers.values()}
        found |= {unquote(parts.password or "")}
        found |= {value.rpartition(" ")[2] for value in self.headers.values()}
        found |= {pair.partition("=")[2] for pair in parts.query.split("&")}
        return {text for text in found if len(text) >= 4}


def _set(environ: Mapping[str, str], *names: str) -> tuple[str, str]:
    """The first of these variables that is set, with its text; the last with none, if none is."""
    texts = ((name, environ.get(name, "").strip()) for name in names)
    return next(((name, text) for name, text in texts if text), (names[-1], ""))


def disabled(environ: Mapping[str, str]) -> bool:
    """Whether OTEL_SDK_DISABLED says that nothing may be sent."""
    return _set(environ, "OTEL_SDK_DISABLED")[1].lower() == "true"


def temporality(environ: Mapping[str, str]) -> Temporality:
    """What points count from."""
    _, asked = _set(environ, f"{_PREFIX}METRICS_TEMPORALITY_PREFERENCE")
    return "delta" if asked.lower() in ("delta", "lowmemory") else "cumulative"


def histograms(environ: Mapping[str, str]) -> Histograms:
    """Which histograms: exponential ones, unless those of fixed bounds are asked for by name."""
    _, asked = _set(environ, f"{_PREFIX}METRICS_DEFAULT_HISTOGRAM_AGGREGATION")
    return "explicit" if asked.lower() == "explicit_bucket_histogram" else "exponential"


def exemplars(environ: Mapping[str, str], found: Sequence[Destination]) -> bool:
    """Whether points refer to spans: unless they are not wanted, or no spans are sent."""
    _, asked = _set(environ, "OTEL_METRICS_EXEMPLAR_FILTER")
    return asked.lower() != "always_off" and any(place.signal == "traces" for place in found)


def batch_size(environ: Mapping[str, str]) -> int:
    """Most spans or points in one request.

    Raises:
        ConfigError: It is not a number.
    """
    name, text = _set(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE")
    if text and not (text.isdecimal() and int(text) > 0):
        raise ConfigError(f"{name} is {text!r}; expected a number from 1")
    return int(text) if text else _BATCH


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
    base = endpoint or _set(environ, f"{_PREFIX}ENDPOINT")[1]
    for signal in wanted:
        own = f"{_PREFIX}{signal.upper()}"
        spoken = protocol or _set(environ, f"{own}_PROTOCOL", f"{_PREFIX}PROTOCOL")[1]
        spoken = spoken or next(iter(_COMPRESSIONS))
        if spoken not in _COMPRESSIONS:
            raise ConfigError(
                f"protocol {spoken[:20]!r} is not spoken here; expected"
                f" {' or '.join(_COMPRESSIONS)}: set OTEL_EXPORTER_OTLP_PROTOCOL or --protocol"
            )
        target = "" if endpoint else _set(environ, f"{own}_ENDPOINT")[1]
        target = target or (base if spoken == GRPC else _with_path(base, signal))
        if target:
            found.append(_destination(environ, signal, spoken, target))
    if wanted and not found:
        raise ConfigError(
            "no endpoint: set OTEL_EXPORTER_OTLP_ENDPOINT, for example to http://localhost:4318,"
            " or give --endpoint; --dry-run prints what would be sent"
        )
    return found


def _wanted(environ: Mapping[str, str], signal: Signal) -> bool:
    """Whether OTEL_TRACES_EXPORTER and its like leave the signal to us."""
    _, chosen = _set(environ, f"OTEL_{signal.upper()}_EXPORTER")
    names = {name.strip() for name in chosen.split(",")}
    return not chosen or bool(names & {"otlp", "otlp_proto_http", "otlp_proto_grpc"})


def _with_path(base: str, signal: Signal) -> str:
    """The address of a signal below one of all signals, whose query stays where it is."""
    try:
        parts = urlsplit(base)
    except ValueError:
        return base
    if not base.isprintable():  # urlsplit removes what is not, and the check must see it
        return base
    path = f"{parts.path.rstrip('/')}/v1/{signal}"
    return base and urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _destination(
    environ: Mapping[str, str], signal: Signal, protocol: str, endpoint: str
) -> Destination:
    """The destination of a signal, with what the environment says of it."""

    def said(what: str) -> tuple[str, str]:
        return _set(environ, f"{_PREFIX}{signal.upper()}_{what}", f"{_PREFIX}{what}")

    insecure = said("INSECURE")[1].lower() == "true"
    address, secure, user = _grpc(endpoint, insecure) if protocol == GRPC else _http(endpoint)
    headers = _headers(*said("HEADERS"), _METADATA if protocol == GRPC else _KEY)
    name, compression = said("COMPRESSION")
    compression = compression.lower() or "none"
    if compression not in _COMPRESSIONS[protocol]:
        known = " or ".join(_COMPRESSIONS[protocol])
        raise ConfigError(f"{name} is {compression[:20]!r}; expected {known} with {protocol}")
    destination = Destination(
        signal, protocol, endpoint, address, secure,
        headers={**user, **headers},
        compression=compression,
        timeout_s=_timeout(*said("TIMEOUT")),
        certificate=said("CERTIFICATE")[1] or None,
        client_certificate=said("CLIENT_CERTIFICATE")[1] or None,
        client_key=said("CLIENT_KEY")[1] or None,
    )  # fmt: skip
    if secure:
        _check_tls(destination)
    return destination


def _split(endpoint: str) -> SplitResult:
    """The parts of a URL with a host."""
    if endpoint.isascii() and endpoint.isprintable() and " " not in endpoint:
        with suppress(ValueError):
            parts = urlsplit(endpoint)
            sound = parts.hostname and (parts.port is None or parts.port > 0)
            if sound and parts.scheme in ("http", "https"):
                return parts
    raise ConfigError(
        "the endpoint is not a URL; expected one like http://localhost:4318, or with --protocol"
        " grpc http://localhost:4317"
    )


def _http(endpoint: str) -> tuple[str, bool, dict[str, str]]:
    """Address, whether it is secure, and the credentials in it as a header."""
    if endpoint.startswith("unix:"):
        raise ConfigError("the endpoint is a Unix socket; expected --protocol grpc with it")
    parts = _split(endpoint)
    user, at, host = parts.netloc.rpartition("@")
    headers = dict[str, str]()
    if at:
        # As every client of HTTP does; an OTEL_*_HEADERS with one of its own wins.
        name, _, password = user.partition(":")
        given = f"{unquote(name)}:{unquote(password)}"
        headers["authorization"] = "Basic " + base64.b64encode(given.encode()).decode()
    address = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    return address, parts.scheme == "https", headers


def _grpc(endpoint: str, insecure: bool) -> tuple[str, bool, dict[str, str]]:
    if _NAMED.fullmatch(endpoint) or _HOST_AND_PORT.fullmatch(endpoint):
        return endpoint, not insecure, {}
    parts = _split(endpoint)
    if "@" in parts.netloc:
        raise ConfigError(
            "the endpoint has a user or password, which gRPC has no place for; expected them in"
            f" {_PREFIX}HEADERS, as authorization=..."
        )
    return parts.netloc, parts.scheme == "https", {}


def _headers(variable: str, text: str, key: re.Pattern[str]) -> dict[str, str]:
    found = dict[str, str]()
    for number, entry in enumerate(text.split(","), 1):
        if not entry.strip():
            continue
        name, equals, value = entry.partition("=")
        name, value = unquote(name.strip()).lower(), unquote(value.strip())
        if not equals or not key.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise ConfigError(
                f"{variable}: entry {number} is not a header; expected NAME=VALUE, separated by"
                " commas, in ASCII or percent-encoded"
            )
        found[name] = value
    return found


def _timeout(variable: str, text: str) -> float:
    try:
        seconds = float(text) if text else _TIMEOUT_S
    except ValueError:
        seconds = 0.0
    if not (seconds > 0 and isfinite(seconds)):
        raise ConfigError(f"{variable} is {text[:20]!r}; expected seconds")
    return seconds


def _check_tls(destination: Destination) -> None:
    """Read the files of TLS once: neither library says which of them it could not use."""
    context = ssl.create_default_context()
    what = "CERTIFICATE"
    try:
        if destination.certificate is not None:
            context.load_verify_locations(destination.certificate)
        what = "CLIENT_CERTIFICATE or _CLIENT_KEY"
        if destination.client_certificate is not None:
            # Never prompt for a password: the job may run unattended.
            context.load_cert_chain(
                destination.client_certificate, destination.client_key, password=lambda: ""
            )
    except (OSError, ValueError) as error:
        why = "it holds none, or one that does not fit"
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            why = error.strerror or "it cannot be read"
        raise ConfigError(
            f"{_PREFIX}{what}: {why}; expected a file of certificates or keys (PEM)"
        ) from None
