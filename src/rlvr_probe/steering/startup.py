"""What ``rlvr-probe replay`` starts in each Python of a run, by ``rlvr_probe_boot.pth``.

Only where ``RLVR_PROBE_REPLAY`` is set, which that command does, and ``rlvr-probe run`` removes.
What goes wrong before a framework is imported cannot stop the training: it is reported to the
command, which then says that nothing was replayed.
"""

from __future__ import annotations

import os
import sys
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import cast

import wrapt

from rlvr_probe.config import REPLAY
from rlvr_probe.registry import load_all
from rlvr_probe.steering.contract import GROUP, Replay, Steering
from rlvr_probe.steering.plan import read_plan
from rlvr_probe.steering.progress import PLAN, Progress

__all__ = ["arm"]


_read_plan = cache(read_plan)
"""A process imports several modules of a framework."""


def arm(folder: Path) -> None:
    """Steer each framework, once it is imported, by the plan in ``folder``."""
    progress = Progress(folder)
    for plugin in load_all(GROUP):
        if plugin.error is not None:
            progress.failed(f"{plugin.source} cannot be loaded: {plugin.error}")
            continue
        replay = cast("Replay", plugin.made)
        for module in replay.modules:
            wrapt.register_post_import_hook(partial(_steer, replay, progress), module)


def _steer(replay: Replay, progress: Progress, module: ModuleType) -> None:
    """Runs inside the import of a framework: what it raises ends the training, and shall."""
    steering = Steering(_read_plan(progress.folder / PLAN), _say, progress.done)
    replay.steer(module, steering)
    progress.steered(replay.name)


def _say(text: str) -> None:
    print(f"rlvr-probe: replay: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for the user


arm(Path(os.environ[REPLAY]))
