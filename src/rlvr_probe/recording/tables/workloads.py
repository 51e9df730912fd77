"""Fills the tables from a workload directory: what its files do not say is NULL."""

from __future__ import annotations

from rlvr_probe.model.given import GivenWorkload
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.tables.generated_rows import Numbers, fill_batch
from rlvr_probe.recording.tables.schema import BY_NAME

__all__ = ["fill_workload"]


def fill_workload(bulk: Bulk, given: GivenWorkload) -> None:
    """Put everything that ``given`` says into the tables of ``bulk``."""
    bulk.add(
        BY_NAME["run"],
        [
            (
                given.name, None, "workload", given.framework, given.framework_version,
                given.algorithm, given.engine, given.rollout_tp, given.accelerators,
                given.group_size, given.max_prompt_tokens, given.max_response_tokens, None,
            )
        ],
    )  # fmt: skip
    bulk.add(
        BY_NAME["process"],
        (
            _row(BY_NAME["process"].names, process=one, rank=rank)
            for one, rank in given.ranks.items()
        ),
    )
    steps = dict[tuple[int, int], int]()
    for one in given.batches:
        steps.setdefault((one.session, one.batch.step), len(steps))
    bulk.add(
        BY_NAME["step"],
        (
            _row(BY_NAME["step"].names, step_id=at, session=session, number=number)
            for (session, number), at in steps.items()
        ),
    )
    numbers = Numbers()
    for one in given.batches:
        fill_batch(bulk, one, steps[one.session, one.batch.step], numbers)


def _row(names: tuple[str, ...], **known: int) -> list[int | None]:
    return [known.get(name) for name in names]
