"""Checks of packed lengths, reward timings and filter indices beyond keys and types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from msgspec import UNSET, structs

from rlvr_probe_polytrace.files import PACKED, FileReader, step_file
from rlvr_probe_polytrace.findings import Location
from rlvr_probe_polytrace.records import (
    Extension,
    FilterRecord,
    PackedRecord,
    RewardRecord,
    Share,
    StepTotals,
)

__all__ = ["Limits", "check_extension", "check_filter", "check_packed", "check_rewards"]

_MAX_FIELD = 60
"""Longest name taken over from a file into a report, characters."""


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


def check_packed(reader: FileReader, step: int, limits: Limits) -> StepTotals:
    """Check one packed file, which PolyTrace's readers take for granted, and sum it up."""
    totals = StepTotals(step)
    indices: dict[int, set[int]] = {}
    for location, record in reader.records(PackedRecord):
        outputs, dp_rank = record.output, record.dp_rank
        _check_constants(location, record, step)
        location.equal("n_sampling", record.n_sampling, len(outputs), ", the length of output")
        if totals.n is None:
            totals.n = len(outputs)
        elif len(outputs) != totals.n:
            expected = f"{totals.n} as on the lines before"
            location.report("uniform n", "output", f"{len(outputs)} samples", expected)
        _check_rank(location, record, limits)
        if limits.response_cap is not None and max(outputs) > limits.response_cap:
            location.report("cap", "output", max(outputs), f"at most {limits.response_cap} tokens")
        if record.x_rlvr is not UNSET:
            check_extension(location.within("x_rlvr"), record.x_rlvr, len(outputs))
        taken = indices.setdefault(dp_rank, set())
        if record.local_index in taken:
            expected = f"each once on dp_rank {dp_rank}"
            location.report("unique", "local_index", record.local_index, expected)
        taken.add(record.local_index)
        totals.ranks.setdefault(dp_rank, record.rank)
        totals.shares.setdefault(dp_rank, Share()).add(record.input, outputs)
    totals.sound = reader.whole
    if totals.sound and indices:
        # Otherwise a record that could not be read would be reported again as a gap.
        _check_shares(reader.location, totals, indices)
    return totals


def check_extension(location: Location, extension: Extension, n: int) -> None:
    """Check that every list in ``x_rlvr`` of a prompt is as long as ``output``."""
    for key, value in structs.asdict(extension).items():
        columns = value if isinstance(value, dict) else {None: value}
        for name, column in columns.items():
            if isinstance(column, list) and len(column) != n:
                field = ascii(key if name is None else f"{key}.{name}")[1:-1][:_MAX_FIELD]
                found, expected = f"{len(column)} values", f"{n}, one per sample"
                location.report("extension", field, found, expected)


def _check_constants(location: Location, record: PackedRecord | RewardRecord, step: int) -> None:
    location.equal("step", record.step, step, " as in the file name")
    location.equal("validate", record.validate, False, ": a workload has no validation")
    location.equal("tp_rank", record.tp_rank, 0)


def _check_rank(location: Location, record: PackedRecord, limits: Limits) -> None:
    """The global rank is the data-parallel rank times one tensor-parallel size."""
    rank, dp_rank = record.rank, record.dp_rank
    if dp_rank == 0:
        location.equal("rank", rank, 0, ", because dp_rank is 0")
        return
    tp, rest = divmod(rank, dp_rank)
    if rest or tp < 1:
        expected = f"a multiple of dp_rank {dp_rank}, at least {dp_rank}"
        location.report("rank", "rank", rank, expected)
    elif limits.tp is None:
        limits.tp, limits.tp_from = tp, f"{location.file}:{location.line}"
    elif tp != limits.tp:
        expected = f"{dp_rank * limits.tp}: dp_rank times {limits.tp} as in {limits.tp_from}"
        location.report("rank", "rank", rank, expected)


def _check_shares(location: Location, totals: StepTotals, indices: Mapping[int, set[int]]) -> None:
    """Data-parallel ranks are dense, hold equally many prompts, and number them from 0."""
    if sorted(indices) != list(range(len(indices))):
        expected = "every rank from 0, without a gap"
        location.report("dp ranks", "dp_rank", sorted(indices), expected)
    for dp_rank, taken in sorted(indices.items()):
        if len(taken) != max(taken) + 1:
            missing = next(index for index in range(max(taken)) if index not in taken)
            location.report(
                "local index",
                "local_index",
                f"{len(taken)} values up to {max(taken)}, without {missing}, on dp_rank {dp_rank}",
                "every index from 0, without a gap",
            )
    counts = {dp_rank: share.prompts for dp_rank, share in sorted(totals.shares.items())}
    if len(set(counts.values())) > 1:
        location.report("shares", "dp_rank", counts, "equally many prompts on every dp_rank")


