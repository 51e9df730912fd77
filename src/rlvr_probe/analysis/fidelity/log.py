"""Times of steps in a log of verl, or of a PolyTrace replay: a line for each step.

verl prints ``step:3 - timing_s/gen:12.5 - ...``, and so does a workload's ``formal.log``. A replay
of PolyTrace prints a ``.../metrics: {'timing_s/gen': 12.5, ...}``, which has no step of a trainer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from rlvr_probe.analysis.fidelity.run import Run
from rlvr_probe.analysis.stages import ALL
from rlvr_probe.exceptions import RecordingError

__all__ = ["read_log"]

_STAGES: Final = {
    "step": ALL.name, "gen": "rollout", "reward": "reward", "old_log_prob": "logprob",
    "ref": "logprob", "values": "logprob", "update_actor": "update", "update_critic": "update",
    "update_weights": "weight_sync", "save_checkpoint": "checkpoint", "testing": "evaluation",
}  # fmt: skip
"""Our stage for each of verl's timers; others are in the step alone."""

_TIMER: Final = re.compile(r"timing_s/(\w+)'?: ?(?:np\.float\d+\()?(\d[\d.]*(?:e[-+]?\d+)?)")
_STEP: Final = re.compile(r"(?:^|[\s)])(?:step|training/global_step):(\d+)(?:\.0)? - ")
_REPLAY: Final = "/metrics:"


def read_log(path: Path) -> Run:
    """The run that a log is of. A timer that is missing in a line is unknown.

    Raises:
        RecordingError: No line has the time of a step.
    """
    stages = defaultdict[str, dict[int, float]](dict)
    lines, numbered = 0, True
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            timers = _TIMER.findall(line)
            named = _STEP.search(line)
            if not timers or (named is None and _REPLAY not in line):
                continue
            lines += 1
            numbered = numbered and named is not None
            step = int(named[1]) if named is not None else lines
            sums = defaultdict[str, float](float)
            for timer, seconds in timers:
                if timer in _STAGES:
                    sums[_STAGES[timer]] += float(seconds)
            for stage, seconds in sums.items():
                stages[stage][step] = seconds
    whole = stages.pop(ALL.name, {})
    if not whole:
        raise RecordingError(
            f"{path.name} has no line with timing_s/step; expected a run folder, or a log of verl"
            " or of a PolyTrace replay"
        )
    verified = frozenset(stages.get("reward", ()))
    return Run(path.name, whole, stages, in_order=not numbered, verified=verified)
