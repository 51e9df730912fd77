"""The start-up hook: run by ``rlvr_probe_boot.pth`` in every Python process, if RLVR_PROBE is set.

It reaches pip, compile workers and helpers as well as ranks, so it only puts a finder in front of
the import system that finds nothing and looks at names. The rest of rlvr-probe is loaded when a
framework is first imported. A framework is known by the name of its entry point in the group
``rlvr_probe.integrations``, which is the name of its top-level package.
"""

from __future__ import annotations

import os
import sys

__all__ = ["Watcher", "arm_late", "wanted"]

_GROUP = "[rlvr_probe.integrations]"
_FALSE = ("", "0", "false", "no", "off")

# Tried by `site` and by `copy` in nearly every process, found in nearly none, never a framework.
_PROBED = frozenset({"org", "rlvr_probe", "sitecustomize", "usercustomize"})


class Watcher:
    """A finder for ``sys.meta_path`` that finds nothing and arms the probe once.

    Installed integrations are read from the metadata beside the packages when the first package
    that is not part of Python is imported, and again for every new folder of ``sys.path``. That is
    what ``importlib.metadata`` does, for a tenth of the time and memory; zip files are skipped.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._frameworks: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> object | None:
        """None, except for the first framework, which is found by the other finders."""
        if path is not None or name in sys.stdlib_module_names or name in _PROBED:
            return None
        # The one broad catch besides the guard, which is not loaded yet: this is inside the user's
        # import statement, and nothing is worth failing it.
        try:
            found = self._find(name)
        except Exception as error:  # noqa: BLE001
            try:
                _count(error)
            except Exception:  # noqa: BLE001, S110
                pass
            return None
        return found if hasattr(found, "loader") else None

    def _find(self, name: str) -> object | None:
        for folder in sys.path:
            if folder not in self._seen:
                self._seen.add(folder)
                self._frameworks |= _integrations(folder)
        # One may have been imported before its folder was on the path, by another .pth file.
        if name not in self._frameworks and not any(
            map(sys.modules.__contains__, self._frameworks)
        ):
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        _arm()
        if name not in self._frameworks:
            return None
        # Import hooks are finders too. The ones just set sit in front of the finder that is asked
        # next for this name and would miss it.
        from importlib.util import find_spec

        return find_spec(name)


def wanted() -> bool:
    """Whether the environment asks for the probe in this process."""
    environ = os.environ

    def true(variable: str) -> bool:
        return environ.get(variable, "").strip().lower() not in _FALSE

    # Spelled out and not taken from `config`, which costs more to import than all of this.
    return true("RLVR_PROBE") and not true("RLVR_PROBE_DISABLED")


def arm_late() -> None:
    """Arm now, if the probe is wanted here and not armed yet.

    For the plugins of a framework, which it loads in all its processes: in one that Python started
    without its ``.pth`` files the start-up hook was not there, and this is where it gets in. Costs
    a look at the environment where the probe is off, and changes nothing.
    """
    # The broad catch as in find_spec: this is inside the framework's start.
    try:
        watching = [finder for finder in list[object](sys.meta_path) if isinstance(finder, Watcher)]
        # Without one it has armed, and may have been detached since: that is the user's word.
        if watching and wanted():
            for finder in watching:
                sys.meta_path.remove(finder)  # type: ignore[arg-type]
            _arm()
    except Exception as error:  # noqa: BLE001
        try:
            _count(error)
        except Exception:  # noqa: BLE001, S110
            pass


def _arm() -> None:
    from rlvr_probe.config import Config
    from rlvr_probe.probe.attach import arm

    arm(Config.from_environ())


def _integrations(folder: str) -> set[str]:
    """Names of the integrations whose metadata lies in ``folder``."""
    found: set[str] = set()
    try:
        entries = os.listdir(folder or ".")
    except OSError:
        return found
    for entry in entries:
        if entry.endswith((".dist-info", ".egg-info")):
            try:
                with open(
                    os.path.join(folder, entry, "entry_points.txt"), encoding="utf-8"
                ) as file:
                    found.update(_names(file.read()))
            except (OSError, ValueError):
                continue
    return found


def _names(text: str) -> set[str]:
    group = text.partition(_GROUP)[2].partition("\n[")[0]
    return {line.partition("=")[0].strip() for line in group.splitlines() if "=" in line}


def _count(error: Exception) -> None:
    """Count an error where the others are, in case that something is recorded here after all."""
    from rlvr_probe import guard

    guard.note("boot", error, log=False)


try:
    if wanted():
        sys.meta_path.insert(0, Watcher())  # type: ignore[arg-type]
except Exception as _error:  # noqa: BLE001 - as in find_spec
    _count(_error)
