"""How like a recorded run its replays are: ``python -m tests.bench.replay``.

A real TRL training on two ranks, with a heavy tail, is recorded once. Then the original, the
original again (A/A), replays of the recording and naive ones take turns step by step: each does its
step while all others wait, so that a drift of the machine hits all alike. Accuracy is that of
``rlvr-probe fidelity`` against the original of the same minutes, without what slept, and of a step
without the stage between two steps, in which a training waits for its turn. The bar: in the median
of the replays at least 97 % of step, rollout and update where the median of the original again is
98 %, otherwise within a point of that; single steps off by a point more than those of the original
again at most; the naive replay off three times as far.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tests.bench.report import main, table, training_environ

__all__ = ["measure", "tables"]

_PROBE: Final = Path(sys.executable).with_name("rlvr-probe")
_SCRIPT: Final = Path(__file__).with_name("replayed_training.py")
_ROUNDS: Final = 3
_RANKS: Final = 2
_PATIENCE_S: Final = 600.0
_STEPS: Final = 22
_QUICK: Final = ("--steps", "4", "--tokens", "12", "--hidden", "32", "--layers", "2")
_STAGES: Final = ("rollout", "update")
_KINDS: Final = {"ceiling": "the original again", "replay": "replay", "naive": "naive replay"}


def measure(quick: bool = False) -> dict[str, Any]:
    """Accuracy of every run, by kind, and shape of the recorded steps."""
    words = _QUICK if quick else ("--steps", str(_STEPS))
    replayed = {"ceiling": (), "replay": ("recorded",), "naive": ("recorded", "--naive")}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        _finish(_start(folder, "recorded", (), words), folder / "recorded.txt")
        runs = {
            kind: [f"{kind}-{number}" for number in range(1 if quick else _ROUNDS)]
            for kind in _KINDS
        }
        jobs = [stack.enter_context(_Job(folder, "original", (), words))]
        for name in chain.from_iterable(zip(*runs.values(), strict=True)):
            kind = name.partition("-")[0]
            jobs.append(stack.enter_context(_Job(folder, name, replayed[kind], words)))
        for number in range(int(words[1]) + 1):
            place = number % len(jobs)
            for job in (*jobs[place:], *jobs[:place]):
                job.take_turn()
        for job in jobs:
            _finish(job.process, job.output)
        command = [str(_PROBE), "fidelity", "original", *runs["replay"], "--json", "-"]
        for kind in ("ceiling", "naive"):
            command += [f"--{kind}", *runs[kind]]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return _summary(json.loads(done.stdout))


class _Job:
    """A training whose ranks wait before each step until it is their turn."""

    def __init__(
        self, folder: Path, name: str, replayed: tuple[str, ...], words: tuple[str, ...]
    ) -> None:
        self.output = folder / f"{name}.txt"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(_PATIENCE_S)
        self._listener.bind(str(folder / f"{name}.sock"))
        self._listener.listen()
        words = (*words, "--turns", f"{name}.sock")
        self.process = _start(folder, name, replayed, words)
        self._ranks = [self._listener.accept()[0] for _ in range(_RANKS)]
        for rank in self._ranks:
            rank.settimeout(_PATIENCE_S)
        self._wait()

    def take_turn(self) -> None:
        """Let every rank do a step, and wait until all have done it."""
        for rank in self._ranks:
            rank.sendall(b".")
        self._wait()

    def _wait(self) -> None:
        for rank in self._ranks:
            rank.recv(1)  # nothing where it has ended

    def __enter__(self) -> _Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()  # it has ended already, unless another one failed
        for end in (self._listener, *self._ranks):
            end.close()


def _start(
    folder: Path, name: str, replayed: tuple[str, ...], words: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    how = ["replay", *replayed] if replayed else ["run"]
    ranks = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_RANKS}")
    training = (sys.executable, *ranks, str(_SCRIPT), *words)
    command = [str(_PROBE), *how, "--out", name, "--", *training]
    with (folder / f"{name}.txt").open("wb") as output:
        return subprocess.Popen(
            command, cwd=folder, env=training_environ(), stdout=output, stderr=output
        )


def _finish(process: subprocess.Popen[bytes], output: Path) -> None:
    if process.wait():
        said = output.read_text("utf-8", "replace")[-3000:]
        raise SystemExit(f"{output.stem} ended with {process.returncode}:\n{said}")


def _summary(card: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for run in card["runs"]:
        stages = {own["name"]: own for own in run["stages"]}
        rows.append(
            {
                "kind": run["kind"],
                "exact": run["lengths"]["exact"] / run["lengths"]["samples"],
                "steps": len(run["steps"]),
                "stages": {name: stages[name] for name in _STAGES},
                "step": {
                    side: run["step"][side] - stages["between_steps"][side]
                    for side in ("recorded", "replayed")
                },
            }
        )
    return {"runs": rows}


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table, the shape of a step, and whether the bar is met."""
    rows = []
    for run in figures["runs"]:
        row = [_KINDS[run["kind"]], f"{run['exact']:.0%}", f"{_accuracy(run, 'step'):.1%}"]
        for name in _STAGES:
            own = run["stages"][name]
            between = "" if own["low"] is None else f" ({own['low']:.1%} to {own['high']:.1%})"
            row += [f"{own['accuracy']:.1%}{between}", f"{own['by_step']:.1%}"]
        rows.append(row)
    heads = ("run", "exact lengths", "step", "rollout", "off by step", "update", "off by step")
    first = figures["runs"][0]
    step = first["step"]["recorded"]
    rollout, update = (first["stages"][name]["recorded"] / step for name in _STAGES)
    shape = (
        f"{first['steps']} steps of {step:.1f} s in the mean: {rollout:.0%} rollout,"
        f" {update:.0%} update."
    )
    return f"{table(heads, rows)}\n\n{shape}\n{_verdict(figures)}"


def _accuracy(run: dict[str, Any], name: str) -> float:
    """Accuracy of a stage, or of the step."""
    if name != "step":
        return float(run["stages"][name]["accuracy"])
    recorded, replayed = run["step"]["recorded"], run["step"]["replayed"]
    return float(1 - abs(replayed - recorded) / recorded)


def _verdict(figures: dict[str, Any]) -> str:
    by_kind = [[run for run in figures["runs"] if run["kind"] == kind] for kind in _KINDS]
    parts = []
    for name in ("step", *_STAGES):
        ceiling, replay, naive = (
            statistics.median(_accuracy(run, name) for run in runs) for runs in by_kind
        )
        bar = 0.97 if ceiling >= 0.98 else ceiling - 0.01
        times = (1 - naive) / max(1 - replay, 1e-9)
        parts.append(
            f"* {name}: {replay:.1%} of a bar of {bar:.1%}: {_met(replay >= bar)}; the original"
            f" again {ceiling:.1%}; naive {naive:.1%}, {times:.0f} times as far off of a bar of 3:"
            f" {_met(times >= 3)}"
        )
        if name in _STAGES:
            ceiling, replay, _ = (
                statistics.median(run["stages"][name]["by_step"] for run in runs)
                for runs in by_kind
            )
            at_most = f"off by {replay:.1%} of at most {ceiling + 0.01:.1%}"
            parts[-1] += f"; single steps {at_most}: {_met(replay <= ceiling + 0.01)}"
    return "In the median\n\n" + "\n".join(parts)


def _met(is_met: bool) -> str:
    return "met" if is_met else "not met"


if __name__ == "__main__":
    main(measure, tables)
