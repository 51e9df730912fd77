"""Checks of ``reward_timings_step_N.jsonl`` against the packed file of the same step."""

from __future__ import annotations

from collections.abc import Mapping

from rlvr_probe_polytrace.fields import COUNT, FLAG, LENGTH, SECONDS, TOTAL, Place, integer, number
from rlvr_probe_polytrace.findings import Findings
from rlvr_probe_polytrace.reading import FileReader
from rlvr_probe_polytrace.sums import StepSums

__all__ = ["REWARD_KEYS", "check_rewards"]

REWARD_KEYS = {
    "step": COUNT,
    "rank": COUNT,
    "tp_rank": COUNT,
    "dp_rank": COUNT,
    "batch_size": LENGTH,
    "reward_time_s": SECONDS,
    "response_sum": TOTAL,
    "response_mean": SECONDS,
    "response_max": LENGTH,
    "validate": FLAG,
}


def check_rewards(
    reader: FileReader, step: int, packed: StepSums | None, findings: Findings
) -> None:
    """Check one reward file; ``packed`` is None where the packed file is not judged."""
    seen: set[int] = set()
    whole = True
    for line, record in reader.records():
        place = Place(findings, reader.name, line)
        if not place.check(record, REWARD_KEYS):
            whole = False
            continue
        place.equal(record, "step", step, " as in the file name")
        place.equal(record, "validate", False, ": validation is no workload")
        place.equal(record, "tp_rank", 0)
        dp_rank = integer(record, "dp_rank")
        if dp_rank in seen:
            place.report("unique", "dp_rank", dp_rank, "one line per dp_rank")
        seen.add(dp_rank)
        if packed is None or not packed.sound:
            continue
        if dp_rank not in packed.shares:
            expected = f"one of the {len(packed.shares)} of the packed file"
            place.report("dp rank", "dp_rank", dp_rank, expected)
            continue
        place.equal(record, "rank", packed.ranks[dp_rank], " as in the packed file")
        _check_sums(place, record, packed, dp_rank)
    if whole and reader.whole and packed is not None and packed.sound:
        missing = sorted(set(packed.shares) - seen)
        if missing:
            place = Place(findings, reader.name, None)
            place.report(
                "missing dp",
                "dp_rank",
                f"no line for {len(missing)}, the first is {missing[0]}",
                "one per dp_rank",
            )


def _check_sums(place: Place, record: Mapping[str, object], packed: StepSums, dp_rank: int) -> None:
    share = packed.shares[dp_rank]
    place.equal(record, "batch_size", share.samples, ", the outputs of this dp_rank")
    place.equal(record, "response_sum", share.response_tokens, ", their sum in the packed file")
    place.equal(record, "response_max", share.longest, ", their maximum in the packed file")
    mean, expected = number(record, "response_mean"), share.response_tokens / share.samples
    if abs(mean - expected) >= 1e-6 * max(1.0, mean):
        place.report("mean", "response_mean", mean, f"{expected}, their mean in the packed file")
