"""Runs verl's own agent loop workers without Ray, recorded, and writes down what really happened.

Run by test_agent_loops.py with the interpreter of a release: ``agent_loops.py FOLDER``; the
start-up hook attaches.
Stubs: what is another process in a job, and Ray's name service. These are the servers, the load
balancer, the reward worker, the storage of TransferQueue and the name of the worker's actor.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import ray
import verl
import verl.experimental.agent_loop.agent_loop as module
from omegaconf import OmegaConf
from rlvr_probe_verl import loops, requests
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop import tool_agent_loop
from verl.protocol import DataProto

import rlvr_probe
from rlvr_probe import guard
from rlvr_probe.probe.hooks.wrapping import find_hook
from rlvr_probe.probe.recorder import Recorder

FOLDER = Path(sys.argv[1])
VERSION = tuple(int(part) for part in verl.__version__.split(".")[:2])
ROWS, SERVERS, WORKER = 256, 3, 5
EOS, ANSWER, TOOL = 1, 2, 3
FIRST = 10
"""Token that stands for row 0 of a prompt; prompts hold nothing else."""

asked: dict[int, list[tuple[int, int, int, str]]] = {}
"""By row: tokens sent and generated, the server, and the id, of every request in order."""
scored: dict[int, float] = {}
scene = ""
rng = random.Random(0)


def turns_of(row: int) -> int:
    """How often the agent loop of a row asks."""
    return 1 + row % 3


class Remote:
    """A method of an actor."""

    def __init__(self, function: Any) -> None:
        self.remote = function


class Server:
    """Stands for the actor of an inference server."""

    def __init__(self, replica: int) -> None:
        self.replica = replica
        self._actor_id = types.SimpleNamespace(hex=lambda: f"actor{replica}")
        self.generate = Remote(self._generate)

    async def _generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> Any:
        await asyncio.sleep(rng.random() * 0.02)
        row = prompt_ids[0] - FIRST
        turn = len(asked.setdefault(row, []))
        got = 1 + (row * 7 + turn * 3) % 11
        asked[row].append((len(prompt_ids), got, self.replica, request_id))
        aborted = scene == "resumes" and turn == 0 and row % 2 == 0
        ids = [ANSWER] * (got - 1) + [ANSWER if aborted else EOS]
        if VERSION < (0, 6):
            return ids
        from verl.workers.rollout.replica import TokenOutput

        given: dict[str, Any] = {"token_ids": ids}
        if VERSION >= (0, 7):
            given["extra_fields"] = {"global_steps": turn + 3, "num_cached_tokens": turn}
            given["stop_reason"] = "aborted" if aborted else "completed"
        return TokenOutput(**given)


servers = [Server(replica) for replica in range(SERVERS)]


class Balancer:
    """Stands for the actor that spreads requests; sticks to a server per request id."""

    def __init__(self) -> None:
        self.acquire_server = Remote(self._acquire)
        self.release_server = Remote(lambda **_: None)
        self.require_acquire_fields = Remote(self._fields)
        self.require_release_fields = Remote(self._fields)

    async def _fields(self) -> list[str]:
        return []

    async def _acquire(self, request_id: str, **_: Any) -> Any:
        await asyncio.sleep(0)
        server = servers[int(request_id.split("-")[0]) % SERVERS]
        address = f"address{server.replica}"
        return address if VERSION < (0, 8) else (address, server)


class RewardWorker:
    """Stands for the actor that calls the reward function."""

    def __init__(self) -> None:
        self.compute_score = Remote(self._score)

    async def _score(self, data: Any) -> dict[str, Any]:
        await asyncio.sleep(rng.random() * 0.01)
        row = int(data.batch["prompts"][-1].max()) - FIRST
        scored[row] = row / 100
        return {"reward_score": row / 100, "reward_extra_info": {}}


class Talk(module.AgentLoopBase):
    """Asks several times, with the result of an imagined tool in between."""

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        messages = args[0] if VERSION < (0, 6) else kwargs["raw_prompt"]
        row = int(messages[0]["content"])
        if scene == "raises" and row == 3:
            raise ERROR
        prompt, mask, outputs = [row + FIRST] * (row % 50 + 1), list[int](), list[Any]()
        start = len(prompt)
        for turn in range(turns_of(row)):
            result = await self.server_manager.generate(
                request_id=f"{row}-x", prompt_ids=prompt, sampling_params={}
            )
            ids = result if isinstance(result, list) else result.token_ids
            prompt, mask = prompt + ids, mask + [1] * len(ids)
            if scene == "queue" and row % 5 == 0 and turn == 0:
                outputs.append(output(prompt[:start], prompt[start:], mask))
            if turn < turns_of(row) - 1:
                prompt, mask = prompt + [TOOL] * 4, mask + [0] * 4
                await asyncio.sleep(0)
        outputs.append(output(prompt[:start], prompt[start:], mask))
        return outputs if len(outputs) > 1 else outputs[0]


def output(prompt: list[int], response: list[int], mask: list[int]) -> Any:
    return module.AgentLoopOutput(
        prompt_ids=prompt,
        response_ids=response,
        response_mask=mask,
        num_turns=2,
        metrics={},
        **({} if VERSION < (0, 6) else {"extra_fields": {}}),
    )


ERROR = ValueError("of the user")
CONFIG = OmegaConf.create(
    {
        "actor_rollout_ref": {
            "rollout": {
                "name": "none",
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": -1,
                "calculate_log_probs": False,
                "val_kwargs": {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "n": 2},
                "n": 2,
                "prompt_length": 64,
                "response_length": 64,
                "full_determinism": False,
                "agent": {"default_agent_loop": "Talk"},
                "multi_turn": {"format": "hermes"},
            },
            "model": {},
        },
        "data": {"apply_chat_template_kwargs": {}},
        # Before 0.7 this keeps the reward for the trainer.
        "reward_model": {"enable": VERSION < (0, 7), "enable_resource_pool": False},
        "reward": {"custom_reward_function": {"path": "a.py", "name": "row_number"}},
        "distillation": {"enabled": False},
    }
)


def tokenizer() -> Any:
    words = {"<pad>": 0, "</s>": EOS, "a": ANSWER}
    made = Tokenizer(WordLevel(words, unk_token="a"))
    made.pre_tokenizer = Whitespace()
    result = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="a"
    )
    result.chat_template = "{% for m in messages %}a {{ m['content'] }} </s>{% endfor %}"
    return result


def client() -> Any:
    if VERSION >= (0, 8):
        from verl.workers.rollout import llm_server

        goes_on = scene == "resumes"
        kind: Any = llm_server.FullyAsyncLLMServerClient if goes_on else llm_server.LLMServerClient
        return kind(CONFIG, load_balancer_handle=Balancer())
    if VERSION >= (0, 7):
        addresses = [(f"address{server.replica}", server) for server in servers]
        return module.AsyncLLMServerManager(CONFIG, addresses, load_balancer_handle=Balancer())
    return module.AsyncLLMServerManager(CONFIG, list(servers))


def worker_class() -> type:
    """The class that Ray made of verl's worker, as it comes out of a pickle in another process."""
    if scene == "queue":
        from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ as Remote_
    elif VERSION < (0, 7):
        Remote_ = module.AgentLoopWorker
    else:
        Remote_ = ray.remote(module.AgentLoopWorker)
    made = Remote_.__ray_metadata__.modified_class
    return cloudpickle.loads(cloudpickle.dumps(made))


