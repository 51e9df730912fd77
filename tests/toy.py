"""A toy framework with an integration from outside, installed the way a third party does it.

``install(folder)`` writes a package ``toyrl`` (a trainer that samples, verifies and updates), an
integration ``rlvr_probe_toyrl`` and their metadata. The trainer knows nothing of the probe.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

__all__ = ["install"]

_FRAMEWORK = """
import random, time

class Trainer:
    def __init__(self, reward, steps=3, samples=4, sleep=0.0):
        self.reward, self.steps, self.samples, self.sleep = reward, steps, samples, sleep
        self.step, self.losses = 0, []

    def train(self):
        for self.step in range(1, self.steps + 1):
            self.one_step()
        return self.losses

    def one_step(self):
        rows = self.generate()
        time.sleep(self.sleep)
        self.losses.append(sum(self.reward(rows)))

    def generate(self):
        return [[1] * random.randint(1, 9) for _ in range(self.samples)]
"""

_INTEGRATION = """
from rlvr_probe.adapter import HookPoint
from rlvr_probe.model import names

WHERE = ("session", "step")

def _lengths(call):
    trainer = call.args[0]
    rows = call.result
    if rows is not None:
        call.probe.emit(names.TRAJECTORIES, {
            "session": 0, "step": trainer.step, "mode": "train", "batch": call.span, "ordinal": 0,
            "policy_version": trainer.step - 1,
            "offset": 0, "total": len(rows), "group_size": len(rows),
            "prompt_tokens": [3] * len(rows), "response_tokens": [len(r) for r in rows],
        })

def _step(call):
    return (0, call.args[0].step)

def _number(call):
    return call.args[0].step

def _session(call):
    call.probe.emit(names.SESSION, {
        "session": 0, "framework": "toyrl", "resumed_step": 0, "world_size": 1,
    })
    point = HookPoint("reward", names.REWARD_FN, ("batch",), read=lambda call: (0,))
    holder = [call.args[0].reward]
    call.probe.replace(holder, 0, point)
    call.args[0].reward = holder[0]

class ToyAdapter:
    name = "toyrl"
    distribution = "toyrl"
    tested = ">=1,<2"

    def hook_points(self, version):
        return (
            HookPoint("toyrl:Trainer.train", before=_session),
            HookPoint("toyrl:Trainer.one_step", names.STEP, WHERE, read=_step, step=_number),
            HookPoint("toyrl:Trainer.generate", names.ROLLOUT, WHERE, read=_step, after=_lengths),
            HookPoint("toyrl:Trainer.of_a_later_release", names.EVAL, optional=True),
        )

    def expected(self, version):
        return self.hook_points(version)
"""


def install(folder: Path, version: str = "1.2.3") -> None:
    """Put the toy framework, its integration and their metadata into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toyrl.py").write_text(textwrap.dedent(_FRAMEWORK))
    (folder / "rlvr_probe_toyrl.py").write_text(textwrap.dedent(_INTEGRATION))
    for name, number in (("toyrl", version), ("rlvr_probe_toyrl", "0.1")):
        info = folder / f"{name}-{number}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
        if name != "toyrl":
            (info / "entry_points.txt").write_text(
                "[rlvr_probe.integrations]\ntoyrl = rlvr_probe_toyrl:ToyAdapter\n"
            )
