"""How paths are shown: what is said here ends up in public bug reports."""

from __future__ import annotations

import os

__all__ = ["tilde"]


def tilde(path: str | os.PathLike[str]) -> str:
    """``path`` with ``~`` for the home folder, safe to print."""
    text = os.fspath(path)
    home = os.environ.get("HOME", "").rstrip("/")
    if home and (text == home or text.startswith(home + "/")):
        text = "~" + text[len(home) :]
    return "".join(c if c.isprintable() else "?" for c in text)
