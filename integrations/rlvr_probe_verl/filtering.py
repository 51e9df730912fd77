"""Prompts that a recipe generated for and did not train on: dynamic sampling as DAPO does it.

The recipe filters inside its own training loop: it names the prompts of a batch once that is
generated, selects rows of it, puts batches together until there are enough prompts, and cuts off
the rest. What remains of that is a selection of rows, and the batch that advantages are computed
for; both have the names of the prompts.
"""

from __future__ import annotations

from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import SELECTED
from rlvr_probe.reading import argument, attribute, digest
from rlvr_probe_verl.controller import Controller, controller_of, is_controller, trainer
from rlvr_probe_verl.generations import find
from rlvr_probe_verl.reading import column
from rlvr_probe_verl.rewards import tell_scores
from rlvr_probe_verl.rpc import in_rpc
from rlvr_probe_verl.session import filters

__all__ = ["ADVANTAGES", "SELECT"]


def _prompts(controller: Controller, data: Any) -> set[str] | None:
    """Names of the prompts of a batch; None if one of them is of no generation of this step."""
    uids = column(data, "uid")
    if not uids:
        return None
    unnamed = [one for one in controller.generations if one.mode == "train" and not one.uids]
    if unnamed:  # the batch may be one of them: then its uids are learnt
        find(reversed(unnamed), data, controller.order_of(data))
    names = {
        uid: generation.names[group]
        for generation in controller.generations
        if generation.mode == "train"
        for uid, group in generation.uids.items()
    }
    found = {names.get(digest(uid)) for uid in set(uids)}
    return None if None in found else {name for name in found if name is not None}


def _is_training(call: Call) -> bool:
    # Padding of a call to a worker group is taken off in the same way.
    if in_rpc() or not is_controller(call):
        return False
    controller = controller_of(call.probe)
    return bool(controller.generations) and not controller.evaluation and not controller.baseline


def _selected(call: Call) -> None:
    if call.error is not None:
        return
    controller = controller_of(call.probe)
    before = _prompts(controller, call.args[0])
    # An empty selection has no uids, and passes none.
    if before is not None:
        controller.kept = (controller.kept or set()) | (_prompts(controller, call.result) or set())


def _advantages_begin(call: Call) -> None:
    controller, data = controller_of(call.probe), argument(call, 0, "data")
    tell_scores(call.probe, controller, data)
    used = _prompts(controller, data)
    if used is not None:
        _tell(call.probe, controller, used)


def _tell(probe: Probe, controller: Controller, used: set[str]) -> None:
    generated = [
        name
        for generation in controller.generations
        if generation.mode == "train"
        for name in generation.names
    ]
    kept = controller.kept
    filtered = kept is not None or filters(attribute(trainer(), "config"))
    if used.issuperset(generated) and not filtered:
        return
    values: dict[str, Any] = {"session": controller.session, "step": controller.step}
    if kept is not None:
        values["kept"] = [name for name in generated if name in kept]
    values["used"] = [name for name in generated if name in used]
    if kept is not None:
        values["discarded"] = [name for name in generated if name not in kept]
        values["reason"] = "filter"
    probe.emit(SELECTED, values)


SELECT = HookPoint(
    "verl.protocol:DataProto.select_idxs",
    after=_selected,
    when=_is_training,
    parameters=("idxs",),
)
"""A part of a batch: the rows that passed a filter."""

ADVANTAGES = HookPoint(
    "verl.trainer.ppo.ray_trainer:compute_advantage",
    before=_advantages_begin,
    when=_is_training,
    parameters=("data",),
)
"""What is trained on, with the rewards that another process computed."""
