"""The recording of a run whose ranks do everything, in the rows that TRL's integration writes."""

from __future__ import annotations

from typing import Any

from rlvr_probe.model import names
from tests.simulator.cast import Cast
from tests.simulator.colocated import Calls, RankStep, Span
from tests.simulator.controlled_rows import loss_runs
from tests.simulator.draws import SECOND
from tests.simulator.engines import Run
from tests.synthetic import Process

__all__ = ["ColocatedRows"]


class ColocatedRows:
    """Writes what a :class:`tests.simulator.colocated.Colocated` tells."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._scenario = scenario = cast.scenario
        self._ranks = [
            cast.member(
                "", node=scenario.node(rank), start=SECOND + rank * 10_000_000, rank=rank, gpu=rank
            )
            for rank in range(scenario.ranks)
        ]

    def began(self, at: int) -> None:
        """The session of every rank."""
        scenario = self._scenario
        for rank, one in enumerate(self._ranks):
            one.event(
                names.SESSION, at - SECOND // 10, session=0, framework="trl",
                framework_version="1.16.0", algorithm="grpo", resumed_step=0, rank=rank,
                world_size=scenario.ranks, rollout_tp=1, engine="vllm-colocate",
                group_size=scenario.group_size, group_size_eval=1,
                batch_per_rank=scenario.prompts * scenario.group_size // scenario.ranks,
                max_prompt_tokens=2_048, max_response_tokens=scenario.lengths.cap,
                steps_per_generation=1, iterations=1, accumulation=1, model_type="qwen2",
                reward_functions=scenario.functions,
            )  # fmt: skip

    def step(self, step: int, ranks: list[RankStep]) -> None:
        """One step of every rank, its rows in the order in which they end."""
        for rank, (one, done) in enumerate(zip(self._ranks, ranks, strict=True)):
            self._rank(one, rank, step, done)
        self._cast.flush()

    def evaluated(self, step: int, ranks: list[RankStep]) -> None:
        """An evaluation, after its step."""
        where: dict[str, Any] = {"session": 0, "step": step, "mode": "eval"}
        for rank, (one, done) in enumerate(zip(self._ranks, ranks, strict=True)):
            whole, batch = one.next_span(), one.next_span()
            self._rollout(one, rank, batch, done, where)
            begin = done.spans["rollout"][1]
            reward = one.next_span()
            part = (done.spans["eval"][1] - begin) // 5
            spans = [
                (begin + part * place, begin + part * (place + 1))
                for place in range(len(self._scenario.sources))
            ]
            self._functions(one, batch, reward, done.calls.runs, spans)
            one.span(names.REWARD, begin, spans[-1][1], batch, reward, **where)
            first, last = done.spans["eval"]
            one.span(names.EXPERIENCE, first, spans[-1][1], whole, batch, **where)
            one.span(names.EVAL, first, last, 0, whole, **where)

    def saved(self, step: int, spans: list[Span]) -> None:
        """A checkpoint of every rank, after its step."""
        for one, (begin, end) in zip(self._ranks, spans, strict=True):
            one.span(names.CHECKPOINT, begin, end, 0, session=0, step=step, mode="train")

    def ended(self, step: int, at: int, own_ns: int) -> None:
        """The training is over."""
        for one in self._ranks:
            one.event(names.SESSION_END, at + SECOND // 100, session=0, step=step)
        self._cast.close(at + SECOND // 10, {one.key: own_ns for one in self._ranks})

    def _rank(self, one: Process, rank: int, step: int, done: RankStep) -> None:
        where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
        spans = done.spans
        whole, batch, reward, update = (one.next_span() for _ in range(4))
        one.span(names.DATA, *spans["data"], 0, **where)
        self._rollout(one, rank, batch, done, where)
        one.span(names.OLD_LOGPROB, *spans["old_logprob"], batch, **where)
        one.span(names.REF_LOGPROB, *spans["ref_logprob"], batch, **where)
        self._functions(one, batch, reward, done.calls.runs, done.functions)
        begin, end = spans["reward"]
        one.span(names.WAIT, done.functions[-1][1], end, reward, **where, on="reward_gather")
        one.span(names.REWARD, begin, end, batch, reward, **where)
        one.span(names.ADVANTAGE, *spans["advantage"], batch, **where)
        first = spans["rollout"][0]
        one.span(names.EXPERIENCE, first, spans["advantage"][1], whole, batch, **where)
        begin, end = spans["update_actor"]
        one.span(names.OPTIMIZER_STEP, done.optimizer, end, update, session=0, step=step)
        one.span(names.UPDATE_ACTOR, begin, end, whole, update, **where)
        one.span(names.STEP, *spans["step"], 0, whole, session=0, step=step)

    def _rollout(
        self, one: Process, rank: int, batch: int, done: RankStep, where: dict[str, Any]
    ) -> None:
        calls, span = done.calls, one.next_span()
        synced = done.spans.get("weight_sync")
        if synced:
            one.span(names.WEIGHT_SYNC, *synced, span, **where)
        self._turns(one, batch, span, calls, several=self._scenario.lengths.turns > 1)
        runs = calls.runs
        plans = [run.plan for run in runs]
        size = len(runs[0].group.plans)
        columns: dict[str, Any] = {
            "prompt_tokens": [plan.prompt_tokens for plan in plans],
            "response_tokens": [plan.response_tokens for plan in plans],
            "truncated": [int(plan.cut) for plan in plans],
        }
        masked = self._scenario.mask_truncated
        if masked or self._scenario.lengths.turns > 1:
            columns["loss_runs"] = [loss_runs(run, masked=masked) for run in runs]
        begin, end = done.spans["rollout"]
        version = where["step"] - (where["mode"] == "train")
        one.event(
            names.TRAJECTORIES, end - 1_000, span, **where, batch=batch, ordinal=0,
            policy_version=version, offset=rank * len(runs), total=len(runs) * len(self._ranks),
            group_size=size, **columns,
        )  # fmt: skip
        one.span(
            names.ROLLOUT, begin, end, batch, span, **where, policy_version=version,
            samples=len(runs),
        )  # fmt: skip

    def _turns(self, one: Process, batch: int, span: int, calls: Calls, *, several: bool) -> None:
        """Engine calls and tools; tokens are summed up where there is one call and no tool."""
        row = {run: place for place, run in enumerate(calls.runs)}
        tools = iter(calls.tools)
        for turn, (begin, end, runs) in enumerate(calls.turns):
            told = [run.turns[turn] for run in runs]
            sent, made = [one[2] for one in told], [one[3] for one in told]
            if not several:
                one.span(
                    names.TURN, begin, end, span, 0, batch=batch, samples=len(runs),
                    prompt_tokens=sum(sent), response_tokens=sum(made),
                )  # fmt: skip
                continue
            one.span(
                names.TURN, begin, end, span, 0, batch=batch, samples=len(runs),
                rows=[row[run] for run in runs], turn=turn, prompt_tokens=sent,
                response_tokens=made,
            )  # fmt: skip
            for run in runs:
                if turn + 1 < len(run.plan.turns):
                    start, until, whose = next(tools)
                    tool = self._scenario.tools[whose.group.source]
                    one.span(
                        names.TOOL_CALL, start, until, span, 0, batch=batch, row=row[whose],
                        turn=turn, tool=tool, status="ok",
                    )  # fmt: skip

    def _functions(
        self, one: Process, batch: int, reward: int, runs: list[Run], spans: list[Span]
    ) -> None:
        """Each function gets the whole batch, and gives nothing for rows of other sources."""
        for source, (begin, end) in enumerate(spans):
            call, function = one.next_span(), self._scenario.functions[source]
            values = [run.plan.value if run.group.source == source else None for run in runs]
            one.event(
                names.REWARDS, end, call, batch=batch, function=function, index=source,
                values=values,
            )  # fmt: skip
            one.span(
                names.REWARD_FN, begin, end, reward, call, batch=batch, function=function,
                samples=len(runs),
            )  # fmt: skip
