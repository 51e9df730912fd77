"""What may be slow in a job of OpenRLHF: patches as a user would make them.

Loaded by every Python process of a job (``OPENRLHF_CPU_MODULE``). What sleeps is told by the
variables of ``planted_sleep``; the reward function sleeps by itself, and a rank behind its
log-probabilities in ``openrlhf_cpu_device``. Says when steps begin, as ``planted_steps`` has it.
With ``OPENRLHF_CPU_ENDS_BY`` no request but a straggler has more tokens than that, and each takes
``OPENRLHF_CPU_PACE_S``.
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import planted_steps
import wrapt
from openrlhf_cpu_books import step_now, write
from planted_sleep import is_planted, keep, sleep_if_planted, sleep_if_planted_async

BOOKS = os.environ["OPENRLHF_CPU_BOOKS"]
ENDS_BY = int(os.environ.get("OPENRLHF_CPU_ENDS_BY", "0"))


def sleeping_before(function: Callable[..., Any], kind: str, place: str | int) -> Any:
    """``function``, before which is slept if it is told to."""

    @functools.wraps(function)
    def sleeping(*args: Any, **kwargs: Any) -> Any:
        sleep_if_planted(kind, place, step_now())
        return function(*args, **kwargs)

    return sleeping


@wrapt.when_imported("openrlhf.datasets.prompts_dataset")
def _data(module: Any) -> None:
    dataset = module.PromptDataset
    dataset.__getitem__ = sleeping_before(dataset.__getitem__, "data", "__getitem__")


@wrapt.when_imported("openrlhf.utils.deepspeed.deepspeed")
def _checkpoints(module: Any) -> None:
    strategy = module.DeepspeedStrategy
    strategy.save_ckpt = sleeping_before(strategy.save_ckpt, "checkpoint", "save_ckpt")


@wrapt.when_imported("openrlhf.trainer.ray.ppo_actor")
def _updates(module: Any) -> None:
    trainer = module.ActorPPOTrainer
    train = trainer.ppo_train

    @functools.wraps(train)
    def ppo_train(*args: Any, **kwargs: Any) -> Any:
        sleep_if_planted("update", os.environ["RANK"], step_now())
        return train(*args, **kwargs)

    trainer.ppo_train = ppo_train


@wrapt.when_imported("openrlhf.utils.logging_utils")
def _logs(module: Any) -> None:
    logger = module.TensorboardLogger
    logger.log_train = sleeping_before(logger.log_train, "callback", "log_train")
    close = logger.close

    @functools.wraps(close)
    def closed(*args: Any, **kwargs: Any) -> Any:
        planted_steps.end(BOOKS)
        return close(*args, **kwargs)

    logger.close = closed


@wrapt.when_imported("openrlhf.trainer.ppo_utils.samples_generator")
def _steps(module: Any) -> None:
    generator = module.SamplesGenerator
    generate = generator.generate_samples
    step, trained = 0, True

    @functools.wraps(generate)
    def generate_samples(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal step, trained
        prompts = len(self.prompts_dataloader) * self.args.train.num_episodes
        if not step:
            planted_steps.start(BOOKS)
        # The last call of an episode finds no prompts: the step goes on with the next one.
        if trained and step < prompts // self.args.rollout.batch_size:
            step += 1
            planted_steps.begin(BOOKS, step)
        result = generate(self, *args, **kwargs)
        trained = bool(result[0])
        if trained:
            sleep_if_planted("dispatch", "generate_samples", step)
        return result

    generator.generate_samples = generate_samples


@wrapt.when_imported("vllm.v1.engine.async_llm")
def _engine(module: Any) -> None:
    engine = module.AsyncLLM
    module._SECONDS_PER_TOKEN = float(
        os.environ.get("OPENRLHF_CPU_PACE_S", module._SECONDS_PER_TOKEN)
    )
    generate, length = engine.generate, engine._length
    straggled = set[int | None]()

    @functools.wraps(generate)
    async def slow(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        step = step_now()
        await sleep_if_planted_async("rollout", "generate", step)
        begin_ns = time.monotonic_ns()
        async for output in generate(*args, **kwargs):
            if ENDS_BY and len(output.outputs[0].token_ids) > ENDS_BY:
                keep(step, begin_ns)
            write("requested", step=step, end=time.monotonic_ns())
            yield output

    def ending(self: Any, rng: random.Random, most: int) -> int:
        count: int = length(self, rng, most)
        step = step_now()
        if not ENDS_BY:
            return count
        if step in straggled or not is_planted("straggler", self._engine, step):
            return min(count, ENDS_BY)
        straggled.add(step)
        return most - 1  # it ends by itself

    engine.generate, engine._length = slow, ending
