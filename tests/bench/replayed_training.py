"""A real TRL training with a heavy tail, to be recorded and replayed.

    python tests/bench/replayed_training.py --steps 22

How soon a completion ends is drawn for each row, so that a few are many times as long as most. It
knows nothing of rlvr-probe.
"""

from __future__ import annotations

import argparse
import os
import random
import runpy
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

_RECIPE = Path(__file__).parents[2] / "integrations" / "rlvr_probe_trl" / "recipe" / "grpo.py"


def main() -> None:
    """Train once."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=22)
    parser.add_argument("--tokens", type=int, default=384, help="cap on a completion")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--turns", help="socket where to ask before each step")
    chosen = parser.parse_args()
    # The training script of the TRL integration: tokenizer, prompts and reward are its own.
    recipe = runpy.run_path(str(_RECIPE))

    import torch
    from transformers import LogitsProcessorList, Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    drawn = random.Random(f"{chosen.seed} {os.environ.get('RANK')}")
    tokenizer = recipe["tokenizer"]()
    end = tokenizer.eos_token_id

    class Tailed(Qwen2ForCausalLM):
        def generate(self, *args: Any, **kwargs: Any) -> Any:
            rows = len(kwargs["input_ids"])
            tails = torch.tensor([drawn.choice((1.0, 0.5, -0.5, -2.0)) for _ in range(rows)])

            def tail(ids: Any, scores: Any) -> Any:
                scores[:, end] += tails
                return scores

            given = kwargs.get("logits_processor") or ()
            kwargs["logits_processor"] = LogitsProcessorList([tail, *given])
            return super().generate(*args, **kwargs)

    class Turned(GRPOTrainer):
        """Waits between two steps until it is this training's turn."""

        waited = 0

        def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
            super()._maybe_log_save_evaluate(*args, **kwargs)
            # Also called at the end of an epoch.
            if chosen.turns and self.waited < self.state.global_step:
                self.waited = self.state.global_step
                wait(chosen.turns)

    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=chosen.hidden,
        intermediate_size=2 * chosen.hidden,
        num_hidden_layers=chosen.layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=end,
        bos_token_id=None,
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = Turned(
            model=Tailed(config),
            processing_class=tokenizer,
            reward_funcs=[recipe["exact_match"]],
            args=GRPOConfig(
                output_dir=output,
                use_cpu=True,
                bf16=False,
                max_steps=chosen.steps,
                num_generations=8,
                per_device_train_batch_size=16,
                max_completion_length=chosen.tokens,
                save_strategy="no",
                beta=0.0,
                learning_rate=1e-6,
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                seed=chosen.seed,
            ),
            train_dataset=recipe["sums"](64, chosen.seed),
        )
        if chosen.turns:
            wait(chosen.turns)
        trainer.train()


@cache
def connected(path: str) -> socket.socket:
    """The end of this process of the socket that gives turns."""
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    return end


def wait(path: str) -> None:
    """Ask for a turn, and wait for it."""
    connected(path).sendall(b".")
    connected(path).recv(1)


if __name__ == "__main__":
    main()
