"""Ids that follow from what a span is: every process, and every repetition, gives the same ones."""

from __future__ import annotations

from hashlib import blake2b

from rlvr_probe.model.trace import Process

__all__ = ["node_id", "share_of", "span_id", "trace_id"]


def trace_id(*parts: object) -> str:
    """Id of the trace that ``parts`` name."""
    return _digest(16, parts)


def span_id(*parts: object) -> str:
    """Id of the span that ``parts`` name."""
    return _digest(8, parts)


def node_id(process: Process | None) -> str:
    """Id of the node of a process: containers of one machine share a boot, but have names."""
    return "" if process is None else _digest(8, (process.host, process.boot))


def share_of(identifier: str) -> float:
    """Where an id lies among all ids, 0 up to 1: to keep a share of them, the same everywhere."""
    return int(identifier[:13], 16) / (1 << 52)


def _digest(size: int, parts: tuple[object, ...]) -> str:
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=size, person=b"rlvr-probe").hexdigest()
