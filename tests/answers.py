"""Tests of a job with vLLM's own engine: what was recorded of its answers is what it gave.

A module of tests imports the class, and has two fixtures: ``run`` is the job, whose books have the
token ids of each request, and ``samples`` is how many it trained on and how many it evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

from rlvr_probe.model.batch import Trajectory
from rlvr_probe.model.requests import Request
from rlvr_probe.model.trace import Trace

__all__ = ["TestAnswers"]


class Books(Protocol):
    """What a job wrote down itself."""

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Each with ``prompt`` and ``output``, token ids as the engine gave them to who asked."""


class Run(Protocol):
    """A job that is over."""

    @property
    def truth(self) -> Books:
        """Its books."""

    @property
    def trace(self) -> Trace:
        """What was recorded."""


def given(run: Run) -> Counter[Any]:
    """Lengths of every answer, as the engine gave it."""
    return Counter((len(line["prompt"]), len(line["output"])) for line in run.truth.requests)


def lengths(found: Iterable[Trajectory | Request]) -> Counter[Any]:
    """The same, as they were recorded."""
    return Counter((one.prompt_tokens, one.response_tokens) for one in found)


class TestAnswers:
    """The same of every framework whose engine is asked for each turn."""

    def test_every_length_is_that_of_the_answer_that_the_engine_gave(
        self, run: Run, samples: tuple[int, int]
    ) -> None:
        trained, evaluated = (
            [
                sample
                for step in run.trace.steps()
                for batch in getattr(step, kind)
                for group in batch.groups()
                for sample in group.trajectories
            ]
            for kind in ("batches", "evaluations")
        )
        assert (len(trained), len(evaluated)) == samples
        assert lengths([*trained, *evaluated]) == given(run)
        assert len({tokens for _, tokens in given(run)}) > 2

    def test_every_turn_has_its_request_with_its_times(self, run: Run) -> None:
        [attempt] = run.trace.attempts
        assert lengths(attempt.requests) == given(run)
        assert attempt.unjoined_requests == 0
        for one in attempt.requests:
            assert None not in (one.queue_s, one.prefill_s, one.decode_s, one.cached_tokens)

    def test_weights_go_to_the_engine_in_every_step(self, run: Run) -> None:
        for step in run.trace.steps():
            assert "weight_sync" in {span.name for span in step.spans}

    def test_nothing_is_lost_and_nothing_went_wrong(self, run: Run) -> None:
        assert run.trace.lost == {}
        assert {tuple(process.faults) for process in run.trace.processes} == {()}
