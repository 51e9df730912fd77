"""How like a recorded run its replays are: ``python -m tests.bench.replay``.

A real TRL training with a heavy tail is recorded once; then the original again (A/A), a replay and
a naive replay take turns, so that a drift of the machine hits all alike. Accuracy is that of
``rlvr-probe fidelity``, without what slept. The bar: in the median of the replays at least 97 % of
step, rollout and update where the median of the original again is 98 %, otherwise within a point
of that.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.bench.report import main, table, training_environ

__all__ = ["measure", "tables"]

_PROBE: Final = Path(sys.executable).with_name("rlvr-probe")
_SCRIPT: Final = Path(__file__).with_name("replayed_training.py")
_ROUNDS: Final = 3
_STEPS: Final = 22
_QUICK: Final = ("--steps", "4", "--tokens", "12", "--hidden", "32", "--layers", "2")
_STAGES: Final = ("step", "rollout", "update")
_KINDS: Final = {"ceiling": "the original again", "replay": "replay", "naive": "naive replay"}


def measure(quick: bool = False) -> dict[str, Any]:
    """Accuracy of every run, by kind, and shape of the recorded steps."""
    words = _QUICK if quick else ("--steps", str(_STEPS))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _train(folder, "recorded", (), words)
        runs: dict[str, list[Path]] = {kind: [] for kind in _KINDS}
        for number in range(1 if quick else _ROUNDS):
            for kind in _KINDS:
                name = f"{kind}-{number}"
                replayed = {
                    "ceiling": (),
                    "replay": ("recorded",),
                    "naive": ("recorded", "--naive"),
                }
                _train(folder, name, replayed[kind], words)
                runs[kind].append(folder / name)
        command = [str(_PROBE), "fidelity", str(folder / "recorded"), *map(str, runs["replay"])]
        for kind in ("ceiling", "naive"):
            command += [f"--{kind}", *map(str, runs[kind])]
        done = subprocess.run([*command, "--json", "-"], check=True, capture_output=True, text=True)
    return _summary(json.loads(done.stdout))


def _train(folder: Path, name: str, replayed: tuple[str, ...], words: tuple[str, ...]) -> None:
    how = ["replay", *replayed] if replayed else ["run"]
    command = [str(_PROBE), *how, "--out", name, "--", sys.executable, str(_SCRIPT), *words]
    done = subprocess.run(
        command, cwd=folder, env=training_environ(), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(how)} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def _summary(card: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for run in card["runs"]:
        stages = {own["name"]: own for own in (run["step"], *run["stages"])}
        rows.append(
            {
                "kind": run["kind"],
                "exact": run["lengths"]["exact"] / run["lengths"]["samples"],
                "steps": len(run["steps"]),
                "stages": {name: stages[name] for name in _STAGES},
            }
        )
    return {"runs": rows}


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table, the shape of a step, and whether the bar is met."""
    rows = []
    for run in figures["runs"]:
        row = [_KINDS[run["kind"]], f"{run['exact']:.0%}"]
        for name in _STAGES:
            own = run["stages"][name]
            between = "" if own["low"] is None else f" ({own['low']:.1%} to {own['high']:.1%})"
            row.append(f"{own['accuracy']:.1%}{between}")
        rows.append([*row, f"{run['stages']['step']['by_step']:.1%}"])
    heads = ("run", "exact lengths", "accuracy of a step", "rollout", "update", "off by step")
    first = figures["runs"][0]
    step, rollout, update = (first["stages"][name]["recorded"] for name in _STAGES)
    shape = (
        f"{first['steps']} steps of {step:.1f} s in the mean, {rollout / step:.0%} of it rollout"
        f" and {update / step:.0%} update."
    )
    return f"{table(heads, rows)}\n\n{shape}\n{_verdict(figures)}"


def _median(figures: dict[str, Any], kind: str, name: str) -> float:
    """Median accuracy of a stage in the runs of a kind."""
    return statistics.median(
        run["stages"][name]["accuracy"] for run in figures["runs"] if run["kind"] == kind
    )


def _verdict(figures: dict[str, Any]) -> str:
    parts = []
    for name in _STAGES:
        ceiling, replay, naive = (_median(figures, kind, name) for kind in _KINDS)
        bar = 0.97 if ceiling >= 0.98 else ceiling - 0.01
        parts.append(
            f"{name} {replay:.1%} of a bar of {bar:.1%}: {'met' if replay >= bar else 'not met'}"
            f" (the original again {ceiling:.1%}, naive {naive:.1%})"
        )
    return f"In the median: {'; '.join(parts)}."


if __name__ == "__main__":
    main(measure, tables)
