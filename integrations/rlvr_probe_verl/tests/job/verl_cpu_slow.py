"""What may be slow in the workers of a job of verl: the engine, and a rank in its update.

Loaded by verl itself (``VERL_USE_EXTERNAL_MODULES``), behind ``verl_cpu_engine``. What sleeps is
told by the variables of ``planted_sleep``. Of a straggler's requests, with ``VERL_CPU_ENDS_BY``
none but the straggler has more tokens than that, and each takes ``VERL_CPU_PACE_S``.
"""

from __future__ import annotations

import functools
import os
import random
import time
from typing import Any

import verl_cpu_engine
import wrapt
from planted_sleep import is_planted, keep, sleep_if_planted, sleep_if_planted_async
from verl_cpu_books import step_now, write

ENDS_BY = int(os.environ.get("VERL_CPU_ENDS_BY", "0"))
PACE_S = float(os.environ.get("VERL_CPU_PACE_S", "0"))


class Server(verl_cpu_engine.Server):
    """The engine; the first request of a step may be a straggler."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._straggled: set[int | None] = set()
        if PACE_S:
            self._model.register_forward_pre_hook(lambda *_: time.sleep(PACE_S))

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        step = step_now()
        await sleep_if_planted_async("rollout", "generate", step)
        result = await super().generate(*args, **kwargs)
        write("requested", step=step, end=time.monotonic_ns())
        return result

    def _length(self, draw: random.Random, cap: int) -> int:
        count, step = super()._length(draw, cap), step_now()
        if not ENDS_BY:
            return count
        if step in self._straggled or not is_planted("straggler", self._replica, step):
            return min(count, ENDS_BY)
        self._straggled.add(step)
        return cap - 1  # it ends by itself

    def _sample(
        self, prompt: list[int], lengths: tuple[int, int], heat: float, seed: int
    ) -> tuple[list[int], list[float], str]:
        begin_ns, step = time.monotonic_ns(), step_now()
        _, count = lengths
        ids, scores, ended = super()._sample(prompt, lengths, heat, seed)
        if not ENDS_BY or count <= ENDS_BY:
            return ids, scores, ended
        while len(ids) < count:  # a straggler goes on where the model would end
            left = 0, count - len(ids)
            more = super()._sample(prompt + ids, left, heat, seed + len(ids))
            ids, scores = ids + more[0], scores + more[1]
        keep(step, begin_ns)
        return ids, scores, ended


verl_cpu_engine.Server = Server


@wrapt.when_imported("verl.workers.engine_workers")
def _updates(module: Any) -> None:
    train = module.TrainingWorker.train_batch

    @functools.wraps(train)
    def train_batch(*args: Any, **kwargs: Any) -> Any:
        sleep_if_planted("update", os.environ["RANK"], step_now())
        return train(*args, **kwargs)

    module.TrainingWorker.train_batch = train_batch
