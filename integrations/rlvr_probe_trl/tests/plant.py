"""Trainings in which something is slow, somewhere: each recorded, with its book, for a second look.

``python -m rlvr_probe_trl.tests.plant --out FOLDER [NAME ...]`` runs them, into ``FOLDER/NAME``,
and says of each what was slow, for how long, and what is named first. What is there already is
looked at again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlvr_probe_trl.tests.runs import Finished, Runner, Scenario

from rlvr_probe.analysis.characterization import Characterization
from tests.planted import Planted, Slept, characterized, mistakes, read_books, saved_by_ranks_s

__all__ = ["PLANTED", "SOUND", "slept", "wrong"]

_HERE = Path(__file__).parent
_WINDOW = (5, 6, 7, 8)
_SOME = (3, 6, 8, 11)


def _training(
    planted: Planted | None = None, arguments: str = "", *, ranks: int = 1, outside: bool = False
) -> Scenario:
    return Scenario(
        f"--steps 12 --verifier-s 0 {arguments}",
        ranks=ranks,
        script=_HERE / "train_planted.py",
        planted=planted,
        beside=_HERE / "disturbance.py" if outside else None,
    )


_STRAGGLING = "--max-tokens 200 --ends-by 40"
_EVALUATING = "--eval-every 4 --eval-batch 16"
_SAVING = "--save-every 3"

PLANTED = {
    "data": _training(Planted("data", "transform", 0.15)),
    "callback_step_end": _training(Planted("callback", "on_step_end", 0.15)),
    "callback_log": _training(Planted("callback", "on_log", 0.15)),
    "callback_save": _training(Planted("on_save", "on_save", 0.5), _SAVING),
    "checkpoint": _training(Planted("checkpoint", "save_model", 0.5), f"{_SAVING} --subclass"),
    "evaluation": _training(
        Planted("evaluation", "prediction_step", 4.0), f"{_EVALUATING} --subclass"
    ),
    "evaluation_reward": _training(Planted("evaluation", "keeper", 4.0), _EVALUATING),
    "rollout_window": _training(Planted("rollout", "generate", 1.0, _WINDOW, per="second")),
    "rollout_leak": _training(Planted("rollout", "generate", 0.05, per="step")),
    "update_window": _training(Planted("update", "backward", 0.4, _WINDOW)),
    "update_leak": _training(Planted("update", "optimizer", 0.05, per="step")),
    "update_override": _training(Planted("update", "training_step", 0.4, _WINDOW), "--subclass"),
    "reward_leak": _training(Planted("reward", "keeper", 0.05, per="step")),
    "straggler_recurring": _training(Planted("straggler", 0, 0.0, _SOME), _STRAGGLING),
    "straggler_two_ranks": _training(Planted("straggler", 1, 0.0, _SOME), _STRAGGLING, ranks=2),
    "contention": _training(Planted("host", "burner", 0.0, _WINDOW), "--ends-at 40", outside=True),
    "stopped": _training(Planted("host", "stop", 2.0, (4, 7, 9)), outside=True),
}
"""What is slow in some steps alone, or takes no time else, can be told from what is as it must be.

What is slow at each evaluation or checkpoint takes nearly all of its time: whether the rest of it
is lost is a matter of opinion.
"""

SOUND = {
    "sound": _training(),
    "sound_saving": _training(None, f"{_EVALUATING} {_SAVING}"),
    "sound_noisy": _training(None, "--noise 0.3"),
}
"""Nothing is to be named: not what every part is longer by at random, either."""


def slept(run: Finished) -> Slept:
    """What would have been saved, had nothing been slow."""
    book, planted = read_books(run.folder / "slept"), run.scenario.planted
    if planted is not None and planted.kind == "straggler":
        generated = (_lines(path) for path in sorted((run.folder / "books").glob("generated-*")))
        return replace(book, wall_s=saved_by_ranks_s([line for rank in generated for line in rank]))
    if planted is not None and planted.place == "burner":
        times = _step_times(run)
        usual = statistics.median(
            seconds for step, seconds in times.items() if step > 1 and step not in planted.steps
        )
        return replace(book, wall_s=sum(times[step] - usual for step in planted.steps))
    return book


def wrong(run: Finished, said: Characterization) -> list[str]:
    """What is wrong with the causes that are named."""
    return mistakes(said.causes, run.scenario.planted, slept(run), run.scenario.ranks)


def _step_times(run: Finished) -> Mapping[int, float]:
    """From the begin of each step to that of the next, s."""
    _, *lines = _lines(run.folder / "books" / "steps-0.jsonl")
    ends = [*(line["begin"] for line in lines[1:-1]), lines[-1]["end"]]
    return {
        line["step"]: (end - line["begin"]) / 1e9
        for line, end in zip(lines[:-1], ends, strict=True)
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _line(name: str, run: Finished) -> str:
    """What is said of a training."""
    said, book = characterized(run.recording), slept(run)
    whole_s = sum(_step_times(run).values())
    what = run.scenario.planted
    named = [f"{cause.kind} {cause.gpu_s:.2f} GPU-s" for cause in said.causes] or ["nothing"]
    steps = ",".join(map(str, sorted(book.steps)))
    return (
        f"{name}: {'nothing' if what is None else f'{what.kind} {what.place}'}"
        f", {book.wall_s:.2f} s of {whole_s:.2f} s ({book.wall_s / whole_s:.1%})"
        f" in steps {steps or '-'}; named: {', '.join(named)}"
        f"; wrong: {'; '.join(wrong(run, said)) or 'nothing'}"
    )


def main() -> None:
    scenarios = PLANTED | SOUND
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(scenarios))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    runner = Runner(chosen.out.resolve())
    for name in chosen.names or scenarios:
        folder = runner.root / name
        if folder.exists():
            run = runner.left(scenarios[name], folder)
        else:
            run = runner.run(scenarios[name], folder)
        sys.stdout.write(_line(name, run) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
