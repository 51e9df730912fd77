"""Real runs of TRL, recorded and replayed, compared by the books that both of them kept."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_trl.replay import TrlReplay
from rlvr_probe_trl.tests.releases import RELEASES, folders
from rlvr_probe_trl.tests.runs import LAUNCHER, Scenario, run_command

from rlvr_probe.steering import Plan, PlannedBatch, PlannedGroup, PlannedSample
from tests import today, vllm_cpu
from tests.published import WORKLOADS

SCRIPT = Path(__file__).with_name("train_replayed.py")
TRL = list(RELEASES)[-1]


@dataclass(frozen=True)
class Replayed:
    """What is recorded, and what replays it.

    Attributes:
        recorded, replayed: Arguments of ``train.py``.
        ranks: Of both.
        workload: Directory format that the recording is converted to first.
        trl: Release; empty for the installed one.
        vllm: Whether a real engine generates, in the process of the trainer.
        naive: Whether the replay is.
        half: Of each step that it does alone.
        delay_s: What the slowest rank sleeps for rewards.
    """

    recorded: str
    replayed: str = ""
    ranks: tuple[int, int] = (1, 1)
    workload: str = ""
    trl: str = ""
    vllm: bool = False
    naive: bool = False
    half: str = ""
    delay_s: float = 0.0


BATCH = "--steps 3 --batch 8 --max-tokens 12 --seed 3"
SCENARIOS = {
    "one rank": Replayed(
        f"{BATCH} --steps-per-generation 2 --accumulation 2 --eval-every 2 --async-reward"
        " --verifier-s 0.4",
        delay_s=0.43,
    ),
    "two ranks": Replayed(
        "--steps 3 --batch 4 --group-size 8 --max-tokens 12 --rank-delay 0.8",
        ranks=(2, 2),
        delay_s=0.82,
    ),
    "more ranks": Replayed(BATCH, BATCH.replace("--batch 8", "--batch 4"), ranks=(1, 2)),
    "polytrace": Replayed(f"{BATCH} --algorithm rloo", workload="polytrace"),
    "vllm": Replayed(BATCH, vllm=True),
    **{f"trl {version}": Replayed(f"{BATCH} --eval-every 2", trl=version)
        for version in ("0.24.0", "0.26.2", "0.28.0", "1.0.0", "1.8.0")},
}  # fmt: skip


class Books:
    """What one run wrote down, the rows of all ranks in their order."""

    def __init__(self, folder: Path) -> None:
        ranks = [
            [json.loads(line) for line in path.read_text().splitlines()]
            for path in sorted(folder.glob("batches-*.jsonl"))
        ]
        self.batches = [
            {name: [value for part in parts for value in part[name]]
                for name in ("prompts", "prompt", "response", "stopped")}
            for parts in zip(*ranks, strict=True)
        ]  # fmt: skip
        self.rewards = [
            [value for part in parts for row in part["rewards"] for value in row]
            for parts in zip(*ranks, strict=True)
        ]
        self.seconds = [
            max(part["seconds"] for part in parts) for parts in zip(*ranks, strict=True)
        ]
        self.inner_stops = sum(line["inner_stops"] for rank in ranks for line in rank)

    def lengths(self) -> list[Mapping[str, Any]]:
        """Prompt and response length and end of every sample, by batch."""
        return [
            {name: values for name, values in batch.items() if name != "prompts"}
            for batch in self.batches
        ]


def train(folder: Path, chosen: Replayed, *, replay: bool) -> tuple[Books, str]:
    """Record it, or replay what was recorded; its books and what was printed."""
    ranks = chosen.ranks[replay]
    books = folder / ("replayed" if replay else "recorded")
    python = [sys.executable]
    if ranks > 1:
        python += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    arguments = (chosen.replayed if replay else "") or chosen.recorded
    source = "workload" if chosen.workload else "runs"
    words = ["replay", source, "--out", "replays"] if replay else ["run", "--out", "runs"]
    words += ["--naive"] if replay and chosen.naive else []
    words += ["--half", chosen.half] if replay and chosen.half else []
    script = [str(SCRIPT)]
    if chosen.vllm:
        python = [str(vllm_cpu.python(f"trl-{TRL}", [*folders(TRL), vllm_cpu.named_vllm()]))]
        script = [str(SCRIPT.with_name("train_vllm.py")), "colocate", "--books"]
    command = [str(LAUNCHER), *words, "--", *python, *script, "--out", str(books)]
    scenario = Scenario(trl=chosen.trl)
    more = vllm_cpu.VARIABLES if chosen.vllm else {}
    printed = run_command([*command, *arguments.split()], folder, scenario, more=more)
    if chosen.workload and not replay:
        convert = ["convert", "runs", "--to", chosen.workload, "--out", source]
        printed += run_command([str(LAUNCHER), *convert], folder, Scenario())
    return Books(books), printed


@pytest.mark.conformance
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name",
    [
        *today.some(["two ranks", "more ranks"], 1, pytest.mark.full),
        *(
            pytest.param(name, marks=pytest.mark.full if own.trl or own.vllm else ())
            for name, own in SCENARIOS.items()
            if max(own.ranks) == 1
        ),
    ],
)
def test_every_sample_of_a_replay_is_what_was_recorded(name: str, tmp_path: Path) -> None:
    chosen = SCENARIOS[name]
    recorded, _ = train(tmp_path, chosen, replay=False)
    replayed, printed = train(tmp_path, chosen, replay=True)
    assert len(recorded.batches) == 3
    assert {stopped for batch in recorded.batches for stopped in batch["stopped"]} == {True, False}
    assert replayed.lengths() == recorded.lengths()
    assert replayed.inner_stops == 0
    assert replayed.rewards == recorded.rewards
    # A group is one prompt, and two groups are two.
    size = 8 if "--group-size 8" in chosen.recorded else 4
    for batch in replayed.batches:
        firsts = batch["prompts"][::size]
        assert batch["prompts"] == [prompt for prompt in firsts for _ in range(size)]
        assert len({tuple(prompt) for prompt in firsts}) == len(firsts)
    if chosen.delay_s:
        assert all(chosen.delay_s <= took < chosen.delay_s + 0.5 for took in replayed.seconds)
    assert "replayed all 3 batches" in printed
    how = "a logits processor of transformers.generate (rung 5 of 5)"
    if chosen.vllm:
        how = "min_tokens, max_tokens and logit_bias of each request (rung 2 of 5"
    assert f"lengths: {how}" in printed
    said = f"recorded on {chosen.ranks[0]} ranks, replayed on {chosen.ranks[1]}" in printed
    assert said == (chosen.ranks[0] != chosen.ranks[1])


@pytest.mark.conformance
@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "step", "generated", "cap", "rewards"),
    [
        ("rllm/20260616_024512", 0, 0, 16_000, "sleep"),
        ("verl/20260614_023133", 3, 4, 32_768, "real"),
        ("verl-video/20260609_033329", 1, 1, 16_000, "real"),
    ],
)
def test_a_published_workload_is_replayed_on_a_tiny_model(
    name: str, step: int, generated: int, cap: int, rewards: str, tmp_path: Path
) -> None:
    """Lengths of a generation batch, read here from its file, at 1/256."""
    file = WORKLOADS / name / f"packed_lengths_step_{generated}.jsonl"
    if not file.is_file():
        pytest.skip("POLYTRACE_DATA: no published workloads there")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    expected = Counter(
        (_scaled(line["input"]), tuple((_scaled(own), own < cap) for own in line["output"]))
        for line in lines
    )
    words = ["replay", str(file.parent), "--steps", f"{step}:{step}", "--scale-lengths", "1/256"]
    words += ["--response-length", str(cap), "--rewards", rewards, "--out", "replays"]
    command = [str(LAUNCHER), *words, "--", sys.executable, str(SCRIPT), "--out", str(tmp_path)]
    settings = f"--steps 1 --batch {8 * len(lines)} --group-size 8 --max-tokens {_scaled(cap)}"
    printed = run_command([*command, *settings.split()], tmp_path, Scenario())
    [batch] = Books(tmp_path).batches
    samples = zip(batch["prompt"], batch["response"], batch["stopped"], strict=True)
    groups = zip(*[samples] * 8, strict=True)
    assert expected == Counter(
        (group[0][0], tuple((response, stopped) for _, response, stopped in group))
        for group in groups
    )
    assert "lengths as recorded: " in printed
    assert "lengths x 1/256: " in printed


def _scaled(tokens: int) -> int:
    return max(1, round(Fraction(tokens, 256)))


@pytest.mark.conformance
@pytest.mark.timeout(1200)
def test_a_run_that_does_not_fit_is_refused_with_the_settings_to_change(tmp_path: Path) -> None:
    chosen = Replayed(BATCH, "--steps 4 --batch 6 --group-size 3 --max-tokens 13")
    train(tmp_path, chosen, replay=False)
    with pytest.raises(AssertionError) as caught:
        train(tmp_path, chosen, replay=True)
    printed = str(caught.value)
    for setting in (
        "per_device_train_batch_size=8 (found 6, on 1 ranks, with steps_per_generation=1)",
        "num_generations=4 (found 3)",
        "max_completion_length=12 (found 13), where samples were cut",
        "max_steps=3 (found 4)",
    ):
        assert setting in printed
    assert re.search("nothing was replayed: trl was imported", printed)


@pytest.mark.conformance
@pytest.mark.timeout(1200)
def test_a_naive_replay_has_the_mean_length_everywhere(tmp_path: Path) -> None:
    chosen = Replayed(BATCH, naive=True)
    recorded, _ = train(tmp_path, chosen, replay=False)
    replayed, printed = train(tmp_path, chosen, replay=True)
    lengths = [tokens for batch in recorded.batches for tokens in batch["response"]]
    mean = round(sum(lengths) / len(lengths))
    assert [batch["response"] for batch in replayed.batches] == [[mean] * 8] * 3
    assert "replayed all 3 batches" in printed


def work(folder: Path) -> list[dict[str, Any]]:
    """What a training did, on all ranks."""
    files = sorted(folder.glob("work-*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@pytest.mark.conformance
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("half", "ranks", "trl"),
    [
        ("training", 1, ""),
        ("rollout", 1, ""),
        *(
            pytest.param(half, ranks, trl, marks=pytest.mark.full)
            for half in ("training", "rollout")
            for ranks, trl in ((2, ""), (1, "0.24.0"))
        ),
    ],
)
def test_a_half_is_done_alone(half: str, ranks: int, trl: str, tmp_path: Path) -> None:
    size = "--batch 8" if ranks == 1 else "--batch 4"
    chosen = Replayed(
        f"--steps 3 {size} --max-tokens 12 --seed 3 --steps-per-generation 2 --accumulation 2"
        " --verifier-s 0.4",
        ranks=(ranks, ranks), half=half, trl=trl,
    )  # fmt: skip
    recorded, _ = train(tmp_path, chosen, replay=False)
    replayed, printed = train(tmp_path, chosen, replay=True)
    assert "replayed all 3 batches" in printed
    assert len(recorded.batches) == 3
    assert replayed.lengths() == recorded.lengths()
    assert {stopped for batch in recorded.batches for stopped in batch["stopped"]} == {True, False}
    assert replayed.inner_stops == 0
    assert replayed.rewards == recorded.rewards
    for batch in replayed.batches:
        prompts = batch["prompts"]
        assert prompts == [prompt for prompt in prompts[::4] for _ in range(4)]
    done = work(tmp_path / "replayed")
    weights, generations = (
        {line["weights"] for line in done},
        {line["generations"] for line in done},
    )
    gradients = {line["gradients"] for line in done if "gradients" in line}
    assert len(done) == ranks * 3 * 3  # a batch has two micro steps
    if half == "training":
        assert len(weights) > 1
        assert (generations, min(gradients) > 0) == ({0}, True)
        assert sorted(replayed.seconds)[1] < 0.4  # a busy machine stalls one of three at most
    else:
        assert (len(weights), gradients) == (1, {0})
        assert generations == {1, 2, 3}
        assert all(0.4 <= took < 0.9 for took in replayed.seconds)
    [run] = card(tmp_path)
    samples = sum(len(batch["response"]) for batch in recorded.batches)
    assert run["lengths"] == {"exact": samples, "samples": samples, "scale": None}
    assert (run["half"], run["step"], run["ledger"]) == (half, None, {})
    stages = {own["name"] for own in run["stages"]}
    assert stages == ({"update"} if half == "training" else {"rollout"})
    assert all(own["recorded"] > 0 and own["replayed"] > 0 for own in run["stages"])
    assert f"the {half} half of each step" in printed


def card(folder: Path, *words: str) -> Any:
    """What ``rlvr-probe fidelity`` says of the one recording and replay in a folder."""
    done = run_command(
        [str(LAUNCHER), "fidelity", "runs", "replays", *words, "--json", "-"], folder, Scenario()
    )
    return json.loads(done)["runs"]


@pytest.mark.conformance
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("naive", [False, True])
def test_the_card_of_a_replay_agrees_with_the_books_of_both(naive: bool, tmp_path: Path) -> None:
    chosen = Replayed(f"{BATCH} --verifier-s 0.3", naive=naive)
    recorded, _ = train(tmp_path, chosen, replay=False)
    replayed, printed = train(tmp_path, chosen, replay=True)
    [run] = card(tmp_path)
    same = sum(
        pair[0] == pair[1]
        for batches in zip(recorded.lengths(), replayed.lengths(), strict=True)
        for pair in zip(*(zip(own["prompt"], own["response"], strict=True) for own in batches),
                        strict=True)
    )  # fmt: skip
    assert run["lengths"] == {"exact": same, "samples": 24, "scale": None}
    assert (same == 24) == (not naive)
    assert f"lengths: {same} of 24 samples have the recorded prompt and response length" in printed
    assert run["kind"] == ("naive" if naive else "replay")
    # The first step warms up.
    assert run["steps"] == [[2, 2], [3, 3]]
    assert run["slept"]["what"] == ["reward"]
    for side, books in (("recorded", recorded), ("replayed", replayed)):
        slept = sum(books.seconds[1:]) / 2
        assert run["slept"][side] == pytest.approx(slept, abs=0.05)
        assert run["step"][side] > 0


# ---------------------------------------------------------------- what TRL cannot replay


def plan(*batches: list[list[PlannedSample]], **given: Any) -> Plan:
    """Batches of groups of samples."""
    made = tuple(
        PlannedBatch(step, tuple(PlannedGroup(5, tuple(group)) for group in groups), (), 1)
        for step, groups in enumerate(batches, 1)
    )
    return Plan("made", "trl", made, (), len(batches[0][0]), 9, **given)


ONE = PlannedSample(4, False)


def test_what_trl_cannot_replay_is_refused() -> None:
    replay = TrlReplay()
    alone = "groups have 1 samples; TRL needs the same number in each, and 2 of them"
    assert replay.refusal(plan([[ONE, ONE]], [[ONE, ONE]])) is None
    uneven = plan([[ONE, ONE], [ONE, ONE, ONE]])
    assert replay.refusal(uneven) == (
        "groups have 2, 3 samples; TRL needs the same number in each, and 2 of them"
    )
    assert replay.refusal(plan([[ONE]])) == alone
    assert replay.refusal(plan([[ONE, ONE]], [[ONE, ONE]] * 2)) == (
        "batches have 1, 2 prompts; choose steps of one size with --steps"
    )


def test_the_settings_are_those_of_the_recorded_run() -> None:
    batches = [[[ONE, ONE], [ONE, ONE]]] * 3
    given = {"ranks": 2, "steps_per_generation": 2, "iterations": 2, "accumulation": 4}
    assert TrlReplay().settings(plan(*batches, **given)) == {
        "ranks": 2,
        "max_steps": 3,
        "per_device_train_batch_size": 1,
        "steps_per_generation": 2,
        "num_iterations": 2,
        "gradient_accumulation_steps": 4,
        "num_generations": 2,
        "max_completion_length": 9,
    }


def test_what_is_not_reproduced_is_listed() -> None:
    early = PlannedSample(4, True)
    lost = TrlReplay().losses(plan([[early, ONE]]))
    assert "1 samples that were cut before the cap end with an end token" in lost
