"""Real jobs of verl for the conformance tests: which, how they are started, and what they left."""

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

from rlvr_probe_verl.tests.environments import python
from rlvr_probe_verl.tests.truth import Truth, read_truth

from rlvr_probe.exporter import Written
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from tests import supervise, trainings, vllm_cpu
from tests.planted import ASLEEP, Planted, disturbed
from tests.surroundings import RAY_START, surroundings
from tests.watched import watched
from tests.wheels import numbers

__all__ = [
    "DAPO",
    "DEATHS",
    "FULL",
    "JOB",
    "OUTPUTS",
    "PROMPTS",
    "RECIPES",
    "SCENARIOS",
    "Finished",
    "Runner",
    "Scenario",
]

JOB = Path(__file__).with_name("job")
PROMPTS = 4
"""Prompts per step."""
GRACE_S = 60
"""What is left of a job that is watched may take so long to end by itself."""


@dataclass(frozen=True)
class Scenario:
    """One job.

    Attributes:
        verl: Release that runs it.
        trainer: ``v0`` or, from verl 0.9 on, ``v1``.
        how: ``attach`` (the driver attaches), ``launcher``, ``replay`` or ``bare`` (no probe).
        workload: What ``replay`` replays, and its options.
        ranks: Data-parallel ranks, each with a server of its own.
        steps: Training steps; the last one ends with a validation.
        tools: Tool calls of a conversation, at most; 0 is without tools. verl 0.8 and newer.
        filtered: Groups whose rewards are all the same are replaced; ``v1`` only.
        fixed: The same tokens in each run of it; verl 0.9 asks for it by itself.
        overrides: More arguments of verl.
        environment: More variables, as ``NAME=value``.
        planted: What sleeps.
        watched: There are GPUs, scripted ones, and a collector; its sidecar has time to end.
        vllm: verl's own servers of vLLM generate, on the CPU, in place of a stand-in; verl 0.9.
        exit_status: What the driver ends with.
        timeout_s: The job is ended then.
    """

    verl: str
    trainer: str = "v0"
    how: str = "attach"
    workload: tuple[str, ...] = ()
    ranks: int = 1
    steps: int = 2
    tools: int = 0
    filtered: bool = False
    fixed: bool = False
    overrides: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    planted: Planted | None = None
    watched: bool = False
    vllm: bool = False
    exit_status: int = 0
    timeout_s: float = 900.0

    @property
    def bare(self) -> Scenario:
        """The same job without a probe."""
        return replace(self, how="bare", watched=False)

    @property
    def generates(self) -> bool:
        """Whether verl has its model generate by itself, without servers."""
        return numbers(self.verl) < (0, 6)

    @property
    def group_size(self) -> int:
        """Samples per prompt."""
        # verl 0.4 and 0.5 repeat prompts twice where their own rollout samples more than one.
        return 1 if self.generates else 4


SCENARIOS = {
    # In the first reward of the second step its sidecar is killed.
    "0.5": Scenario("0.5.0", watched=True, environment=("VERL_CPU_MISCHIEF=kill_sidecar@4",)),
    # A rank sleeps in it, which changes how long it takes, and nothing else.
    "0.5_two_ranks": Scenario(
        "0.5.0",
        how="launcher",
        ranks=2,
        steps=6,
        overrides=("trainer.test_freq=-1",),
        planted=Planted("rank", 1, 1.0),
    ),
    "0.9_v1": Scenario("0.9.1", "v1", how="launcher", ranks=2, watched=True),
    # Only by `make conformance-full`.
    "0.4": Scenario("0.4.1", how="launcher"),
    "0.6": Scenario("0.6.1"),
    "0.7": Scenario("0.7.1", ranks=2),
    "0.8": Scenario("0.8.0", how="launcher"),
    "0.9_v0": Scenario("0.9.1", ranks=2, fixed=True, watched=True),
    "0.9_filtered": Scenario("0.9.1", "v1", filtered=True),
    "0.9_tools": Scenario("0.9.1", tools=3, fixed=True),
    "0.9_v1_tools": Scenario("0.9.1", "v1", ranks=2, tools=3),
}
"""Jobs whose recording must hold exactly what happened."""

FULL = frozenset(list(SCENARIOS)[3:])
"""Those that continuous integration has no time for."""

# In the first reward of the second step; verl 0.5 calculates rewards where its trainer is.
DEATHS = {
    "rank": Scenario(
        "0.5.0", ranks=2, environment=("VERL_CPU_MISCHIEF=kill_rank@4",), exit_status=1
    ),
    "controller": Scenario(
        "0.5.0", environment=("VERL_CPU_MISCHIEF=kill_itself@4",), exit_status=1
    ),
    "driver": Scenario(
        "0.5.0", watched=True, environment=("VERL_CPU_MISCHIEF=kill_driver@4",), exit_status=137
    ),
    # verl 0.5 prints the error and asks again.
    "verifier": Scenario("0.5.0", environment=("VERL_CPU_MISCHIEF=fail@4",)),
}
"""Jobs that do not end well."""


