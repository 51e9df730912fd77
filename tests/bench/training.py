"""A real TRL training in which recording is switched on and off in random blocks of steps.

    python tests/bench/training.py --out FILE --seconds 60

Every step does the same work: prompts and completions have one length. Blocks come in pairs, on and
off in random order, so that a drift of the machine hits both alike. Off means what is left when
nothing is recorded: wrappers that look at one number and call on. FILE gets a JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

import rlvr_probe
from rlvr_probe.config import Config
from rlvr_probe.probe import hooks
from rlvr_probe.probe.election import holder, lock_path, open_lock
from rlvr_probe.probe.recorder import FULL, OFF, Recorder

_RECIPE = Path(__file__).parents[2] / "integrations" / "rlvr_probe_trl" / "recipe" / "grpo.py"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--block", type=int, default=5, help="steps in a block")
    parser.add_argument("--warm-up", type=int, default=10, help="steps that are not counted")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16, help="of every completion")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sidecar", action="store_true", help="which stands still while off")
    return parser.parse_args()


def recipe() -> ModuleType:
    """The training script of the TRL integration: tokenizer and prompts are its own."""
    spec = importlib.util.spec_from_file_location("recipe_grpo", _RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _recorder() -> Recorder:
    recorder = hooks.recorder()
    assert recorder is not None
    return recorder


_PATIENCE_S = 120.0
"""Longest wait for a sidecar to be there."""


class Beside:
    """The sidecar of a run and what it started.

    Attributes:
        missing: How often there was none when it was to go on.
    """

    def __init__(self, folder: Path) -> None:
        self.missing = 0
        self._folder = folder
        self._until = time.monotonic() + _PATIENCE_S
        self._begun: tuple[int, float, float] | None = None
        """Sidecar that went on, when, and what all of it had taken until then, s."""
        self._took_s = self._passed_s = 0.0

    def switch(self, on: bool) -> None:
        """Let all of it go on, or stand still."""
        found = self._found()
        while not found and time.monotonic() < self._until:  # before the first block
            time.sleep(0.1)
            found = self._found()
        self._until = 0.0
        now, took_s = time.monotonic(), _cpu_s(found)
        if self._begun is not None and found and found[0].pid == self._begun[0]:
            self._passed_s += now - self._begun[1]
            self._took_s += took_s - self._begun[2]
        self._let(found, on)
        self.missing += on and not found
        self._begun = (found[0].pid, now, took_s) if on and found else None

    def end(self) -> dict[str, Any]:
        """Wait until it has left; what it took."""
        found = self._found()
        self._let(found, on=True)
        _, alive = psutil.wait_procs(found, timeout=60)
        passed = self._passed_s
        return {
            "missing": self.missing,
            "core": self._took_s / passed if passed else 0.0,
            "left": not alive,
        }

    @staticmethod
    def _let(found: list[psutil.Process], on: bool) -> None:
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    def _found(self) -> list[psutil.Process]:
        lock = open_lock(lock_path(self._folder))
        try:
            pid = holder(lock)
        finally:
            os.close(lock)
        if not pid:
            return []
        with suppress(psutil.NoSuchProcess):
            sidecar = psutil.Process(pid)
            return [sidecar, *sidecar.children(recursive=True)]
        return []


def _cpu_s(processes: list[psutil.Process]) -> float:
    """What they took so far, and with it those of their children that have ended, s."""
    took = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            took += sum(process.cpu_times()[:4])
    return took


class Switch:
    """Switches recording between steps and takes the time from one step's begin to the next's."""

    def __init__(self, chosen: argparse.Namespace, beside: Beside | None) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.reduced = 0
        self._beside = beside
        self._chosen = chosen
        self._draw = random.Random(chosen.seed)
        self._until = 0.0
        self._steps = 0
        self._last: tuple[int, int, int] | None = None
        self._coming: list[bool] = []

    def step_begins(self) -> bool:
        """Called between two steps; whether the training has lasted long enough."""
        counted = self._steps - self._chosen.warm_up
        ends = counted >= 0 and counted % self._chosen.block == 0
        if ends and self.blocks and self.blocks[-1]["on"]:
            _recorder().flush()  # what this block recorded is written in its own time
        now = (time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns())
        if self._last is not None:
            for name, a, b in zip(("wall", "thread", "process"), self._last, now, strict=True):
                self.blocks[-1][f"{name}_ns"].append(b - a)
        elif self._steps == self._chosen.warm_up:
            self._until = time.monotonic() + self._chosen.seconds
        self._steps += 1
        if ends and self._next_block():
            return True
        if counted >= 0:
            self._last = (time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns())
        return False

    def _next_block(self) -> bool:
        recorder = _recorder()
        if self.blocks and self.blocks[-1]["on"]:
            muted = any(account.muted for account in recorder.accounts.values())
            self.reduced += recorder.level != FULL or muted
        if not self._coming:
            if time.monotonic() > self._until:
                self._last = None
                return True
            self._coming = self._draw.sample([True, False], 2)
        on = self._coming.pop()
        if self._beside is not None:
            self._beside.switch(on)
        recorder.level = FULL if on else OFF
        # The thread that writes would still look whether there is something to write.
        if on:
            vars(recorder).pop("flush", None)
        else:
            vars(recorder)["flush"] = lambda: None
        self.blocks.append({"on": on, "wall_ns": [], "thread_ns": [], "process_ns": []})
        return False


def train(chosen: argparse.Namespace, switch: Switch, output: str) -> None:
    """Train with TRL until the switch says that it is enough."""
    given = recipe()
    import torch
    from transformers import PrinterCallback, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Follow(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop |= switch.step_begins()

    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(given.SPECIAL) + len(given.ALPHABET),
            hidden_size=chosen.hidden,
            intermediate_size=2 * chosen.hidden,
            num_hidden_layers=chosen.layers,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            tie_word_embeddings=True,
        )
    )
    prompts = [{"prompt": f"{a}+{a}=?\n", "answer": str(2 * a)} for a in range(100, 164)]
    trainer = GRPOTrainer(
        model=model,
        processing_class=given.tokenizer(),
        reward_funcs=[_digits, given.brevity],
        args=GRPOConfig(
            output_dir=output, use_cpu=True, bf16=False, max_steps=1_000_000, num_generations=4,
            per_device_train_batch_size=chosen.batch, max_completion_length=chosen.tokens,
            generation_kwargs={"min_new_tokens": chosen.tokens}, save_strategy="no", beta=0.0,
            learning_rate=1e-6, logging_strategy="no", report_to="none", disable_tqdm=True,
            log_level="error", seed=chosen.seed,
        ),
        train_dataset=given.Dataset.from_list(prompts),
        callbacks=[Follow()],
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def _digits(completions: list[str], **_: Any) -> list[float]:
    return [
        sum(map(str.isdigit, completion)) / max(1, len(completion)) for completion in completions
    ]


def main() -> None:
    """Train, and write what every step took."""
    chosen = options()
    with tempfile.TemporaryDirectory() as scratch:
        # The guard, or a full disk, would make a toy record less: measured is the whole cost.
        config = Config(out=Path(scratch) / "runs", own_share=1.0, sidecar=chosen.sidecar, free_b=0)
        attachment = rlvr_probe.attach(config=config)
        recorder = _recorder()
        beside = Beside(attachment.folder) if chosen.sidecar else None
        switch = Switch(chosen, beside)
        train(chosen, switch, scratch)
        rlvr_probe.detach()
        journals = list(attachment.folder.glob(f"p{recorder.process}*.jsonl"))
        result = {
            "blocks": switch.blocks,
            "block_steps": chosen.block,
            "reduced": switch.reduced,
            "own_ns": recorder.own_ns,
            "lost": sum(recorder.lost.values()),
            "rows": sum(path.read_bytes().count(b"\n") for path in journals),
            "journal_b": sum(path.stat().st_size for path in journals),
            "beside": None if beside is None else beside.end(),
            "versions": {name: sys.modules[name].__version__ for name in ("torch", "trl")},
        }
    chosen.out.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
