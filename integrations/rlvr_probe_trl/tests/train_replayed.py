"""The training of ``train.py`` with books that its trainer keeps, to be recorded and replayed.

A replay puts reward functions of its own in place of a script's, so what these write down is not
there. The trainer writes what TRL made of it all: ``batches-<rank>.jsonl`` in ``--out``, a line for
each batch that is trained on; ``work-<rank>.jsonl``, with the weights, calls of the model's
``generate`` until then and parameters that have gradients, after each batch and micro step.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from rlvr_probe_trl.tests import train


def keeping_books(trainer: type[Any]) -> type[Any]:
    """A user's trainer that writes lengths, ends and rewards down, from tensors of TRL."""

    from transformers import GenerationMixin

    generate, generations = GenerationMixin.generate, []

    def counted(*args: Any, **kwargs: Any) -> Any:
        generations.append(1)
        return generate(*args, **kwargs)

    GenerationMixin.generate = counted

    class Keeping(trainer):
        def training_step(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            made = super().training_step(model, *args, **kwargs)
            gradients = [own.grad is not None for own in model.parameters()]
            self.note(gradients=sum(gradients), weights=digest(self.model))
            return made

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            start = time.monotonic()
            rewards = super()._calculate_rewards(*args, **kwargs)
            self.seconds, self.rewards = time.monotonic() - start, rewards
            return rewards

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            training = self.model.training
            made = super()._generate_and_score_completions(inputs)
            if training:
                self.write(made, len(inputs))
            return made

        def write(self, made: dict[str, Any], rows: int) -> None:
            rank = self.accelerator.process_index
            prompts = [
                ids[mask.bool()].tolist()
                for ids, mask in zip(made["prompt_ids"], made["prompt_mask"], strict=True)
            ]
            responses = [
                ids[mask.bool()].tolist()
                for ids, mask in zip(made["completion_ids"], made["completion_mask"], strict=True)
            ]
            own = self.rewards[rank * rows : (rank + 1) * rows].tolist()
            line = {
                "step": self.state.global_step + 1,
                "prompts": prompts,
                "prompt": [len(ids) for ids in prompts],
                "response": [len(ids) for ids in responses],
                "stopped": [ids[-1] in (train.PAD, train.EOS) for ids in responses],
                "inner_stops": sum(train.EOS in ids[:-1] for ids in responses),
                "rewards": [[None if math.isnan(value) else value for value in row] for row in own],
                "seconds": self.seconds,
            }
            with (self.books / f"batches-{rank}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            self.note(weights=digest(self.model))

        def note(self, **line: Any) -> None:
            line["generations"] = len(generations)
            with (self.books / f"work-{self.accelerator.process_index}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")

    Keeping.books = Path(sys.argv[sys.argv.index("--out") + 1])
    return Keeping


def digest(model: Any) -> str:
    weights = (own.detach().numpy().tobytes() for own in model.parameters())
    return hashlib.sha256(b"".join(weights)).hexdigest()


if __name__ == "__main__":
    train.subclass = keeping_books
    sys.argv.append("--subclass")
    train.main()
