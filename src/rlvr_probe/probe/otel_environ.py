"""Variables of OpenTelemetry that processes on other nodes get: where a run is to be sent.

A process inherits the environment of the one that starts it, but on a node of a Ray cluster that
is a daemon's, and what Ray is given for it, everybody sees who may look at the cluster. So nothing
secret is handed over, and what is not has names of its own: a variable of OpenTelemetry that was
not there before would make other programs in those processes send, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["HANDED_OVER", "effective", "handed_over", "received"]

_PREFIX: Final = "RLVR_PROBE_"
_CONNECTION: Final = "OTEL_EXPORTER_OTLP_"
_OF_A_SIGNAL: Final = ("", "TRACES_", "METRICS_")
_ENDPOINTS: Final = tuple(f"{_CONNECTION}{which}ENDPOINT" for which in _OF_A_SIGNAL)
_OPEN: Final = (
    *_ENDPOINTS,
    *(
        f"{_CONNECTION}{which}{what}"
        for which in _OF_A_SIGNAL
        for what in ("PROTOCOL", "COMPRESSION", "TIMEOUT", "INSECURE")
    ),
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_SDK_DISABLED",
)
"""What has no place for a secret; endpoints without one match :data:`_PLAIN`."""

_SECRET: Final = ("HEADERS", "CERTIFICATE", "CLIENT_KEY")

_PLAIN: Final = re.compile(r"(?:https?://)?[A-Za-z0-9.-]+(?::\d{1,5})?(?:/(?:[a-z]{1,16}|v\d))*/?")
"""An endpoint: a host, a port, and a path of plain words. A user, a query or a key in the path
does not fit."""

HANDED_OVER: Final = frozenset(f"{_PREFIX}{name}" for name in _OPEN)
"""Names under which :func:`handed_over` gives something."""


def handed_over(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for processes of other nodes: where to send a run, and how.

    Nothing at all, if no endpoint is named or if a part of what is needed is secret: a header, a
    certificate, a user in a URL. To send without it would be in vain.

    Args:
        environ: Of the process that started the job.
    """
    said = {name: text for name, text in environ.items() if text and name.startswith("OTEL_")}
    endpoints = [said[name] for name in _ENDPOINTS if name in said]
    secret = any(name.startswith(_CONNECTION) and name.endswith(_SECRET) for name in said)
    if secret or not endpoints or not all(map(_PLAIN.fullmatch, endpoints)):
        return {}
    return {f"{_PREFIX}{name}": said[name] for name in _OPEN if name in said}


def received(environ: Mapping[str, str]) -> dict[str, str]:
    """What was handed over to this process, under the names that OpenTelemetry gave it.

    Nothing, if its own environment names a connection: a header for one must not go to another.
    """
    if any(text and name.startswith(_CONNECTION) for name, text in environ.items()):
        return {}
    told = {name: environ.get(f"{_PREFIX}{name}", "") for name in _OPEN if not environ.get(name)}
    return {name: text for name, text in told.items() if text}


def effective(environ: Mapping[str, str]) -> dict[str, str]:
    """All that a sidecar with this environment knows of where to send a run."""
    own = {name: text for name, text in environ.items() if text and name.startswith("OTEL_")}
    return {**received(environ), **own}
