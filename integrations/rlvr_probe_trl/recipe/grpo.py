"""The smallest real RL run of TRL: GRPO (or RLOO) on arithmetic, on a CPU, in seconds.

A random two-layer Qwen2, a character tokenizer made in memory, sums as prompts and a verifier as
reward: no hub, no network, no GPU. It knows nothing of rlvr-probe, which is the point.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from typing import Any

# Before the first import of transformers.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

ALPHABET = "0123456789+-*= ?\n"
SPECIAL = ("<pad>", "<eos>", "<unk>")
TRAINERS = {"grpo": (GRPOTrainer, GRPOConfig), "rloo": (RLOOTrainer, RLOOConfig)}


def exact_match(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """One point for the right answer, a part of it for digits of the answer."""
    time.sleep(0.04)  # stands for a verifier that does real work
    return [
        float(completion.strip() == wanted)
        + sum(character in wanted for character in completion) / max(len(completion), 1)
        for completion, wanted in zip(completions, answer, strict=True)
    ]


def brevity(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A little less for every token."""
    return [-0.01 * len(ids) for ids in completion_ids]


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per character."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *ALPHABET))}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=characters,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
    )


def model(seed: int) -> Qwen2ForCausalLM:
    """Random weights: completions end on a random end token, so their lengths have a long tail."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(SPECIAL) + len(ALPHABET),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=256,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            tie_word_embeddings=True,
        )
    )


def sums(count: int, seed: int) -> Dataset:
    """Prompts with the answers that verify them."""
    draw = random.Random(seed)
    pairs = [(draw.randint(0, 999), draw.randint(0, 99)) for _ in range(count)]
    return Dataset.from_list([{"prompt": f"{a}+{b}=?\n", "answer": str(a + b)} for a, b in pairs])


def options() -> argparse.Namespace:
    """What can be varied from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--algorithm", choices=sorted(TRAINERS), default="grpo")
    parser.add_argument("--steps", type=int, default=6, help="trainer steps")
    parser.add_argument("--group-size", type=int, default=4, help="completions per prompt")
    parser.add_argument("--batch", type=int, default=8, help="completions per device")
    parser.add_argument("--steps-per-generation", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=1, help="passes over one batch")
    parser.add_argument("--max-tokens", type=int, default=48, help="cap on a completion")
    parser.add_argument("--eval-every", type=int, default=0, help="in steps; 0: never")
    parser.add_argument("--output", help="folder for checkpoints; default: none are written")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def train(chosen: argparse.Namespace, output: str) -> None:
    """Train with TRL as its documentation shows it."""
    trainer_class, config_class = TRAINERS[chosen.algorithm]
    config = config_class(
        output_dir=output,
        use_cpu=True,
        bf16=False,
        max_steps=chosen.steps,
        num_generations=chosen.group_size,
        per_device_train_batch_size=chosen.batch,
        per_device_eval_batch_size=chosen.batch,
        steps_per_generation=chosen.steps_per_generation,
        num_iterations=chosen.iterations,
        max_completion_length=chosen.max_tokens,
        eval_strategy="steps" if chosen.eval_every else "no",
        eval_steps=chosen.eval_every or None,
        save_strategy="steps" if chosen.output else "no",
        beta=0.0,  # no reference model, which TRL would load from a folder or the hub
        learning_rate=1e-3,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        seed=chosen.seed,
    )
    trainer = trainer_class(
        model=model(chosen.seed),
        processing_class=tokenizer(),
        reward_funcs=[exact_match, brevity],
        args=config,
        train_dataset=sums(16, chosen.seed),
        eval_dataset=sums(4, chosen.seed + 1),
    )
    trainer.remove_callback(PrinterCallback)
    result = trainer.train()
    if trainer.is_world_process_zero():
        seconds = result.metrics["train_runtime"]
        print(f"{result.global_step} steps of {chosen.algorithm} in {seconds:.1f} s")


def main() -> None:
    """Train once."""
    chosen = options()
    torch.set_num_threads(1)
    if chosen.output:
        train(chosen, chosen.output)
        return
    with tempfile.TemporaryDirectory() as output:
        train(chosen, output)


if __name__ == "__main__":
    main()
