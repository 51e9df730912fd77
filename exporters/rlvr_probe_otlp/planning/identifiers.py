"""Ids that follow from what a span is: every process, and every repetition, gives the same ones."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["share_of", "span_id", "trace_id"]


def trace_id(*parts: object) -> str:
    """Id of the trace that ``parts`` name."""
    return _digest(16, parts)


def span_id(*parts: object) -> str:
    """Id of the span that ``parts`` name."""
    return _digest(8, parts)


def share_of(identifier: str) -> float:
    """Where an id lies among all ids, 0 up to 1: to keep a share of them, the same everywhere."""
    return int(identifier[:13], 16) / (1 << 52)


def _digest(size: int, parts: tuple[object, ...]) -> str:
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=size, person=b"rlvr-probe").hexdigest()
