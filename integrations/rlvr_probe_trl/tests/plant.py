"""Trainings in which something is slow, somewhere: each recorded, with its book, for a second look.

``python -m rlvr_probe_trl.tests.plant --out FOLDER [NAME ...]`` runs them, into ``FOLDER/NAME``,
and says of each what was slow, for how long, and what is named first. What is there already is
looked at again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlvr_probe_trl.tests.runs import Finished, Runner, Scenario

from rlvr_probe.analysis.characterization import Characterization
from tests import plants
from tests.planted import Planted, Slept, read_books, saved_by_ranks_s

__all__ = ["PLANTED", "SOUND", "slept", "wrong"]

_HERE = Path(__file__).parent
_WINDOW = (5, 6, 7, 8)
_SOME = (3, 6, 8, 11)


def _training(planted: Planted | None = None, arguments: str = "", *, ranks: int = 1) -> Scenario:
    return Scenario(
        f"--steps 12 --verifier-s 0 {arguments}",
        ranks=ranks,
        script=_HERE / "train_planted.py",
        planted=planted,
    )


_STRAGGLING = "--max-tokens 200 --ends-by 40"
_EVALUATING = "--eval-every 4 --eval-batch 16"
_SAVING = "--save-every 3"

PLANTED = {
    "data": _training(Planted("data", "transform", 0.15)),
    "callback_step_end": _training(Planted("callback", "on_step_end", 0.15)),
    "callback_log": _training(Planted("callback", "on_log", 0.15)),
    "callback_save": _training(Planted("on_save", "on_save", 1.0), _SAVING),
    "checkpoint": _training(Planted("checkpoint", "save_model", 1.0), f"{_SAVING} --subclass"),
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
    "contention": _training(
        Planted("host", "burner", 0.0, _WINDOW), "--max-tokens 200 --ends-at 190"
    ),
    "stopped": _training(Planted("host", "stop", 2.0, (4, 7, 9))),
    # Added once nothing was changed any more in what looks for causes.
    "callback_some": _training(Planted("callback", "on_step_end", 0.5, _SOME)),
    "checkpoint_leak": _training(
        Planted("checkpoint", "save_model", 0.1, per="step"), "--save-every 1 --subclass"
    ),
    "data_leak": _training(Planted("data", "transform", 0.03, per="step")),
    "reward_window": _training(Planted("reward", "keeper", 0.4, _WINDOW)),
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
    books = run.folder / "books"
    if planted is not None and planted.kind == "straggler":
        return replace(book, wall_s=saved_by_ranks_s(plants.lines_of(books, "generated-*")))
    if planted is not None and planted.place == "burner":
        return replace(book, wall_s=plants.disturbed_s(books, planted.steps))
    return book


def wrong(run: Finished, said: Characterization) -> list[str]:
    """What is wrong with the causes that are named."""
    found = plants.wrong(run, said, slept(run), run.scenario.ranks)
    planted, first = run.scenario.planted, next(iter(said.causes), None)
    if planted is not None and planted.kind == "callback" and first is not None:
        callback = first.where.get("label")
        if callback != f"Slow.{planted.place}":
            found.append(f"{planted.place} of Slow sleeps, and most is in {callback}")
    return found


if __name__ == "__main__":
    plants.main(
        __doc__,
        PLANTED | SOUND,
        Runner,
        Runner.left,
        lambda run, _: (slept(run), run.scenario.ranks),
    )
