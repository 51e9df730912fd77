"""Makes any one function of the probe faulty, in a process that imports it afterwards."""

from __future__ import annotations

import ast
import builtins
import os
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.faults.enumeration import inject

__all__ = ["GARBAGE", "KINDS", "RAISED", "Injector"]


class Injected(Exception):
    """An error of the probe."""


RAISED: dict[str, type[Exception]] = {
    "Exception": Injected,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
}
GARBAGE: dict[str, object] = {"none": None, "text": "garbage", "object": object()}
KINDS = (*RAISED, "sleep", *GARBAGE)

_SLEEP_S = 0.02
_SLEEPS = 3
_LOGGED = 20


class Injector(MetaPathFinder):
    """Compiles the modules it knows with a place for a fault in every function.

    Attributes:
        name: The function that is faulty, as :mod:`enumeration` names it; None for none.
        kind: How, one of :data:`KINDS`.
        first: A function that fails besides, so that :attr:`name` is called; empty for none.
        log: File descriptor that a line is written to for the first faults, with the process they
            struck; while :attr:`name` is None, for every function at its first call. Children
            inherit it.
        broken: What works without a fault may not work any more.
    """

    def __init__(self, modules: dict[str, Path]) -> None:
        """Know ``modules``, by dotted name."""
        self.name: str | None = None
        self.kind = self.first = ""
        self.log = -1
        self.broken = False
        self._fired = 0
        self._reached: set[str] = set()
        self._modules = modules
        self._compiled: dict[str, CodeType] = {}

    def install(self) -> None:
        """From here on, imports go through this injector."""
        loaded = [name for name in self._modules if name in sys.modules]
        if loaded:
            raise RuntimeError(f"imported before a fault can be put in: {loaded}")
        setattr(builtins, "__rlvr_fault__", self._fault)  # noqa: B010 - no name of Python's
        setattr(builtins, "__rlvr_garbage__", self._garbage)  # noqa: B010
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._modules.get(name)
        if file is None:
            return None
        folder = [str(file.parent)] if file.name == "__init__.py" else None
        loader = _Loader(name, str(file), self._compiled)
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=folder)

    def _fault(self, name: str) -> None:
        if self.log < 0:
            return
        if self.name is None:
            if name not in self._reached:
                self._reached.add(name)
                self._note(name)
            return
        if name == self.first:
            self.broken = True
            raise Injected("the first of two")
        if name != self.name or self.kind in GARBAGE:
            return
        self._note(name)
        if self.kind in RAISED:
            raise RAISED[self.kind]("injected")
        if self._fired <= _SLEEPS:
            time.sleep(_SLEEP_S)

    def _garbage(self, name: str, value: Any) -> Any:
        if name != self.name or self.kind not in GARBAGE:
            return value
        self._note(name)
        return GARBAGE[self.kind]

    def _note(self, name: str) -> None:
        self._fired += 1
        self.broken = self.kind != "sleep"
        if self.name is None or self._fired <= _LOGGED:
            os.write(self.log, f"{os.getpid()} {name}\n".encode())


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, compiled: dict[str, CodeType]) -> None:
        super().__init__(fullname, path)
        self._compiled = compiled

    def get_code(self, fullname: str) -> CodeType:
        # Not the cached bytecode, which has no faults in it. A process that is forked later finds
        # what was compiled before.
        if fullname not in self._compiled:
            path = self.get_filename(fullname)
            tree = inject(ast.parse(self.get_data(path), path), fullname)
            self._compiled[fullname] = compile(tree, path, "exec", dont_inherit=True)
        return self._compiled[fullname]
