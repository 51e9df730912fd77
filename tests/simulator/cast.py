"""The processes of a simulated job, each with the journal that a real one would write."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from rlvr_probe.model import names
from tests.simulator.draws import SECOND
from tests.simulator.setting import Scenario, Setting
from tests.synthetic import EPOCH_NS, MONO_NS, Process

__all__ = ["Cast", "uuid"]

_BOOT = "00000000-0000-4000-8000-{:012d}"
_HOUR = 3_600 * SECOND


def uuid(gpu: int) -> str:
    """Name of a GPU."""
    return f"GPU-{gpu:08x}-0000-4000-8000-{gpu:012x}"


class Cast:
    """Makes the processes and keeps them.

    Attributes:
        members: All of them.
        rows: Rows written, definitions left out.
    """

    def __init__(self, folder: Path, setting: Setting) -> None:
        self.folder = folder
        self.scenario: Scenario = setting.scenario
        self.effects = setting.effects
        self.members: list[Process] = []
        self.rows = 0
        # Every journal is an open file.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = 64 + 4 * self.scenario.gpus
        if soft < needed:
            allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))

    def member(
        self,
        role: str,
        *,
        node: int = 0,
        start: int = 0,
        owner: Process | None = None,
        starter: Process | None = None,
        rank: int | None = None,
        gpu: int | None = None,
        job: str = "00000000000000aa",
        **header: Any,
    ) -> Process:
        """One process.

        Args:
            role: Class of its actor, ``driver`` or ``sidecar``; empty for one that tells none.
            node: Machine that it runs on.
            start: When it begins, ns.
            owner: Process that started it, as its header says.
            starter: Actor that asked for it.
            rank: Of its header, where it has one.
            gpu: Device that it works on.
            job: Key of its launch.
            header: More of its header.
        """
        number = len(self.members)
        mono = MONO_NS + node * _HOUR + start
        given: dict[str, Any] = {"host": f"node-{node + 1}", "boot": _BOOT.format(node + 1)}
        given |= {"mono_ns": mono, "job": job, "owner": owner.key if owner else None}
        given["epoch_ns"] = EPOCH_NS + start + self.effects.clock_ns(node)
        if rank is not None:
            size = self.scenario.ranks
            local = rank % self.scenario.gpus_per_node
            given |= {"rank": rank, "local_rank": local, "world_size": size}
        one = Process(self.folder, number, header=given | header, start_ns=start)
        self.members.append(one)
        if role:
            actor = {"actor": f"actor-{number}"} if starter else {}
            one.event(names.PROCESS, start + 1, role=role, **actor)
            if starter:
                starter.event(names.STARTED, start, role=role, **actor)
        if gpu is not None:
            one.event(names.DEVICES_USED, start + SECOND, uuids=[uuid(gpu)], how="torch")
        return one

    def flush(self) -> None:
        """Write what waits."""
        self.rows += sum(one.flush() for one in self.members)

    def close(self, end: int, own_ns: dict[str, int]) -> None:
        """End every journal; ``own_ns`` is the probe's own time by process key."""
        for one in self.members:
            self.rows += one.flush()
            at = end - (one.start_ns or 0)
            about = [("own", at, own_ns.get(one.key, 100_000)), ("end", at, "exit")]
            one.writer.write(about, records=False)
            one.writer.close()
