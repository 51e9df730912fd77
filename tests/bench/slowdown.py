"""How much longer a real TRL training takes: ``python -m tests.bench.slowdown [--minutes 7.5]``.

:mod:`tests.bench.training` switches recording in random blocks inside one process. A pair is two
blocks next to each other, one on and one off; a figure is the mean over pairs, a tenth of them left
out at either end, with the 95 % interval of a bootstrap over pairs. The bar: at least 1,000 steps,
upper bound of the ratio below 1.01, half-width at most 0.5 %; with fewer steps or a wider interval
the answer is not known.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.report import main, table, training_environ

__all__ = ["SMALL", "measure", "tables", "training"]

MINUTES = 7.5
SMALL = ("--block=2", "--hidden=128", "--layers=4", "--tokens=64", "--batch=16")
_TRAININGS = {"toy": (0.1, ("--block=20",)), "small": (0.9, SMALL)}
"""Share of the time, and what the training is given."""
_MEANING = {
    "wall": "wall clock",
    "thread": "CPU of the training's thread",
    "process": "CPU of all threads",
}


def measure(quick: bool = False, minutes: float = MINUTES) -> dict[str, Any]:
    """Ratio and added time per step, by training and by clock."""
    seconds = 8.0 if quick else minutes * 60
    found = {name: training(seconds * part, more) for name, (part, more) in _TRAININGS.items()}
    return {"trainings": found}


def training(
    seconds: float, more: Sequence[str], extra: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Figures of one training.

    Args:
        seconds: How long it takes at least, s.
        more: Options of :mod:`tests.bench.training`.
        extra: Variables of its environment.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "steps.json"
        script = str(Path(__file__).with_name("training.py"))
        command = [sys.executable, script, f"--out={out}", f"--seconds={seconds:.1f}", *more]
        subprocess.run(command, env=training_environ(extra), check=True, stdout=subprocess.DEVNULL)
        found = json.loads(out.read_text(encoding="utf-8"))
    return summary(found)


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Figures of one training from what every step took."""
    blocks = found["blocks"]
    steps_on = sum(len(block["wall_ns"]) for block in blocks if block["on"])
    figures: dict[str, Any] = {
        "steps": sum(len(block["wall_ns"]) for block in blocks),
        "pairs": len(blocks) // 2,
        "block_steps": found["block_steps"],
        "reduced": found["reduced"],
        "rows_lost": found["lost"],
        "rows_per_step": found["rows"] / steps_on,
        "bytes_per_step": found["journal_b"] / steps_on,
        "own_ms_per_step": found["own_ns"] / steps_on / 1e6,
        "versions": found["versions"],
        "beside": found["beside"],
    }
    for clock in _MEANING:
        pairs = [_pair(blocks[i : i + 2], f"{clock}_ns") for i in range(0, len(blocks) - 1, 2)]
        ratio = [math.log(on / off) for on, off in pairs]
        added = [(on - off) / 1e6 for on, off in pairs]
        figures[clock] = {
            "step_ms": statistics.fmean(off for _, off in pairs) / 1e6,
            "ratio": _interval(ratio, math.exp),
            "added_ms": _interval(added, float),
        }
    return figures


def _pair(blocks: Sequence[dict[str, Any]], clock: str) -> tuple[float, float]:
    """Mean time of a step of the block that is on, and of the one that is off, ns."""
    means = {block["on"]: statistics.fmean(block[clock]) for block in blocks}
    return means[True], means[False]


def _interval(values: Sequence[float], scale: Callable[[float], float]) -> list[float]:
    """Trimmed mean and the ends of its 95 % interval, by bootstrap."""
    draw = random.Random(0)
    count = len(values)
    means = sorted(_trimmed(draw.choices(values, k=count)) for _ in range(4_000))
    return [scale(one) for one in (_trimmed(values), means[100], means[-101])]


def _trimmed(values: Sequence[float]) -> float:
    """Mean without the tenth at either end: pairs in which something else took the machine."""
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def verdict(figures: dict[str, Any]) -> str:
    """Whether the bar is met."""
    _, low, high = figures["wall"]["ratio"]
    if figures["steps"] < 1_000 or (high - low) / 2 > 0.005:
        return "not known"
    return "met" if high < 1.01 else "missed"


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    rows = []
    for name, one in figures["trainings"].items():
        for clock, meaning in _MEANING.items():
            (ratio, low, high), (added, least, most) = (
                one[clock]["ratio"],
                one[clock]["added_ms"],
            )
            rows.append(
                (
                    f"{name}, {one['steps']:,} steps",
                    meaning,
                    f"{one[clock]['step_ms']:.1f}",
                    f"{added:.2f}",
                    f"{least:.2f} to {most:.2f}",
                    f"{ratio - 1:+.2%}",
                    f"{low - 1:+.2%} to {high - 1:+.2%}",
                    verdict(one) if clock == "wall" else "",
                )
            )
    heads = (
        "training",
        "clock",
        "step, ms",
        "added, ms",
        "95 % interval",
        "slowdown",
        "95 % interval",
        "bar",
    )
    notes = [
        f"{name}: {one['rows_per_step']:.0f} rows, {one['bytes_per_step']:,.0f} bytes per step;"
        f" own time by the recorder's books {one['own_ms_per_step']:.2f} ms per step;"
        f" rows lost {one['rows_lost']}, blocks in which it recorded less {one['reduced']}."
        for name, one in figures["trainings"].items()
    ]
    return "\n\n".join((table(heads, rows), *notes))


if __name__ == "__main__":
    main(measure, tables, minutes=MINUTES)
