"""Ids that follow from what a span is: every process, and every repetition, gives the same ones."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from rlvr_probe.model.trace import Process

__all__ = ["node_id", "shares", "span_id", "trace_id"]

_PERSON = b"rlvr-probe"


def trace_id(*parts: object) -> str:
    """Id of the trace that ``parts`` name."""
    return _digest(16, parts)


def span_id(*parts: object) -> str:
    """Id of the span that ``parts`` name."""
    return _digest(8, parts)


def node_id(process: Process | None) -> str:
    """Id of the node of a process: containers of one machine share a boot, but have names."""
    return "" if process is None else _digest(8, (process.host, process.boot))


def shares(*parts: object) -> Callable[[object], float]:
    """Where the trace that ``parts`` and one part more name lies among all: 0 up to 1.

    To keep a share of them, the same everywhere.
    """
    begun = blake2b(_text(parts) + b"\0", digest_size=16, person=_PERSON)

    def share_of(part: object) -> float:
        hashed = begun.copy()
        hashed.update(_text((part,)))
        return int(hashed.hexdigest()[:13], 16) / (1 << 52)

    return share_of


def _digest(size: int, parts: tuple[object, ...]) -> str:
    return blake2b(_text(parts), digest_size=size, person=_PERSON).hexdigest()


def _text(parts: tuple[object, ...]) -> bytes:
    return "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
