"""Requests of inference engines, kept in columns: a run can have millions."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan, nan
from operator import eq

from rlvr_probe.model import names
from rlvr_probe.model.columns import LazyColumn, SparseColumn

__all__ = ["Request", "RequestColumns"]


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence that an inference engine generated."""

    process: int
    """Of what recorded it: the process that asked, where that is known."""
    start_ns: int
    """When it was given to the engine."""
    end_ns: int
    prompt_tokens: int | None
    response_tokens: int | None
    cached_tokens: int | None
    """Of its prompt, found in the engine's cache."""
    queue_s: float | None
    """Until it was first scheduled, s."""
    prefill_s: float | None
    """From then to its first token, s."""
    decode_s: float | None
    """From its first token to its end, s."""
    preemptions: int | None
    """How often it lost its place in the engine's cache."""
    finish: str | None
    """One of ``names.FINISHES``."""


class RequestColumns(LazyColumn[Request]):
    """Requests; one is made when it is asked for."""

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        """Take ``requests``."""
        self._process = array("I")
        self._start, self._end = array("q"), array("q")
        self._tokens = (SparseColumn(), SparseColumn(), SparseColumn())
        self._seconds = (array("d"), array("d"), array("d"))
        self._preemptions = SparseColumn()
        self._finish = array("b")
        for request in requests:
            self.append(request)

    def append(self, request: Request) -> None:
        """Take a request."""
        self._process.append(request.process)
        self._start.append(request.start_ns)
        self._end.append(request.end_ns)
        tokens = request.prompt_tokens, request.response_tokens, request.cached_tokens
        for column, count in zip(self._tokens, tokens, strict=True):
            column.append(count)
        times = request.queue_s, request.prefill_s, request.decode_s
        for measured, value in zip(self._seconds, times, strict=True):
            measured.append(nan if value is None else value)
        self._preemptions.append(request.preemptions)
        self._finish.append(-1 if request.finish is None else names.FINISHES.index(request.finish))

    def _value(self, at: int) -> Request:
        prompt, response, cached = (column[at] for column in self._tokens)
        queue, prefill, decode = (
            None if isnan(value) else value for value in (column[at] for column in self._seconds)
        )
        finish = self._finish[at]
        return Request(
            process=self._process[at],
            start_ns=self._start[at],
            end_ns=self._end[at],
            prompt_tokens=prompt,
            response_tokens=response,
            cached_tokens=cached,
            queue_s=queue,
            prefill_s=prefill,
            decode_s=decode,
            preemptions=self._preemptions[at],
            finish=None if finish < 0 else names.FINISHES[finish],
        )

    def __len__(self) -> int:
        return len(self._start)

    def __eq__(self, other: object) -> bool:
        """Whether they hold the same requests in the same order."""
        if not isinstance(other, RequestColumns):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))
