"""SQL beside the module that asks it: files of statements, each after a line ``-- name: ...``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["statements"]

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(package: str, file: str) -> Mapping[str, str]:
    """The statements of a file, by name."""
    text = files(package).joinpath(file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))
