"""``rlvr-probe replay`` with a toy framework from outside: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from itertools import chain
from pathlib import Path

import pytest

from tests import toy

PROBE = Path(sys.executable).with_name("rlvr-probe")

REPLAY = """
from rlvr_probe.exceptions import SteeringError

class ToyReplay:
    name, modules = "toyrl", ("toyrl",)

    def refusal(self, plan):
        if plan.half == "training":
            return "toys are never trained"
        return "toys have no tools" if any(s.turns for s in plan.samples) else None

    def settings(self, plan):
        return {"steps": len(plan.batches)}

    def losses(self, plan):
        return ["colours"]

    def steer(self, module, steering):
        construct = module.Trainer.__init__
        def steered(self, reward, steps=3, **given):
            if steps > len(steering.plan.batches):
                raise SteeringError(f"set steps={len(steering.plan.batches)} (found {steps})")
            construct(self, reward, steps, **given)
        def generate(self):
            index = self.step - 1
            rows = [[1] * s.response_tokens for s in steering.plan.batches[index].samples]
            steering.report(index, 0, 1)
            return rows
        module.Trainer.__init__, module.Trainer.generate = steered, generate
        steering.say("lengths: as planned")
"""

TRAIN = """
import json, sys
import toyrl
seen = []
def reward(rows):
    seen.append([len(row) for row in rows])
    return [1.0] * len(rows)
