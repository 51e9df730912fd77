"""Lengths and rewards of every trajectory that a generator hands over.

With a trainer in this process the batch is that of its step. Else the process generates for a
queue, ahead of the trainer: batches are numbered, and the trainer takes them in that order.

What a dynamic filter drops is recorded when the generator asks for prompts in its place: a filter
that passes nothing is seen while a step waits for what passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.batch_events import Batch, Groups, emit_rewards, sources, stand_in
from rlvr_probe.adapter.controller import named
from rlvr_probe.adapter.ray_actors import actor_id
from rlvr_probe.adapter.spans import end_span
from rlvr_probe.model.names import DATA, EVAL, ROLLOUT, SELECTED
from rlvr_probe.reading import attribute, error_of, number
from rlvr_probe_openrlhf.controller import Controller, filters, reward_function
from rlvr_probe_openrlhf.reading import local
from rlvr_probe_openrlhf.samples import SAMPLES, Sample

__all__ = ["COLLECT", "DISPATCH", "EVALUATE", "EVALUATION", "GENERATE", "groups_of"]

_queued = 0
"""Batches that this process generated for a queue."""
_batch: Batch | None = None
"""That a generator fills now."""
_abandoned: tuple[dict[str, Any], int] | None = None
"""Place of a step for which nothing was handed over, and how many batches of it were recorded."""
_fetched = list[tuple[int, int]]()
"""From when to when the generator fetched prompts for its batch, ns; until there is a step."""


def _generate_begin(call: Call) -> None:
    global _batch
    probe = call.probe
    SAMPLES.begin()
    _fetched.clear()
    if Controller.trainer() is None:
        values: dict[str, Any] = {"mode": "train"}
        _batch = Batch({**values, "queue_group": _queued})
        call.state = (None, values, probe.begin(ROLLOUT, activate=True))
        return
    controller = Controller.of(probe)
    controller.begin_step(probe)
    values = named(controller.where())
    before = _abandoned[1] if _abandoned is not None and _abandoned[0] == values else 0
    _batch = Batch({**values, "ordinal": before} if before else values)
    call.state = (controller, values, probe.begin(ROLLOUT, step=values["step"], activate=True))


def _collect_end(call: Call) -> None:
    """After prompts were fetched, before any of them is sent or in place of what was dropped."""
    if _batch is not None:
        _fetched.append((call.start_ns, call.end_ns))


COLLECT = HookPoint("_collect_prompt_batch", after=_collect_end)


def _dispatch_begin(call: Call) -> None:
    """Before more prompts are sent: in place of those whose samples were dropped, if any."""
    accepted = local("_generate_vllm", "accepted_experiences")
    if _batch is None or not isinstance(accepted, list):
        return
    gone = SAMPLES.take_gone(accepted)
    if gone:
        span = stand_in(call.probe)
        _record(call.probe, call.args[0], [], _batch, span, gone, more=True)


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
        if not rows:  # no step started here
            if batch is not None and batch.rows:
                _abandoned = (values, batch.place.get("ordinal", 0) + 1)
            probe.drop(span)
            controller.drop_step(probe)
            controller.finish_session(probe)
            return
    try:
        if error is None and rows and batch is not None:
            if controller is None:
                _queued += 1
            else:
                for start_ns, end_ns in _fetched:
                    probe.record(DATA, start_ns, end_ns, values, span)
            waiting = attribute(call.args[0], "_sample_buffer") or ()
            gone = SAMPLES.take_gone([*rows, *waiting])
            rewarded = _record(probe, call.args[0], rows, batch, span, gone)
            if controller is not None:
                controller.batch, controller.rows = span, 0 if rewarded else len(rows)
    finally:
        probe.end(span, {**values, "samples": len(rows) if error is None else None}, error)


GENERATE = HookPoint(
    "SamplesGenerator.generate_samples", before=_generate_begin, after=_generate_end
)


def _record(
    probe: Probe,
    generator: Any,
    experiences: Sequence[Any],
    batch: Batch,
    span: int,
    gone: Sequence[Sample] = (),
    *,
    more: bool = False,
) -> bool:
    """Record the next trajectories of a batch; whether their rewards came with them.

    One of unknown length is missing in its batch, and the others are there.

    Args:
        probe: To record with.
        generator: What made it.
        experiences: Its rows, one trajectory each.
        batch: That they are of.
        span: Rollout span, or what stands for it.
        gone: What a filter dropped, which are rows as well.
        more: Whether more may follow.
    """
    samples = [sample for row in experiences if (sample := SAMPLES.of(row)) is not None]
    if len(samples) < len(experiences):
        raise LookupError("samples whose arrival was not seen")
    trained, filtered = len(samples), bool(gone or batch.rows)
    samples += gone
    groups, args = groups_of(samples, span), attribute(generator, "args")
    batch.emit(probe, span, _columns(generator, samples, batch, groups), more)
    place = batch.place
    if place["mode"] == "train" and (filtered or filters(args)):
        queued = "queue_group" in place
        where = {"batch": span} if queued else {name: place[name] for name in ("session", "step")}
        _record_filter(probe, where, samples, trained, groups.names)
    rewards = [sample.reward for sample in samples if sample.lengths is not None]
    if any(reward is not None for reward in rewards):
        emit_rewards(probe, span, reward_function(args), rewards)
    return any(sample.rewarded for sample in samples)


def _columns(
    generator: Any, samples: Sequence[Sample], batch: Batch, groups: Groups
) -> dict[str, Any]:
    """Columns of the next rows of a batch; None for what is unknown of them."""
    measured = [sample for sample in samples if sample.lengths is not None]
    lengths = [sample.lengths for sample in measured if sample.lengths is not None]
    if not lengths:
        raise LookupError("a batch of unknown lengths")
    of_rows = [
        group
        for group, sample in zip(groups.of_rows, samples, strict=True)
        if sample.lengths is not None
    ]
    whole = groups.even and len(lengths) == len(samples)
    handles = attribute(generator, "vllm_engines") or ()
    engines = {actor_id(handle): engine for engine, handle in enumerate(handles)}
    keys = [sample.key for sample in measured]
    cuts = [sample.truncated for sample in measured]
    runs = [length.runs or [length.response_tokens] for length in lengths]
    return {
        **batch.add(of_rows, len(samples), groups.size, even=whole),
        "prompts": [groups.names[group] for group in dict.fromkeys(of_rows)],
        "prompt_tokens": [length.prompt_tokens for length in lengths],
        "response_tokens": [length.response_tokens for length in lengths],
        "keys": keys if any(keys) else None,
        "engines": [engines.get(sample.actor) if sample.actor else None for sample in measured],
        "loss_runs": runs if any(length.runs for length in lengths) else None,
        "truncated": None if None in cuts else cuts,
        "sources": sources(lambda _: [sample.source for sample in measured]),
    }


def _record_filter(
    probe: Probe, where: dict[str, Any], samples: Sequence[Sample], trained: int, names: list[str]
) -> None:
    """Record which prompts passed the filter, all of which are trained on."""
    passed = {sample.task for sample in samples[:trained]}
    kept = [name for name in names if name in passed]
    gone = [name for name in names if name not in passed]
    values: dict[str, Any] = {**where, "discarded": gone, "reason": "filter"}
    if trained:
        values |= {"kept": kept, "used": kept}
    probe.emit(SELECTED, values)


def groups_of(samples: Sequence[Sample], span: int) -> Groups:
    """Which samples are of one prompt, named by the task that answered it.

    The samples of one answer are those of one prompt, and follow each other.
    """
    names = list[str]()
    for row, sample in enumerate(samples):
        goes_on = row > 0 and sample.place > 0 and samples[row - 1].task is None
        unnamed = names[-1] if goes_on else f"{span}-{row}"
        names.append(unnamed if sample.task is None else sample.task)
    return Groups.by_name(names)


# ---------------------------------------------------------------- evaluation


def _evaluation_begin(call: Call) -> None:
    controller = Controller.of(call.probe)
    controller.evaluation = call.probe.begin(EVAL, step=controller.done, activate=True)
    call.state = (controller.evaluation, named(controller.where()))


def _evaluation_end(call: Call) -> None:
    controller = Controller.of(call.probe)
    controller.evaluation = 0
    end_span(call)
    controller.finish_session(call.probe)


EVALUATION = HookPoint("evaluate", before=_evaluation_begin, after=_evaluation_end)
"""Of a trainer that generates itself, hooked on its class."""


def _evaluate_begin(call: Call) -> None:
    probe = call.probe
    if Controller.trainer() is None:
        # Beside the trainer: the actor that generates knows after which step.
        step = number(local("_run_eval", "self"), "_last_eval_step")
        values: dict[str, Any] = {"session": 0, "step": step, "mode": "eval"}
        call.state = (values, probe.begin(EVAL, step=step, activate=True), False)
        return
    controller = Controller.of(probe)
    span = probe.begin(ROLLOUT, step=controller.done, activate=True)
    call.state = ({**named(controller.where()), "mode": "eval"}, span, True)


def _evaluate_end(call: Call) -> None:
    values, span, sampled = call.state
    probe, error = call.probe, error_of(call)
    rows = call.result if isinstance(call.result, list) else []
    try:
        if error is None and rows and values["step"] is not None:
            _record(probe, call.args[0], rows, Batch(values), span)
    finally:
        if sampled:
            values = {**values, "samples": len(rows) if error is None else None}
        probe.end(span, values, error)


EVALUATE = HookPoint(
    "SamplesGenerator.generate_eval_samples", before=_evaluate_begin, after=_evaluate_end
)
