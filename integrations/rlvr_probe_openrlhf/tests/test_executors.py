"""Executors as users write them: a turn is its own trajectory's, or it is counted as unknown."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.surroundings import surroundings

HEAD = """
import asyncio, sys, threading
from types import SimpleNamespace as NS
import rlvr_probe
from rlvr_probe.probe.hooks import calls
rlvr_probe.attach(out="out")
from rlvr_probe_openrlhf import verify

class Engine:
    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        await asyncio.sleep(0.01)
        output = NS(token_ids=[1] * 3, finish_reason="stop")
        return NS(request_id="x", outputs=[output], num_cached_tokens=0, metrics=None)

def answer(size, *ranges):
    ranges = ranges or ((size, size + 3),)
    return {"observation_tokens": [7] * (size + 3), "action_ranges": list(ranges)}

async def run(executor, count, at_once=False):
    verify.watch(calls._probe, executor)
    engine = Engine()
    made = [
        executor.execute("p", at, None, 100, None, llm_engine=engine) for at in range(count)
    ]
    if at_once:
        await asyncio.gather(*map(asyncio.create_task, made))
    else:
        for one in made:
            await asyncio.create_task(one)
"""

SERVED = """
class Executor:
    # As OpenRLHF's example: what the agent asks is started by the first trajectory.
    ready = None

    async def start(self, engine):
        self.ready = asyncio.Event()

        async def handle(reader, writer):
            size = int(await reader.readline())
            await engine.generate([7] * size, None)
            writer.write(b"done")
            writer.close()

        async def serve(started):
            server = await asyncio.start_server(handle, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            started()

        if WHERE == "loop":
            await serve(self.ready.set)
        else:
            started = threading.Event()

            async def forever():
                await serve(started.set)
                await asyncio.sleep(60)

            threading.Thread(target=asyncio.run, args=(forever(),), daemon=True).start()
            started.wait(60)
            self.ready.set()

    async def execute(
        self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None
    ):
        if self.ready is None:
            await self.start(llm_engine)
        await self.ready.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"%d\\n" % (5 + label))
        await reader.read()
        writer.close()
        return answer(5 + label)
"""


@dataclass
class Rows:
    """What a script recorded: spans by name, each with its id, and faults by place."""

    spans: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        return self.spans.get(name, [])


def play(folder: Path, body: str) -> Rows:
    (folder / "job.py").write_text(HEAD + body)
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=folder,
        env=surroundings() | {"RLVR_PROBE_OWN_SHARE": "1", "RLVR_PROBE_SIDECAR": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result, definitions = Rows(), dict[int, tuple[str, list[str]]]()
    for path in folder.glob("out/*/*.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()[1:]):
            if row[0] == "def":
                definitions[row[1]] = row[3], row[4]
            elif row[0] == "fault":
                result.faults[row[2]] = row[4]
            elif type(row[0]) is int and len(row) > 6:
                name, attributes = definitions[row[0]]
                values = dict(zip(attributes, row[6:], strict=False))
                result.spans.setdefault(name, []).append({"id": row[3], **values})
    return result


def test_a_turn_of_a_server_that_an_ended_trajectory_started_is_not_that_ones(
    tmp_path: Path,
) -> None:
    rows = play(tmp_path, 'WHERE = "loop"\n' + SERVED + "\nasyncio.run(run(Executor(), 4))\n")
    first, *others = rows["trajectory"]
    assert len(others) == 3
    assert [(turn["batch"], turn["prompt_tokens"]) for turn in rows["turn"]] == [(first["id"], 5)]
    # Of the others it is not known what they asked for: counted, and not made up.
    assert rows.faults == {"rlvr_probe_openrlhf.agents._end": 3}


def test_turns_of_several_trajectories_in_one_name_end_the_telling_of_turns(tmp_path: Path) -> None:
    body = 'WHERE = "loop"\n' + SERVED + "\nasyncio.run(run(Executor(), 4, at_once=True))\n"
    rows = play(tmp_path, body)
    assert len(rows["trajectory"]) == 4
    assert len(rows["turn"]) == 1
    assert {row["policy_version_min"] for row in rows["trajectory"]} == {None}
    assert rows.faults["rlvr_probe_openrlhf.agents._is_turn"] == 1


def test_turns_that_another_thread_asks_for_are_counted_as_unknown(tmp_path: Path) -> None:
    rows = play(tmp_path, 'WHERE = "thread"\n' + SERVED + "\nasyncio.run(run(Executor(), 3))\n")
    assert (len(rows["trajectory"]), rows["turn"]) == (3, [])
    assert [row["response_tokens"] for row in rows["trajectory"]] == [3, 3, 3]
    assert rows.faults == {"rlvr_probe_openrlhf.agents._end": 3}


def test_an_episode_that_ended_before_its_first_turn_has_a_prompt_alone(tmp_path: Path) -> None:
    body = """
class Executor:
    async def execute(
        self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None
    ):
        return {"observation_tokens": [7] * 9, "action_ranges": []}

asyncio.run(run(Executor(), 1))
"""
    rows = play(tmp_path, body)
    [row] = rows["trajectory"]
    assert (row["prompt_tokens"], row["response_tokens"]) == (9, 0)
    assert rows.faults == {}


@pytest.mark.parametrize("done", ["True", "1", "bool_(1)"])
def test_an_environment_may_say_that_it_is_done_as_openrlhf_understands_it(
    tmp_path: Path, done: str
) -> None:
    body = f"""
class bool_:  # as NumPy's
    def __init__(self, value):
        self.value = value
    def __bool__(self):
        return bool(self.value)

class Environment:
    async def step(self, states):
        return {{"rewards": 1.0, "done": {done} if states else False}}

class Executor:
    def __init__(self):
        self.agent_instance_cls = Environment

    async def execute(
        self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None
    ):
        environment = Environment()
        for last in (0, 1):
            await llm_engine.generate([7] * 5, None)
            await environment.step(last)
        return answer(5)

asyncio.run(run(Executor(), 1))
"""
    rows = play(tmp_path, body)
    assert (len(rows["tool_call"]), len(rows["verify"]), len(rows["turn"])) == (1, 1, 2)
    assert rows.faults == {}


def test_an_executor_for_each_sample_is_not_kept(tmp_path: Path) -> None:
    body = """
import gc, weakref
class Executor:
    def __init__(self):
        self.reward_func = lambda *_: None
    async def execute(
        self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None
    ):
        return answer(5)

held = []
for _ in range(3):
    one = Executor()
    verify.watch(calls._probe, one)
    held.append(weakref.ref(one))
last = one
del one
gc.collect()
assert [ref() is not None for ref in held] == [False, False, True], held
ours = last.reward_func
rlvr_probe.detach()
assert last.reward_func is ours.__wrapped__
"""
    play(tmp_path, body)
