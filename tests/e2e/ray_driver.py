"""Asks a Ray cluster for all that is said of runs: ``ray_driver.py ADDRESS KILLED RUN...``.

Prints JSON: what was said of each run by its path, and how many tasks were killed. With a KILLED
above 0, that many processes are killed in the middle of a task, no task twice.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from apart import said

from rlvr_probe.analysis.ray_engine import on_ray

_TASKS = (b"ray::_decode", b"ray::_answer")


class Killer(threading.Thread):
    """Kills processes of this cluster that are in a task, of each kind in turn."""

    def __init__(self, count: int) -> None:
        super().__init__(daemon=True)
        self.killed: list[int] = []
        self.over = threading.Event()
        self._count = count

    def run(self) -> None:
        while len(self.killed) < self._count and not self.over.wait(0.05):
            title = _TASKS[len(self.killed) % len(_TASKS)]
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                pid = int(path.parent.name)
                if self._is_in(path, title) and pid not in self.killed:
                    time.sleep(0.2)  # into its work
                    if self._is_in(path, title):
                        os.kill(pid, signal.SIGKILL)
                        self.killed.append(pid)
                        break

    def _is_in(self, path: Path, title: bytes) -> bool:
        try:
            own = f"THIS_CLUSTER={os.environ['THIS_CLUSTER']}\0".encode()
            environ = path.with_name("environ").read_bytes()
            return path.read_bytes().startswith(title) and own in environ
        except OSError:
            return False


def main(address: str, killed: str, *runs: str) -> None:
    killer = Killer(int(killed))
    with on_ray(address if address.startswith("ray://") else None, print, made=True) as engine:
        killer.start()
        answers = {run: said(Path(run), engine) for run in runs}
        killer.over.set()
        killer.join()
    print(json.dumps({"said": answers, "killed": len(killer.killed)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
