"""Jobs of OpenRLHF in which something is slow, somewhere: each recorded, with its book.

``python -m rlvr_probe_openrlhf.tests.plant --out FOLDER [NAME ...]`` runs them, into
``FOLDER/NAME``, and says of each what was slow, for how long, and what is named first. What is
there already is looked at again.
"""

from __future__ import annotations

from dataclasses import replace

from rlvr_probe_openrlhf.tests.runs import GROUP, PROMPTS, Finished, Runner, Scenario

from rlvr_probe.analysis.characterization import Characterization
from tests import plants
from tests.planted import Planted, Slept, read_books, saved_by_ranks_s

__all__ = ["PLANTED", "SOUND", "slept", "wrong"]

_STEPS = 12
_EPISODES = 2
"""There are 32 prompts."""
_WINDOW = (5, 6, 7, 8)
_SOME = (3, 6, 8, 11)


def _job(
    planted: Planted | None = None,
    *arguments: str,
    ranks: int = 1,
    environment: tuple[str, ...] = (),
) -> Scenario:
    return Scenario(
        ranks=ranks,
        steps=_STEPS,
        arguments=(
            *("--data.max_samples", str(_STEPS * PROMPTS // _EPISODES)),
            *("--train.num_episodes", str(_EPISODES), "--data.dataloader_num_workers", "0"),
            *("--eval.steps", "-1", "--ckpt.save_steps", "-1", "--ckpt.best_metric_key", "none"),
            *arguments,
        ),
        environment=("OPENRLHF_CPU_MODULE=openrlhf_cpu_slow", *environment),
        planted=planted,
    )


_SAVING = ("--ckpt.save_steps", "3")
_EVALUATING = ("--eval.steps", "4")
_ONE_OF_A_STEP = (f"OPENRLHF_CPU_SLEEPS_EVERY={PROMPTS * GROUP}",)
_ENDING = ("OPENRLHF_CPU_ENDS_BY=40", "OPENRLHF_CPU_PACE_S=0.01")
_LONG = ("--rollout.max_new_tokens", "400", "--data.max_len", "600")

PLANTED = {
    "data": _job(Planted("data", "__getitem__", 0.2)),
    "callback_log": _job(Planted("callback", "log_train", 0.8)),
    "checkpoint": _job(Planted("checkpoint", "save_ckpt", 4.0), *_SAVING),
    "evaluation_reward": _job(Planted("evaluation", "reward_func", 4.0), *_EVALUATING),
    "rollout_window": _job(Planted("rollout", "generate", 2.0, _WINDOW)),
    "dispatch_leak": _job(Planted("dispatch", "generate_samples", 0.15, per="step")),
    "update_window": _job(Planted("update", 0, 2.0, _WINDOW)),
    "update_leak": _job(Planted("update", 0, 0.15, per="step")),
    "update_two_ranks": _job(Planted("update", 1, 2.0, _WINDOW), ranks=2),
    "rank": _job(Planted("rank", 1, 1.0), ranks=2),
    "reward_leak": _job(
        Planted("reward", "reward_func", 0.15, per="step"), environment=_ONE_OF_A_STEP
    ),
    "straggler": _job(Planted("straggler", 0, 0.0, _SOME), *_LONG, environment=_ENDING),
    "stopped": _job(Planted("host", "stop", 3.0, (4, 7, 9))),
    "contention": _job(Planted("host", "burner", 0.0, _WINDOW)),
    # Added once nothing was changed any more in what looks for causes.
    "callback_some": _job(Planted("callback", "log_train", 2.0, _SOME)),
    "checkpoint_leak": _job(
        Planted("checkpoint", "save_ckpt", 0.5, per="step"), "--ckpt.save_steps", "1"
    ),
    "reward_window": _job(
        Planted("reward", "reward_func", 2.0, _WINDOW), environment=_ONE_OF_A_STEP
    ),
    "update_some": _job(Planted("update", 0, 2.0, _SOME)),
}

SOUND = {
    "sound": _job(),
    "sound_saving": _job(None, *_EVALUATING, *_SAVING),
}
"""Nothing is to be named."""


def slept(run: Finished) -> Slept:
    """What would have been saved, had nothing been slow.

    Of a straggler that is its generation alone: what it is padded with in log-probabilities and in
    the update, half as much again here, is in no book.
    """
    books, planted = run.folder / "books", run.scenario.planted
    book = read_books(books)
    if planted is None:
        return book
    if planted.kind in {"reward", "evaluation"}:
        evaluated = planted.kind == "evaluation"
        calls = [line for line in run.truth.rewards if line["evaluated"] is evaluated]
        return replace(book, wall_s=saved_by_ranks_s(calls))
    if planted.kind == "straggler":
        requests = plants.lines_of(books, "requested-*")
        return replace(book, wall_s=plants.straggled_s(requests, planted.steps))
    if planted.place == "burner":
        return replace(book, wall_s=plants.disturbed_s(books, planted.steps))
    return book


def _gpus(said: Characterization) -> int:
    """A machine without GPUs has those that the ledger takes ranks and engines for."""
    assert said.ledger is not None
    return len(said.ledger.gpus)


def wrong(run: Finished, said: Characterization) -> list[str]:
    """What is wrong with the causes that are named."""
    return plants.wrong(run, said, slept(run), _gpus(said))


if __name__ == "__main__":
    plants.main(
        __doc__,
        PLANTED | SOUND,
        Runner,
        Finished,
        lambda run, said: (slept(run), _gpus(said)),
    )
