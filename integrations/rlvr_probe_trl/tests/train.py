"""A real TRL training that keeps its own books, so that a recording of it can be checked.

Run as a script, once per rank. It writes into ``--out``, with nothing of the probe involved:

* ``truth-<rank>.jsonl``: one line per reward computation, written from inside a reward function:
  lengths of prompts (one token per character) and completions in the order of the batch, rewards;
  and one line per finished step. :mod:`truth` reads it.
* ``result-<rank>.json``: log history, digest of the weights, every sampled token id.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import random
import signal
import string
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

CANARY = {
    "prompt": "Canary-prompt-5Kq",
    "column": "Canary-column-8Zw",
    "completion": "Canary-completion-3Vx",
    "exception": "Canary-exception-6Hj",
    "model": "Canary-model-2Bn",
    "source": "Canary-source-7Gt",
}
"""What may appear nowhere in a recording; planted by ``--canaries``."""

SPECIAL = ("<pad>", "<eos>", "<unk>")
ALPHABET = string.digits + string.ascii_letters + string.punctuation + " \n"
PAD, EOS = 0, 1  # TRL takes a completion that ends on either for one that ended by itself


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--attach", choices=("no", "before", "after"), default="no")
    parser.add_argument("--algorithm", choices=("grpo", "rloo"), default="grpo")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--trainings", type=int, default=1, help="one after the other")
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--eval-batch", type=int, default=8)
    parser.add_argument("--steps-per-generation", type=int)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--max-prompt-tokens", type=int, help="TRL < 0.26 cuts longer ones")
    parser.add_argument("--mask-truncated", action="store_true", help="no loss on what was cut")
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--eval-only", action="store_true")
    parser.add_argument("--beta", type=float, help="above 0: with a reference model")
    parser.add_argument("--async-reward", action="store_true")
    parser.add_argument("--reward-model", action="store_true")
    parser.add_argument("--verifier-s", type=float, default=0.02, help="sleep of each reward call")
    parser.add_argument("--rank-delay", type=float, default=0.0, help="s of reward work on rank 0")
    parser.add_argument(
        "--asleep-in",
        choices=("generation", "update"),
        default="generation",
        help="where a rank sleeps that is planted to",
    )
    parser.add_argument("--subclass", action="store_true", help="override methods with super()")
    parser.add_argument("--block-at", type=int, help="step in which a reward holds the GIL")
    parser.add_argument("--block-s", type=int, default=10)
    parser.add_argument("--kill-at", type=int, help="step in which a rank kills itself")
    parser.add_argument("--kill-rank", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint")
    parser.add_argument("--canaries", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", help="ignored; a place for an argv canary")
    return parser


def options() -> argparse.Namespace:
    return arguments().parse_args()


class Books:
    """What this rank wrote down; every line is on disk when the call returns.

    Attributes:
        sampled: Token ids of every completion.
        generated: Those of the last batch, where TRL gives them to no reward function.
        trainer: The trainer that trains.
    """

    def __init__(self, out: Path, rank: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._file = (out / f"truth-{rank}.jsonl").open("a", encoding="utf-8")
        self.sampled: list[list[list[int]]] = []
        self.generated: list[list[int]] = []
        self.trainer: Any = None

    def write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def release() -> tuple[int, ...]:
    """Leading numbers of TRL's version."""
    return tuple(int(number) for number in metadata.version("trl").split(".")[:2])


def tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

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
        model_input_names=["input_ids", "attention_mask"],  # else token types, which Qwen refuses
    )


def token_ids(text: str) -> list[int]:
    """Ids of a text under :func:`tokenizer`."""
    return [len(SPECIAL) + ALPHABET.index(character) for character in text]


def sleep_if_planted(kind: str, place: str | int, step: int, worked_s: float = 0.0) -> None:
    """Sleep if the scenario says so; an evaluation belongs to the step before it."""
    if "PLANTED_KIND" in os.environ:
        import planted_sleep

        planted_sleep.sleep_if_planted(kind, place, step, worked_s)


def model_config(name: str) -> Any:
    from transformers import Qwen2Config

    config = Qwen2Config(
        vocab_size=len(SPECIAL) + len(ALPHABET),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
        tie_word_embeddings=True,
        num_labels=1,
    )
    config._name_or_path = name
    return config


def policy(chosen: argparse.Namespace) -> Any:
    import torch
    from transformers import Qwen2ForCausalLM

    torch.manual_seed(chosen.seed)
    model = Qwen2ForCausalLM(model_config(CANARY["model"]))
    # TRL loads the reference from where the policy came from; RLOO has one by default.
    if chosen.beta or (chosen.beta is None and chosen.algorithm == "rloo"):
        path = chosen.out / f"reference-{os.environ.get('RANK', 0)}"
        model.save_pretrained(path)
        model.config._name_or_path = str(path)
    # A larger vocabulary than the recipe's stops less often on its own: make the end likelier.
    with torch.no_grad():
        model.model.embed_tokens.weight[EOS] *= 4.0
    return model


