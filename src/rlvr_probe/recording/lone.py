"""Spans of trajectories that go their own way, in columns: one process can have a million."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf, isfinite, nan
from typing import Any, Final

from rlvr_probe.model import names
from rlvr_probe.model.columns import RaggedColumn, SparseColumn
from rlvr_probe.model.requests import RequestColumns
from rlvr_probe.recording.checks import BadRow, checked_id, checked_text, loss_runs_of
from rlvr_probe.recording.served import SERVED, digest_of, served

__all__ = ["KeyColumn", "LoneSpans", "LoneTurns", "ToolRows", "Verifications", "tells_one"]

_NO_KEY: Final = (0, 0, 0)
_TOKENS_MAX: Final = 1 << 32


@dataclass(slots=True)
class KeyColumn:
    """Keys of trajectories as digests of 16 bytes: as many keys as one likes take 17 bytes each.

    Attributes:
        high, low: Halves of the digest; both 0 where there is no key.
        narrow: 1 where the key begins with '-': it holds for one rollout of one manager only.
    """

    high: array[int] = field(default_factory=lambda: array("Q"))
    low: array[int] = field(default_factory=lambda: array("Q"))
    narrow: bytearray = field(default_factory=bytearray)

    def append(self, key: str | None) -> None:
        """Add a key at the end."""
        high, low, narrow = _NO_KEY if key is None else _digest(key)
        self.high.append(high)
        self.low.append(low)
        self.narrow.append(narrow)

    def extend(self, keys: Iterable[str | None]) -> None:
        """Add keys at the end."""
        for key in keys:
            self.append(key)

    def __len__(self) -> int:
        return len(self.high)


def _digest(key: str) -> tuple[int, int, int]:
    # A text from JSON may hold half a surrogate pair.
    data = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return (
        int.from_bytes(data[:8], "little") or 1,
        int.from_bytes(data[8:], "little"),
        int(key.startswith("-")),
    )


@dataclass(slots=True)
class LoneSpans:
    """``trajectory`` spans of one process; -1 is unknown."""

    span: array[int] = field(default_factory=lambda: array("Q"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    keys: KeyColumn = field(default_factory=KeyColumn)
    engine: SparseColumn = field(default_factory=SparseColumn)
    oldest: SparseColumn = field(default_factory=SparseColumn)
    newest: SparseColumn = field(default_factory=SparseColumn)
    prompt_tokens: SparseColumn = field(default_factory=SparseColumn)
    response_tokens: SparseColumn = field(default_factory=SparseColumn)
    truncated: SparseColumn = field(default_factory=SparseColumn)
    loss_runs: RaggedColumn = field(default_factory=RaggedColumn)
    """Empty also where there is no mask, which ``masked`` tells."""
    masked: bytearray = field(default_factory=bytearray)

    def add(self, span: int, start_ns: int, end_ns: int, values: Mapping[str, Any]) -> None:
        """Take one span.

        Raises:
            BadRow, or what a column of other values raises: It breaks the schema.
        """
        key = values.get("key")
        key = None if key is None else checked_text(key)
        numbers = [
            checked_id(values[name], 0) if name in values else None
            for name in ("engine", "policy_version_min", "policy_version_max")
        ]
        oldest, newest = numbers[1:]
        prompt, response = _tokens(values, "prompt_tokens"), _tokens(values, "response_tokens")
        truncated = values.get("truncated")
        if truncated not in (None, 0, 1) or type(truncated) not in (type(None), int, bool):
            raise BadRow("truncated")
        if (oldest is None) != (newest is None) or (oldest or 0) > (newest or 0):
            raise BadRow("policy versions")
        runs = values.get("loss_runs")
        runs = None if runs is None else loss_runs_of(runs, response)
        self.loss_runs.append(() if runs is None else runs)
        self.masked.append(runs is not None)
        self.span.append(span)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.keys.append(key)
        for column, value in (
            (self.engine, numbers[0]),
            (self.oldest, oldest),
            (self.newest, newest),
            (self.prompt_tokens, prompt),
            (self.response_tokens, response),
            (self.truncated, None if truncated is None else int(truncated)),
        ):
            column.append(value)

    def times(self) -> dict[int, tuple[int, int]]:
        """Start and end by span id."""
        return dict(zip(self.span, zip(self.start_ns, self.end_ns, strict=True), strict=True))

    def __len__(self) -> int:
        return len(self.span)


def tells_one(attributes: Mapping[str, Any]) -> bool:
    """Whether an engine call is told as that of one trajectory, in numbers and not in lists."""
    given = [attributes.get(name) for name in ("turn", "prompt_tokens", "response_tokens")]
    rest = [attributes.get(name, 0) for name in ("rows", "cached_tokens", "samples")]
    return (
        all(type(value) is int for value in (*given, *rest)) and attributes.get("samples", 1) == 1
    )


@dataclass(slots=True)
class LoneTurns:
    """``turn`` spans of one trajectory each.

    Attributes:
        name: Digest of the id of the request of each; 0 if it does not tell.
        told: What they tell of their requests themselves.
        teller: Place in ``told`` of each; -1 where it tells nothing.
    """

    span: array[int] = field(default_factory=lambda: array("Q"))
    batch: array[int] = field(default_factory=lambda: array("Q"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    row: SparseColumn = field(default_factory=SparseColumn)
    turn: array[int] = field(default_factory=lambda: array("I"))
    prompt_tokens: array[int] = field(default_factory=lambda: array("I"))
    response_tokens: array[int] = field(default_factory=lambda: array("I"))
    cached_tokens: SparseColumn = field(default_factory=SparseColumn)
    name: array[int] = field(default_factory=lambda: array("Q"))
    told: RequestColumns = field(default_factory=RequestColumns)
    teller: SparseColumn = field(default_factory=SparseColumn)

    def add(
        self, span: int, start_ns: int, end_ns: int, parent: int, values: Mapping[str, Any]
    ) -> None:
        """Take one span whose values are numbers.

        Raises:
            BadRow: It breaks the schema.
        """
        batch = checked_id(values.get("batch", parent), 0)
        row = checked_id(values["rows"], 0) if "rows" in values else None
        prompt, response = _tokens(values, "prompt_tokens"), _tokens(values, "response_tokens")
        cached, turn = _tokens(values, "cached_tokens"), _tokens(values, "turn")
        if prompt is None or response is None or turn is None:
            raise BadRow("columns")
        name = digest_of(values, "request")
        told = served(start_ns, end_ns, values) if not SERVED.isdisjoint(values) else None
        self.span.append(span)
        self.name.append(name)
        self.teller.append(None if told is None else len(self.told))
        if told is not None:
            self.told.append(told)
        self.batch.append(batch)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.row.append(row)
        self.turn.append(turn)
        self.prompt_tokens.append(prompt)
        self.response_tokens.append(response)
        self.cached_tokens.append(cached)

    def __len__(self) -> int:
        return len(self.batch)


@dataclass(slots=True)
class Verifications:
    """``verify`` spans of one process."""

    batch: array[int] = field(default_factory=lambda: array("Q"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    function: array[int] = field(default_factory=lambda: array("I"))
    value: array[float] = field(default_factory=lambda: array("d"))
    """NaN where the function gave none, infinite where it gave no finite number."""
    attempts: SparseColumn = field(default_factory=SparseColumn)
    timeouts: SparseColumn = field(default_factory=SparseColumn)
    shared: dict[int, array[int]] = field(default_factory=dict)
    """Spans of the other trajectories that were given the value, by place."""
    functions: dict[str, int] = field(default_factory=dict)

    def add(self, start_ns: int, end_ns: int, parent: int, values: Mapping[str, Any]) -> None:
        """Take one span.

        Raises:
            BadRow: It breaks the schema.
        """
        batch = checked_id(values.get("batch", parent), 0)
        function = checked_text(values.get("function", ""))
        value = values.get("value")
        if value is not None and (type(value) not in (int, float) or not isfinite(value)):
            raise BadRow("value")
        odd = values.get("not_finite", 0)
        if odd not in (0, 1) or (odd and value is not None):
            raise BadRow("not_finite")
        number = inf if odd else nan if value is None else float(value)
        attempts, timeouts = (
            checked_id(values[name], 0) if name in values else None
            for name in ("attempts", "timeouts")
        )
        if timeouts is not None and timeouts > (attempts or 0):
            raise BadRow("timeouts")
        shared = values.get("shared")
        if type(shared) not in (type(None), list):
            raise BadRow("shared")
        if shared:
            self.shared[len(self)] = array("Q", map(checked_id, shared))
        self.attempts.append(attempts)
        self.timeouts.append(timeouts)
        self.batch.append(batch)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.function.append(self.functions.setdefault(function, len(self.functions)))
        self.value.append(number)

    def __len__(self) -> int:
        return len(self.batch)


@dataclass(slots=True)
class ToolRows:
    """``tool_call`` spans of one process."""

    batch: array[int] = field(default_factory=lambda: array("Q"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    row: SparseColumn = field(default_factory=SparseColumn)
    turn: SparseColumn = field(default_factory=SparseColumn)
    word: array[int] = field(default_factory=lambda: array("I"))
    words: dict[tuple[str | None, str | None, str | None], int] = field(default_factory=dict)
    """Number of each tool, status and error that occur together."""

    def add(
        self,
        start_ns: int,
        end_ns: int,
        parent: int,
        error: str | None,
        values: Mapping[str, Any],
    ) -> None:
        """Take one span.

        Raises:
            BadRow: It breaks the schema.
        """
        tool, status = values.get("tool"), values.get("status")
        if status is not None and status not in names.TOOL_STATUSES:
            raise BadRow("status")
        batch = checked_id(values.get("batch", parent), 0)
        row = checked_id(values["row"], 0) if "row" in values else None
        turn = checked_id(values["turn"], 0) if "turn" in values else None
        words = (None if tool is None else checked_text(tool), status, error)
        self.batch.append(batch)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.row.append(row)
        self.turn.append(turn)
        self.word.append(self.words.setdefault(words, len(self.words)))

    def __len__(self) -> int:
        return len(self.batch)


def _tokens(values: Mapping[str, Any], name: str) -> int | None:
    if name not in values:
        return None
    value = checked_id(values[name], 0)
    if value >= _TOKENS_MAX:
        raise BadRow(name)
    return value
