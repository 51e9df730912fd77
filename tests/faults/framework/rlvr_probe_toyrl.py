"""Its integration: uses everything that an adapter can ask of the core."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model import names
from rlvr_probe.reading import argument, error_of, foreign_ids, mask_runs, number, tool_status, word
from rlvr_probe.releases import Dated, points_of, release

WHERE = ("session", "step")


class Odd(int):
    """A number of a framework, which JSON does not know."""


def _where(call: Call) -> tuple[Any, ...]:
    return (0, call.args[0].step)


def _odd(call: Call) -> tuple[Any, ...]:
    return (0, Odd(call.args[0].step))


def _number(call: Call) -> int | None:
    return number(argument(call, 0, "self"), "step")


def _detail(call: Call) -> str:
    return f"step {call.args[0].step}"


def _always(call: Call) -> bool:
    """Long at the first step, so that the visits to this place are looked at one by one."""
    if call.args[0].step == 1:
        time.sleep(0.002)
    return True


def _broken(call: Call) -> tuple[Any, ...]:
    """An integration's own mistake, in every run."""
    raise LookupError


def _too_many(call: Call) -> tuple[Any, ...]:
    """Another one: more values than it declares."""
    return (1, 2)


def _handed_on(call: Call) -> dict[str, Any]:
    return {"env": {**call.kwargs["env"], "ours": "1"}}


def _leaves(call: Call) -> None:
    call.state = {"weight": call.args[0]}


def _weight(call: Call) -> tuple[Any, ...]:
    return (call.state["made"]["made"]["weight"],)


def _when_slow(call: Call) -> None:
    signal.raise_signal(signal.SIGALRM)


def _lengths(call: Call) -> None:
    """Every length of a batch: what no fault may ever change."""
    trainer, rows = call.args[0], call.result
    call.probe.emit(
        names.TRAJECTORIES,
        {
            "session": 0,
            "step": trainer.step,
            "mode": "train",
            "batch": call.span,
            "ordinal": 0,
            "policy_version": trainer.step - 1,
            "offset": 0,
            "total": len(rows),
            "group_size": len(rows),
            "prompt_tokens": [3] * len(rows),
            "response_tokens": [len(row) for row in rows],
            "loss_runs": [mask_runs([1] * len(row), len(row)) for row in rows],
        },
        parent=call.probe.current(),
    )


def _session(call: Call) -> None:
    """Before a training: the session, the rewards, a callback."""
    trainer, probe = call.args[0], call.probe
    state = probe.state(trainer)
    facts = {
        "session": 0,
        "framework": word("toyrl"),
        "resumed_step": 0,
        "world_size": 1,
        "ids": foreign_ids(sys.modules),
    }
    probe.emit(names.SESSION, facts)
    if "seen" in state:
        return
    state["seen"] = True
    probe.instrument(trainer, METHODS)
    for index in range(len(trainer.rewards) - 1):
        probe.replace(trainer.rewards, index, REWARD)
    last = len(trainer.rewards) - 1
    wrapped = probe.wrap(trainer.rewards[last], last, REWARD)
    if callable(wrapped):
        original, trainer.rewards[last] = trainer.rewards[last], wrapped

        def restore() -> None:
            trainer.rewards[last] = original

        probe.on_detach(restore)

    def callback(step: int) -> None:
        span = probe.begin(names.UPDATE_ACTOR, detail="by hand", step=step, activate=True)
        now = call.start_ns
        values = {"session": 0, "step": step, "mode": "train"}
        probe.record(names.WAIT, now, now + 1, {**values, "on": "data"})
        error = error_of(call)
        told = {"batch": span, "status": tool_status(error)}
        probe.end(probe.begin(names.TOOL_CALL), told, error)
        probe.end(span, values)

    guarded = probe.guarded(callback)
    trainer.callbacks.append(guarded)
    probe.on_detach(lambda: trainer.callbacks.remove(guarded))


def _reward_detail(call: Call) -> str:
    return f"reward {call.state['index']}"


def _reward(call: Call) -> tuple[Any, ...]:
    return (None, f"reward {call.state['index']}", len(call.args[0]))


PLACES = ("batch", "function", "samples")
REWARD = HookPoint("reward", names.REWARD_FN, PLACES, _reward, _reward_detail)
METHOD = HookPoint("method", names.TURN, ("samples",), _weight)
METHODS = (
    HookPoint("generate", names.ROLLOUT, WHERE, _where, after=_lengths),
    HookPoint("stream", names.TURN),
    HookPoint("later", names.TURN),
    HookPoint("score", names.TURN, ("samples",), lambda call: (call.result,)),
    HookPoint("shifted", names.TURN),
    HookPoint("shifted_later", names.TURN, ("samples",), _broken),
)


class ToyAdapter:
    """Records a toy."""

    name = "toyrl"
    distribution = "toyrl"
    tested = ">=1,<2"

    def hook_points(self, version: str) -> tuple[HookPoint, ...]:
        """What is there when the module is imported."""
        return (
            HookPoint("toyrl:Trainer.train", before=_session),
            HookPoint(
                "toyrl:Trainer.one_step",
                names.STEP,
                WHERE,
                read=_where,
                step=_number,
                detail=_detail,
                when=_always,
            ),
            HookPoint("toyrl:Trainer.inherited", names.EVAL, WHERE, _odd),
            HookPoint("toyrl:Base.timer", names.EXPERIENCE, WHERE),
            HookPoint("toyrl:Base.engine", names.TURN),
            HookPoint("toyrl:Base.longest", names.TURN),
            HookPoint("toyrl:Base.pad", names.TURN, ("samples",), _too_many),
            HookPoint("toyrl:slow", names.EVAL, after=_when_slow),
            HookPoint("toyrl:Base.build", names.TURN),
            HookPoint("toyrl:even", names.TURN),
            HookPoint("toyrl:start", arguments=_handed_on),
            HookPoint(
                "toyrl:marked", after=_leaves, returned=HookPoint("decorator", returned=METHOD)
            ),
            HookPoint("toyrl:Trainer.of_a_later_release", names.EVAL, optional=True),
        )

    def expected(self, version: str) -> tuple[HookPoint, ...]:
        """The same."""
        return self.hook_points(version)


class LateAdapter(ToyAdapter):
    """Records a module that was never installed."""

    name = "toyrl_late"
    distribution = "toyrl-late"

    def hook_points(self, version: str) -> tuple[HookPoint, ...]:
        """Its only function."""
        read = lambda call: (call.result,)  # noqa: E731 - lambdas are functions, too
        return points_of(
            (
                Dated(HookPoint("toyrl_late:late", names.TURN, ("samples",), read), "1.2"),
                Dated(HookPoint("toyrl_late:gone", names.TURN), "0.9", "1"),
            ),
            release(version),
        )
