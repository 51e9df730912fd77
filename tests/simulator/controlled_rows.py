"""The recording of a run with one controller, in the rows that verl's integration writes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from tests.simulator.cast import Cast
from tests.simulator.controlled import Call, Part, Round
from tests.simulator.draws import SECOND
from tests.simulator.engines import Run
from tests.synthetic import Process

__all__ = ["ControlledRows"]

_GROUP = "actor_rollout"


class ControlledRows:
    """Writes what a :class:`tests.simulator.controlled.Controlled` tells."""

    def __init__(self, cast: Cast) -> None:
        scenario = self._scenario = cast.scenario
        self._cast = cast
        self._driver = cast.member("driver")
        self._one = one = cast.member(
            "TaskRunner", start=SECOND, owner=self._driver, starter=self._driver, job="job-1"
        )
        actor: dict[str, Any] = {"owner": self._driver, "starter": one, "start": 2 * SECOND}
        self._ranks = [
            cast.member(
                "WorkerDict", node=scenario.node(rank), rank=rank, gpu=rank, job="raylet", **actor
            )
            for rank in range(scenario.ranks)
        ]
        nodes = scenario.nodes
        self._workers = [
            cast.member("AgentLoopWorker", node=number % nodes, job=f"loop-{number}", **actor)
            for number in range(scenario.workers)
        ]
        self._rewarders = [
            cast.member("RewardLoopWorker", node=number % nodes, job=f"reward-{number}", **actor)
            for number in range(scenario.rewarders)
        ]
        self._calls: Counter[str] = Counter()
        self._generations = 0

    def began(self, at: int) -> None:
        """The session, and the models are made."""
        scenario = self._scenario
        self._one.event(
            names.SESSION, at - SECOND // 10, session=0, framework="verl",
            framework_version="0.9.1", algorithm="grpo", resumed_step=0, rank=0, world_size=1,
            accelerators=scenario.ranks, rollout_tp=scenario.tp, engine="vllm",
            group_size=scenario.group_size, group_size_eval=1, max_prompt_tokens=2_048,
            max_response_tokens=scenario.lengths.cap, steps_per_generation=1, iterations=1,
            accumulation=1, model_type="qwen2", reward_functions=scenario.functions,
        )  # fmt: skip
        ranks = range(scenario.ranks)
        begin = at - 4 * SECOND
        starts = [begin + 1_000_000 + rank for rank in ranks]
        ends = [at - 2 * SECOND - rank for rank in ranks]
        self._call(0, 0, Call("", "init_model", begin, at - SECOND, starts, ends))

    def step(
        self,
        step: int,
        begin: int,
        end: int,
        parts: list[Part],
        used: list[str] | None,
        kept: list[str] | None,
    ) -> None:
        """All rows of a step, in the order in which they end."""
        one, whole = self._one, self._one.next_span()
        where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
        for part in parts:
            if isinstance(part, Round):
                span = one.next_span()
                self._round(step, span, part)
                values = {**where, "samples": len(part.runs)}
                one.span(names.ROLLOUT, part.begin, part.end, whole, span, **values)
            elif isinstance(part, Call):
                span = one.next_span()
                self._call(step, span, part)
                one.span(_stage(part.stage), part.begin, part.end, whole, span, **where)
            else:
                name, start, until = part
                if name == "advantage" and used is not None:
                    one.event(
                        names.SELECTED, start, whole, session=0, step=step, kept=kept, used=used
                    )
                one.span(_stage(name), start, until, whole, **where)
        one.span(names.STEP, begin, end, 0, whole, session=0, step=step)
        self._cast.flush()

    def evaluated(self, step: int, begin: int, end: int, batch: Round) -> None:
        """An evaluation, after its step."""
        span = self._one.next_span()
        self._round(step, span, batch)
        where: dict[str, Any] = {"session": 0, "step": step, "mode": "eval"}
        self._one.span(names.EVAL, begin, end, 0, span, **where)

    def saved(self, step: int, call: Call) -> None:
        """A checkpoint, after its step."""
        span = self._one.next_span()
        self._call(step, span, call)
        where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
        self._one.span(names.CHECKPOINT, call.begin, call.end, 0, span, **where)

    def ended(self, step: int, at: int, own_ns: int) -> None:
        """The training is over."""
        self._one.event(names.SESSION_END, at + SECOND, session=0, step=step)
        self._cast.close(at + 2 * SECOND, {self._one.key: own_ns})

    def _call(self, step: int, parent: int, call: Call) -> None:
        method = call.method
        number = self._calls[method]
        self._calls[method] += 1
        waits = method != "update_weights"
        end = call.end if waits else call.begin + SECOND // 1_000
        common: dict[str, Any] = {"group": _GROUP, "method": method, "call": number}
        self._one.span(
            names.RPC, call.begin, end, parent, 0, side="caller", **common,
            ranks=self._scenario.ranks, waits=int(waits),
        )  # fmt: skip
        for rank, one in enumerate(self._ranks):
            one.span(
                names.RPC, call.starts[rank], call.ends[rank], 0, 0, side="worker", **common,
                rank=rank, ranks=self._scenario.ranks,
            )  # fmt: skip

    def _round(self, step: int, span: int, batch: Round) -> None:
        per_worker = self._scenario.per_worker(len(batch.runs))
        generation, self._generations = self._generations, self._generations + 1
        keys = list[str]()
        # A worker's journal has its rows in the order in which they ended.
        for row, run in enumerate(batch.runs):
            worker, place = divmod(row, per_worker)
            uid = run.group.prompt if batch.mode == "train" else "-"
            keys.append(f"{uid}/{generation}/{worker}/{place}")
        for run in sorted(batch.runs, key=lambda run: run.end):
            self._live(self._workers[run.row // per_worker], run, keys[run.row], step - 1)
        one = self._one
        values: dict[str, Any] = {"session": 0, "step": step, "mode": batch.mode, "batch": span}
        plans = [run.plan for run in batch.runs]
        one.event(
            names.TRAJECTORIES, batch.told + 1_000, span, **values, ordinal=batch.ordinal,
            keys=keys, prompts=[group.prompt for group in batch.groups], offset=0,
            total=len(plans), group_size=len(batch.groups[0].plans),
            prompt_tokens=[plan.prompt_tokens for plan in plans],
            response_tokens=[plan.response_tokens for plan in plans],
        )  # fmt: skip
        one.event(
            names.REWARDS, batch.told + 2_000, span, batch=span, function="reward", index=0,
            values=[plan.value for plan in plans],
        )  # fmt: skip

    def _live(self, one: Process, run: Run, key: str, policy: int) -> None:
        span = one.next_span()
        function = self._scenario.functions[run.group.source]
        write_turns(one, run, span, self._scenario.tools[run.group.source])
        first, last = run.verified
        one.span(
            names.VERIFY, first, last, span, 0, batch=span, function=function, value=run.plan.value
        )
        worker, start, end = run.served
        rewarder = self._rewarders[worker % len(self._rewarders)]
        rewarder.span(names.REWARD_FN, start, end, 0, 0, function=function, samples=1)
        plan = run.plan
        one.span(
            names.TRAJECTORY, run.start, run.end, 0, span, key=key, engine=run.engine.number,
            policy_version_min=policy, policy_version_max=policy, prompt_tokens=plan.prompt_tokens,
            response_tokens=plan.response_tokens,
            loss_runs=loss_runs(run, masked=self._scenario.mask_truncated),
            truncated=int(plan.cut),
        )  # fmt: skip


def write_turns(one: Process, run: Run, span: int, tool: str) -> None:
    """Turns and tool calls of a trajectory that goes its own way."""
    for turn, (begin, end, sent, made) in enumerate(run.turns):
        one.span(
            names.TURN, begin, end, span, 0, batch=span, samples=1, turn=turn, prompt_tokens=sent,
            response_tokens=made,
        )  # fmt: skip
        if turn < len(run.tools):
            begin, end = run.tools[turn]
            one.span(
                names.TOOL_CALL, begin, end, span, 0, batch=span, turn=turn, tool=tool, status="ok"
            )


def loss_runs(run: Run, *, masked: bool) -> list[int]:
    """Tokens in and out of the loss in turn; none is in it of what was truncated and masked."""
    if masked and run.plan.cut:
        return [0, run.plan.response_tokens]
    return [one for tokens, _, told in run.plan.turns for one in (tokens, told)][:-1]


def _stage(name: str) -> Name:
    return next(one for one in names.ALL if one.name == name)
