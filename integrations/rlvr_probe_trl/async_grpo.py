"""Asynchronous GRPO's trainer: what it takes from the queue, its updates and weight syncs.

Generation and rewards happen in a process that it spawns, see
:mod:`rlvr_probe_trl.async_rollouts`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.adapter.controller import WHERE
from rlvr_probe.model.names import CHECKPOINT, DATA, TRAINED, UPDATE_ACTOR, WEIGHT_SYNC
from rlvr_probe.reading import argument, attribute, number
from rlvr_probe_trl.trainer import read_done, read_step, step_done, step_next, training_of

__all__ = ["ASYNC_METHODS", "PACK_POINT", "async_facts", "is_async"]


class Packed:
    """What was packed and not yet trained on: data loaders fetch ahead.

    Attributes:
        waiting: Groups of each micro batch, oldest first; None once their order is lost,
            until the next run starts.
    """

    def __init__(self, most: int = 1 << 14) -> None:
        self._most = most
        self.waiting: deque[list[int]] | None = deque()

    def begin(self) -> None:
        """A run starts: nothing waits."""
        self.waiting = deque()

    def add(self, groups: list[int]) -> None:
        """One more micro batch.

        Raises:
            OverflowError: More wait than a data loader fetches ahead.
        """
        if self.waiting is None:
            return
        self.waiting.append(groups)
        if len(self.waiting) > self._most:
            self.waiting = None
            raise OverflowError("micro batches are packed and not trained on")

    def take(self) -> list[int] | None:
        """The sample that is trained on, None if that is unknown."""
        return self.waiting.popleft() if self.waiting else None


PACKED = Packed()


def is_async(trainer: object) -> bool:
    """Whether a trainer trains on what another process generates."""
    kind = type(trainer)
    return hasattr(kind, "_sync_weight") and hasattr(kind, "_streaming_iter")


def async_facts(trainer: Any) -> dict[str, Any]:
    """What :func:`rlvr_probe_trl.trainer.facts` cannot find on such a trainer; else nothing."""
    if not is_async(trainer):
        return {}
    args = trainer.args
    options = attribute(trainer, "rollout_worker", "_loop_kwargs") or {}
    functions = options.get("reward_funcs") or ()
    names = [str(getattr(function, "__name__", type(function).__name__)) for function in functions]
    return {
        "algorithm": "async_grpo",
        "engine": "vllm-server",
        "rollout_tp": None,
        "group_size": number(args, "num_generations"),
        "max_response_tokens": number(args, "max_completion_length"),
        "batch_per_rank": None,
        "reward_functions": names or None,
    }


def _is_async(call: Call) -> bool:
    # Some methods belong to transformers.Trainer, which every trainer shares.
    return is_async(call.args[0])


def _read_sync(call: Call) -> tuple[Any, ...]:
    return (*read_done(call), number(call.args[0], "model_version"))


def _packed(call: Call) -> None:
    """After ``torch_call``: what the next micro step but those already packed will train on."""
    examples = argument(call, 1, "examples")
    if call.error is not None or not isinstance(examples, list) or len(examples) != 1:
        return
    groups = dict[int, None]()
    for row in examples[0]:
        # TRL 1.16 packs rows of samples; 1.9 to 1.12 lists of them.
        for sample in row if isinstance(row, list) else row.samples:
            groups[sample["group_id"]] = None
    PACKED.add(list(groups))


def _update_begin(call: Call) -> None:
    groups = PACKED.take()
    if groups is None:
        return
    session, step, _ = read_step(call)
    values = {"session": session, "step": step, "groups": groups}
    call.probe.emit(TRAINED, values, parent=call.span)


def _train_begin(call: Call) -> None:
    PACKED.begin()


def _train_end(call: Call) -> None:
    # As in a run that generates itself: there is no callback after an exception.
    training_of(call).finish(call.probe)


PACK_POINT = HookPoint(
    "trl.experimental.async_grpo.async_grpo_trainer:DataCollatorForRollout.torch_call",
    after=_packed,
    optional=True,
    parameters=("examples",),
)
"""Where samples from the queue become a micro batch."""

_of_trainer = partial(HookPoint, when=_is_async)

ASYNC_METHODS = (
    _of_trainer("_inner_training_loop", before=_train_begin, after=_train_end),
    _of_trainer("get_batch_samples", DATA, WHERE, read_step, step=step_next),
    _of_trainer(
        "training_step", UPDATE_ACTOR, WHERE, read_step, step=step_next, before=_update_begin
    ),
    HookPoint("_sync_weight", WEIGHT_SYNC, (*WHERE, "weight_version"), _read_sync, step=step_done),
    HookPoint("_save_checkpoint", CHECKPOINT, WHERE, read_done, step=step_done),
)
"""Methods hooked on the class of each trainer that trains on what another process generates."""
