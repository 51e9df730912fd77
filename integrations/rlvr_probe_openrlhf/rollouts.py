"""Lengths and rewards of every trajectory that a generator hands over.

With a trainer in this process the batch is that of its step. Else the process generates for a
queue, ahead of the training: batches are numbered, and the trainer takes them in that order.

What a dynamic filter throws away is told when the generator asks for prompts in its place: a filter
that passes nothing is seen while a step waits for what passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import EVAL, ROLLOUT, SELECTED, TRAJECTORIES
from rlvr_probe.reading import attribute, error_of, number
from rlvr_probe_openrlhf.controller import (
    controller_of,
    named,
    trainer,
)
from rlvr_probe_openrlhf.generation import SAMPLES, Sample, engine_of
from rlvr_probe_openrlhf.reading import local
from rlvr_probe_openrlhf.rewards import tell_rewards
from rlvr_probe_openrlhf.session import end_session, filters
from rlvr_probe_openrlhf.steps import begin_step, drop_step

__all__ = ["DISPATCH", "EVALUATE", "EVALUATION", "GENERATE", "groups_of"]

_queued = 0
"""Batches that this process generated for a queue."""


@dataclass(slots=True)
class _Batch:
    """What is told of a batch, piece by piece while it is generated.

    Attributes:
        place: Attributes that place it in its run.
        rows, groups: What was told of it.
        size: Of a group, as its first piece has it; None before.
        even: Whether each of its groups has as many trajectories.
    """

    place: dict[str, Any]
    rows: int = 0
    groups: int = 0
    size: int | None = None
    even: bool = True


_batch: _Batch | None = None
"""That a generator fills now."""
_abandoned: tuple[dict[str, Any], int] | None = None
"""Place of a step for which nothing was handed over, and how many batches of it were told."""


def _generate_begin(call: Call) -> None:
    global _batch
    probe = call.probe
    SAMPLES.begin()
    if trainer() is None:
        values: dict[str, Any] = {"mode": "train"}
        _batch = _Batch({**values, "queue_group": _queued})
        call.state = (None, values, probe.begin(ROLLOUT, activate=True))
        return
    controller = controller_of(probe)
    begin_step(probe, controller)
    values = named(controller.where())
    before = _abandoned[1] if _abandoned is not None and _abandoned[0] == values else 0
    _batch = _Batch({**values, "ordinal": before} if before else values)
    call.state = (controller, values, probe.begin(ROLLOUT, step=values["step"], activate=True))


def _dispatch_begin(call: Call) -> None:
    """Before more prompts are sent: in place of those whose samples were thrown away, if any."""
    accepted = local("_generate_vllm", "accepted_experiences")
    if _batch is None or not isinstance(accepted, list):
        return
    gone = SAMPLES.take_gone(accepted)
    if gone:
        probe, generator = call.probe, call.args[0]
        # What has the rollout's times is one piece, the last: this one is of no span.
        piece = probe.begin(ROLLOUT)
        probe.drop(piece)
        _tell(probe, generator, [], _batch, piece, gone, grows=True)


DISPATCH = HookPoint("SamplesGenerator._dispatch_prompts_to_vllm", before=_dispatch_begin)


def _generate_end(call: Call) -> None:
    global _queued, _batch, _abandoned
    batch, _batch = _batch, None
    controller, values, span = call.state
    probe, error = call.probe, error_of(call)
    result = call.result if isinstance(call.result, tuple) and call.result else (None,)
    rows = result[0] if isinstance(result[0], list) else []
    if error is None and controller is not None and result[-1] is True:
        # The prompts are used up, for this time.
        if controller.episodes:
            controller.episodes -= 1
        if not rows:  # this was the begin of no step
            if batch is not None and batch.rows:
                _abandoned = (values, batch.place.get("ordinal", 0) + 1)
            probe.drop(span)
            drop_step(probe, controller)
            end_session(probe, controller)
            return
    try:
        if error is None and rows and batch is not None:
            if controller is None:
                _queued += 1
            waiting = attribute(call.args[0], "_sample_buffer") or ()
            gone = SAMPLES.take_gone([*rows, *waiting])
            rewarded = _tell(probe, call.args[0], rows, batch, span, gone)
            if controller is not None:
                controller.batch, controller.rows = span, 0 if rewarded else len(rows)
    finally:
        probe.end(span, {**values, "samples": len(rows) if error is None else None}, error)


GENERATE = HookPoint(
    "SamplesGenerator.generate_samples", before=_generate_begin, after=_generate_end
)


def _tell(
    probe: Probe,
    generator: Any,
    experiences: Sequence[Any],
    batch: _Batch,
    span: int,
    gone: Sequence[Sample] = (),
    *,
    grows: bool = False,
) -> bool:
    """Record the next trajectories of a batch; whether their rewards came with them.

    One of unknown length is missing in its batch, and the others are there.

    Args:
        probe: To record with.
        generator: What made it.
        experiences: Its rows, one trajectory each.
        batch: That they are of.
        span: Rollout span, or what stands for it.
        gone: What a filter threw away, which are rows as well.
        grows: Whether more may follow.
    """
    found = [SAMPLES.of(one) for one in experiences]
    samples = [one for one in found if one is not None]
    if len(samples) < len(found):
        raise LookupError("samples that nobody saw come")
    trained, filtered = len(samples), bool(gone or batch.rows)
    samples += gone
    columns = _columns(generator, samples, batch, span)
    place = batch.place
    values = {**place, "batch": span, "grows": 1 if grows else None, **columns}
    told = {name: value for name, value in values.items() if value is not None}
    probe.emit(TRAJECTORIES, told, parent=0 if grows else span)
    rewards = [one.reward for one in samples if one.lengths is not None]
    if place["mode"] == "train" and (filtered or filters(attribute(generator, "args"))):
        queued = "queue_group" in place
        where = {"batch": span} if queued else {name: place[name] for name in ("session", "step")}
        _tell_filter(probe, where, samples, trained, groups_of(samples, span)[1])
    if any(one is not None for one in rewards):
        tell_rewards(probe, generator, span, rewards)
    return any(one.rewarded for one in samples)


def _columns(generator: Any, samples: Sequence[Sample], batch: _Batch, span: int) -> dict[str, Any]:
    """Columns of the next rows of a batch; None for what is not known of them."""
    groups, names, size = groups_of(samples, span)
    rows = [(one, one.lengths) for one in samples if one.lengths is not None]
    if not rows:
        raise LookupError("a batch of unknown lengths")
    first, total = batch.rows, batch.rows + len(samples)
    batch.size = size if batch.size is None else batch.size
    places = groups or [row // size for row in range(len(samples))]
    left = [at for at, one in zip(places, samples, strict=True) if one.lengths is not None]
    numbers = {at: number for number, at in enumerate(dict.fromkeys(left))}
    whole = groups is None and size == batch.size and len(rows) == len(samples)
    batch.even = batch.even and whole
    numbered = None if batch.even else [batch.groups + numbers[at] for at in left]
    batch.rows, batch.groups = total, batch.groups + len(numbers)
    known = [one for one, _ in rows]
    actors = [_actor_id(one) for one in attribute(generator, "vllm_engines") or ()]
    keys = [None if one.task is None else f"{one.task}/{one.place}" for one in known]
    lengths = [one for _, one in rows]
    runs = [one.runs or [one.response_tokens] for one in lengths]
    cuts = [one.truncated for one in known]
    return {
        "offset": first,
        "total": total,
        "group_size": batch.size,
        "groups": numbered,
        "prompts": [names[at] for at in numbers],
        "prompt_tokens": [one.prompt_tokens for one in lengths],
        "response_tokens": [one.response_tokens for one in lengths],
        "keys": keys if any(keys) else None,
        "engines": [engine_of(actors, one.actor) for one in known],
        "loss_runs": runs if any(one.runs for one in lengths) else None,
        "truncated": None if None in cuts else cuts,
    }


def _tell_filter(
    probe: Probe, where: dict[str, Any], samples: Sequence[Sample], trained: int, names: list[str]
) -> None:
    """Record which prompts passed the filter, all of which are trained on."""
    passed = {one.task for one in samples[:trained]}
    kept = [name for name in names if name in passed]
    gone = [name for name in names if name not in passed]
    values: dict[str, Any] = {**where, "discarded": gone, "reason": "filter"}
    if trained:
        values |= {"kept": kept, "used": kept}
    probe.emit(SELECTED, values)


def groups_of(samples: Sequence[Sample], span: int) -> tuple[list[int] | None, list[str], int]:
    """Group of each row, None if all have as many; names of their prompts; the size of a group.

    The samples of one answer are those of one prompt, and follow each other.
    """
    of_rows, names, last = list[int](), list[str](), None
    for row, one in enumerate(samples):
        if not of_rows or one.task != last or (one.task is None and one.place == 0):
            names.append(f"{span}-{row}" if one.task is None else one.task)
            last = one.task
        of_rows.append(len(names) - 1)
    sizes = [0] * len(names)
    for group in of_rows:
        sizes[group] += 1
    size = max(sizes, default=1)
    even = all(group == row // size for row, group in enumerate(of_rows))
    return None if even else of_rows, names, size


def _actor_id(handle: Any) -> str | None:
    actor = attribute(handle, "_actor_id")
    to_hex = getattr(actor, "hex", None)
    return str(to_hex()) if callable(to_hex) else None


# ---------------------------------------------------------------- evaluation


def _evaluation_begin(call: Call) -> None:
    probe = call.probe
    controller = controller_of(probe)
    controller.evaluation = probe.begin(EVAL, step=controller.done, activate=True)
    call.state = named(controller.where())


def _evaluation_end(call: Call) -> None:
    if call.state is None:
        return
    controller = controller_of(call.probe)
    span, controller.evaluation = controller.evaluation, 0
    call.probe.end(span, call.state, error_of(call))
    end_session(call.probe, controller)


EVALUATION = HookPoint("evaluate", before=_evaluation_begin, after=_evaluation_end)
"""Of a trainer that generates itself, hooked on its class."""


def _evaluate_begin(call: Call) -> None:
    probe = call.probe
    if trainer() is None:
        # Beside the training: the actor that generates knows after which step.
        step = number(local("_run_eval", "self"), "_last_eval_step")
        values: dict[str, Any] = {"session": 0, "step": step, "mode": "eval"}
        call.state = (values, probe.begin(EVAL, step=step, activate=True), False)
        return
    controller = controller_of(probe)
    span = probe.begin(ROLLOUT, step=controller.done, activate=True)
    call.state = ({**named(controller.where()), "mode": "eval"}, span, True)


def _evaluate_end(call: Call) -> None:
    values, span, sampled = call.state
    probe, error = call.probe, error_of(call)
    rows = call.result if isinstance(call.result, list) else []
    try:
        if error is None and rows and values["step"] is not None:
            _tell(probe, call.args[0], rows, _Batch(values), span)
    finally:
        if sampled:
            values = {**values, "samples": len(rows) if error is None else None}
        probe.end(span, values, error)


EVALUATE = HookPoint(
    "SamplesGenerator.generate_eval_samples", before=_evaluate_begin, after=_evaluate_end
)
