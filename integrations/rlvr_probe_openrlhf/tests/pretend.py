"""The loops of OpenRLHF 0.11.2 around models and engines that do nothing: no Ray, no torch.

``install(folder)`` writes a package ``openrlhf`` with the functions that are hooked on a
controller, called in the order in which OpenRLHF calls them. Real jobs are in ``runs``.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

__all__ = ["install", "script"]

_GENERATOR = """
class Experience:
    __hash__ = None

    def __init__(self, response):
        total = len(response["observation_tokens"])
        self.attention_mask = type("Mask", (), {"shape": (1, total)})()


def _collect_prompt_batch(prompts, num_prompts):
    return prompts[:num_prompts]


class SamplesGenerator:
    def __init__(self, args, batches, evaluation=()):
        self.args, self.vllm_engines, self._evaluation = args, [], evaluation
        self._batches, self._left = batches, iter(batches)

    def generate_eval_samples(self, **generate_kwargs):
        return self._generate_vllm(self._evaluation)[0]

    def generate_samples(self, **generate_kwargs):
        rows = next(self._left, None)
        if rows is None:
            self._left = iter(self._batches)
            return [], None, 0, True
        kept, exhausted = self._generate_vllm(rows)
        return kept, None, len(rows), exhausted

    def _generate_vllm(self, answers):
        accepted_experiences, spare = [], []
        for ref in answers:
            if callable(ref):
                spare.append(ref)
        sent = [a for a in answers if not callable(a)]
        sent = _collect_prompt_batch(sent, len(sent))
        pending_refs = self._dispatch_prompts_to_vllm(sent)
        while pending_refs:
            ready_refs, pending_refs = pending_refs[:1], pending_refs[1:]
            for ref in ready_refs:
                experiences = [
                    self._process_response_into_experience(one) for one in ref.responses
                ]
                if ref.passes:
                    accepted_experiences.extend(experiences)
                elif spare:
                    prompt = spare.pop(0)()
                    if prompt is None:
                        return [], True
                    pending_refs.extend(self._dispatch_prompts_to_vllm([prompt]))
        return accepted_experiences, False

    def _dispatch_prompts_to_vllm(self, prompts):
        return list(prompts)

    def _process_response_into_experience(self, response, **generate_kwargs):
        return Experience(response)
"""

_MAKER = """
class RemoteExperienceMaker:
    def __init__(self, fails=None):
        self.fails = fails

    def make_experience_batch(self, rollout_samples):
        if self.fails:
            raise self.fails
        return self.compute_advantages_and_returns(self.make_experience(rollout_samples))

    def make_experience(self, samples_list):
        return samples_list

    def compute_advantages_and_returns(self, experiences):
        return experiences
"""

_TRAINER = """
class BasePPOTrainer:
    def __init__(self, args, maker):
        self.args, self.experience_maker = args, maker
        self.strategy = type("Strategy", (), {"args": args})()
        self.actor_model_group = object()

    def train_step(self, rollout_samples, global_step):
        self.experience_maker.make_experience_batch(rollout_samples)
        self.ppo_train(global_step)
        self.broadcast_to_vllm()
        return {}, global_step + 1

    def ppo_train(self, global_steps):
        pass

    def broadcast_to_vllm(self):
        pass

    def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None):
        pass

    def init_checkpoint_states(self):
        return {"episode": 0, "global_step": self.args.resumed}


class PPOTrainer(BasePPOTrainer):
    def __init__(self, args, maker, generator):
        self.samples_generator = generator
        super().__init__(args, maker)

    def fit(self):
        global_step = self.init_checkpoint_states()["global_step"]
        for _ in range(self.args.num_episodes):
            while True:
                rows, _, _, exhausted = self.samples_generator.generate_samples()
                if not rows:
                    if exhausted:
                        break
                    continue
                _, global_step = self.train_step(rows, global_step)
                self.save_logs_and_checkpoints(global_step)
                if global_step % self.args.eval_steps == 0:
                    self.evaluate(global_step)

    def evaluate(self, global_step):
        self.samples_generator.generate_eval_samples()


class TrainingActor(BasePPOTrainer):
    def __init__(self, args, maker, queue):
        super().__init__(args, maker)
        self.rollout_queue = queue

    def fit(self, global_step):
        while True:
            payload = self.rollout_queue.get(block=True)
            if payload == "done":
                break
            if payload[0] == "eval":
                continue
            _, global_step = self.train_step(payload[0], global_step)
            self.save_logs_and_checkpoints(global_step)
"""

_SCRIPT = """
import sys
from types import ModuleType, SimpleNamespace

import rlvr_probe

rlvr_probe.attach(out={out!r})


class Queue:
    def __init__(self, *payloads):
        self.payloads = list(payloads)

    def get(self, block=True):
        return self.payloads.pop(0)


sys.modules["ray.util.queue"] = ModuleType("ray.util.queue")
sys.modules["ray.util.queue"].Queue = Queue

from openrlhf.trainer.ppo_trainer import PPOTrainer, TrainingActor
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

args = SimpleNamespace(
    num_episodes=1, resumed=0, eval_steps=100, n_samples_per_prompt=2, advantage_estimator="rloo"
)


class Id(str):
    def hex(self):
        return str(self)

    def actor_id(self):
        return Id("actor")


def answer(name, *lengths, passes=True):
    responses = [
        {{
            "observation_tokens": [7] * (5 + length),
            "action_ranges": [(5, 5 + length)],
            "reward": 0.5,
            "truncated": False,
        }}
        for length in lengths
    ]
    return SimpleNamespace(task_id=lambda: Id(name), responses=responses, passes=passes)


{body}
"""


def install(folder: Path) -> None:
    """Write the package and its metadata into ``folder``."""
    files = {
        "openrlhf/__init__.py": "",
        "openrlhf/trainer/__init__.py": "",
        "openrlhf/trainer/ppo_trainer.py": _TRAINER,
        "openrlhf/trainer/ppo_utils/__init__.py": "",
        "openrlhf/trainer/ppo_utils/experience_maker.py": _MAKER,
        "openrlhf/trainer/ppo_utils/samples_generator.py": _GENERATOR,
        "openrlhf-0.11.2.dist-info/METADATA": (
            "Metadata-Version: 2.1\nName: openrlhf\nVersion: 0.11.2\n"
        ),
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def script(out: Path, body: str) -> str:
    """A script that attaches and runs ``body``."""
    return _SCRIPT.format(out=str(out), body=textwrap.dedent(body))
