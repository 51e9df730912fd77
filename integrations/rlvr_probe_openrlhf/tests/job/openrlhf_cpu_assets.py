"""Write what a job on a CPU trains with: a tiny model, a tokenizer, sums. Nothing is downloaded.

python openrlhf_cpu_assets.py FOLDER HEADS

With two heads, as wide as vLLM's attention on a CPU wants them, the model is also one that ends an
answer now and then: a stand-in for vLLM asks none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from openrlhf_cpu_books import CANARY
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokenizer() -> Any:
    corpus = [
        f"what is {a} plus {b} ? the answer is {a + b} . #### {a + b}"
        for a in range(30)
        for b in range(30)
    ]
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    pieces.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )


def sums(count: int, first: int) -> list[dict[str, str]]:
    """Prompts, each of another length."""
    rows = []
    for index in range(first, first + count):
        a, b = divmod(index, 4)
        text = f"{CANARY['prompt']} what is {a} plus {b}{' plus 0' * (index % 16)} ?"
        rows.append({"input": text, "label": f"{CANARY['label']} {a + b}", "datasource": "sums"})
    return rows


def main() -> None:
    out, heads = Path(sys.argv[1]), int(sys.argv[2])
    model = out / "tiny-qwen2"
    fast = tokenizer()
    fast.save_pretrained(model)
    torch.manual_seed(0)
    policy = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=heads,
            num_key_value_heads=heads // 2,
            max_position_embeddings=1024,
            tie_word_embeddings=False,
            eos_token_id=fast.eos_token_id,
            pad_token_id=fast.pad_token_id,
            bos_token_id=None,
        )
    ).to(torch.bfloat16)
    if heads == 2:
        with torch.no_grad():
            policy.lm_head.weight[fast.eos_token_id] *= 16.0
    policy.save_pretrained(model)
    for name, count, first in (("train", 32, 0), ("eval", 4, 32)):
        lines = "".join(json.dumps(row) + "\n" for row in sums(count, first))
        (out / f"{name}.jsonl").write_text(lines)


if __name__ == "__main__":
    main()
