"""What an answer of a collector means, by the specification of OTLP, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

__all__ = ["Answer", "Verdict", "clean", "of_grpc", "of_http", "seconds_of"]

_MESSAGE: Final = 300
"""Most characters of what a collector says."""
_PATIENCE_S: Final = 600.0
"""Longest time that a collector may ask for, s."""


class Verdict(Enum):
    """What is to be done."""

    TAKEN = "taken"
    LATER = "later"
    """Not now: ask again."""
    DENIED = "denied"
    """Not with these credentials: ask again, some time."""
    NOWHERE = "nowhere"
    """The address does not take this signal: what is sent is not the reason."""
    TOO_LARGE = "too_large"
    """Not so much at once."""
    REJECTED = "rejected"
    """Never: what is sent is the reason."""
    UNCLEAR = "unclear"
    """An error there, which what is sent may be the reason for or not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request.

    Attributes:
        code: For notes: a word of ours with a number or word of the protocol.
        said: For people, with what the collector says; empty if there is nothing to say.
        wait_s: How long it asks to wait, s; None if it does not say.
        rejected: Spans or points that it threw away of a request that it took.
    """

    verdict: Verdict
    code: str = ""
    said: str = ""
    wait_s: float | None = None
    rejected: int = 0

    def without(self, secrets: Iterable[str]) -> Answer:
        """The same without secrets: a collector can repeat what it was sent."""
        said = self.said
        for secret in sorted(secrets, key=len, reverse=True):
            said = said.replace(secret, "***")
        return replace(self, said=clean(said))


_HTTP: Final = {
    401: Verdict.DENIED, 403: Verdict.DENIED, 407: Verdict.DENIED,
    404: Verdict.NOWHERE, 405: Verdict.NOWHERE, 410: Verdict.NOWHERE, 501: Verdict.NOWHERE,
    413: Verdict.TOO_LARGE,
    408: Verdict.LATER, 429: Verdict.LATER, 502: Verdict.LATER, 503: Verdict.LATER,
    504: Verdict.LATER,
}  # fmt: skip
_GRPC: Final = {
    "CANCELLED": Verdict.LATER, "DEADLINE_EXCEEDED": Verdict.LATER, "ABORTED": Verdict.LATER,
    "OUT_OF_RANGE": Verdict.LATER, "UNAVAILABLE": Verdict.LATER, "DATA_LOSS": Verdict.LATER,
    "UNAUTHENTICATED": Verdict.DENIED, "PERMISSION_DENIED": Verdict.DENIED,
    "UNIMPLEMENTED": Verdict.NOWHERE, "NOT_FOUND": Verdict.NOWHERE,
    "UNKNOWN": Verdict.UNCLEAR, "INTERNAL": Verdict.UNCLEAR,
}  # fmt: skip
_MEANINGS: Final = {
    Verdict.DENIED: "the credentials are refused (OTEL_EXPORTER_OTLP_HEADERS)",
    Verdict.NOWHERE: "the collector does not take this signal",
    Verdict.TOO_LARGE: "too large",
}


def of_http(status: int, message: str = "", wait_s: float | None = None) -> Answer:
    """What a status of HTTP but 200 means.

    Args:
        status: 100 to 599.
        message: What the collector says.
        wait_s: What it asks to wait, s.
    """
    verdict = _HTTP.get(status, Verdict.REJECTED if status < 500 else Verdict.UNCLEAR)
    meaning = _MEANINGS.get(verdict, "")
    if status < 400:
        verdict = Verdict.NOWHERE
        meaning = "it sends on to another address, which is not followed: give that one"
    return Answer(verdict, f"http_{status}", _said(f"HTTP {status}", meaning, message), wait_s)


def of_grpc(name: str, message: str = "", wait_s: float | None = None) -> Answer:
    """What a status of gRPC but OK means.

    Args:
        name: Of the status, in capitals.
        message: What the collector, or the library, says.
        wait_s: What the collector asks to wait, s. RESOURCE_EXHAUSTED without it is about size.
    """
    verdict = _GRPC.get(name, Verdict.REJECTED)
    if name == "RESOURCE_EXHAUSTED":
        verdict = Verdict.TOO_LARGE if wait_s is None else Verdict.LATER
    said = _said(f"gRPC {name}", _MEANINGS.get(verdict, ""), message)
    return Answer(verdict, f"grpc_{name.lower()}", said, wait_s)


def _said(status: str, *more: str) -> str:
    return ": ".join([status, *filter(None, map(clean, more))])


def clean(text: str) -> str:
    """What a stranger says, as one short line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * _MESSAGE]).split())
    return line if len(line) <= _MESSAGE else f"{line[: _MESSAGE - 3]}..."


def seconds_of(retry_after: str | None, now_s: float) -> float | None:
    """What a ``Retry-After`` asks to wait, s; None if it says nothing that makes sense.

    Args:
        retry_after: Seconds, or a date.
        now_s: Wall clock, s since 1970.
    """
    text = (retry_after or "").strip()
    if text.isdecimal() and text.isascii() and len(text) < 10:
        return min(float(text), _PATIENCE_S)
    try:
        left_s = parsedate_to_datetime(text).timestamp() - now_s
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, left_s), _PATIENCE_S)
