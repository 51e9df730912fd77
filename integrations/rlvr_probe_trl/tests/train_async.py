"""A real asynchronous GRPO training on a CPU that keeps its own books.

Run as a script. What needs a GPU is stood in, each at TRL's own seam: the vLLM server, by a small
HTTP server on the loopback that answers by a script; moving weights to it, by the
``weight_transfer`` argument; the attention kernel, by plain torch; and the speed of the GPU, which
TRL looks up by its name. The trainer, its spawned rollout process, its queue, tools, rewards,
packing and loss are TRL's.

Books: ``requests.jsonl`` (by the server), ``tools.jsonl``, ``groups.jsonl`` (by a reward function,
in the rollout process) and ``steps.jsonl`` (by the trainer: which groups each step trained on).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rlvr_probe_trl.tests.train_tools import (
    CANARY,
    CONTEXT,
    EOS,
    TOKENS,
    ask,
    policy,
    tokenizer,
)

GROUP = 4


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--attach", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def book(name: str, **line: Any) -> None:
    with (Path(os.environ["BOOKS"]) / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


# ---------------------------------------------------------------- the user's functions


def search(key: str) -> str:
    """Look something up.

    Args:
        key: What for.
    """
    begin = time.monotonic()
    time.sleep(0.02)
    book("tools", key=key, tool="search", status="ok", seconds=time.monotonic() - begin)
    return f"{CANARY['result']} {key}"


async def broken(key: str) -> str:
    """Fail.

    Args:
        key: What for.
    """
    book("tools", key=key, tool="broken", status="error", seconds=0.0)
    raise LookupError(CANARY["exception"])


def keeper(completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward function that writes down the group it is given."""
    tags = [re.search(r"#(\d+)#", completion[0]["content"]) for completion in completions]
    rewards = [float(len(completion)) for completion in completions]
    book(
        "groups",
        tags=[int(tag[1]) if tag else None for tag in tags],
        generated=[len(ids) for ids in completion_ids],
        rewards=rewards,
        pid=os.getpid(),
    )
    return rewards


async def waiting(completions: list[Any], **_: Any) -> list[float]:
    """An asynchronous reward function."""
    import asyncio

    await asyncio.sleep(0.01)
    return [0.5] * len(completions)


# ---------------------------------------------------------------- the engine


def answer(tag: int, turn: int) -> str:
    """What conversation ``tag`` says in its ``turn``-th turn."""
    key = {"key": f"#{tag}#t{turn} {CANARY['argument']}"}
    plans = {
        (1, 0): ask(("search", key)),
        (2, 0): ask(("search", key), ("search", key)),
        (2, 1): ask(("broken", key)),
        (3, 0): ask((CANARY["made_up"], key)),
    }
    said = plans.get((tag % GROUP, turn), CANARY["answer"] + "y" * (tag % 7))
    return (f"#{tag}#" if turn == 0 else "") + said


class Engine(BaseHTTPRequestHandler):
    """What AsyncGRPO asks of a vLLM server while it generates."""

    words: Any = None
    tags = iter(range(1_000_000))
    lock = threading.Lock()

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = sent["prompt"]
        text = self.words.decode(ids)
        asked = text.rpartition("<|im_start|>user\n" + CANARY["prompt"])[2]
        with self.lock:
            known = re.search(r"#(\d+)#", asked)
            tag = int(known[1]) if known else next(self.tags)
            turn = asked.count("<|im_start|>assistant") - 1
            said = [*self.words.encode(answer(tag, turn)), TOKENS.index(EOS)]
            book("requests", tag=tag, turn=turn, prompt=len(ids), response=len(said))
        time.sleep(0.01)
        choice = {"token_ids": said, "logprobs": {"token_logprobs": [-4.6] * len(said)}}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing to the terminal."""


def drain(queue: Any) -> None:
    while True:
        queue.get()


class Weights:
    """Weight transfer to an engine that has none: TRL's ``WeightTransferProtocol``."""

    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def send_weights(self, iterator: Any) -> None:
        for _ in iterator:
            pass
        time.sleep(0.02)