def keep_generated(model: Any, books: Books) -> None:
    """Write down what the model itself returns, up to the first end token."""
    generate = model.generate

    def kept(prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        rows = generate(prompt_ids, *args, **kwargs)
        completions = rows[:, prompt_ids.shape[1] :].tolist()
        books.generated = [ids[: ids.index(EOS) + 1] if EOS in ids else ids for ids in completions]
        return rows

    model.generate = kept


def let_sleep(model: Any, books: Books, rank: int, where: str) -> None:
    """Let a rank sleep in generation, or where gradients are made, which all ranks reduce."""

    def asleep(*_: Any) -> None:
        sleep_if_planted("rank", rank, books.trainer.state.global_step + 1)

    if where == "update":
        # Gradients of the embedding, which is the first layer, are made last.
        model.model.embed_tokens.weight.register_hook(asleep)
        return
    generate = model.generate

    def generate_later(*args: Any, **kwargs: Any) -> Any:
        asleep()
        return generate(*args, **kwargs)

    model.generate = generate_later


def reward_model() -> Any:
    import torch
    from transformers import Qwen2ForSequenceClassification

    torch.manual_seed(1)
    return Qwen2ForSequenceClassification(model_config("somewhere/" + CANARY["model"]))


def sums(chosen: argparse.Namespace, count: int, split: str) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]

    draw = random.Random(f"{chosen.seed} {split}")
    rows = []
    for _ in range(count):
        a, b = draw.randint(0, 999), draw.randint(0, 99)
        prompt, note, origin = f"{a}+{b}=?\n", "-", ("sums/low", "sums/high", None)[a % 3]
        if chosen.canaries:
            prompt, note = f"{CANARY['prompt']} {prompt}", CANARY["column"]
            origin = CANARY["source"]
        known = {"prompt": prompt, "answer": str(a + b), "split": split, "note": note}
        rows.append({**known, "origin": origin})
    return Dataset.from_list(rows)


def reward_functions(chosen: argparse.Namespace, books: Books, rank: int) -> list[Any]:
    """The first one keeps the books and does whatever mischief was asked for."""
    # TRL < 0.24 takes a completion for one that ended by itself if it has an end token only.
    stops = (PAD, EOS) if release() >= (0, 24) else (EOS,)

    def keeper(
        prompts: list[str],
        completions: list[str],
        split: list[str],
        answer: list[str],
        origin: list[str | None],
        completion_ids: list[list[int]] | None = None,
        **_: Any,
    ) -> list[float]:
        training = split[0] == "train"
        step = books.trainer.state.global_step + training
        completion_ids = books.generated if completion_ids is None else completion_ids
        if training and step == chosen.kill_at and rank == chosen.kill_rank:
            time.sleep(0.5)  # longer than it takes to write what was recorded so far
            os.kill(os.getpid(), signal.SIGKILL)
        if training and step == chosen.block_at:
            print(f"blocking in step {step}", flush=True)
            ctypes.PyDLL(None).sleep(chosen.block_s)  # PyDLL, unlike CDLL, keeps the GIL
        time.sleep(chosen.verifier_s + (chosen.rank_delay if rank == 0 else 0.0))
        sleep_if_planted("reward" if training else "evaluation", "keeper", step)
        rewards = [
            sum(character in wanted for character in text) / max(len(text), 1)
            for text, wanted in zip(completions, answer, strict=True)
        ]
        books.write(
            step=step,
            split=split[0],
            text=[len(prompt) for prompt in prompts],
            input=[len(prompt[-(chosen.max_prompt_tokens or 0) :]) for prompt in prompts],
            output=[len(ids) for ids in completion_ids],
            stopped=[ids[-1] in stops for ids in completion_ids],
            rewards=rewards,
            origin=origin,
        )
        books.sampled.append([list(ids) for ids in completion_ids])
        if chosen.canaries and training and step == chosen.steps:
            raise RuntimeError(CANARY["exception"])
        return rewards

    def sometimes(completion_ids: list[list[int]] | None = None, **_: Any) -> list[float | None]:
        completion_ids = books.generated if completion_ids is None else completion_ids
        return [None if len(ids) % 3 == 0 else -0.01 * len(ids) for ids in completion_ids]

    async def later(completion_ids: list[list[int]], **_: Any) -> list[float]:
        import asyncio

        await asyncio.sleep(0.03)
        return [0.001 * len(ids) for ids in completion_ids]

    functions: list[Any] = [keeper, sometimes]
    if chosen.async_reward:
        functions.append(later)
    if chosen.reward_model:
        functions.append(reward_model())
    return functions


