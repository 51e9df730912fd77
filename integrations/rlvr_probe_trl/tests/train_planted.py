"""`train.py` in which more can be slow: all parts of a step, what is between steps, the process.

What sleeps is told by the variables of ``planted_sleep``: kind and place are in :func:`plant`.
Besides the books of ``train.py``, it writes into ``--out``:

* ``steps-<rank>.jsonl``: the id of its process, and when each step began and ended, monotonic,
  ns. :mod:`tests.disturbance` and :mod:`tests.plants` read it.
* ``generated-<rank>.jsonl``: one line per generation, as ``tests.planted`` has them: when it would
  have ended without a straggler (``worked``), and when it did.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr_probe_trl.tests import train

subclass, build, reward_functions = train.subclass, train.build, train.reward_functions


def options() -> argparse.Namespace:
    parser = train.arguments()
    parser.add_argument("--ends-at", type=int, default=0, help="tokens of every completion")
    parser.add_argument("--ends-by", type=int, default=0, help="the same at most")
    parser.add_argument(
        "--noise", type=float, default=0.0, help="each part sleeps up to that share of its time"
    )
    return parser.parse_args()


def slow_subclass(trainer: type[Any]) -> type[Any]:
    """A user's trainer (``--subclass``) whose own methods sleep."""

    class Slow(subclass(trainer)):  # type: ignore[misc]
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            train.sleep_if_planted("update", "training_step", self.state.global_step + 1)
            return loss

        def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
            train.sleep_if_planted("evaluation", "prediction_step", self.state.global_step)
            return super().prediction_step(*args, **kwargs)

        def save_model(self, *args: Any, **kwargs: Any) -> Any:
            train.sleep_if_planted("checkpoint", "save_model", self.state.global_step)
            return super().save_model(*args, **kwargs)

    return Slow


def callbacks(out: Path, rank: int) -> list[Any]:
    """One that sleeps, and one that writes down when steps began and ended."""
    from transformers import TrainerCallback

    class Slow(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            train.sleep_if_planted("callback", "on_step_end", state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            train.sleep_if_planted("callback", "on_log", state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            train.sleep_if_planted("on_save", "on_save", state.global_step)

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self._path = out / f"steps-{rank}.jsonl"
            self._write(pids=[os.getpid()])

        def _write(self, **line: Any) -> None:
            write(self._path, **line)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._write(step=state.global_step + 1, begin=time.monotonic_ns())

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._write(end=time.monotonic_ns())

    return [Slow(), Clock()]


def write(path: Path, **line: Any) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


# ---------------------------------------------------------------- generation


def ends(rows: int, prompt: int, at: int, by: int, straggler: bool) -> Any:
    """Lets completions end where they should, and the straggler nowhere.

    Args:
        rows: How many there are.
        prompt: Tokens of a prompt.
        at: Tokens of each completion; 0 if it ends by itself.
        by: The same at most; 0 if only the trainer's limit counts.
        straggler: Whether the first completion has no end.
    """
    import torch
    from transformers import LogitsProcessor

    class Ends(LogitsProcessor):
        def __init__(self) -> None:
            self.others_ended_ns = 0

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            made = input_ids.shape[1] - prompt
            ended = (input_ids[:, prompt:] == train.EOS).any(dim=1)
            if straggler and not self.others_ended_ns and bool(ended[1:].all()):
                self.others_ended_ns = time.monotonic_ns()
            only_end = torch.full_like(scores, float("-inf"))
            only_end[:, train.EOS] = 0.0
            no_end = scores.clone()
            no_end[:, train.EOS] = float("-inf")
            if (at or by) and made >= (at or by) - 1:
                result = only_end
            elif at:
                result = no_end.clone()
            else:
                result = scores.clone()
            if straggler:
                result[0] = no_end[0]
            return result

    return Ends()


def generating(
    generate: Callable[..., Any], chosen: argparse.Namespace, books: train.Books, rank: int
) -> Callable[..., Any]:
    """Generation that may sleep, or have a straggler."""
    from transformers import LogitsProcessorList

    def generated(*args: Any, **kwargs: Any) -> Any:
        step = books.trainer.state.global_step + 1
        rows, prompt = kwargs["input_ids"].shape
        straggler = is_straggling(rank, step)
        ending = ends(rows, prompt, chosen.ends_at, chosen.ends_by, straggler)
        begin = time.monotonic_ns()
        result = generate(*args, logits_processor=LogitsProcessorList([ending]), **kwargs)
        end = time.monotonic_ns()
        worked = ending.others_ended_ns or end
        write(chosen.out / f"generated-{rank}.jsonl", call=step, worked=worked, end=end)
        if straggler:
            import planted_sleep

            planted_sleep.keep(step, worked)
        train.sleep_if_planted("rollout", "generate", step, (end - begin) / 1e9)
        return result

    return generated


def is_straggling(rank: int, step: int) -> bool:
    if "PLANTED_KIND" not in os.environ:
        return False
    import planted_sleep

    return planted_sleep.is_planted("straggler", rank, step)


# ---------------------------------------------------------------- what sleeps, and where


def plant(trainer: Any, chosen: argparse.Namespace, books: train.Books, rank: int) -> None:
    """Let everything sleep that was told to and is no method of the trainer's."""

    def step() -> int:
        return trainer.state.global_step + 1

    def fetched(batch: Any) -> Any:
        train.sleep_if_planted("data", "transform", step())
        return batch

    def before_gradients(*_: Any) -> None:
        train.sleep_if_planted("update", "backward", step())

    def before_optimizer(*_: Any) -> None:
        train.sleep_if_planted("update", "optimizer", step())

    create = trainer.create_optimizer

    def create_slow(*args: Any, **kwargs: Any) -> Any:
        optimizer = create(*args, **kwargs)
        optimizer.register_step_pre_hook(before_optimizer)
        return optimizer

    trainer.create_optimizer = create_slow
    trainer.train_dataset.set_transform(fetched)
    model = trainer.model
    # Gradients of the embedding, which is the first layer, are made last.
    model.model.embed_tokens.weight.register_hook(before_gradients)
    model.generate = generating(model.generate, chosen, books, rank)
    for callback in callbacks(chosen.out, rank):
        trainer.add_callback(callback)
    if chosen.noise:
        model.generate = noisy(model.generate, chosen)
        trainer.compute_loss = noisy(trainer.compute_loss, chosen)
        trainer.accelerator.backward = noisy(trainer.accelerator.backward, chosen)


def noisy(function: Callable[..., Any], chosen: argparse.Namespace) -> Callable[..., Any]:
    """Takes longer by a random share, up to ``--noise``."""
    draw = random.Random(f"{chosen.seed} {function.__name__}")

    @functools.wraps(function)
    def longer(*args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic()
        result = function(*args, **kwargs)
        time.sleep(draw.uniform(0.0, chosen.noise) * (time.monotonic() - begin))
        return result

    return longer


def main() -> None:
    def build_planted(
        chosen: argparse.Namespace, books: train.Books, rank: int, output: Path
    ) -> Any:
        trainer = build(chosen, books, rank, output)
        plant(trainer, chosen, books, rank)
        return trainer

    def noisy_functions(chosen: argparse.Namespace, books: train.Books, rank: int) -> list[Any]:
        functions = reward_functions(chosen, books, rank)
        return [noisy(function, chosen) for function in functions] if chosen.noise else functions

    train.options = options
    train.subclass = slow_subclass
    train.build = build_planted
    train.reward_functions = noisy_functions
    train.main()


if __name__ == "__main__":
    main()
    sys.exit(0)
