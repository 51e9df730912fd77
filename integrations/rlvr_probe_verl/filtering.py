"""Prompts that a recipe generated for and did not train on: dynamic sampling as DAPO does it.

The recipe filters inside its own loop: it names the prompts of a batch once that is
generated, selects rows of it, puts batches together until there are enough prompts, and cuts off
the rest. What remains of that is a selection of rows, and the batch that advantages are computed
for; both have the names of the prompts. Each is recorded when it is made: a recipe that passes too
little fails before it computes advantages, and one that passes nothing never does.

PRIME generates for more prompts than it trains on, puts those that pass in front and cuts off the
rest by the same call. Where a recipe has advantages of its own, as PRIME and SPPO do, what the
policy is updated with says what is trained on.
"""

from __future__ import annotations

from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import SELECTED
from rlvr_probe.reading import argument, digest
from rlvr_probe_verl.controller import IN_RPC, Controller, config_of, filters
from rlvr_probe_verl.generations import find
from rlvr_probe_verl.reading import column
from rlvr_probe_verl.rewards import record_scores

__all__ = ["ADVANTAGES", "REORDER", "SELECT", "trained_on"]


def _prompts(controller: Controller, data: Any) -> set[str] | None:
    """Names of the prompts of a batch; None if one of them is of no generation of this step."""
    uids = column(data, "uid")
    if not uids:
        return None
    trained = controller.generated_for("train")
    unnamed = [generation for generation in trained if not generation.uids]
    if unnamed:  # the batch may be one of them: then its uids are learnt
        find(reversed(unnamed), data, controller.order_of(data))
    names = {
        uid: generation.groups.names[group]
        for generation in trained
        for uid, group in generation.uids.items()
    }
    prompts = {names.get(digest(uid)) for uid in set(uids)}
    return None if None in prompts else {name for name in prompts if name is not None}


def _is_training(call: Call) -> bool:
    # Padding of a call to a worker group is taken off in the same way.
    return not IN_RPC.get() and Controller.is_here(call) and _trains(Controller.of(call.probe))


def _trains(controller: Controller) -> bool:
    return bool(controller.generations) and not controller.evaluation and not controller.baseline


def _selected(call: Call) -> None:
    if call.error is None:
        controller = Controller.of(call.probe)
        # Selecting from a batch already chosen for training is not filtering.
        before = None if controller.chosen else _prompts(controller, call.args[0])
        _pass(call.probe, controller, before, call.result)


def _pass(probe: Probe, controller: Controller, before: set[str] | None, data: Any) -> None:
    """Record what is kept of a batch of these prompts, if they are known."""
    if before is None:
        return
    # An empty selection has no uids, and passes none.
    passed = _prompts(controller, data) or set()
    kept = controller.kept or set()
    new, gone = passed - kept, before - passed - kept - controller.discarded
    controller.kept = kept | passed
    controller.discarded |= gone
    if not new and not gone:
        return
    generated = _generated(controller)
    values = {**controller.at(), "kept": [name for name in generated if name in new]}
    probe.emit(SELECTED, {**values, **_discarded(generated, gone)})


def _reorder_begin(call: Call) -> None:
    controller, data = Controller.of(call.probe), call.args[0]
    call.state = None
    cuts = len(argument(call, 1, "indices")) < len(data)
    if cuts and not controller.chosen and _is_training(call):
        call.state = _prompts(controller, data)


def _reordered(call: Call) -> None:
    if call.error is None:
        controller, data = Controller.of(call.probe), call.args[0]
        controller.remember_order(data, argument(call, 1, "indices").tolist())
        _pass(call.probe, controller, call.state, data)


def _advantages_begin(call: Call) -> None:
    _train(call.probe, Controller.of(call.probe), argument(call, 0, "data"))


def trained_on(probe: Probe, data: Any) -> None:
    """Before a policy is updated with a batch: it is what is trained on, if that is not known."""
    controller = Controller.of(probe)
    if not controller.chosen and _trains(controller):
        _train(probe, controller, data)


def _train(probe: Probe, controller: Controller, data: Any) -> None:
    record_scores(probe, controller, data)
    used = _prompts(controller, data)
    controller.chosen = True
    if used is None:
        return
    generated, kept = _generated(controller), controller.kept
    filtered = kept is not None or filters(config_of())
    if used.issuperset(generated) and not filtered:
        return
    # What a generation that nothing was selected of has is not kept.
    rest = set() if kept is None else {*generated} - kept - controller.discarded
    controller.discarded |= rest
    values = {**controller.at(), "used": [name for name in generated if name in used]}
    probe.emit(SELECTED, {**values, **_discarded(generated, rest)})


def _generated(controller: Controller) -> list[str]:
    """Names of all prompts of the step, in the order in which they were generated for."""
    trained = controller.generated_for("train")
    return [name for generation in trained for name in generation.groups.names]


def _discarded(generated: list[str], gone: set[str]) -> dict[str, Any]:
    if not gone:
        return {}
    return {"discarded": [name for name in generated if name in gone], "reason": "filter"}


SELECT = HookPoint(
    "verl.protocol:DataProto.select_idxs",
    after=_selected,
    when=_is_training,
    parameters=("idxs",),
)
"""A part of a batch: the rows that passed a filter."""

REORDER = HookPoint(
    "verl.protocol:DataProto.reorder",
    before=_reorder_begin,
    after=_reordered,
    when=Controller.is_here,
    parameters=("indices",),
)
"""Puts a batch in another order, so that each rank has as many tokens, or leaves a part of it."""

ADVANTAGES = HookPoint(
    "verl.trainer.ppo.ray_trainer:compute_advantage",
    before=_advantages_begin,
    when=_is_training,
    parameters=("data",),
)
"""What is trained on, with the rewards that another process computed."""