def attend(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, *_: Any, softmax_scale: Any = None, **__: Any
) -> Any:
    """Variable-length causal attention; queries are the last of their keys."""
    import torch

    out = torch.empty_like(q)
    repeat = q.shape[1] // k.shape[1]
    for a, b, c, d in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True):
        keys, values = k[c:d].repeat_interleave(repeat, 1), v[c:d].repeat_interleave(repeat, 1)
        mask = torch.ones(b - a, d - c, dtype=torch.bool).tril(int((d - c) - (b - a)))
        out[a:b] = torch.nn.functional.scaled_dot_product_attention(
            q[a:b].transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1),
            attn_mask=mask, scale=softmax_scale,
        ).transpose(0, 1)  # fmt: skip
    return out


def stand_in() -> None:
    from types import SimpleNamespace

    from trl.experimental.async_grpo import async_grpo_trainer, async_rollout_worker, packing

    async_grpo_trainer.get_peak_flops_per_device = lambda *_: 1e12
    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attend)
    async_rollout_worker.is_vllm_available = lambda *_, **__: True


def build(chosen: argparse.Namespace, url: str) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]
    from transformers import PrinterCallback, TrainerCallback
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
    from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout

    class Keeping(AsyncGRPOTrainer):
        """Writes down what each micro step trains on: the batches come in the order of packing."""

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            book("steps", step=self.state.global_step + 1, samples=packed.pop(0))
            return super().training_step(model, inputs, *args, **kwargs)

    packed: list[list[tuple[int, int, int]]] = []
    pack = DataCollatorForRollout.torch_call

    def keep(self: Any, examples: Any) -> Any:
        [parts] = examples
        packed.append(
            [
                (sample["group_id"], len(sample["input_ids"]), int(sample["completion_mask"].sum()))
                for part in parts
                for sample in part.samples
            ]
        )
        return pack(self, examples)

    DataCollatorForRollout.torch_call = keep

    class Done(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            book("done", step=state.global_step)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            # TRL stops its rollout process next, which waits until its queue was read.
            threading.Thread(target=drain, args=(trainer.rollout_queue,), daemon=True).start()

    words = tokenizer()
    folder = chosen.out / "start"
    policy(folder).save_pretrained(folder)
    words.save_pretrained(folder)
    rows = [
        {"prompt": [{"role": "user", "content": CANARY["prompt"] + "?" * number}]}
        for number in range(6)
    ]
    trainer = Keeping(
        model=str(folder),
        reward_funcs=[keeper, waiting],
        args=AsyncGRPOConfig(
            output_dir=str(chosen.out / "model"),
            use_cpu=True,
            bf16=False,
            dtype="float32",
            max_steps=chosen.steps,
            num_generations=GROUP,
            per_device_train_batch_size=GROUP,
            gradient_accumulation_steps=2,
            max_completion_length=CONTEXT // 8,
            max_inflight_tasks=2 * GROUP,
            max_staleness=1_000,
            token_budget=0,
            vllm_server_base_url=url,
            weight_sync_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            log_level="error",
            logging_steps=1,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=words,
        tools=[search, broken],
        weight_transfer=Weights(),
        callbacks=[Done()],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def main() -> None:
    chosen = options()
    chosen.out.mkdir(parents=True, exist_ok=True)
    chosen.out = chosen.out.resolve()
    os.environ["BOOKS"] = str(chosen.out)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if chosen.attach:
        import rlvr_probe

        rlvr_probe.attach(frameworks=["trl"])
    import torch

    torch.set_num_threads(1)
    stand_in()
    Engine.words = tokenizer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    trainer = build(chosen, f"http://127.0.0.1:{server.server_port}")
    trainer.train()
    server.shutdown()


if __name__ == "__main__":
    main()
    sys.exit(0)
