"""The destination ``prometheus``: an endpoint that is scraped while a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlvr_probe.exceptions import ConfigError, ProbeError

if TYPE_CHECKING:
    from rlvr_probe_otlp.scraping.endpoint import Endpoint

__all__ = ["VARIABLE", "PrometheusEndpoint", "address_of"]

VARIABLE: Final = "RLVR_PROBE_PROMETHEUS"
"""Address to listen on; without it, none is opened."""

_LOOPBACK: Final = "127.0.0.1"


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
