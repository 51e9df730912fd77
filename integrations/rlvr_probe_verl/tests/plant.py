"""Jobs of verl in which something is slow, somewhere: each recorded, with its book.

``python -m rlvr_probe_verl.tests.plant --out FOLDER [NAME ...]`` runs them, into ``FOLDER/NAME``,
and says of each what was slow, for how long, and what is named first. What is there already is
looked at again.
"""

from __future__ import annotations

from dataclasses import replace

from rlvr_probe_verl.tests.runs import JOB, PROMPTS, Finished, Runner, Scenario

from rlvr_probe.analysis.characterization import Characterization
from tests import plants
from tests.planted import Planted, Slept, read_books, saved_by_ranks_s

__all__ = ["PLANTED", "SOUND", "slept", "wrong"]

_WINDOW = (5, 6, 7, 8)
_SOME = (3, 6, 8, 11)
_TOGETHER = 4 * PROMPTS
"""Trajectories of a step."""


def _job(
    planted: Planted | None = None,
    *overrides: str,
    ranks: int = 1,
    environment: tuple[str, ...] = (),
) -> Scenario:
    return Scenario(
        "0.9.1",
        "v0",
        how="launcher",
        ranks=ranks,
        steps=12,
        overrides=("trainer.test_freq=-1", *overrides),
        environment=(
            "VERL_CPU_RECIPE=plant",
            "VERL_USE_EXTERNAL_MODULES=verl_cpu_engine,verl_cpu_slow",
            *environment,
        ),
        planted=planted,
    )


_DATASET = (
    f"data.custom_cls.path={JOB}/verl_cpu_plant.py",
    "data.custom_cls.name=PlantedDataset",
)
_SAVING = ("trainer.save_freq=3",)
_EVALUATING = ("trainer.test_freq=4",)
_ONE_OF_A_STEP = (f"VERL_CPU_SLEEPS_EVERY={_TOGETHER}",)
_ENDING = ("VERL_CPU_ENDS_BY=12", "VERL_CPU_PACE_S=0.02")
_LONG = ("data.max_response_length=240",)
# With a reference policy a rank would sleep in two stages.
_ALONE = ("actor_rollout_ref.actor.use_kl_loss=False",)

# The first step of a job takes as long as all others: its workers import what they need.
PLANTED = {
    "data": _job(Planted("data", "__getitem__", 0.5), *_DATASET),
    "callback_log": _job(Planted("callback", "log", 2.0)),
    "checkpoint": _job(Planted("checkpoint", "_save_checkpoint", 6.0), *_SAVING),
    "evaluation_reward": _job(Planted("evaluation", "compute_score", 8.0), *_EVALUATING),
    "rollout_window": _job(Planted("rollout", "generate", 4.0, _WINDOW)),
    "dispatch_leak": _job(Planted("dispatch", "generate_sequences", 0.3, per="step")),
    "update_window": _job(Planted("update", 0, 4.0, _WINDOW)),
    "update_leak": _job(Planted("update", 0, 0.3, per="step")),
    "update_two_ranks": _job(Planted("update", 1, 4.0, _WINDOW), ranks=2),
    "rank": _job(Planted("rank", 1, 2.0), *_ALONE, ranks=2),
    "reward_leak": _job(
        Planted("reward", "compute_score", 0.3, per="step"), environment=_ONE_OF_A_STEP
    ),
    "straggler": _job(Planted("straggler", 0, 0.0, _SOME), *_LONG, environment=_ENDING),
    "stopped": _job(Planted("host", "stop", 5.0, (4, 7, 9))),
    "contention": _job(Planted("host", "burner", 0.0, _WINDOW)),
    # Added once nothing was changed any more in what looks for causes.
    "callback_some": _job(Planted("callback", "log", 6.0, _SOME)),
    "checkpoint_leak": _job(
        Planted("checkpoint", "_save_checkpoint", 1.0, per="step"), "trainer.save_freq=1"
    ),
    "reward_window": _job(
        Planted("reward", "compute_score", 6.0, _WINDOW), environment=_ONE_OF_A_STEP
    ),
    "update_some": _job(Planted("update", 0, 6.0, _SOME)),
}

SOUND = {
    "sound": _job(),
    "sound_saving": _job(None, *_EVALUATING, *_SAVING),
}
"""Nothing is to be named."""


def slept(run: Finished) -> Slept:
    """What would have been saved, had nothing been slow."""
    books, planted = run.folder / "books", run.scenario.planted
    book = read_books(books)
    if planted is None:
        return book
    if planted.kind == "rank":
        return replace(book, wall_s=saved_by_ranks_s(run.truth.log_probs))
    if planted.kind in {"reward", "evaluation"}:
        split = "train" if planted.kind == "reward" else "val"
        calls = [line for line in run.truth.rewards if line["split"] == split]
        return replace(book, wall_s=saved_by_ranks_s(calls))
    if planted.kind == "straggler":
        requests = plants.lines_of(books, "requested-*")
        return replace(book, wall_s=plants.straggled_s(requests, planted.steps))
    if planted.place == "burner":
        return replace(book, wall_s=plants.disturbed_s(books, planted.steps))
    return book


def wrong(run: Finished, said: Characterization) -> list[str]:
    """What is wrong with the causes that are named."""
    return plants.wrong(run, said, slept(run), run.scenario.ranks)


if __name__ == "__main__":
    plants.main(
        __doc__,
        PLANTED | SOUND,
        Runner,
        Finished,
        lambda run, _: (slept(run), run.scenario.ranks),
    )
