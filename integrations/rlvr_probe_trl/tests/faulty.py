"""A real training in which every function of the integration is faulty once.

``python faulty.py KIND ...`` with the arguments of ``train.py``; the kind ``bare`` is no probe, and
``-`` no fault. Besides what ``train.py`` writes, ``said.json`` holds the functions that were
called, those that were struck, and how many errors the guard had counted at the end.

A function is struck at its first call. So the first calls of a reader fail at the reader, the next
ones at what it calls, and in the end everything was struck and all of it works again.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from tests.faults.enumeration import KIT, adapter_modules  # noqa: E402
from tests.faults.injection import GARBAGE, RAISED, Injector  # noqa: E402

FOLDER = "rlvr_probe_trl"
AT_ATTACH = ("adapter:TrlAdapter.",)
THIN = ("steps:Steps.on_", "steps:Steps.__reduce__", "steps:_idle", "steps:_nothing")
"""Called by transformers, or by copying: they hand over to a guarded function, and nothing else."""

CACHED = ("steps:_callback_class",)
"""Its first answer is kept for the process: nonsense would be struck again and again."""


class OnceEach(Injector):
    """Strikes each function once; what decides at attach() whether there are hooks at all, never.

    Attributes:
        armed: From here on.
        struck: Functions that were, in order.
        reached: Those that were called.
    """

    def __init__(self, kind: str) -> None:
        modules = adapter_modules()
        folders = (FOLDER, KIT)
        super().__init__({name: modules[name] for name in modules if name.startswith(folders)})
        self.kind = kind
        self.armed = False
        self.struck: list[str] = []
        self.reached: dict[str, None] = {}

    def _fault(self, name: str) -> None:
        if not self.armed:
            return
        self.reached[name] = None
        if self.kind in GARBAGE or not self._due(name):
            return
        if self.kind in RAISED:
            raise RAISED[self.kind]("injected")
        if self.kind == "sleep":
            time.sleep(0.02)

    def _garbage(self, name: str, value: Any) -> Any:
        due = self.armed and self.kind in GARBAGE and self._due(name)
        return GARBAGE[self.kind] if due else value

    def _due(self, name: str) -> bool:
        spared = name.partition(":")[0].removeprefix(f"{FOLDER}.") + ":" + name.partition(":")[2]
        if name in self.struck or spared.startswith((*AT_ATTACH, *THIN)):
            return False
        if self.kind in GARBAGE and spared in CACHED:
            return False
        self.struck.append(name)
        return True


def main() -> None:
    kind = sys.argv.pop(1)
    injector = OnceEach(kind)
    injector.install()
    train: Any = importlib.import_module("train")
    if kind != "bare":
        train.attach()
        injector.armed = True
    train.main()
    said: dict[str, Any] = {"struck": injector.struck, "reached": list(injector.reached)}
    if kind != "bare":
        import rlvr_probe
        from rlvr_probe import guard

        rlvr_probe.detach()
        said["faults"] = [[*key, count] for key, count in guard.faults().items()]
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    (out / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
    sys.exit(0)
