"""Write what a job on a CPU trains with: a tiny model, a tokenizer, sums. Nothing is downloaded.

python verl_cpu_assets.py FOLDER HEADS

With two heads they are as wide as vLLM's attention on a CPU wants them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from verl_cpu_books import CANARY

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


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
    fast = PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )
    fast.chat_template = TEMPLATE
    return fast


def sums(count: int, split: str) -> list[dict[str, Any]]:
    """Prompts, each of another length."""
    rows = []
    for index in range(count):
        a, b = divmod(index, 4)
        text = f"{CANARY['prompt']} what is {a} plus {b}{' plus 0' * index} ?"
        rows.append(
            {
                "data_source": "openai/gsm8k",
                "prompt": [{"role": "user", "content": text}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(a + b)},
                "extra_info": {"split": split, "index": index, "note": CANARY["agent_state"]},
            }
        )
    return rows


def main() -> None:
    out, heads = Path(sys.argv[1]), int(sys.argv[2])
    model = out / "tiny-qwen2"
    fast = tokenizer()
    fast.save_pretrained(model)
    # So that every AutoTokenizer finds a plain fast tokenizer.
    config = model / "tokenizer_config.json"
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"})
    )
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
    )
    # Left at random it would hardly ever end an answer.
    with torch.no_grad():
        policy.lm_head.weight[fast.eos_token_id] *= 16.0
    policy.save_pretrained(model)
    pd.DataFrame(sums(16, "train")).to_parquet(out / "train.parquet")
    pd.DataFrame(sums(4, "val")).to_parquet(out / "val.parquet")


if __name__ == "__main__":
    main()
