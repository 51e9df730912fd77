"""The recording of an asynchronous run, in the rows that TRL's integration writes of one."""

from __future__ import annotations

from typing import Any

from rlvr_probe.model import names
from tests.simulator.asynchronous import Made, Taken
from tests.simulator.cast import Cast
from tests.simulator.controlled_rows import loss_runs, write_turns
from tests.simulator.draws import SECOND
from tests.simulator.engines import Run

__all__ = ["AsynchronousRows"]


class AsynchronousRows:
    """Writes what a :class:`tests.simulator.asynchronous.Asynchronous` tells.

    The engine is a server that nobody records; it is told by its GPUs alone.
    """

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._scenario = scenario = cast.scenario
        self._ranks = [
            cast.member(
                "", node=scenario.node(rank), start=SECOND + rank * 10_000_000, rank=rank, gpu=rank
            )
            for rank in range(scenario.ranks)
        ]
        first = self._ranks[0]
        self._rollouter = cast.member("", start=3 * SECOND, owner=first, job="rollouter")
        self._spans: dict[Run, int] = {}

    def began(self, at: int) -> None:
        """The session of every rank."""
        scenario = self._scenario
        for rank, one in enumerate(self._ranks):
            one.event(
                names.SESSION, at - SECOND // 10, session=0, framework="trl",
                framework_version="1.16.0", algorithm="async_grpo", resumed_step=0, rank=rank,
                world_size=scenario.ranks, engine="vllm-server", group_size=scenario.group_size,
                max_response_tokens=scenario.lengths.cap, steps_per_generation=1, iterations=1,
                accumulation=1, model_type="qwen2", reward_functions=scenario.functions,
            )  # fmt: skip

    def lived(self, run: Run) -> None:
        """A trajectory, its group not scored yet."""
        one = self._rollouter
        span = self._spans[run] = one.next_span()
        write_turns(one, run, span, self._scenario.tools[run.group.source])
        one.span(names.TRAJECTORY, run.start, run.end, 0, span, weight_version=run.version)

    def scored(self, made: Made) -> None:
        """The lengths of a group, and its rewards: each function gets all of it."""
        one, runs = self._rollouter, made.runs
        batch = one.next_span()
        plans = [run.plan for run in runs]
        begin, end = made.scored
        one.event(
            names.TRAJECTORIES, begin, batch, mode="train", batch=batch, queue_group=made.number,
            weight_version=made.version, spans=[self._spans.pop(run) for run in runs], offset=0,
            total=len(runs), group_size=len(runs),
            prompt_tokens=[plan.prompt_tokens for plan in plans],
            response_tokens=[plan.response_tokens for plan in plans],
            truncated=[int(plan.cut) for plan in plans],
            loss_runs=[loss_runs(run, masked=self._scenario.mask_truncated) for run in runs],
        )  # fmt: skip
        others, at = SECOND // 1_000, begin
        for index, function in enumerate(self._scenario.functions):
            mine = index == made.group.source
            until = end - others * (len(self._scenario.functions) - 1 - index)
            until = until if index >= made.group.source else at + others
            call = one.next_span()
            one.event(
                names.REWARDS, until, call, batch=batch, function=function, index=index,
                values=[plan.value if mine else None for plan in plans],
            )  # fmt: skip
            one.span(
                names.REWARD_FN, at, until, batch, call, batch=batch, function=function,
                samples=len(runs),
            )  # fmt: skip
            at = until
        one.span(names.REWARD, begin, end, 0, batch, mode="train")

    def step(self, step: int, taken: Taken) -> None:
        """One step of every rank of the trainer."""
        where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
        for rank, one in enumerate(self._ranks):
            whole, update = one.next_span(), one.next_span()
            one.span(names.DATA, *taken.data, 0, **where)
            begin, end = taken.updates[rank]
            if rank == 0:
                groups = [made.number for made in taken.groups]
                one.event(names.TRAINED, begin, update, session=0, step=step, groups=groups)
            one.span(names.OPTIMIZER_STEP, taken.optimizer, end, update, session=0, step=step)
            one.span(names.UPDATE_ACTOR, begin, end, whole, update, **where)
            one.span(names.WEIGHT_SYNC, *taken.syncs, whole, **where, weight_version=taken.version)
            one.span(names.STEP, *taken.step, 0, whole, session=0, step=step)
            if taken.saved:
                one.span(names.CHECKPOINT, *taken.saved, 0, **where)
        self._cast.flush()

    def left(self, runs: list[Run], serving: list[Run], at: int) -> None:
        """Trajectories that have not ended, each turn and tool of which was recorded as it ended.

        Of the turns of ``serving``, a journal tells once they are a second old.
        """
        one = self._rollouter
        for run in runs:
            write_turns(one, run, one.next_span(), self._scenario.tools[run.group.source])
        for run in serving:
            if at - run.turn_start > SECOND:
                one.open(names.TURN, run.turn_start, one.next_span())

    def ended(self, step: int, at: int, own_ns: int) -> None:
        """The training is over; what is on its way ends with it."""
        for one in self._ranks:
            one.event(names.SESSION_END, at + SECOND // 100, session=0, step=step)
        self._cast.close(at + SECOND // 10, {one.key: own_ns for one in self._ranks})
