"""Two jobs never share a run id; the ranks of one job always do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_probe.config import Config
from rlvr_probe.probe import identity

DERIVED = Config()
RANDOM = r"\d{8}-\d{6}-[0-9a-f]{6}"
TWO_NODES = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}
STEP = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": "8"}
RAY = {"RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": str(os.getpid())}


def test_the_boot_id_is_the_one_of_the_kernel() -> None:
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() == identity.boot_id()


@pytest.mark.parametrize("name", ["plain", "a b", "a) R (b", "))) 1 2 3"])
def test_the_start_of_a_process_is_read_whatever_its_name_is(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            later, earlier = (identity.process_start_ticks(p) for p in (child.pid, os.getpid()))
        finally:
            child.kill()
    assert earlier is not None
    assert later is not None
    assert later >= earlier


def test_the_start_of_a_process_that_is_gone_is_unknown() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert identity.process_start_ticks(child.pid) is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, RANDOM),
        ({"WORLD_SIZE": "1"}, RANDOM),
        ({"WORLD_SIZE": "two"}, RANDOM),
        ({"WORLD_SIZE": "2"}, r"job-[0-9a-f]{12}"),
        (STEP, r"slurm-4711\.2"),
        (STEP | RAY | TWO_NODES, r"slurm-4711\.2"),
        # A batch script, an interactive step, a shell on a terminal: anybody may start two jobs.
        ({"SLURM_JOB_ID": "4711"}, RANDOM),
        (STEP | {"SLURM_STEP_ID": "4294967291"}, RANDOM),
        (STEP | {"SLURM_STEP_ID": "4294967290"}, RANDOM),
        (STEP | {"SLURM_STEP_ID": "batch"}, RANDOM),
        (STEP | {"SLURM_PTY_PORT": "40000"}, RANDOM),
        (RAY, r"ray-01000000-[0-9a-f]{8}"),
        ({"RAY_JOB_ID": "01000000"}, r"ray-01000000-[0-9a-f]{8}"),
        (TWO_NODES | {"TORCHELASTIC_RUN_ID": "exp_7"}, r"torchrun-exp_7"),
        (TWO_NODES | {"TORCHELASTIC_RUN_ID": "none"}, r"job-[0-9a-f]{12}"),
        (TWO_NODES, r"job-[0-9a-f]{12}"),
        # On one node the id may be a constant in somebody's script.
        (
            {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "exp"},
            r"job-[0-9a-f]{12}",
        ),
    ],
)
def test_the_run_id_comes_from_the_first_source_that_holds(
    environ: dict[str, str], expected: str
) -> None:
    assert re.fullmatch(expected, identity.run_id(DERIVED, environ))


def test_the_configured_run_id_wins() -> None:
    assert identity.run_id(Config(run_id="mine"), STEP | RAY | TWO_NODES) == "mine"


@pytest.mark.parametrize("foreign", ["a/b", "../../etc", "ü", "a b", "x" * 500, "a\nb"])
def test_a_foreign_id_becomes_a_folder_name_that_config_accepts(foreign: str) -> None:
    name = identity.run_id(DERIVED, TWO_NODES | {"TORCHELASTIC_RUN_ID": foreign})
    assert Config.from_environ({}, run_id=name).run_id == name


def test_foreign_ids_that_look_alike_as_folder_names_stay_apart() -> None:
    made = {
        identity.run_id(DERIVED, TWO_NODES | {"TORCHELASTIC_RUN_ID": foreign})
        for foreign in ("a/b", "a-b", "a//b", "a b", "x" * 500, "x" * 501)
    }
    assert len(made) == 6


def in_child(expression: str, environ: dict[str, str]) -> str:
    script = (
        "from rlvr_probe.probe import identity; from rlvr_probe.config import Config; "
        f"print({expression}, end='')"
    )
    run = [sys.executable, "-c", script]
    return subprocess.run(run, env=environ, capture_output=True, check=True, text=True).stdout


RUN = "identity.run_id(Config(), {environ!r})"
JOB = "identity.job_key({environ!r})"


@pytest.mark.parametrize("expression", [RUN, JOB])
def test_ranks_that_share_a_parent_share_run_and_launch(expression: str) -> None:
    ranks = [{"WORLD_SIZE": "2", "RANK": rank} for rank in "01"]
    assert len({in_child(expression.format(environ=rank), {}) for rank in ranks}) == 1


@pytest.mark.parametrize("expression", [RUN, JOB])
def test_two_launchers_on_one_node_never_share_run_or_launch(expression: str) -> None:
    # A shell that stays is the parent of the rank, as torchrun would be.
    script = f"{sys.executable} -c " + '"$0"; true'
    code = (
        "from rlvr_probe.probe import identity; from rlvr_probe.config import Config; "
        f"print({expression.format(environ={'WORLD_SIZE': '2'})})"
    )
    jobs = [
        subprocess.Popen(["sh", "-c", script, code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert len({job.communicate()[0] for job in jobs}) == 2


def test_processes_without_a_launcher_are_jobs_of_their_own() -> None:
    assert len({in_child(RUN.format(environ={}), {}) for _ in range(2)}) == 2
    assert len({in_child(JOB.format(environ={}), {}) for _ in range(2)}) == 2


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WORLD_SIZE": "2"},
        STEP,
        STEP | {"SLURM_STEP_NUM_TASKS": "1"},
        TWO_NODES | {"TORCHELASTIC_RUN_ID": "exp"},
    ],
)
@pytest.mark.parametrize("counter", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_a_relaunch_has_another_job_key_and_the_same_run(
    environ: dict[str, str], counter: str
) -> None:
    first, second = environ | {counter: "0"}, environ | {counter: "1"}
    assert re.fullmatch("[0-9a-f]{16}", identity.job_key(first))
    assert identity.job_key(first) == identity.job_key(first)
    assert identity.job_key(first) != identity.job_key(second)
    if environ not in ({}, STEP | {"SLURM_STEP_NUM_TASKS": "1"}):
        assert identity.run_id(DERIVED, first) == identity.run_id(DERIVED, second)


def test_a_rendezvous_id_given_again_by_hand_is_another_launch() -> None:
    environ = TWO_NODES | {"TORCHELASTIC_RUN_ID": "exp", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert identity.job_key(environ) != identity.job_key(environ | {"MASTER_PORT": "2"})


def test_workers_of_two_drivers_on_one_ray_cluster_are_two_launches() -> None:
    for shared in ({}, {"WORLD_SIZE": "2"}, STEP):
        first, second = (shared | RAY | {"RAY_JOB_ID": job} for job in ("01000000", "02000000"))
        keys = [identity.job_key(one) for one in (first, first, second)]
        assert keys[0] == keys[1] != keys[2]


def test_two_jobs_in_one_slurm_task_are_two_launches() -> None:
    environ = STEP | {"SLURM_STEP_NUM_TASKS": "1"}
    assert len({in_child(JOB.format(environ=environ), {}) for _ in range(2)}) == 2


def test_foreign_ids_are_taken_by_allow_list_and_only_if_they_look_like_ids() -> None:
    environ = {
        "SLURM_JOB_ID": "4711",
        "WANDB_RUN_ID": "3k2j:1",
        "MLFLOW_RUN_ID": "has a space",
        "RAY_JOB_ID": "x" * 129,
        "TORCHELASTIC_RUN_ID": "line\n",
        "GROUP_RANK": "",
        "WANDB_API_KEY": "secret",
        "HOME": "/home/somebody",
    }
    assert identity.ids(environ) == {"slurm_job_id": "4711", "wandb_run_id": "3k2j:1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("7", 7), ("", None), ("-1", None), ("x", None), ("1.5", None), ("²", None)],
)
def test_ranks_are_whole_numbers_or_unknown(text: str, expected: int | None) -> None:
    environ = {"RANK": text, "LOCAL_RANK": text, "WORLD_SIZE": text}
    read = (identity.rank, identity.local_rank, identity.world_size)
    assert [function(environ) for function in read] == [expected] * 3
    assert [function({}) for function in read] == [None] * 3


def test_the_slurm_rank_counts_only_inside_a_step() -> None:
    assert identity.slurm_rank(STEP | {"SLURM_PROCID": "3"}) == 3
    assert identity.slurm_rank({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0"}) is None
