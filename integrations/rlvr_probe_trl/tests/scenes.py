"""Short scenes in one process with a real trainer; prints what was seen as one JSON object.

Run as a script by ``test_scenes.py``: importing TRL inside pytest would turn its warnings into
errors.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import pickle
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from rlvr_probe_trl.tests import train as real

import rlvr_probe
from rlvr_probe import guard
from rlvr_probe.probe.hooks.wrapping import find_hook


def chosen(out: Path) -> argparse.Namespace:
    sys.argv = ["train.py", "--out", str(out), "--steps", "1", "--max-tokens", "6"]
    return real.options()


class Scenes:
    """Each method is a scene; what it returns is judged by the test."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.options = chosen(out)
        self.attachment = rlvr_probe.attach(out=out / "recordings", run_id="scenes")

    def trainer(self, **given: Any) -> Any:
        options = argparse.Namespace(**{**vars(self.options), **given})
        trainer = real.build(options, real.Books(self.out / "books", 0), 0, self.out / "model")
        return trainer

    def evaluate_only(self) -> Any:
        """A trainer that is never trained is recorded all the same."""
        return sorted(self.trainer().evaluate())[:1]

    def users_list(self) -> Any:
        """The user's functions are in the user's list whenever the user can look."""
        seen: list[bool] = []
        trainer = self.trainer()
        functions = trainer.reward_funcs
        before = list(functions)

        def watcher(completions: list[str], **_: Any) -> list[float]:
            return [0.0] * len(completions)

        trainer.train()
        seen.append(all(a is b for a, b in zip(functions, before, strict=True)))
        functions[1] = watcher  # the user changes a function between two trainings
        trainer.train()
        seen.append(functions[1] is watcher)
        return seen

    def failing_reward(self) -> Any:
        """The user's exception arrives, and nothing of ours stays behind."""

        def failing(**_: Any) -> list[float]:
            raise KeyError("mine")

        trainer = self.trainer()
        trainer.reward_funcs[1] = failing
        try:
            trainer.train()
        except KeyError as error:
            return [str(error), trainer.reward_funcs[1] is failing]
        return None

    def training_reward(self) -> Any:
        """An optimizer of a reward function is not the policy's."""
        import torch

        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def learning(completions: list[str], **_: Any) -> list[float]:
            weight.grad = torch.ones(1)
            optimizer.step()
            return [0.0] * len(completions)

        trainer = self.trainer()
        trainer.reward_funcs[1] = learning
        trainer.train()
        return float(weight.detach()) != 0.0

    def callable_object(self) -> Any:
        """A reward that is an object keeps its type and its attributes."""

        class Judge:
            weight = 2.0

            def __call__(self, completions: list[str], **_: Any) -> list[float]:
                return [self.weight] * len(completions)

        trainer = self.trainer()
        trainer.reward_funcs[1] = Judge()
        trainer.train()
        return isinstance(trainer.reward_funcs[1], Judge)

    def other_trainer(self) -> Any:
        """A trainer of transformers that generates nothing is left alone."""
        from transformers import Trainer, TrainingArguments

        arguments = TrainingArguments(
            output_dir=str(self.out / "other"), use_cpu=True, report_to="none"
        )
        trainer = Trainer(model=real.policy(self.options), args=arguments)
        return [type(callback).__name__ for callback in trainer.callback_handler.callbacks]

    def copies(self) -> Any:
        """A copied or pickled callback does nothing."""
        trainer = self.trainer()
        [callback] = [c for c in trainer.callback_handler.callbacks if type(c).__name__ == "Steps"]
        for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
            copied.on_step_begin(None, trainer.state, None)
            copied.on_train_begin(None, trainer.state, None)
        return type(copied).__name__

    def garbage(self) -> Any:
        """A trainer lives no longer than without a probe, whatever its reward functions hold."""
        trainer = self.trainer()

        def holding(completions: list[str], trainer: Any = trainer, **_: Any) -> list[float]:
            return [0.0] * len(completions)

        trainer.reward_funcs[1] = holding
        trainer.train()
        alive = weakref.ref(trainer)
        del trainer, holding
        gc.collect()
        return alive() is None

    def calling_back(self) -> Any:
        """Callbacks of the user are called as before, and what they answer counts."""
        from transformers import TrainerCallback

        called: list[str] = []

        class Uploads(TrainerCallback):
            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                called.append("save")
                time.sleep(0.05)

        class Base(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
                called.append("step")
                control.should_save = True
                return control

        class Derived(Base):
            pass

        trainer = self.trainer()
        for callback in (Derived(), Uploads()):
            trainer.add_callback(callback)
        trainer.train()
        return called

    def detach(self) -> Any:
        """Everything is as it was, also for a trainer in use."""
        import transformers
        import trl
        from torch.optim import optimizer
        from transformers.trainer_callback import CallbackHandler

        def wrapped() -> list[str]:
            return [
                f"{owner.__name__}.{name}"
                for owner in (trl.GRPOTrainer, transformers.Trainer, CallbackHandler)
                for name, function in vars(owner).items()
                if find_hook(function) is not None
            ]

        trainer = self.trainer()
        trainer.train()
        hooked = wrapped()
        self.attachment.detach()
        return {
            "hooked": hooked,
            "wrapped": wrapped(),
            "callbacks": [type(c).__name__ for c in trainer.callback_handler.callbacks][-2:],
            "optimizer_hooks": len(optimizer._global_optimizer_pre_hooks)
            + len(optimizer._global_optimizer_post_hooks),
            "threads": [t.name for t in threading.enumerate() if "rlvr" in t.name],
            "trains": trainer.train().global_step,
        }


def main() -> None:
    import torch

    torch.set_num_threads(1)
    scenes = Scenes(Path(sys.argv[1]))
    names = [name for name in vars(Scenes) if not name.startswith("_") and name != "trainer"]
    seen = {name: getattr(scenes, name)() for name in names}
    seen["faults"] = [" ".join(key) for key in guard.faults()]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