def worker() -> Any:
    targets = {loop: {"_target_": f"{__name__}.{loop}"} for loop in ("Talk", "Loop")}
    if VERSION < (0, 6):  # goes by value, and what it refers to
        module._agent_loop_registry.update(targets)
    kind = worker_class()
    # As the constructor of a worker does: what it runs must see it.
    module._agent_loop_registry.update(targets)
    result: Any = object.__new__(kind)
    rollout = CONFIG.actor_rollout_ref.rollout
    vars(result).update(
        config=CONFIG,
        server_manager=client(),
        tokenizer=tokenizer(),
        processor=None,
        reward_router_address=None,
        rollout_config=rollout,
        reward_loop_worker_handles=[RewardWorker()],
        dataset_cls=None,
        hf_model_type=None,
        distillation_enabled=False,
        tools=[],
        mm_processor_kwargs={},
        background_tasks=set(),
    )
    result.llm_client = result.server_manager
    return result


def batch(rows: range, validate: bool = False, loop: str = "Talk") -> Any:
    prompts = np.empty(len(rows), dtype=object)
    prompts[:] = [np.array([{"role": "user", "content": str(row)}], dtype=object) for row in rows]
    values = {
        "raw_prompt": prompts,
        # Prompts are repeated: neither the index nor the uid tells a row.
        "index": np.array([row // 4 for row in rows]),
        "agent_name": np.array([loop] * len(rows), dtype=object),
    }
    if VERSION >= (0, 6):
        values["uid"] = np.array([f"uid-{row // 4}" for row in rows], dtype=object)
    result = DataProto.from_dict(non_tensors=values)
    result.meta_info.update(global_steps=7, validate=validate)
    return result


async def raises() -> dict[str, Any]:
    """An agent loop that raises."""
    try:
        await worker().generate_sequences(batch(range(8)))
    except ValueError as error:
        return {"same": error is ERROR}
    return {}


async def broken() -> dict[str, Any]:
    """A recorder that cannot take a row."""
    kind: Any = Recorder
    append, kind.append = kind.append, fails
    try:
        return await chunks()
    finally:
        kind.append = append


def fails(*_: Any) -> None:
    """Stands for a method of the recorder."""
    raise OSError("of the probe")


async def chunks() -> dict[str, Any]:
    """Two chunks at once in one event loop, and one after them."""
    actor = worker()
    half = ROWS // 2
    first = await asyncio.gather(
        actor.generate_sequences(batch(range(half))),
        actor.generate_sequences(batch(range(half, ROWS))),
    )
    last = await actor.generate_sequences(batch(range(ROWS, ROWS + 8), validate=True))
    lengths = list[tuple[int, int]]()
    for result in (*first, last):
        mask = result.batch["attention_mask"]
        size = result.batch["prompts"].shape[1]
        lengths += zip(mask[:, :size].sum(1).tolist(), mask[:, size:].sum(1).tolist(), strict=True)
    return {"lengths": lengths}


async def resumes() -> dict[str, Any]:
    """A client that goes on with what an engine aborted, in a process that had another one."""
    await worker().generate_sequences(batch(range(8)))
    return {}


async def queue() -> dict[str, Any]:
    """The worker of V1: what it puts into TransferQueue."""
    import transfer_queue as tq
    from verl.utils import tensordict_utils as tu

    put: list[tuple[str, int, int, float]] = []
    status: dict[str, str] = {}

    async def kv_put(key: str, tag: dict[str, str], **_: Any) -> None:
        status[key] = tag["status"]

    async def kv_batch_put(
        keys: list[str], fields: Any, tags: list[dict[str, Any]], **_: Any
    ) -> None:
        put.extend(
            (key, tag["prompt_len"], tag["response_len"], float(scores.sum()))
            for key, tag, scores in zip(keys, tags, fields["rm_scores"].unbind(), strict=True)
        )

    tq.async_kv_put, tq.async_kv_batch_put = kv_put, kv_batch_put
    actor = worker()
    prompts = np.empty(40, dtype=object)
    prompts[:] = [[{"role": "user", "content": str(row)}] for row in range(40)]
    given = tu.get_tensordict(
        {
            "raw_prompt": prompts,
            "index": np.array([0] * 40),
            "uid": np.array([f"uid-{row}" for row in range(40)], dtype=object),
        }
    )
    tu.assign_non_tensor_data(given, "global_steps", 7)
    await actor.generate_sequences(given)
    await asyncio.gather(*actor.background_tasks)
    return {"put": put, "status": Counter(status.values())}


class Loop(tool_agent_loop.ToolAgentLoop):
    """Calls tools as ToolAgentLoop does, one of each kind."""

    def __init__(self, **given: Any) -> None:
        module.AgentLoopBase.__init__(self, **given)
        self.max_tool_response_length, self.tool_response_truncate_side = 100, "middle"
        self.tools = TOOLS

    @classmethod
    def init_class(cls, *_: Any, **__: Any) -> None:
        """The tools are given."""

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        result = await self.server_manager.generate(
            request_id="0-x", prompt_ids=[FIRST], sampling_params={}
        )
        ids = result if isinstance(result, list) else result.token_ids
        made_up = [("unknown", "{}"), ("fine", "{not json")]
        given = [(name, "{}") for name in TOOLS] + made_up
        results = await asyncio.gather(*(self._one(*actor) for actor in given))
        STATUSES.extend(type(actor).__name__ for actor in results)
        return output([FIRST], ids, [1] * len(ids))

    async def _one(self, name: str, arguments: str) -> Any:
        call = self._call_tool(
            tool_agent_loop.FunctionCall(name=name, arguments=arguments),
            *(() if VERSION < (0, 6) else ({},)),
            *(() if VERSION < (0, 7) else (types.SimpleNamespace(),)),
        )
        if name == "slow":
            try:
                return await asyncio.wait_for(call, 0.05)
            except asyncio.TimeoutError as error:
                return error
        return await call


TOOLS: dict[str, Any] = {}
STATUSES: list[str] = []


def make_tools() -> None:
    from verl.tools.base_tool import BaseTool

    class Tool(BaseTool):
        def __init__(self, execute: Any) -> None:
            self.body = execute

        async def create(self, *_: Any, **__: Any) -> Any:
            return ("id", None) if VERSION >= (0, 6) else "id"

        async def execute(self, *_: Any, **__: Any) -> Any:
            return await self.body()

    async def fine() -> Any:
        text = "four"
        if VERSION >= (0, 6):
            from verl.tools.schemas import ToolResponse

            return ToolResponse(text=text), 0.0, {}
        return text, 0.0, {}

    async def raises() -> Any:
        raise ERROR

    async def short() -> Any:
        return "only", "two"

    async def slow() -> Any:
        await asyncio.sleep(60)

    TOOLS.update({body.__name__: Tool(body) for body in (fine, raises, short, slow)})
    if VERSION < (0, 8):
        return
    from verl.tools.function_tool import FunctionTool

    def made(name: str, body: Any) -> None:
        is_async = inspect.iscoroutinefunction(body)
        TOOLS[name] = FunctionTool(name=name, fn=body, tool_schema=None, is_async=is_async)

    made("function", lambda: "text")
    made("function_raises", lambda: 1 / 0)
    made("function_returns_too_much", lambda: (1, 2, 3, 4))


async def tools() -> dict[str, Any]:
    make_tools()
    await worker().generate_sequences(batch(range(1), loop="Loop"))
    return {"names": list(TOOLS), "returned": STATUSES}


async def buffer() -> dict[str, Any]:
    """The queue of V1, in the controller."""
    from rlvr_probe_verl.tests import replay_buffer

    return replay_buffer.play()


def hooked() -> list[tuple[str, bool]]:
    """Functions that are hooked, and whether each is a coroutine function."""
    kinds = [module.AgentLoopBase, Talk, Loop, tool_agent_loop.ToolAgentLoop, type(client())]
    kinds += [worker_class(), *kinds[-1].__subclasses__()]
    kinds += [base for kind in kinds for base in kind.__mro__]
    kinds += [base for tool in TOOLS.values() for base in type(tool).__mro__]
    return sorted(
        {
            (f"{kind.__name__}.{name}", inspect.iscoroutinefunction(value))
            for kind in kinds
            for name, value in vars(kind).items()
            if find_hook(value) is not None
        }
    )


def main() -> None:
    """Run every scene."""
    global scene
    hooks: Any = loops
    hooks.worker_number = lambda: WORKER
    requests._ENGINES.numbers.update({f"actor{at}": at for at in range(SERVERS)})
    results: dict[str, Any] = {"hooked": [], "left": []}
    newest = [resumes, queue, buffer] if VERSION >= (0, 9) else []
    for play in (chunks, raises, tools, broken, *newest):
        scene = play.__name__
        asked.clear()
        scored.clear()
        guard.reset()
        first = loops._chunks
        result = results[scene] = asyncio.run(play())
        result["asked"] = [(row, *turn) for row, turns in asked.items() for turn in turns]
        result["scored"] = list(scored.items())
        result["chunks"] = [first, loops._chunks]
        result["faults"] = [f"{place}: {kind}" for place, kind in guard.faults()]
    results["hooked"] = hooked()
    rlvr_probe.detach()
    results["left"] = hooked()
    (FOLDER / "result.json").write_text(json.dumps(results))


if __name__ == "__main__":
    # What is sent by value refers to this module by its name.
    sys.modules["agent_loops"] = sys.modules["__main__"]
    __name__ = "agent_loops"
    Talk.__module__ = Loop.__module__ = __name__
    main()