_DYNAMIC = Scenario(
    "0.6.1",
    how="launcher",
    environment=("VERL_CPU_RECIPE=dapo",),
    overrides=(
        "++algorithm.filter_groups.enable=True",
        "++algorithm.filter_groups.metric=seq_reward",
    ),
)

DAPO = {
    "0.6": _DYNAMIC,
    "0.7": replace(_DYNAMIC, verl="0.7.1"),
    "0.8": replace(_DYNAMIC, verl="0.8.0", ranks=2),
    "0.9": replace(_DYNAMIC, verl="0.9.1"),
}
"""The recipe that verl publishes for dynamic sampling, as ``job/verl_cpu_dapo.py`` has it."""

RECIPES = {
    "entropy": replace(_DYNAMIC, environment=("VERL_CPU_RECIPE=entropy",)),
    "prime": Scenario(
        "0.6.1",
        how="launcher",
        steps=3,
        environment=("VERL_CPU_RECIPE=prime",),
        overrides=(
            f"+data.gen_batch_size={2 * PROMPTS}",
            "trainer.balance_batch=False",
            "reward_model.enable=True",
            "reward_model.micro_batch_size_per_gpu=2",
        ),
    ),
    "sppo": Scenario(
        "0.6.1",
        how="launcher",
        environment=("VERL_CPU_RECIPE=sppo",),
        overrides=(f"data.train_max_samples={PROMPTS}",),
    ),
}
"""Other recipes that verl publishes, as ``job/verl_cpu_NAME.py`` has them."""


OUTPUTS = Scenario(
    "0.9.1",
    "v1",
    filtered=True,
    overrides=(
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={JOB}/verl_cpu_outputs.yaml",
        "actor_rollout_ref.rollout.agent.default_agent_loop=several_outputs",
    ),
)
"""Sessions of one to three outputs."""


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
        # Its sockets lie there, whose paths must be short.
        ray = Path(tempfile.mkdtemp(prefix="rv", dir="/tmp"))
        supervised = [sys.executable, supervise.__file__]
        supervised += [str(scenario.timeout_s), str(GRACE_S if scenario.watched else 0)]
        supervised += [str(folder / "processes.json")]
        try:
            command, environment = self.prepared(scenario, folder, ray)
            concurrent = watched(folder) if scenario.watched else nullcontext(dict[str, str]())
            books = folder / "books"
            disturbing = disturbed(scenario.planted, books, books)
            with concurrent as more, disturbing, (folder / "output.txt").open("wb") as output:
                done = subprocess.run(
                    [*supervised, *command],
                    cwd=folder,
                    env=environment | more,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=scenario.timeout_s + 60 + GRACE_S,
                    check=False,
                )
        finally:
            shutil.rmtree(ray, ignore_errors=True)
        finished = Finished(scenario, folder)
        assert done.returncode == scenario.exit_status, finished.output[-6000:]
        return finished

    def prepared(
        self, scenario: Scenario, folder: Path, ray: Path
    ) -> tuple[list[str], dict[str, str]]:
        """What starts it, and all of its variables.

        Args:
            scenario: Which job.
            folder: Where it will run, which is made.
            ray: An empty folder for Ray.
        """
        interpreter = python(scenario.verl, vllm=scenario.vllm)
        assets = self.assets(interpreter, heads=2 if scenario.vllm else 4)
        (folder / "books").mkdir(parents=True)
        command = [str(interpreter), str(JOB / "verl_cpu_launch.py")]
        launcher = str(interpreter.with_name("rlvr-probe"))
        if scenario.how == "launcher":
            command = [launcher, "run", "--", *command]
        if scenario.how == "replay":
            command = [launcher, "replay", *scenario.workload, "--", *command]
        return [*command, *_overrides(scenario, assets)], _environment(scenario, folder, ray)

    def assets(self, interpreter: Path, heads: int = 4) -> Path:
        """A folder with what jobs train with."""
        folder = self.root / f"assets-{heads}"
        if not (folder / "val.parquet").exists():
            folder.mkdir(exist_ok=True)
            script = JOB / "verl_cpu_assets.py"
            command = [str(interpreter), str(script), str(folder), str(heads)]
            # The tokenizer's trainer prints empty lines.
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=300)
        return folder


