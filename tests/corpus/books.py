"""What the books of a recorded training say that the analysis says too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlvr_probe_openrlhf.tests import runs as openrlhf
from rlvr_probe_openrlhf.tests import test_workloads as of_openrlhf
from rlvr_probe_trl.tests import test_tools, train_tools
from rlvr_probe_trl.tests.truth import read_truth
from rlvr_probe_verl.tests import runs as verl
from rlvr_probe_verl.tests import test_workloads as of_verl

from tests.corpus.recordings import AGENT, OPENRLHF, TRL, VERL

__all__ = ["BOOKS", "Told"]

Requests = list[dict[str, Any]]

VERL_RESPONSE = 400
"""Tokens that a response of the recorded job may have."""


@dataclass(frozen=True)
class Told:
    """What was trained on; evaluations are left out.

    Attributes:
        steps: How many.
        groups: Prompts of all steps.
        prompts: Length of the prompt of every sample, sorted.
        responses: Length of every response, sorted, with what tools said.
        truncated: Responses that were cut off.
        turns: Of all samples; None where none is recorded.
        calls: Calls of tools in all samples, whose tool was reached or not.
    """

    steps: int
    groups: int
    prompts: list[int]
    responses: list[int]
    truncated: int
    turns: int | None
    calls: int | None


def _trl(folder: Path) -> Told:
    truth = read_truth(folder / "books", TRL.group_size)
    groups = [group for _, batch in truth.batches for group in batch]
    return Told(
        steps=len(truth.batches),
        groups=len(groups),
        prompts=sorted(group["input"] for group in groups for _ in group["output"]),
        responses=sorted(length for group in groups for length in group["output"]),
        truncated=sum(not ended for batch in truth.stopped for ended in batch),
        turns=None,
        calls=None,
    )


def _tools(folder: Path) -> Told:
    run = test_tools.Run(folder, "")
    numbers = test_tools.training(run)
    lines = [run.book("batches")[number] for number in numbers]
    turns = [turns for number in numbers for turns in test_tools.turns_of(run, number)]
    calls = [call for number in numbers for row in test_tools.calls_of(run, number) for call in row]
    # Two calls of each batch reach no tool: of none that exists, and with a wrong argument.
    return Told(
        steps=len(lines),
        groups=len(lines) * train_tools.ROWS // train_tools.GROUP,
        prompts=sorted(length for line in lines for length in line["prompts"]),
        responses=sorted(length for line in lines for length in line["responses"]),
        truncated=sum(not ended for line in lines for ended in line["stopped"]),
        turns=sum(map(len, turns)),
        calls=len(calls) + 2 * len(lines),
    )


def _verl(folder: Path) -> Told:
    run = verl.Finished(VERL, folder)
    steps = of_verl.training(run)
    samples = [requests for step in steps for requests in step]
    return _served(
        samples,
        steps=len(steps),
        groups=len(samples) // VERL.group_size,
        truncated=sum(_response(requests) >= VERL_RESPONSE for requests in samples),
        calls=_within(run.truth.tools, samples),
    )


def _openrlhf(folder: Path, scenario: openrlhf.Scenario = OPENRLHF) -> Told:
    run = openrlhf.Finished(scenario, folder)
    steps = of_openrlhf.training(run)
    samples = [requests for step in steps for requests in step]
    return _served(
        samples,
        steps=len(steps),
        groups=len(samples) // openrlhf.GROUP,
        truncated=sum(requests[-1]["reason"] == "length" for requests in samples),
        # A step of the environment follows each turn; the last one ends it, and is no call.
        calls=sum(len(requests) - 1 for requests in samples) if scenario.agent else None,
    )


def _response(requests: Requests) -> int:
    last = requests[-1]
    return len(last["prompt"]) + len(last["output"]) - len(requests[0]["prompt"])


def _within(calls: Requests, samples: Iterable[Requests]) -> int:
    """Calls between the first and the last turn that samples were trained on."""
    last = max(requests[-1]["end"] for requests in samples)
    return sum(call["end"] <= last for call in calls)


def _served(samples: list[Requests], **more: Any) -> Told:
    return Told(
        prompts=sorted(len(requests[0]["prompt"]) for requests in samples),
        responses=sorted(map(_response, samples)),
        turns=sum(map(len, samples)),
        **more,
    )


BOOKS: dict[str, Callable[[Path], Told]] = {
    "trl": _trl,
    "trl-tools": _tools,
    "verl": _verl,
    "openrlhf": _openrlhf,
    "openrlhf-agent": partial(_openrlhf, scenario=AGENT),
}
"""Reads the books in the folder of a training, by name of its recording."""
