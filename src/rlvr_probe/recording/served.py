"""What one process tells of requests of an inference engine, checked and kept in columns."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from rlvr_probe.model import names
from rlvr_probe.model.requests import Request, RequestColumns
from rlvr_probe.recording.checks import BadRow, checked_hex, checked_id

__all__ = ["SERVED", "RequestRows", "digest_of", "served"]

SERVED: Final = frozenset(("queue_s", "prefill_s", "decode_s", "preemptions", "finish"))
"""What a turn may tell of its request besides lengths."""

_TOKENS_MAX: Final = 1 << 32


def digest_of(values: Mapping[str, Any], name: str) -> int:
    """The digest ``name`` as a number; 0 if there is none.

    Raises:
        BadRow: It is none.
    """
    given = values.get(name)
    return 0 if given is None else int(checked_hex(given, 16), 16)


def served(start_ns: int, end_ns: int, values: Mapping[str, Any]) -> Request:
    """What a row says of one request; its process and clock are not known here.

    Raises:
        BadRow: It breaks the schema.
    """
    finish = values.get("finish")
    if finish is not None and finish not in names.FINISHES:
        raise BadRow("finish")
    return Request(
        process=0,
        start_ns=start_ns,
        end_ns=end_ns,
        prompt_tokens=_tokens(values, "prompt_tokens"),
        response_tokens=_tokens(values, "response_tokens"),
        cached_tokens=_tokens(values, "cached_tokens"),
        queue_s=_seconds(values, "queue_s"),
        prefill_s=_seconds(values, "prefill_s"),
        decode_s=_seconds(values, "decode_s"),
        preemptions=_tokens(values, "preemptions"),
        finish=finish,
    )


def _tokens(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if value is not None and checked_id(value, 0) >= _TOKENS_MAX:
        raise BadRow(name)
    return value


def _seconds(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not isfinite(value) or value < 0:
        raise BadRow(name)
    return float(value)


@dataclass(slots=True)
class RequestRows:
    """``request`` spans of one process; times are CLOCK_MONOTONIC, ns; 0 is no digest."""

    values: RequestColumns = field(default_factory=RequestColumns)
    side: bytearray = field(default_factory=bytearray)
    key: array[int] = field(default_factory=lambda: array("Q"))
    name: array[int] = field(default_factory=lambda: array("Q"))
    parent: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, start_ns: int, end_ns: int, parent: int, values: Mapping[str, Any]) -> None:
        """Take one span.

        Raises:
            BadRow: It breaks the schema.
        """
        if values.get("told_by") not in names.TELLERS:
            raise BadRow("told_by")
        key, name = digest_of(values, "key"), digest_of(values, "request")
        self.values.append(served(start_ns, end_ns, values))
        self.side.append(names.TELLERS.index(values["told_by"]))
        self.key.append(key)
        self.name.append(name)
        self.parent.append(parent)

    def __len__(self) -> int:
        return len(self.key)
