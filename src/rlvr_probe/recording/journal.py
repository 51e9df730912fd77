"""What one process recorded, as it is decoded; rows of single trajectories are kept elsewhere.

Times are CLOCK_MONOTONIC of the machine the process ran on, ns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rlvr_probe.model.turns import LooseCallColumns
from rlvr_probe.recording.coarse import (
    RewardRow,
    SelectedRow,
    SessionRow,
    SpanRow,
    TrainedRow,
    TrajectoryRow,
    UsedRow,
)
from rlvr_probe.recording.devicerows import DeviceRows
from rlvr_probe.recording.elsewhere import WorkForOthers

__all__ = ["Journal"]


@dataclass(slots=True)
class Journal:
    """What one process recorded.

    Attributes:
        queued: Trajectories for a trainer to take from a queue; their step is not known here.
        taken: What a trainer took from one.
        selected: Which prompts a trainer kept.
        sifted: The same, of trajectories for a queue.
        whole_calls: Engine calls that do not tell their trajectories apart.
        applications: Trace and span id of the application's own span around one of ours, by its id.
        devices: What it read of devices, as the sidecar of its node.
        used: Devices that it told it works on.
        role: What it is to its job; empty if it never told. ``actor`` is its id as one.
        model_type: Architecture of the model that it trains for another process; empty if it did
            not tell.
        given: Kind and number of each accelerator that its cluster gave it on its machine.
        started: Actors that it asked for: id to class.
        left_ns: When it began to leave its job, which ended the others; 0 if it was not seen to.
        opened: Spans journaled as open and not finished since: id to (name, start, parent).
        totals: Count and summed duration, ns, of the spans that are not kept, by name.
        elsewhere: Of these, calls of reward functions for other processes.
        reported: Rows the process itself dropped, by reason: running totals, the last one counts.
        skipped: Rows this reader could not use, by reason.
        finished: Ids among the watched ones whose span has finished.
        ended: The journal was closed in an orderly way.
        returned: A training returned by itself.
        over_ns: When the last training that began returned by itself; 0 if it did not.
        level_reason: Why the level is what it is, if it ever changed.
        muted: Places where nothing was read from some time on: place to reason.
        last_ns: Time of the last row; 0 if there was none.
    """

    spans: list[SpanRow] = field(default_factory=list)
    sessions: list[SessionRow] = field(default_factory=list)
    trajectories: list[TrajectoryRow] = field(default_factory=list)
    rewards: list[RewardRow] = field(default_factory=list)
    queued: list[TrajectoryRow] = field(default_factory=list)
    taken: list[TrainedRow] = field(default_factory=list)
    selected: list[SelectedRow] = field(default_factory=list)
    sifted: list[SelectedRow] = field(default_factory=list)
    whole_calls: LooseCallColumns = field(default_factory=LooseCallColumns)
    applications: dict[int, tuple[str, str]] = field(default_factory=dict)
    devices: DeviceRows = field(default_factory=DeviceRows)
    used: UsedRow | None = None
    role: str = ""
    actor: str = ""
    spool_s: float | None = None
    model_type: str = ""
    given: tuple[str, ...] = ()
    started: dict[str, str] = field(default_factory=dict)
    left_ns: int = 0
    opened: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    elsewhere: WorkForOthers = field(default_factory=WorkForOthers)
    reported: dict[str, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    faults: dict[str, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    level: str = "full"
    level_reason: str = ""
    muted: dict[str, str] = field(default_factory=dict)
    own_ns: int | None = None
    ended: bool = False
    returned: bool = False
    over_ns: int = 0
    last_ns: int = 0
