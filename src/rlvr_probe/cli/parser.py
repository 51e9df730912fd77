"""The parser of one command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["CommandParser"]


class CommandParser(argparse.ArgumentParser):
    """A parser that can look at its arguments to find out which ones it takes.

    Attributes:
        extend: Called once, with the parser and what it shall parse; it may add arguments.
    """

    extend: Callable[[argparse.ArgumentParser, Sequence[str]], None] | None = None

    # The overloads of the standard library say no more than this.
    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Let ``extend`` add arguments, then parse; as the method of the standard library."""
        extend, self.extend = self.extend, None
        if extend is not None:
            extend(self, args or ())
        return super().parse_known_args(args, namespace)
