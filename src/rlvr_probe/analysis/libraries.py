"""Libraries that the package is used with and does not depend on."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from rlvr_probe.exceptions import ProbeError

__all__ = ["require"]

_DUCKDB: Final = "duckdb"
_CLI: Final = "'rlvr-probe[cli]'"


def require(library: str, user: str) -> Any:
    """The module ``library``.

    Args:
        library: Name that it is imported by.
        user: What needs it, for the message.

    Raises:
        ProbeError: It is not installed.
    """
    try:
        return import_module(library)
    except ImportError as error:
        # What an installed library lacks itself is another matter.
        if (error.name or "").partition(".")[0] != library:
            raise
    title, package = ("DuckDB", _CLI) if library == _DUCKDB else (library, library)
    raise ProbeError(
        f"{user} needs {title}, which is not installed; install it with pip install {package}"
    )