def check_rewards(reader: FileReader, step: int, packed: StepTotals | None) -> None:
    """Check one reward file; ``packed`` is None where the packed file is not judged."""
    seen: set[int] = set()
    if packed is not None and not packed.sound:
        packed = None
    for location, record in reader.records(RewardRecord):
        dp_rank = record.dp_rank
        _check_constants(location, record, step)
        if dp_rank in seen:
            location.report("unique", "dp_rank", dp_rank, "one line per dp_rank")
        seen.add(dp_rank)
        if packed is None:
            continue
        if dp_rank not in packed.shares:
            expected = f"one of the {len(packed.shares)} of the packed file"
            location.report("dp rank", "dp_rank", dp_rank, expected)
            continue
        location.equal("rank", record.rank, packed.ranks[dp_rank], " as in the packed file")
        _check_sums(location, record, packed.shares[dp_rank])
    missing = [] if packed is None else sorted(packed.shares.keys() - seen)
    if missing and reader.whole:
        found = f"no line for {len(missing)}, the first is {missing[0]}"
        reader.location.report("missing dp", "dp_rank", found, "one per dp_rank")


def _check_sums(location: Location, record: RewardRecord, share: Share) -> None:
    for field, value, expected, why in (
        ("batch_size", record.batch_size, share.samples, "the outputs of this dp_rank"),
        ("response_sum", record.response_sum, share.response_tokens, "their sum"),
        ("response_max", record.response_max, share.longest, "their maximum"),
    ):
        location.equal(field, value, expected, f", {why} in the packed file")
    mean, expected_mean = record.response_mean, share.response_tokens / share.samples
    if abs(mean - expected_mean) >= 1e-6 * max(1.0, mean):
        expected_text = f"{expected_mean}, their mean in the packed file"
        location.report("mean", "response_mean", mean, expected_text)


def check_filter(
    reader: FileReader, packed: Mapping[int, StepTotals], steps: set[int] | None
) -> set[int]:
    """Check the filter file; the workload steps that it has a line for.

    Args:
        reader: Of the file.
        packed: Judged packed files by step.
        steps: Only these were to be judged; None for all.
    """
    seen: set[int] = set()
    previous: FilterRecord | None = None
    ordinal = before = 0
    for location, record in reader.records(FilterRecord):
        step = record.workload_step
        if step in seen:
            location.report("unique", "workload_step", step, "each step once")
        seen.add(step)
        _check_indices(location, record)
        if previous is not None:
            _check_order(location, record, previous)
        if previous is None or record.trainer_step != previous.trainer_step:
            ordinal = before = 0
        # Batches of a trainer step are counted from 1, and add up what was kept before.
        ordinal += 1
        why = f" in trainer step {record.trainer_step}"
        location.equal("gen_batch_index", record.gen_batch_index, ordinal, why)
        kept, why = len(record.kept_prompt_indices), ", kept on the lines before"
        if kept != record.prompt_count:
            field, found = "num_prompt_in_batch_before", record.num_prompt_in_batch_before
            location.equal(field, found, before, why)
        before += kept
        previous = record
        if step not in packed:
            if steps is None:
                expected = f"a step that has a file: there is no {step_file(PACKED, step)}"
                location.report("packed", "workload_step", step, expected)
        elif packed[step].sound:
            prompts, n = packed[step].prompts, packed[step].n or record.n_sampling
            why = ", the records of the packed file"
            location.equal("prompt_count", record.prompt_count, prompts, why)
            location.equal("n_sampling", record.n_sampling, n, " as in the packed file")
    return seen


def _check_order(location: Location, record: FilterRecord, previous: FilterRecord) -> None:
    if record.workload_step <= previous.workload_step:
        expected = f"more than {previous.workload_step}"
        location.report("order", "workload_step", record.workload_step, expected)
    if record.trainer_step < previous.trainer_step:
        expected = f"at least {previous.trainer_step}"
        location.report("trainer order", "trainer_step", record.trainer_step, expected)


def _check_indices(location: Location, record: FilterRecord) -> None:
    prompts, kept, used = (
        record.prompt_count,
        record.kept_prompt_indices,
        record.used_prompt_indices,
    )
    for name, indices, count in (
        ("kept", kept, record.kept_prompt_count),
        ("used", used, record.used_prompt_count),
    ):
        key = f"{name}_prompt_indices"
        if any(left >= right for left, right in pairwise(indices)):
            location.report(f"{name} order", key, indices, "ascending indices, each once")
        if indices and max(indices) >= prompts:
            location.report(f"{name} range", key, max(indices), f"less than {prompts} prompts")
        location.equal(f"{name}_prompt_count", count, len(indices), f", the length of {key}")
    room = max(0, record.train_batch_size - record.num_prompt_in_batch_before)
    if used != kept[:room] and not (len(kept) == prompts and used == kept):
        location.report("used", "used_prompt_indices", used, f"the first {room} kept indices")
