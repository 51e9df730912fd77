"""Checks of ``packed_lengths_step_N.jsonl``: what PolyTrace's readers take for granted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlvr_probe_polytrace.extension_check import check_extension
from rlvr_probe_polytrace.fields import COUNT, FLAG, LENGTH, LENGTHS, Place, integer, integers
from rlvr_probe_polytrace.findings import Findings
from rlvr_probe_polytrace.reading import FileReader
from rlvr_probe_polytrace.sums import Share, StepSums

__all__ = ["PACKED_KEYS", "Limits", "check_packed"]

PACKED_KEYS = {
    "step": COUNT,
    "rank": COUNT,
    "dp_rank": COUNT,
    "tp_rank": COUNT,
    "local_index": COUNT,
    "input": LENGTH,
    "output": LENGTHS,
    "n_sampling": LENGTH,
    "validate": FLAG,
}


@dataclass(slots=True)
class Limits:
    """What must be the same in every step file of a directory.

    Attributes:
        response_cap: Longest response allowed, tokens; None if unknown.
        tp: Tensor-parallel size, from the first record that shows one.
        tp_from: File and line of that record.
    """

    response_cap: int | None = None
    tp: int | None = None
    tp_from: str = ""


def check_packed(reader: FileReader, step: int, limits: Limits, findings: Findings) -> StepSums:
    """Check one packed file and sum it up."""
    found = StepSums(step)
    indices: dict[int, set[int]] = {}
    for line, record in reader.records():
        place = Place(findings, reader.name, line)
        if not place.check(record, PACKED_KEYS):
            found.sound = False
            continue
        dp_rank, local_index = integer(record, "dp_rank"), integer(record, "local_index")
        outputs = integers(record, "output")
        _check_record(place, record, found, outputs)
        _check_rank(place, record, dp_rank, limits)
        if limits.response_cap is not None and max(outputs) > limits.response_cap:
            place.report("cap", "output", max(outputs), f"at most {limits.response_cap} tokens")
        if "x_rlvr" in record:
            check_extension(place.within("x_rlvr"), record["x_rlvr"], len(outputs))
        taken = indices.setdefault(dp_rank, set())
        if local_index in taken:
            place.report("unique", "local_index", local_index, f"each once on dp_rank {dp_rank}")
        taken.add(local_index)
        found.ranks.setdefault(dp_rank, integer(record, "rank"))
        found.shares.setdefault(dp_rank, Share()).add(integer(record, "input"), outputs)
    found.sound = found.sound and reader.whole
    if found.sound:
        # Otherwise a record that could not be read would be reported again as a gap.
        _check_shares(Place(findings, reader.name, None), found, indices)
    return found


def _check_record(
    place: Place, record: Mapping[str, object], found: StepSums, outputs: list[int]
) -> None:
    place.equal(record, "step", found.step, " as in the file name")
    place.equal(record, "validate", False, ": validation is no workload")
    place.equal(record, "tp_rank", 0)
    place.equal(record, "n_sampling", len(outputs), ", the length of output")
    if found.n is None:
        found.n = len(outputs)
    elif len(outputs) != found.n:
        place.report(
            "uniform n", "output", f"{len(outputs)} samples", f"{found.n} as on the lines before"
        )


def _check_rank(place: Place, record: Mapping[str, object], dp_rank: int, limits: Limits) -> None:
    """The global rank is the data-parallel rank times one tensor-parallel size."""
    rank = integer(record, "rank")
    if dp_rank == 0:
        if rank != 0:
            place.report("rank", "rank", rank, "0, because dp_rank is 0")
        return
    tp, rest = divmod(rank, dp_rank)
    if rest or tp < 1:
        place.report("rank", "rank", rank, f"a multiple of dp_rank {dp_rank}, at least {dp_rank}")
    elif limits.tp is None:
        limits.tp, limits.tp_from = tp, f"{place.file}:{place.line}"
    elif tp != limits.tp:
        expected = f"{dp_rank * limits.tp}: dp_rank times {limits.tp} as in {limits.tp_from}"
        place.report("rank", "rank", rank, expected)


def _check_shares(place: Place, found: StepSums, indices: Mapping[int, set[int]]) -> None:
    """Data-parallel ranks are dense, hold equally many prompts, and number them from 0."""
    if not indices:
        return
    if sorted(indices) != list(range(len(indices))):
        place.report("dp ranks", "dp_rank", sorted(indices), "every rank from 0, without a gap")
    for dp_rank, taken in sorted(indices.items()):
        if len(taken) != max(taken) + 1:
            missing = next(index for index in range(max(taken)) if index not in taken)
            place.report(
                "local index",
                "local_index",
                f"{len(taken)} values up to {max(taken)}, without {missing}, on dp_rank {dp_rank}",
                "every index from 0, without a gap",
            )
    counts = {dp_rank: share.prompts for dp_rank, share in sorted(found.shares.items())}
    if len(set(counts.values())) > 1:
        place.report("shares", "dp_rank", counts, "equally many prompts on every dp_rank")
