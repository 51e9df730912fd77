"""Real jobs of OpenRLHF for the conformance tests: which, how they are started, what they left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rlvr_probe_openrlhf.tests.environments import python
from rlvr_probe_openrlhf.tests.service import PATIENCE_S, reward_service
from rlvr_probe_openrlhf.tests.truth import Truth, read_truth

from rlvr_probe.exporter import Written
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from tests import supervise, trainings, vllm_cpu
from tests.planted import ASLEEP, Planted, disturbed
from tests.surroundings import RAY_START, surroundings

__all__ = [
    "DEATH",
    "EVALUATED",
    "FEW",
    "FULL",
    "GROUP",
    "JOB",
    "PROMPTS",
    "SCENARIOS",
    "Finished",
    "Runner",
    "Scenario",
]

JOB = Path(__file__).with_name("job")
PROMPTS = 4
"""Prompts per step."""
GROUP = 4
"""Samples per prompt."""
EVALUATED = 4 * 2
"""Samples of an evaluation."""
RESPONSE = 24
"""Tokens that a response may have, or a turn of the agent."""


@dataclass(frozen=True)
class Scenario:
    """One job.

    Attributes:
        openrlhf: Release that runs it.
        how: ``attach`` (the driver attaches), ``launcher`` or ``bare`` (no probe).
        ranks: Data-parallel ranks of the policy, and of the reference model.
        engines: Engines.
        steps: Training steps; those with an even number end with a checkpoint and an evaluation.
        agent: Multi-turn, with an environment.
        asynchronous: Another process generates, for a queue.
        model: Rewards come from a model, and values from a critic; there is no evaluation, which
            OpenRLHF could not score.
        service: Rewards come from a service, which hangs, answers 500 or is slow.
        vllm: vLLM's own engine generates, on the CPU, in place of a stand-in.
        fixed: One request after the other, so that each run takes answers in the same order.
        planted: What sleeps.
        replay: Arguments of `rlvr-probe replay` for the workload; without any it records itself.
        arguments: More of OpenRLHF's.
        environment: More variables, as ``NAME=value``.
        exit_status: What the driver ends with.
        timeout_s: The job is ended then.
    """

    openrlhf: str = "0.11.2"
    how: str = "launcher"
    ranks: int = 1
    engines: int = 1
    steps: int = 2
    agent: bool = False
    asynchronous: bool = False
    model: bool = False
    service: bool = False
    vllm: bool = False
    fixed: bool = False
    planted: Planted | None = None
    replay: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    exit_status: int = 0
    timeout_s: float = 900.0

    @property
    def evaluated(self) -> int:
        """Samples that follow each second step."""
        return 0 if self.arguments[:2] == FEW[:2] else EVALUATED

    @property
    def bare(self) -> Scenario:
        """The same job without a probe."""
        return replace(self, how="bare")


FEW = ("--eval.steps", "-1", "--ckpt.save_steps", "-1")
"""Neither evaluations nor checkpoints."""

FILTERED = (
    *("--algo.dynamic_filtering_enable", "--algo.dynamic_filtering_range", "0.4", "1.0"),
    *("--data.max_samples", "32"),
)
"""A dynamic filter that passes some of the prompts there are."""

SCENARIOS = {
    "one_rank": Scenario(fixed=True),
    # Its environment sleeps, which changes how long it takes, and nothing else.
    "agent": Scenario(
        agent=True, engines=2, steps=3, arguments=FEW, planted=Planted("tool", "step", 1.0)
    ),
    # Only by `make conformance-full`.
    "two_ranks": Scenario(how="attach", ranks=2, engines=2),
    "agent_evaluated": Scenario(agent=True, engines=2),
    "async": Scenario(asynchronous=True, steps=3),
    "async_filtered": Scenario(asynchronous=True, steps=5, arguments=FILTERED),
    "tensor_parallel": Scenario(ranks=2, arguments=(*FEW, "--vllm.tensor_parallel_size", "2")),
    "model": Scenario(model=True),
    "service": Scenario(service=True),
}
"""Jobs whose recording must hold exactly what happened."""

FULL = frozenset(list(SCENARIOS)[2:])
"""Those that continuous integration has no time for."""

DEATH = Scenario(environment=("OPENRLHF_CPU_MISCHIEF=kill_rank@1",), exit_status=1)
"""A job whose rank is killed in its second step, where it has calculated log-probabilities."""


@dataclass(frozen=True)
class Finished:
    """What a job left behind."""

    scenario: Scenario
    folder: Path

    @property
    def output(self) -> str:
        """What its processes printed."""
        return (self.folder / "output.txt").read_text(errors="replace")

    @cached_property
    def truth(self) -> Truth:
        """What the job wrote down itself."""
        return read_truth(self.folder)

    @cached_property
    def recording(self) -> Path:
        """The folder of the one recorded run."""
        [result] = [path for path in (self.folder / "recordings").iterdir() if path.is_dir()]
        return result

    @cached_property
    def trace(self) -> Trace:
        """What was recorded."""
        return read_run(self.recording)

    @cached_property
    def workload(self) -> tuple[Written, Path]:
        """The workload written from the recording, judged sound by its own exporter."""
        return trainings.write_workload(self.trace, self.folder / "workload")


class Runner(trainings.Runner[Scenario, Finished]):
    """Starts each job once, one at a time: one has more processes than a machine has cores."""

    def run(self, scenario: Scenario, folder: Path) -> Finished:
        """Run it to the end that it is to have."""
        interpreter = python(scenario.openrlhf, vllm=scenario.vllm)
        assets = self._assets(interpreter, heads=2 if scenario.vllm else 4)
        (folder / "books").mkdir(parents=True)
        # Its sockets lie there, whose paths must be short.
        ray = Path(tempfile.mkdtemp(prefix="ro", dir="/tmp"))
        command = [sys.executable, supervise.__file__]
        # Nothing is waited for that outlives a job.
        command += [str(scenario.timeout_s), "0", str(folder / "processes.json")]
        if scenario.how == "launcher":
            words = ["replay", *scenario.replay] if scenario.replay else ["run"]
            command += [str(interpreter.with_name("rlvr-probe")), *words, "--"]
        command += [str(interpreter), str(JOB / "openrlhf_cpu_launch.py")]
        books = folder / "books"
        book = books / "reward-service.jsonl"
        service = reward_service(book) if scenario.service else nullcontext("")
        disturbing = disturbed(scenario.planted, books, books)
        try:
            with service as rewards, disturbing, (folder / "output.txt").open("wb") as output:
                done = subprocess.run(
                    [*command, *_arguments(scenario, folder, assets, rewards)],
                    cwd=folder,
                    env=_environment(scenario, folder, ray),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=scenario.timeout_s + 60,
                    check=False,
                )
        finally:
            shutil.rmtree(ray, ignore_errors=True)
        finished = Finished(scenario, folder)
        assert done.returncode == scenario.exit_status, finished.output[-6000:]
        return finished

    def _assets(self, interpreter: Path, heads: int) -> Path:
        folder = self.root / f"assets-{heads}"
        if not (folder / "eval.jsonl").exists():
            folder.mkdir(exist_ok=True)
            subprocess.run(
                [str(interpreter), str(JOB / "openrlhf_cpu_assets.py"), str(folder), str(heads)],
                env=os.environ | {"PYTHONPATH": str(JOB), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                timeout=300,
            )
        return folder


def _arguments(scenario: Scenario, folder: Path, assets: Path, service: str) -> list[str]:
    """Arguments of ``openrlhf.cli.train_ppo_ray``, by the names that it has since 0.10.2."""
    given = {
        "actor.num_nodes": 1,
        "actor.num_gpus_per_node": scenario.ranks,
        "ref.num_nodes": 1,
        "ref.num_gpus_per_node": scenario.ranks,
        "vllm.num_engines": scenario.engines,
        "vllm.sync_backend": "gloo",
        "actor.model_name_or_path": assets / "tiny-qwen2",
        "data.prompt_dataset": assets / "train.jsonl",
        "data.input_key": "input",
        "data.label_key": "label",
        "data.max_samples": scenario.steps * PROMPTS,
        "data.max_len": 192,
        "rollout.max_new_tokens": RESPONSE,
        "rollout.batch_size": PROMPTS,
        "rollout.n_samples_per_prompt": GROUP,
        "rollout.micro_batch_size": 4,
        "train.batch_size": PROMPTS * GROUP,
        "train.micro_batch_size": 4,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "eager",
        "algo.advantage.estimator": "group_norm",
        "eval.steps": 2,
        "eval.n_samples_per_prompt": 2,
        "ckpt.save_steps": 2,
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "logger.tensorboard_dir": folder / "metrics",
    }
    if not scenario.model:
        given["eval.dataset"] = assets / "eval.jsonl"
    if scenario.agent:
        given["train.agent_func_path"] = JOB / "openrlhf_cpu_agent.py"
    elif scenario.model:
        given |= {
            "reward.model_name_or_path": assets / "tiny-qwen2",
            "reward.num_nodes": 1,
            "reward.num_gpus_per_node": scenario.ranks,
            "critic.model_name_or_path": assets / "tiny-qwen2",
            "critic.num_nodes": 1,
            "critic.num_gpus_per_node": scenario.ranks,
            "algo.advantage.estimator": "gae",
        }
    else:
        given["reward.remote_url"] = service or JOB / "openrlhf_cpu_reward.py"
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    words += ["--train.async_enable"] if scenario.asynchronous else []
    words += ["--vllm.enforce_eager"] if scenario.vllm else []
    return [*words, *scenario.arguments]


def _environment(scenario: Scenario, folder: Path, ray: Path) -> dict[str, str]:
    """Variables of a job that records into ``folder/recordings``."""
    dropped = ("PYTEST_", "RAY_", "OPENRLHF_", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
    given = {
        "PYTHONPATH": os.pathsep.join(map(str, (JOB, ASLEEP, RAY_START))),
        "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "DS_ACCELERATOR": "cpu",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_AUTH_MODE": "disabled",  # else it keeps a token in the home of the user
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OPENRLHF_CPU": "1",
        "OPENRLHF_CPU_BOOKS": str(folder / "books"),
        "OPENRLHF_CPU_RAY": str(ray),
        "OPENRLHF_CPU_SEED": "42",
        "OPENRLHF_CPU_IN_ORDER": "1" if scenario.fixed else "",
        "RLVR_PROBE_OUT": str(folder / "recordings"),
    }
    if scenario.how == "attach":
        given["OPENRLHF_CPU_ATTACH"] = "1"
    if scenario.service:
        given["OPENRLHF_CPU_PATIENCE_S"] = str(PATIENCE_S)
    if scenario.how == "bare":
        del given["RLVR_PROBE_OUT"]
    if scenario.planted is not None:
        given |= scenario.planted.variables(folder / "books")
    if scenario.vllm:
        given |= {"OPENRLHF_CPU_VLLM": "1", **vllm_cpu.VARIABLES}
        # Before the stand-in.
        given["PYTHONPATH"] = os.pathsep.join((str(vllm_cpu.packages()), given["PYTHONPATH"]))
    for assignment in scenario.environment:
        name, _, value = assignment.partition("=")
        given[name] = value
    return surroundings(*dropped) | given
