"""Which package the module ``pynvml`` is of: two own the name.

``nvidia-ml-py`` is the one that NVIDIA maintains. The package ``pynvml`` had a module of that name
until release 11.5, which hides the other one, and lacks newer calls.
"""

from __future__ import annotations

import os
from importlib import metadata
from types import ModuleType
from typing import Final

__all__ = ["OURS", "doubt"]

OURS: Final = "nvidia-ml-py"
_OTHER: Final = "pynvml"
_FILES: Final = ("pynvml.py", "pynvml/__init__.py")


def doubt(module: ModuleType) -> str | None:
    """What is wrong with the installed packages, in a sentence; None if nothing is.

    Args:
        module: ``pynvml``, as it was imported.
    """
    others = _claimed(_OTHER)
    if not others:
        return None
    other = f"{_OTHER} {metadata.version(_OTHER)}"
    if not _claimed(OURS):
        return f"the module pynvml is of {other}: install {OURS} in its place"
    owner = other if os.path.realpath(module.__file__ or "") in others else OURS
    return (
        f"{other} and {OURS} {metadata.version(OURS)} both own the module pynvml, and that of"
        f" {owner} is imported: uninstall {_OTHER}, then install {OURS} again"
    )


def _claimed(package: str) -> list[str]:
    """Files of a package that are the module."""
    try:
        files = metadata.files(package) or ()
    except metadata.PackageNotFoundError:
        return []
    return [os.path.realpath(str(one.locate())) for one in files if one.as_posix() in _FILES]