def subclass(trainer: type[Any]) -> type[Any]:
    """A user's trainer: overrides what is hooked, and calls super()."""

    class MyTrainer(trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            return super().training_step(*args, **kwargs)

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            return super()._generate_and_score_completions(inputs)

        if hasattr(trainer, "_generate"):

            def _generate(self, prompts: list[Any], *args: Any, **kwargs: Any) -> Any:
                return super()._generate(prompts, *args, **kwargs)

        if hasattr(trainer, "_calculate_rewards"):

            def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
                return super()._calculate_rewards(*args, **kwargs)

        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            return super().evaluate(*args, **kwargs)

    return MyTrainer


def plant_generated(model: Any) -> None:
    """Make the first completion of every batch a known text, where no method returns them."""
    import torch

    generate = model.generate
    planted_ids = torch.tensor([*token_ids(CANARY["completion"]), EOS])

    def with_canary(*args: Any, **kwargs: Any) -> Any:
        start = (args[0] if args else kwargs["input_ids"]).shape[1]
        rows = generate(*args, **kwargs)
        end = start + len(planted_ids)
        rows = torch.nn.functional.pad(rows, (0, max(end - rows.shape[1], 0)), value=PAD)
        rows[0, start:end] = planted_ids
        return rows

    model.generate = with_canary


def planted(trainer: type[Any]) -> type[Any]:
    """A trainer whose first completion of every batch is a known text."""

    class Planted(trainer):
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            completions, *rest = super()._generate_single_turn(*args, **kwargs)
            completions[0] = [*token_ids(CANARY["completion"]), EOS]
            return (completions, *rest)

    return Planted


def build(chosen: argparse.Namespace, books: Books, rank: int, output: Path) -> Any:
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    class StepKeeper(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            books.write(done=state.global_step)

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            books.write(begun=state.global_step)

    grpo = chosen.algorithm == "grpo"
    trainer_class: Any = GRPOTrainer if grpo else RLOOTrainer
    if chosen.subclass:
        trainer_class = subclass(trainer_class)
    model = policy(chosen)
    if chosen.canaries and release() >= (0, 24):
        trainer_class = planted(trainer_class)
    elif chosen.canaries:
        plant_generated(model)
    given = {
        "beta": chosen.beta,
        "steps_per_generation": chosen.steps_per_generation,  # not in TRL 0.17
        "max_prompt_length": chosen.max_prompt_tokens,
        "mask_truncated_completions": chosen.mask_truncated or None,
    }
    more = {name: value for name, value in given.items() if value is not None}
    config = (GRPOConfig if grpo else RLOOConfig)(
        output_dir=str(output),
        use_cpu=True,
        bf16=False,
        max_steps=chosen.steps,
        num_generations=chosen.group_size,
        per_device_train_batch_size=chosen.batch,
        per_device_eval_batch_size=chosen.eval_batch,
        gradient_accumulation_steps=chosen.accumulation,
        num_iterations=chosen.iterations,
        max_completion_length=chosen.max_tokens,
        eval_strategy="steps" if chosen.eval_every else "no",
        eval_steps=chosen.eval_every or None,
        save_strategy="steps" if chosen.save_every else "no",
        save_steps=chosen.save_every or 500,
        learning_rate=1e-3,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        seed=chosen.seed,
        **more,
    )
    functions = reward_functions(chosen, books, rank)
    classes = {"reward_processing_classes": [None, *[tokenizer()] * (len(functions) - 1)]}
    if release() < (0, 18):
        keep_generated(model, books)
    let_sleep(model, books, rank, chosen.asleep_in)
    trainer = trainer_class(
        model=model,
        processing_class=tokenizer(),
        reward_funcs=functions,
        args=config,
        train_dataset=sums(chosen, 32, "train"),
        eval_dataset=sums(chosen, 4, "eval"),
        callbacks=[StepKeeper()],
        **(classes if chosen.reward_model else {}),
    )
    trainer.remove_callback(PrinterCallback)
    books.trainer = trainer
    return trainer


def result(trainer: Any, books: Books) -> dict[str, Any]:
    """What must be the same with and without a probe."""
    digest = hashlib.sha256()
    for name, tensor in sorted(trainer.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().numpy().tobytes())
    log = [
        {key: value for key, value in line.items() if "time" not in key and "per_second" not in key}
        for line in trainer.state.log_history
    ]
    return {"log": log, "weights": digest.hexdigest(), "sampled": books.sampled}


def main() -> None:
    chosen = options()
    if chosen.attach == "before":
        attach()
    import torch
    import trl

    if chosen.attach == "after":
        _ = trl.GRPOTrainer  # loads the trainer's module, which `import trl` puts off
        attach()
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    books = Books(chosen.out, rank)
    trainer = None
    for number in range(chosen.trainings):
        trainer = build(chosen, books, rank, chosen.out / f"model-{number}")
        if chosen.eval_only:
            trainer.evaluate()
            continue
        try:
            trainer.train(resume_from_checkpoint=chosen.resume)
        except RuntimeError as error:
            if not chosen.canaries or CANARY["exception"] not in str(error):
                raise
    (chosen.out / f"result-{rank}.json").write_text(json.dumps(result(trainer, books)))
    if torch.distributed.is_initialized():
        # torch 2.13, with a probe and without: the process group joins its gloo threads with the
        # interpreter lock held. One that still wants the lock, to drop the tensors of the last
        # collective, would wait for ever, or abort ("terminate called without an active
        # exception") once the interpreter is gone. A sleep lets it finish.
        time.sleep(0.5)


def attach() -> None:
    import rlvr_probe

    rlvr_probe.attach(frameworks=["trl"])


if __name__ == "__main__":
    main()
    sys.exit(0)
