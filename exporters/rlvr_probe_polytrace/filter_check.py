"""Checks of ``dapo_filter_indices.jsonl``: which prompts of each batch DAPO kept and used."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from rlvr_probe_polytrace.fields import COUNT, COUNTS, LENGTH, Place, integer, integers
from rlvr_probe_polytrace.findings import Findings
from rlvr_probe_polytrace.layout import PACKED, step_file
from rlvr_probe_polytrace.reading import FileReader
from rlvr_probe_polytrace.sums import StepSums

__all__ = ["FILTER_KEYS", "FilterCheck"]

FILTER_KEYS = {
    "workload_step": COUNT,
    "trainer_step": LENGTH,
    "gen_batch_index": LENGTH,
    "prompt_count": LENGTH,
    "n_sampling": LENGTH,
    "train_batch_size": LENGTH,
    "num_prompt_in_batch_before": COUNT,
    "kept_prompt_count": COUNT,
    "used_prompt_count": COUNT,
    "kept_prompt_indices": COUNTS,
    "used_prompt_indices": COUNTS,
}


class FilterCheck:
    """Reads the filter file once, line by line.

    Attributes:
        steps: Workload steps it has a line for.
    """

    def __init__(self, findings: Findings) -> None:
        self.steps: set[int] = set()
        self._findings = findings
        self._previous: tuple[int, int] | None = None
        self._batches = 0
        self._kept = 0

    def run(
        self, reader: FileReader, packed: Mapping[int, StepSums], *, steps: set[int] | None
    ) -> None:
        """Check every line.

        Args:
            reader: Of the filter file.
            packed: Judged packed files by step.
            steps: Only these were to be judged; None for all.
        """
        for line, record in reader.records():
            place = Place(self._findings, reader.name, line)
            if not place.check(record, FILTER_KEYS):
                continue
            step = integer(record, "workload_step")
            if step in self.steps:
                place.report("unique", "workload_step", step, "each step once")
            self.steps.add(step)
            self._check_indices(place, record)
            self._check_sequence(place, record)
            if step in packed:
                self._check_packed(place, record, packed[step])
            elif steps is None:
                expected = f"a step that has a file: there is no {step_file(PACKED, step)}"
                place.report("packed", "workload_step", step, expected)

    def _check_indices(self, place: Place, record: Mapping[str, object]) -> None:
        prompts = integer(record, "prompt_count")
        kept, used = (
            integers(record, "kept_prompt_indices"),
            integers(record, "used_prompt_indices"),
        )
        for name, indices in (("kept", kept), ("used", used)):
            key = f"{name}_prompt_indices"
            if any(left >= right for left, right in pairwise(indices)):
                place.report(f"{name} order", key, indices, "ascending indices, each once")
            if indices and max(indices) >= prompts:
                place.report(f"{name} range", key, max(indices), f"less than {prompts} prompts")
            place.equal(record, f"{name}_prompt_count", len(indices), f", the length of {key}")
        room = max(
            0, integer(record, "train_batch_size") - integer(record, "num_prompt_in_batch_before")
        )
        if used != kept[:room] and not (len(kept) == prompts and used == kept):
            place.report("used", "used_prompt_indices", used, f"the first {room} kept indices")

    def _check_sequence(self, place: Place, record: Mapping[str, object]) -> None:
        """Batches of a trainer step are counted from 1, and add up what was kept before."""
        step, trainer_step = integer(record, "workload_step"), integer(record, "trainer_step")
        if self._previous is not None and step <= self._previous[0]:
            place.report("order", "workload_step", step, f"more than {self._previous[0]}")
        if self._previous is not None and trainer_step < self._previous[1]:
            place.report("trainer order", "trainer_step", trainer_step, f">= {self._previous[1]}")
        if self._previous is None or trainer_step != self._previous[1]:
            self._batches, self._kept = 0, 0
        self._batches += 1
        place.equal(record, "gen_batch_index", self._batches, f" in trainer step {trainer_step}")
        kept = len(integers(record, "kept_prompt_indices"))
        if kept != integer(record, "prompt_count"):
            place.equal(
                record, "num_prompt_in_batch_before", self._kept, ", kept on the lines before"
            )
        self._kept += kept
        self._previous = (step, trainer_step)

    def _check_packed(self, place: Place, record: Mapping[str, object], packed: StepSums) -> None:
        if not packed.sound:
            return
        place.equal(record, "prompt_count", packed.prompts, ", the records of the packed file")
        if packed.n is not None:
            place.equal(record, "n_sampling", packed.n, " as in the packed file")
