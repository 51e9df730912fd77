"""Which step of a run belongs to which step of the recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from rlvr_probe.analysis.fidelity.run import Run
from rlvr_probe.exceptions import RecordingError

__all__ = ["Pair", "pair_steps"]

Pair = tuple[int, int]
"""Number of a step of the recording, and of that of the other run."""


def pair_steps(recorded: Run, run: Run) -> list[Pair]:
    """Steps of both runs that belong together, in their order.

    Batch k of a replay is batch k of its plan, so its step is the one that the plan's was recorded
    in. Steps of other runs have the same number; of a log without numbers, the same place.

    Raises:
        RecordingError: There are none.
    """
    if run.in_order or recorded.in_order:
        if len(run.whole) != len(recorded.whole):
            raise RecordingError(
                f"{run.source} has {len(run.whole):,} steps and {recorded.source}"
                f" {len(recorded.whole):,}, and no numbers say which belong together; expected as"
                " many"
            )
        return list(zip(sorted(recorded.whole), sorted(run.whole), strict=True))
    if run.note is None:
        pairs = [(step, step) for step in sorted(recorded.whole.keys() & run.whole.keys())]
        has = f"{run.source} has {run.extent}"
    else:
        planned = run.note.steps
        pairs = [
            pair for pair in _of_plan(planned, [batch.step for batch in run.batches])
            if pair[0] in recorded.whole and pair[1] in run.whole
        ]  # fmt: skip
        has = f"{run.source} replayed steps {min(planned)} to {max(planned)} of {run.note.source}"
    if not pairs:
        raise RecordingError(
            f"{has}, and {recorded.source} has {recorded.extent}: no step of the one belongs to a"
            " step of the other; expected a run, and replays of it"
        )
    return pairs


def _of_plan(planned: Sequence[int], done: Sequence[int]) -> list[Pair]:
    """Steps of a plan and of its replay, by the step of each batch.

    A step is paired if the same batches were generated in both. Steps until the next batch train on
    the same samples again, and follow in both alike; where a batch feeds more steps in one of the
    runs, its steps are not paired.
    """
    theirs, ours = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
    batches = list(zip(planned, done, strict=False))
    for recorded, replayed in batches:
        theirs[recorded].add(replayed)
        ours[replayed].add(recorded)
    lengths = _until_next([recorded for recorded, _ in batches]), _until_next([*ours])
    return [
        (recorded + more, replayed + more)
        for recorded, replayed in sorted(set(batches))
        if len(theirs[recorded]) == len(ours[replayed]) == 1
        if lengths[0][recorded] == lengths[1][replayed]
        for more in range(lengths[0][recorded])
    ]


def _until_next(steps: Sequence[int]) -> dict[int, int]:
    """How many steps there are from each step to the next one; the last has as many as before."""
    known = sorted(set(steps))
    gaps = [after - step for step, after in pairwise(known)]
    return dict(zip(known, [*gaps, gaps[-1] if gaps else 1], strict=True))