def _overrides(scenario: Scenario, assets: Path) -> list[str]:
    """Arguments of ``verl.trainer.main_ppo``."""
    release = numbers(scenario.verl)
    reward = "custom_reward_function" if release < (0, 7) else "reward.custom_reward_function"
    given = [
        f"trainer.n_gpus_per_node={scenario.ranks}",
        "trainer.nnodes=1",
        f"trainer.total_training_steps={scenario.steps}",
        f"trainer.test_freq={scenario.steps}",
        "trainer.total_epochs=8",
        "trainer.val_before_train=False",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        f"trainer.logger=[{'console' if release < (0, 9) else 'console,file'}]",
        f"data.train_files={assets}/train.parquet",
        f"data.val_files={assets}/val.parquet",
        f"data.train_batch_size={PROMPTS}",
        f"data.val_batch_size={PROMPTS}",
        "data.max_prompt_length=128",
        "data.truncation=left",
        f"actor_rollout_ref.model.path={assets}/tiny-qwen2",
        "actor_rollout_ref.model.use_remove_padding=False",
        "actor_rollout_ref.actor.strategy=fsdp2",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.actor.use_torch_compile=False",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        f"actor_rollout_ref.rollout.n={scenario.group_size}",
        f"{reward}.path={JOB}/verl_cpu_reward.py",
        f"{reward}.name=compute_score",
    ]
    if scenario.generates:
        given += [
            "data.max_response_length=16",
            "actor_rollout_ref.actor.use_kl_loss=False",
            "actor_rollout_ref.rollout.name=hf",
            "+actor_rollout_ref.rollout.micro_batch_size=4",
            "algorithm.adv_estimator=reinforce_plus_plus",
        ]
    else:
        given += _agent_loops(scenario)
    return [*given, *scenario.overrides]


def _agent_loops(scenario: Scenario) -> list[str]:
    release = numbers(scenario.verl)
    given = [
        f"data.max_response_length={400 if scenario.tools else 32}",
        "data.dataloader_num_workers=0",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.rollout.name=verl_cpu",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "actor_rollout_ref.rollout.load_format=auto",
        "algorithm.adv_estimator=grpo",
        f"trainer.device={'cuda' if release < (0, 9) else 'cpu'}",
    ]
    if release < (0, 7):
        given += ["data.return_raw_chat=True", "actor_rollout_ref.rollout.mode=async"]
    else:
        given += ["reward.num_workers=1", "actor_rollout_ref.rollout.free_cache_engine=False"]
    if release >= (0, 9):
        given += [f"trainer.use_v1={scenario.trainer == 'v1'}"]
        given += [f"actor_rollout_ref.rollout.full_determinism={scenario.fixed}"]
    if scenario.trainer == "v1":
        given += ["transfer_queue.backend.SimpleStorage.num_data_storage_units=1"]
    if scenario.vllm:
        given += [
            "actor_rollout_ref.rollout.name=vllm",
            "actor_rollout_ref.rollout.dtype=float32",
            "actor_rollout_ref.rollout.enforce_eager=True",
            "actor_rollout_ref.rollout.max_num_batched_tokens=2048",
            "+actor_rollout_ref.rollout.enable_sleep_mode=False",
        ]
    if scenario.filtered:
        given += ["algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=reward"]
    if scenario.tools:
        given += [
            "actor_rollout_ref.rollout.multi_turn.enable=True",
            "actor_rollout_ref.rollout.multi_turn.format=hermes",
            f"actor_rollout_ref.rollout.multi_turn.function_tool_path={JOB}/verl_cpu_tools.py",
            "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent",
        ]
    return given


def _environment(scenario: Scenario, folder: Path, ray: Path) -> dict[str, str]:
    """Variables of a job that records into ``folder/recordings``."""
    dropped = ("PYTEST_", "RAY_", "VERL_", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
    given = {
        "PYTHONPATH": os.pathsep.join(map(str, (JOB, ASLEEP, RAY_START))),
        "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "RAY_AUTH_MODE": "disabled",  # else it keeps a token in the home of the user
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "VERL_CPU_BOOKS": str(folder / "books"),
        "VERL_CPU_RANKS": str(scenario.ranks),
        "VERL_CPU_RAY": str(ray),
        "VERL_CPU_SEED": "0",
        "VERL_FILE_LOGGER_PATH": str(folder / "books" / "metrics.jsonl"),
        "RLVR_PROBE_OUT": str(folder / "recordings"),
    }
    if numbers(scenario.verl) < (0, 9):
        given["VERL_CPU_DEVICE"] = "1"
    else:
        given |= {"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda"}
    if scenario.generates:
        given["VERL_CPU_GENERATES"] = "1"
    else:
        given["VERL_USE_EXTERNAL_MODULES"] = "verl_cpu_engine"
    if scenario.tools:
        given["VERL_CPU_TOOLS"] = str(scenario.tools)
    if scenario.how == "attach":
        given["VERL_CPU_ATTACH"] = "1"
    if scenario.how == "bare":
        del given["RLVR_PROBE_OUT"]
    if scenario.planted is not None:
        given |= scenario.planted.variables(folder / "books")
    if scenario.vllm:
        given |= {"VERL_CPU_VLLM": "1", **vllm_cpu.VARIABLES}
    for assignment in scenario.environment:
        name, _, value = assignment.partition("=")
        given[name] = value
    return surroundings(*dropped) | given