toyrl.Trainer(reward, steps=int(sys.argv[1])).train()
print(json.dumps(seen))
"""

LENGTHS = {1: [[3, 8], [2, 2]], 2: [[1, 5], [8, 4]], 3: [[6, 6], [7, 1]]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy that is installed, a training with it, and a workload."""
    folder = tmp_path_factory.mktemp("replay")
    site = folder / "site"
    site.mkdir()
    toy.install(site)
    (site / "toyrl_replay.py").write_text(REPLAY)
    info = site / "toyrl_replay-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toyrl-replay\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlvr_probe.replays]\ntoyrl = toyrl_replay:ToyReplay\n")
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    workload = folder / "workload"
    workload.mkdir()
    for step, groups in LENGTHS.items():
        where = {"step": step, "rank": 0, "tp_rank": 0, "dp_rank": 0, "validate": False}
        lines = [
            {**where, "local_index": at, "input": 5, "output": output, "n_sampling": 2}
            for at, output in enumerate(groups)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (workload / f"packed_lengths_step_{step}.jsonl").write_text(text)
    return folder


def probe(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What ``rlvr-probe`` did with these arguments."""
    given = {"PYTHONPATH": str(folder / "site"), "RLVR_PROBE_SIDECAR": "0", **variables}
    return subprocess.run(
        [str(PROBE), *arguments], cwd=folder, env={**os.environ, **given}, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip


def replay(folder: Path, *options: str, steps: int = 3) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "train.py", str(steps)]
    known = ["--rewards", "real", "--response-length", "8"]
    return probe(folder, "replay", "workload", *known, *options, "--", *command)


def test_a_training_generates_what_the_workload_has(folder: Path) -> None:
    done = replay(folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[*chain(*groups)] for groups in LENGTHS.values()]
    assert re.sub(r"\S+-runs/\S+", "RUN", done.stderr).splitlines() == [
        "rlvr-probe: replaying steps 1 to 3 of workload: 3 batches, 6 groups, 12 samples",
        "rlvr-probe: replay: lengths as recorded: prompts of 5.0 tokens in the mean, responses of"
        " 4.4, the longest 8 and 1.77 times the mean of its batch, 16.7% cut at 8",
        "rlvr-probe: replay: lengths: as planned",
        "rlvr-probe: recorded 1 process in RUN next: rlvr-probe show RUN",
        "rlvr-probe: replayed all 3 batches",
    ]


def test_steps_scale_and_naive_change_the_plan(folder: Path) -> None:
    chosen = replay(folder, "--steps", "2:3", "--scale-lengths", "1/2", steps=2)
    assert json.loads(chosen.stdout) == [[1, 2, 4, 2], [3, 3, 4, 1]]  # half of 5 and 1: to even
    assert "replay: lengths x 1/2: prompts of 2.0 tokens" in chosen.stderr
    naive = replay(folder, "--naive")
    assert json.loads(naive.stdout) == [[4] * 4] * 3


def kept(folder: Path, out: str) -> dict[str, object]:
    """What the one run in a folder says that it repeated."""
    [path] = folder.glob(f"{out}/*/replay.json")
    assert path.stat().st_mode & 0o777 == 0o600
    found: dict[str, object] = json.loads(path.read_text())
    return found


def test_what_was_repeated_is_kept_beside_the_recording(folder: Path) -> None:
    replay(folder, "--steps", "2:3", "--scale-lengths", "1/2", "--out", "noted", steps=2)
    assert kept(folder, "noted") == {
        "schema": 1, "source": "workload", "steps": [2, 3], "cap": 4, "scale": "1/2",
        "naive": False, "slept": [], "half": None,
    }  # fmt: skip
    shown = probe(folder, "show", "noted")
    assert (shown.returncode, "replay.json" in shown.stdout + shown.stderr) == (0, False)
    replay(folder, "--naive", "--out", "naive")
    replay(folder, "--half", "rollout", "--out", "half")
    assert kept(folder, "half")["half"] == "rollout"
    assert (kept(folder, "naive")["naive"], kept(folder, "naive")["scale"]) == (True, None)


def test_settings_are_printed_and_nothing_runs(folder: Path) -> None:
    done = replay(folder, "--print-overrides")
    assert "toyrl steps=3" in done.stdout.splitlines()
    assert (done.returncode, "replaying" in done.stderr) == (0, False)


def test_a_training_that_does_not_fit_is_refused_with_what_to_set(folder: Path) -> None:
    done = replay(folder, steps=4)
    assert done.returncode == 1
    assert "SteeringError: set steps=3 (found 4)" in done.stderr
    assert "nothing was replayed: toyrl was imported" in done.stderr


def test_what_is_missing_of_a_replay_is_said(folder: Path) -> None:
    done = replay(folder, steps=2)
    assert done.returncode == 1
    assert "replayed 2 of 3 batches; missing are those of recorded steps 3" in done.stderr


def test_a_command_that_is_not_steered_is_no_replay(folder: Path) -> None:
    known = ["--rewards", "real", "--response-length", "8"]
    done = probe(folder, "replay", "workload", *known, "--", sys.executable, "-c", "")
    assert done.returncode == 2
    assert "nothing was replayed: COMMAND imported no framework" in done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--rewards", "real"], "--response-length TOKENS"),
        (["--response-length", "8"], "--rewards real"),
        (["--response-length", "8", "--rewards", "real", "--steps", "7:9"], "has steps 1 to 3"),
    ],
)
def test_a_workload_that_leaves_something_open_is_refused(
    folder: Path, options: list[str], why: str
) -> None:
    done = probe(folder, "replay", "workload", *options, "--", "true")
    assert done.returncode == 2
    assert why in done.stderr


def test_a_half_that_a_framework_cannot_do_is_refused(folder: Path) -> None:
    done = replay(folder, "--half", "training", "--print-overrides")
    assert "toyrl: toys are never trained" in done.stderr
    assert "toyrl steps=3" not in done.stdout


def test_nothing_is_replayed_where_nothing_may_be_recorded(folder: Path) -> None:
    known = ["--rewards", "real", "--response-length", "8"]
    done = probe(folder, "replay", "workload", *known, "--", "true", RLVR_PROBE_DISABLED="1")
    assert (done.returncode, "RLVR_PROBE_DISABLED is set" in done.stderr) == (2, True)


STEERED = (
    "import os, sys; {}; import toyrl;"
    " print('RLVR_PROBE_REPLAY' in os.environ,"
    " any(name.startswith('rlvr_probe.steering') for name in sys.modules),"
    " toyrl.Trainer.generate.__module__)"
)


def test_run_steers_nothing_even_inside_of_a_replay(folder: Path) -> None:
    command = [sys.executable, "-c", STEERED.format("pass")]
    alone = probe(folder, "run", "--", *command, RLVR_PROBE_REPLAY=str(folder))
    assert alone.stdout == "False False toyrl\n"
    known = ["--rewards", "real", "--response-length", "8"]
    inside = probe(folder, "replay", "workload", *known, "--", str(PROBE), "run", "--", *command)
    assert inside.stdout == "False False toyrl\n"


def test_attach_steers_nothing(folder: Path) -> None:
    code = STEERED.format("import rlvr_probe; rlvr_probe.attach()")
    environ = {**os.environ, "PYTHONPATH": str(folder / "site"), "RLVR_PROBE_SIDECAR": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environ, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "False False toyrl\n"
