"""Tables of the bench, for a terminal and for the documentation, and what every family shares."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["machine", "main", "table", "training_environ"]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown whose columns also line up in a terminal."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    cells = [
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    cells.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in cells)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    name = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "processor": name,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def training_environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables of a small training: one thread, no network, nothing of the probe but ``extra``."""
    return {
        **{name: value for name, value in os.environ.items() if "RLVR_PROBE" not in name},
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONWARNINGS": "ignore",
        **(extra or {}),
    }


def main(
    measure: Callable[..., dict[str, Any]],
    tables: Callable[[dict[str, Any]], str],
    minutes: float | None = None,
) -> None:
    """Run one family by itself and print its figures.

    Args:
        measure: Takes whether to be quick, and ``minutes`` if the family lets them be chosen.
        tables: Its figures as text.
        minutes: What it takes if nothing is chosen; None where nothing can be.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    if minutes is not None:
        parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--quick", action="store_true", help="only whether it works")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    arguments = parser.parse_args()
    chosen = {} if minutes is None else {"minutes": arguments.minutes}
    figures = measure(arguments.quick, **chosen)
    print(tables(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
