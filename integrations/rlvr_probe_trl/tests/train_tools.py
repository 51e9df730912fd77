"""A real TRL training with tools that keeps its own books.

Run as a script. A random model never calls a tool, so that one thing is stood in: the engine's
answer is replaced by a scripted one, in an override of ``_generate_single_turn``. What follows is
TRL's own: its chat template, its parser, its tool loop, its tools, its rewards and its training.

Books, none of which the probe touches: ``engine.jsonl`` (rows of each engine call, from the local
variable of TRL's loop), ``tools.jsonl`` (written by the tools), ``batches.jsonl`` (what
``_generate`` returned, and what the reward function saw).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rlvr_probe_trl.tests import train as plain

CANARY = {
    "argument": "Canary-argument-4Rt",
    "result": "Canary-result-7Lm",
    "exception": "Canary-raised-2Qd",
    "made_up": "canary_made_up_tool_9Wz",
    "prompt": "Canary-question-1Gk",
    "answer": "Canary-answer-8Jn",
}
"""What may appear nowhere in a recording; always planted."""

KINDS = {
    "tools": "tools of all sorts, some of which fail",
    "few_tools": "two tools, which take about as long",
    "environment": "an environment with a tool",
    "rollout_func": "a rollout function of the user",
}

EOS = "<|im_end|>"
TOKENS = ("<|endoftext|>", "<unk>", "<|im_start|>", EOS)
GROUP, ROWS = 4, 8
LONG, CONTEXT = 700, 4096


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--attach", choices=("no", "before"), default="no")
    parser.add_argument("--kind", choices=tuple(KINDS), default="tools")
    parser.add_argument("--detach", action="store_true", help="from inside a tool")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--tool-s", type=float, default=0.02, help="sleep of each call of a tool")
    return parser.parse_args()


OUT = Path()
DETACH = False
TOOL_S = 0.0
STEP: int | None = None
"""Number of the step that is generated for; none of an evaluation."""


def book(name: str, **line: Any) -> None:
    with (OUT / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


# ---------------------------------------------------------------- tools of the user


def search(key: str) -> str:
    """Look something up.

    Args:
        key: What for.
    """
    begin = time.monotonic()
    if DETACH:
        import rlvr_probe

        rlvr_probe.detach()
    time.sleep(TOOL_S)
    if STEP is not None:
        plain.sleep_if_planted("tool", "search", STEP)
    book("tools", key=key, tool="search", status="ok", seconds=time.monotonic() - begin)
    return f"{CANARY['result']} {key}"


def broken(key: str) -> str:
    """Fail.

    Args:
        key: What for.
    """
    book("tools", key=key, tool="broken", status="error", seconds=0.0)
    raise LookupError(CANARY["exception"])


def endless(key: str) -> str:
    """Say more than there is room for.

    Args:
        key: What for.
    """
    book("tools", key=key, tool="endless", status="ok", seconds=0.0)
    return "x" * CONTEXT


async def fetch(key: str) -> str:
    """Look something up, and let others do so in the meantime.

    Args:
        key: What for.
    """
    begin = time.monotonic()
    await asyncio.sleep(2.5 * TOOL_S)
    book("tools", key=key, tool="fetch", status="ok", seconds=time.monotonic() - begin)
    return key


class Shop:
    """An environment with a tool of its own."""

    def reset(self, **_: Any) -> str:
        self.bought = 0
        return ""

    def buy(self, key: str) -> str:
        """Buy something.

        Args:
            key: What.
        """
        self.bought += 1
        book("tools", key=key, tool="buy", status="ok", seconds=0.0)
        return str(self.bought)


# ---------------------------------------------------------------- what the model is made to say


def ask(*calls: tuple[str, dict[str, Any]]) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
        for name, arguments in calls
    )


def answer(kind: str, row: int, turn: int, batch: int) -> str:
    """What row ``row`` of a batch says in its ``turn``-th turn."""

    def with_key(name: str, number: int = 0) -> tuple[str, dict[str, Any]]:
        return name, {"key": f"b{batch}r{row}t{turn}c{number} {CANARY['argument']}"}

    done = f"{CANARY['answer']} " + "y" * (row + 3 * turn)
    if kind == "environment":
        return ask(with_key("buy")) if turn < row % 3 else done
    if kind == "few_tools":
        tools = ("search", "fetch", "search")
        return ask(with_key(tools[row])) if turn == 0 and row < len(tools) else done
    plans: dict[tuple[int, int], str] = {
        (1, 0): ask(with_key("search")),
        (2, 0): "Let me see. " + ask(with_key("search", 0), with_key("search", 1)),
        (3, 0): ask(with_key("fetch", 0), with_key("search", 1), with_key("fetch", 2)),
        (3, 1): ask(with_key("broken")),
        (4, 0): ask((CANARY["made_up"], {"key": CANARY["argument"]})),
        (4, 1): ask(with_key("search")),
        (5, 0): ask(("search", {"wrong": CANARY["argument"]})),
        (6, 0): ask(with_key("endless")),
        (7, 0): ask(with_key("search")),
        (7, 1): ask(with_key("search")),
        (7, 2): ask(with_key("fetch")),
    }
    return plans.get((row, turn), done)


def tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl import chat_template_utils

    vocabulary = {token: index for index, token in enumerate((*TOKENS, *plain.ALPHABET))}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=characters,
        pad_token=TOKENS[0],
        unk_token=TOKENS[1],
        eos_token=EOS,
        additional_special_tokens=[TOKENS[2]],
        padding_side="left",
    )
    made.chat_template = chat_template_utils.qwen3_chat_template
    return made


def policy(folder: Path) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(TOKENS) + len(plain.ALPHABET),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        pad_token_id=0,
        eos_token_id=TOKENS.index(EOS),
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    config._name_or_path = "tiny"
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = TOKENS.index(EOS)
    return model


def scripted(trainer: type[Any], kind: str, words: Any) -> type[Any]:
    """``trainer``, made to call tools."""

    class Scripted(trainer):
        batches = -1
        turn = 0

        def _generate(self, prompts: Any, *args: Any, **kwargs: Any) -> Any:
            global STEP
            self.batches, self.turn = self.batches + 1, 0
            STEP = self.state.global_step + 1 if self.model.training else None
            result = super()._generate(prompts, *args, **kwargs)
            masks = result[2]
            book(
                "batches",
                step=self.state.global_step + bool(self.model.training),
                mode="train" if self.model.training else "eval",
                prompts=[len(ids) for ids in result[0]],
                responses=[len(ids) for ids in result[1]],
                stopped=[ids[-1] in (0, TOKENS.index(EOS)) for ids in result[1]],
                loss=None if masks is None else [sum(mask) for mask in masks],
            )
            return result

        def _generate_single_turn(self, prompts: Any, *args: Any, **kwargs: Any) -> Any:
            result = super()._generate_single_turn(prompts, *args, **kwargs)
            caller = sys._getframe(1)
            while caller.f_code.co_name not in ("_tool_call_loop", "_generate"):
                assert caller.f_back is not None
                caller = caller.f_back
            rows = list(caller.f_locals.get("idxs_with_tool", range(len(prompts))))
            said = [
                [*words.encode(answer(kind, row, self.turn, self.batches)), TOKENS.index(EOS)]
                for row in rows
            ]
            sent = prompts
            made: tuple[Any, ...] = (said, None)
            if len(result) == 4:  # TRL < 1.0 makes the token ids itself
                sent = result[0]
                made = (sent, said, None, result[3])
            book(
                "engine",
                batch=self.batches,
                turn=self.turn,
                rows=rows,
                prompts=[len(ids) for ids in sent],
                responses=[len(ids) for ids in said],
            )
            self.turn += 1
            return made

    return Scripted


def keeper(completions: list[Any], prompts: list[Any], **_: Any) -> list[float]:
    """A reward function that writes down the conversations it is given."""
    book(
        "rewards",
        turns=[
            sum(message["role"] == "assistant" for message in completion)
            for completion in completions
        ],
        tools=[
            [m.get("name") for m in completion if m["role"] == "tool"] for completion in completions
        ],
    )
    return [float(len(completion)) for completion in completions]


def custom(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """A rollout function of the user: what it does inside is its own."""
    made: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": []}
    for row, _ in enumerate(prompts):
        own, foreign = 3 + row, row % 3
        made["prompt_ids"].append([5] * (10 + row // GROUP))
        made["completion_ids"].append([6] * own + [7] * foreign + [TOKENS.index(EOS)])
        made["logprobs"].append([-1.0] * (own + foreign + 1))
        made["env_mask"].append([1] * own + [0] * foreign + [1])
    time.sleep(0.05)
    return made


def build(chosen: argparse.Namespace) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    words = tokenizer()
    kinds: dict[str, dict[str, Any]] = {
        "tools": {"tools": [search, broken, endless, fetch]},
        "few_tools": {"tools": [search, fetch]},
        "environment": {"environment_factory": Shop},
        "rollout_func": {"rollout_func": custom},
    }
    rows = [
        {"prompt": [{"role": "user", "content": CANARY["prompt"] + "?" * number}]}
        for number in range(8)
    ]
    trainer = scripted(GRPOTrainer, chosen.kind, words)(
        model=policy(OUT),
        processing_class=words,
        reward_funcs=[keeper],
        args=GRPOConfig(
            output_dir=str(OUT / "model"),
            use_cpu=True,
            bf16=False,
            max_steps=chosen.steps,
            num_generations=GROUP,
            per_device_train_batch_size=ROWS,
            per_device_eval_batch_size=ROWS,
            eval_strategy="steps" if chosen.eval_every else "no",
            eval_steps=chosen.eval_every or None,
            max_completion_length=LONG,
            generation_kwargs={"max_new_tokens": 4},
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            log_level="error",
            logging_steps=1,
        ),
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(rows[:2]),
        **kinds[chosen.kind],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def main() -> None:
    global DETACH, OUT, TOOL_S
    chosen = options()
    OUT, DETACH, TOOL_S = chosen.out, chosen.detach, chosen.tool_s
    OUT.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if chosen.attach == "before":
        import rlvr_probe

        rlvr_probe.attach(frameworks=["trl"])
    import torch

    torch.set_num_threads(1)
    trainer = build(chosen)
    users = list(trainer.tools or ())
    trainer.train()
    state = [
        {key: value for key, value in line.items() if "time" not in key and "per_second" not in key}
        for line in trainer.state.log_history
    ]
    held = [type(tools).__name__ for tools in getattr(trainer, "_sync_tool_dicts", ())]
    result = {
        "log": state,
        "dicts": sorted(set(held)),
        "users": users == list(trainer.tools or ()),
    }
    (OUT / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
