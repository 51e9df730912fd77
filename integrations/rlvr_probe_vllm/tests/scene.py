"""vLLM's own OutputProcessor, fed by hand, in a process of its own; no engine, no GPU, no model.

What the core of an engine would send is made here; everything that becomes of it is vLLM's. Prints
what vLLM itself says of each request, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import rlvr_probe

PROMPT = list(range(11, 23))
OWN = "-0123abcd"
"""What vLLM adds to the id of a caller, since 0.14."""
CACHED = 8
QUEUED, SCHEDULED, FIRST, LAST = 100.0, 100.5, 101.25, 103.0


def struct(kind: Any, **values: Any) -> Any:
    """An instance with the fields that this release has; those nobody gives are unknown."""
    required = {
        name for name in kind.__struct_fields__ if name not in defaults(kind) and name not in values
    }
    given = {name: value for name, value in values.items() if name in kind.__struct_fields__}
    return kind(**{**dict.fromkeys(required), **given})


def defaults(kind: Any) -> set[str]:
    fields = kind.__struct_fields__
    known = kind.__struct_defaults__
    return set(fields[len(fields) - len(known) :]) if known else set()


class Scene:
    """An OutputProcessor and what it made."""

    def __init__(self, *, log_stats: bool) -> None:
        from vllm.v1.engine.output_processor import OutputProcessor

        self.log_stats = log_stats
        self.processor = OutputProcessor(Tokenizers(), log_stats=log_stats)
        self.finished: list[Any] = []
        self.outputs: list[Any] = []

    def request(self, name: str, prompt: list[int], tokens: int = 3, answers: int = 1) -> Any:
        """What a caller hands over, with an id of vLLM's own where this release has them."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        named = "external_req_id" in EngineCoreRequest.__struct_fields__
        params = SamplingParams(
            n=answers, max_tokens=tokens, ignore_eos=True, detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip
        return struct(
            EngineCoreRequest, request_id=name + OWN * named, external_req_id=name,
            arrival_time=time.time(), prompt_token_ids=prompt, sampling_params=params,
        )  # fmt: skip

    def ask(self, name: str, answers: int = 1, queue: Any = None) -> list[str]:
        """Ask for answers to one prompt; vLLM's own ids of them."""
        from vllm.v1.engine.parallel_sampling import ParentRequest

        request = self.request(name, PROMPT, answers=answers)
        if answers == 1:
            self._add(request, None, 0, queue)
            return [request.request_id]
        try:
            parent = ParentRequest(request)
        except TypeError:  # before 0.14
            parent = ParentRequest(request.request_id, request.sampling_params)
        children = [parent.get_child_info(index) for index in range(answers)]
        for index, (child, params) in enumerate(children):
            made = self.request(name, PROMPT)
            made.request_id, made.sampling_params = child, params
            self._add(made, parent, index, queue)
        return [child for child, _ in children]

    def _add(self, request: Any, parent: Any, index: int, queue: Any) -> None:
        add = self.processor.add_request
        prompt = () if "prompt" not in names_of(add) else (None,)
        add(request, *prompt, parent, index, queue)

    def step(self, at: float, *outputs: Any) -> None:
        """One iteration of the engine's core, as its outputs tell."""
        from vllm.v1.metrics.stats import IterationStats

        stats = IterationStats() if self.log_stats else None
        made = self.processor.process_outputs(list(outputs), at, stats)
        self.outputs += made.request_outputs
        if stats is not None:
            self.finished += stats.finished_requests

    def finished_as_json(self) -> list[dict[str, Any]]:
        """What vLLM's own statistics say of each request that it finished."""
        return [
            {**vars(request), "finish_reason": str(request.finish_reason)}
            for request in self.finished
        ]

    def outputs_as_json(self) -> list[Any]:
        """Of each caller's request: name, prompt, answers, their ends, cached tokens."""
        return sorted(
            (
                request.request_id,
                len(request.prompt_token_ids),
                [len(answer.token_ids) for answer in request.outputs],
                [answer.finish_reason for answer in request.outputs],
                request.num_cached_tokens,
            )
            for request in self.outputs
        )


class Tokenizers:
    """Nothing is turned into text here."""

    def get_lora_tokenizer(self, *_: Any) -> None:
        return None


def names_of(function: Any) -> tuple[str, ...]:
    import inspect

    return tuple(inspect.signature(function).parameters)


def output(own: str, *, first: bool = False, end: str | None = None, **values: Any) -> Any:
    """What the core says of one request after a step that gave it one token."""
    from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, FinishReason

    if first:
        values["events"] = [
            EngineCoreEvent(EngineCoreEventType.QUEUED, QUEUED),
            EngineCoreEvent(EngineCoreEventType.SCHEDULED, SCHEDULED),
        ]
        if "prefill_stats" in EngineCoreOutput.__struct_fields__:
            from vllm.v1.metrics.stats import PrefillStats

            values["prefill_stats"] = PrefillStats()
            values["prefill_stats"].set(len(PROMPT), CACHED, 0)
    values["num_cached_tokens"] = CACHED  # until 0.19, with every token
    reason = None if end is None else FinishReason[end.upper()]
    return struct(
        EngineCoreOutput, request_id=own, new_token_ids=[7], finish_reason=reason, **values
    )


def preempted() -> list[Any]:
    from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType

    kinds = (EngineCoreEventType.PREEMPTED, EngineCoreEventType.SCHEDULED)
    return [EngineCoreEvent(kind, FIRST + 0.25) for kind in kinds]


def all_ends(scene: Scene) -> None:
    """Requests that end in every way, one of them after it lost its place."""
    (long,), (short,), (given_up,) = map(scene.ask, ("long", "short", "given up"))
    (unborn,) = scene.ask("unborn")
    first, second = scene.ask("twice", answers=2)
    started = [output(request, first=True) for request in (long, given_up, first)]
    scene.step(
        FIRST,
        *started,
        output(short, first=True, end="length"),
        output(second, first=True, end="stop"),
    )
    scene.step(FIRST + 1, output(long, events=preempted()))
    scene.processor.abort_requests(*aborted(scene, [given_up, unborn, "nobody"]))
    scene.step(LAST, output(long, end="stop"), output(first, end="stop"))


def aborted(scene: Scene, own: list[str]) -> tuple[Any, ...]:
    """What ``abort_requests`` is called with: vLLM's own ids, or those of the caller."""
    if "internal" not in names_of(scene.processor.abort_requests):
        return (own,)
    named = [name.removesuffix(OWN) for name in own]
    return (named, False)


def queued_answers() -> None:
    """A caller that waits in a task of its own, as ``AsyncLLM`` has it: the output goes there."""
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.output_processor import RequestOutputCollector

    async def ask(scene: Scene, name: str) -> Any:
        kind = RequestOutputKind.FINAL_ONLY
        wants = names_of(RequestOutputCollector)
        queue = RequestOutputCollector(*(kind, name)[: len(wants)])
        with rlvr_probe.span(name):
            (own,) = scene.ask(name, queue=queue)
            waiting.append(own)
            return await queue.get()

    async def both() -> None:
        scene = Scene(log_stats=False)
        tasks = [asyncio.ensure_future(ask(scene, name)) for name in ("one", "two")]
        await asyncio.sleep(0)  # each runs until it waits
        scene.step(FIRST, *(output(own, first=True) for own in waiting))
        scene.step(LAST, *(output(own, end="stop") for own in reversed(waiting)))
        for answer in await asyncio.gather(*tasks):
            assert len(answer.outputs[0].token_ids) == 2

    waiting: list[str] = []
    asyncio.run(both())


def recorded(name: str, play: Callable[[], Any]) -> Any:
    """What ``play`` returns, with a recording of that name."""
    attachment = rlvr_probe.attach(run_id=name)
    try:
        return play()
    finally:
        attachment.detach()


def ends(*, log_stats: bool) -> Any:
    scene = Scene(log_stats=log_stats)
    all_ends(scene)
    return {
        "finished": scene.finished_as_json(),
        "outputs": scene.outputs_as_json(),
        "left": len(scene.processor.request_states),
    }


def main() -> None:
    said = {
        "before": ends(log_stats=True),
        "stats": recorded("stats", lambda: ends(log_stats=True)),
        "none": recorded("none", lambda: ends(log_stats=False)),
        "queued": recorded("queued", queued_answers),
        "after": ends(log_stats=True),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
