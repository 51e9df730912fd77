"""verl's own agent loop workers, recorded: no trajectory is mixed with another."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_verl.tests.environments import python

from rlvr_probe.reading import digest
from tests.surroundings import surroundings

# The first test may have to make the environment, a gigabyte.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

SCRIPT = Path(__file__).with_name("agent_loops.py")
ROWS, WORKER = 256, 5
RELEASES = [
    "0.5.0",
    *(pytest.param(name, marks=pytest.mark.full) for name in ("0.6.1", "0.7.1", "0.8.0")),
    "0.9.1",
]
_LESS = ("level", "lost", "muted")
"""Rows that tell why others are not there."""
TOOLS = 4
"""Tokens of an imagined result of a tool."""


@dataclass(frozen=True)
class Run:
    """What the script left behind with one release."""

    folder: Path
    release: str

    @cached_property
    def result(self) -> Any:
        """What really happened, by scene."""
        return json.loads((self.folder / "result.json").read_text())

    @cached_property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """What was recorded, by name. An attribute that is unknown is None."""
        result = dict[str, list[dict[str, Any]]]()
        [journal] = (self.folder / "recordings" / "run").glob("*.jsonl")
        definitions = dict[int, list[Any]]()
        for line in journal.read_text().splitlines()[1:]:
            row = json.loads(line)
            assert row[0] not in _LESS, row
            if row[0] == "def":
                definitions[row[1]] = row
            elif isinstance(row[0], int):
                _, _, kind, name, attributes, *_ = definitions[row[0]]
                values = row[6:] if kind == "span" else row[3:]
                given = dict(zip_longest(attributes, values))
                extra = {"span": row[3], "error": row[5]} if kind == "span" else {}
                result.setdefault(name, []).append({**given, **extra})
        return result

    def trajectories(self, scene: str) -> dict[str, dict[str, Any]]:
        """Trajectories of a scene by key, of those that have one."""
        first, end = self.result[scene]["chunks"]
        result = dict[str, dict[str, Any]]()
        for row in self.rows["trajectory"]:
            key = row["key"] or "//"
            chunk = key.split("/")[1] if "/" in key else None
            if scene == "queue" if chunk is None else chunk and first <= int(chunk) < end:
                assert key not in result
                result[key] = row
        return result

    def spans(self, name: str, scene: str) -> list[dict[str, Any]]:
        """Spans inside the trajectories of a scene."""
        inside = {trajectory["span"] for trajectory in self.trajectories(scene).values()}
        return [row for row in self.rows.get(name, ()) if row["batch"] in inside]

    @property
    def tells(self) -> bool:
        """Whether engines of this release tell weights and cached tokens."""
        return self.release >= "0.7"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loops")


@pytest.fixture(scope="module")
def runs(folder: Path) -> Callable[[str], Run]:
    """Runs the script once for each release."""

    @cache
    def run(release: str) -> Run:
        out = folder / release
        out.mkdir()
        variables = {
            "RLVR_PROBE": "1",
            "RLVR_PROBE_OUT": str(out / "recordings"),
            "RLVR_PROBE_RUN_ID": "run",
            "RLVR_PROBE_SIDECAR": "0",
            # It does little but record, and what it makes fail on purpose costs as well: by itself
            # the recorder would record less before the last scenes, on a slow machine.
            "RLVR_PROBE_OWN_SHARE": "1",
        }
        done = subprocess.run(
            [str(python(release)), str(SCRIPT), str(out)],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            cwd=out,
            env=surroundings() | variables,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return Run(out, release)

    return run


@pytest.fixture
def run(runs: Callable[[str], Run], release: str) -> Run:
    return runs(release)


every_release = pytest.mark.parametrize("release", RELEASES)


def key_of(release: str, row: int) -> str:
    half = ROWS // 2
    chunk, local = (2, row - ROWS) if row >= ROWS else divmod(row, half)
    uid = "-" if release < "0.6" else digest(f"uid-{row // 4}")
    return f"{uid}/{chunk}/{WORKER}/{local}"


@every_release
def test_each_of_256_trajectories_at_once_has_its_own_turns(run: Run, release: str) -> None:
    result = run.result["chunks"]
    assert result["faults"] == []
    truth = dict[int, list[tuple[int, int, int, str]]]()
    for row, *turn in result["asked"]:
        truth.setdefault(row, []).append(tuple(turn))
    assert set(truth) == set(range(ROWS + 8))
    trajectories = run.trajectories("chunks")
    turns = dict[int, list[dict[str, Any]]]()
    for span in run.spans("turn", "chunks"):
        turns.setdefault(span["batch"], []).append(span)
    assert len(trajectories) == ROWS + 8
    for row, asked in truth.items():
        span = trajectories[key_of(release, row)]
        own = sorted(turns.pop(span["span"]), key=lambda turn: turn["turn"])
        lengths = [(turn["prompt_tokens"], turn["response_tokens"]) for turn in own]
        assert lengths == [turn[:2] for turn in asked]
        assert [turn["turn"] for turn in own] == list(range(len(asked)))
        assert {turn["samples"] for turn in own} == {1}
        assert {span["engine"]} == {turn[2] for turn in asked}
        between = TOOLS * (len(asked) - 1)
        generated = [turn[1] for turn in asked]
        assert span["response_tokens"] == sum(generated) + between
        assert span["prompt_tokens"] == asked[0][0] == row % 50 + 1
        runs_of_mask = [run for got in generated for run in (got, TOOLS)][:-1]
        assert span["loss_runs"] == runs_of_mask
        assert span["truncated"] == 0
        weights = (3, len(asked) + 2) if run.tells else (None, None)
        assert (span["policy_version_min"], span["policy_version_max"]) == weights
        cached = list(range(len(asked))) if run.tells else [None] * len(asked)
        assert [turn["cached_tokens"] for turn in own] == cached
        named = [digest(turn[3]) if release >= "0.9" else None for turn in asked]
        assert [turn["request"] for turn in own] == named
    assert turns == {}


def test_a_turn_that_took_several_requests_is_one_and_names_none_of_them(
    runs: Callable[[str], Run],
) -> None:
    run = runs("0.9.1")
    assert run.result["resumes"]["faults"] == []
    requests = dict[int, list[str]]()
    for row, *_, name in run.result["resumes"]["asked"]:
        requests.setdefault(row, []).append(name)
    # Each second one was aborted once.
    assert {row: len(asked) for row, asked in requests.items()} == {
        row: 1 + row % 3 + (row % 2 == 0) for row in range(8)
    }
    turns = dict[int, list[dict[str, Any]]]()
    for span in run.spans("turn", "resumes"):
        turns.setdefault(span["batch"], []).append(span)
    recorded = [
        [turn["request"] for turn in sorted(result, key=lambda turn: turn["turn"])]
        for result in turns.values()
    ]
    expected = [
        [None, *map(digest, asked[2:])] if row % 2 == 0 else [*map(digest, asked)]
        for row, asked in requests.items()
    ]
    assert sorted(map(str, recorded)) == sorted(map(str, expected))


@every_release
def test_what_the_worker_returns_is_what_was_recorded_row_by_row(run: Run, release: str) -> None:
    trajectories = run.trajectories("chunks")
    for row, (prompt, response) in enumerate(run.result["chunks"]["lengths"]):
        entry = trajectories[key_of(release, row)]
        assert (entry["prompt_tokens"], entry["response_tokens"]) == (prompt, response)


@pytest.mark.parametrize("release", RELEASES[2:])
def test_each_verification_belongs_to_its_trajectory(run: Run, release: str) -> None:
    spans = {key: row["span"] for key, row in run.trajectories("chunks").items()}
    result = run.spans("verify", "chunks")
    recorded = {row["batch"]: (row["function"], row["value"]) for row in result}
    scored = run.result["chunks"]["scored"]
    assert recorded == {spans[key_of(release, row)]: ("row_number", value) for row, value in scored}
    assert len(result) == len(scored) == ROWS + 8


@every_release
def test_what_is_hooked_keeps_its_kind_and_is_restored(run: Run, release: str) -> None:
    kinds = dict(map(tuple, run.result["hooked"]))
    assert {name for name, is_async in kinds.items() if not is_async} <= {
        "AgentLoopBase.__init__",
        "AsyncLLMServerManager.__init__",
        "AsyncLLMServerManager._choose_server",
        "LLMServerClient._vllm_request_id",
    }
    assert "Talk.run" in kinds
    assert any(name.endswith(".generate") for name in kinds)
    assert run.result["left"] == []


@every_release
def test_an_exception_of_an_agent_loop_is_the_users_own(run: Run, release: str) -> None:
    assert run.result["raises"]["same"] is True
    assert run.result["raises"]["faults"] == []
    errors = Counter(row["error"] for row in run.rows["trajectory"])
    assert errors["ValueError"] == 1


@every_release
def test_a_recorder_that_fails_changes_nothing(run: Run, release: str) -> None:
    broken, sound = run.result["broken"], run.result["chunks"]
    assert broken["lengths"] == sound["lengths"]
    assert broken["faults"] == ["hooks.leave: OSError"]
    assert run.trajectories("broken") == {}


@every_release
def test_the_status_of_each_tool_is_what_became_of_it(run: Run, release: str) -> None:
    result = run.result["tools"]
    assert result["faults"] == []
    results = run.spans("tool_call", "tools")
    expected = [
        ("fine", "ok", None),
        ("raises", "error", "ValueError"),
        ("short", "error", "ValueError"),
        ("slow", "cancelled", "CancelledError"),
        (None, "not_found", None),
        ("fine", "bad_call", None),
    ]
    if "function" in result["names"]:
        expected += [
            ("function", "ok", None),
            ("function_raises", "error", "ZeroDivisionError"),
            ("function_returns_too_much", "error", "TypeError"),
        ]
    said = Counter((row["tool"], row["status"], row["error"]) for row in results)
    assert said == Counter(expected)
    assert ("function" in result["names"]) == (release >= "0.8")
    assert {row["turn"] for row in results} == {0}


def test_each_output_of_a_session_of_v1_has_its_name_and_reward_and_turns_are_of_the_session(
    runs: Callable[[str], Run],
) -> None:
    run = runs("0.9.1")
    result = run.result["queue"]
    assert result["faults"] == []
    put = {}
    for key, prompt, response, reward in result["put"]:
        uid, session, index = key.rsplit("_", 2)
        put[f"{digest(uid)}_{session}_{index}"] = (prompt, response, pytest.approx(reward))
    trajectories = run.trajectories("queue")
    verified = {row["batch"]: row["value"] for row in run.rows["verify"]}
    given = dict(verified)
    for row in run.rows["verify"]:
        for span in row.get("shared") or ():
            assert span not in given
            given[span] = row["value"]
    assert put == {
        key: (row["prompt_tokens"], row["response_tokens"], given.get(row["span"]))
        for key, row in trajectories.items()
    }
    # Of a session with several outputs, the turns are those of none.
    several = {key[:-2] for key in put if key.endswith("_1")}
    assert several
    turns = {row["batch"] for row in run.rows["turn"]}
    for key, row in trajectories.items():
        alone = key[:-2] not in several
        assert (row["span"] in turns) == alone
        assert (row["span"] in verified) == (alone or key.endswith("_1"))


def test_what_v1_takes_and_throws_away_is_that_of_its_replay_buffer(
    runs: Callable[[str], Run],
) -> None:
    run = runs("0.9.1")
    buffers = run.result["buffer"]
    assert buffers["faults"] == []
    recorded = iter(run.rows["trajectories"])
    selected = list(run.rows["selected"])
    gone = dict[str, list[str]]()
    for kind, put in (("sync", 4), ("separate_async", 5)):
        train, evaluation = buffers[kind]["taken"]
        batch, pieces = _whole(recorded)
        evaluated = next(recorded)
        assert pieces > 1
        assert [batch["mode"], evaluated["mode"], batch["step"]] == ["train", "eval", 5]
        assert set(evaluated["keys"]) == {named(key) for key in evaluation["keys"]}
        # What was thrown away comes first, what was taken last; groups are in one piece.
        taken = {named(key) for key in train["keys"]}
        assert set(batch["keys"][-len(taken) :]) == taken
        assert len(set(batch["keys"])) == batch["total"] == len(batch["response_tokens"])
        groups = batch["groups"] or [row // 2 for row in range(batch["total"])]
        assert groups == sorted(groups)
        assert [batch["prompts"][group] for group in groups] == [
            key.split("_")[0] for key in batch["keys"]
        ]
        own, selected = _until_used(selected)
        used = own[-1]["used"]
        assert set(used) == {key.split("_")[0] for key in taken}
        gone = {}
        for entry in own[:-1]:
            gone.setdefault(entry["reason"], []).extend(entry["discarded"])
        counts = {
            "filter": "training/filter_groups/evicted_samples",
            "stale": "training/off_policy/evicted_samples",
            "failed": "training/rollout_failure/evicted_samples",
            "surplus": "training/filter_groups/discarded_surplus_samples",
        }
        assert {reason: len(prompts) for reason, prompts in gone.items()} == {
            reason: train["metrics"][name]
            for reason, name in counts.items()
            if name in train["metrics"]
        }
        assert set(own[-1]["kept"]) == {*used, *gone.get("surplus", ())}
        assert digest("same") in gone["filter"]
        known = {digest(uid) for uid in ("good", "same", "half", "none", "stale")[:put]}
        left = {digest(key) for key in buffers[kind]["left"] if "_" not in key}
        fates = {*used, *left}.union(*gone.values())
        # One that failed has no trajectory to be trained on, though it was taken.
        assert known - fates <= {digest("none")}
    assert gone["stale"] == [digest("stale")]
    assert set(gone["failed"]) == {digest("half"), digest("none")}
    # Of the last step nothing passes, until verl gives up.
    grown = list(recorded)
    assert [piece["grows"] for piece in grown] == [1] * len(grown)
    discarded = [prompt for row in selected for prompt in row["discarded"]]
    assert {row["reason"] for row in selected} == {"filter"}
    assert all(row.get("used") is None for row in selected)
    assert discarded == [prompt for piece in grown for prompt in piece["prompts"]]
    assert {digest(uid) for uid in ("same", "fresh1", "fresh2")} <= set(discarded)
    assert grown[-1]["total"] == 2 * len(discarded)


def named(key: str) -> str:
    uid, _, place = key.partition("_")
    return f"{digest(uid)}_{place}"


def _whole(recorded: Iterator[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """The next batch, and of how many pieces: what is thrown away is told at once."""
    pieces = [next(recorded)]
    while pieces[-1].get("grows"):
        pieces.append(next(recorded))
    whole = dict(pieces[-1])
    for name in ("keys", "prompts", "prompt_tokens", "response_tokens"):
        whole[name] = [value for piece in pieces for value in piece[name]]
    ends = [piece["total"] for piece in pieces]
    assert [piece["offset"] for piece in pieces] == [0, *ends[:-1]]
    assert {piece["ordinal"] for piece in pieces} == {whole["ordinal"]}
    if any(piece.get("groups") for piece in pieces):
        whole["groups"] = [
            group
            for piece in pieces
            for group in piece.get("groups")
            or [row // 2 for row in range(piece["offset"], piece["total"])]
        ]
    return whole, len(pieces)


def _until_used(
    rows: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    end = next(at for at, row in enumerate(rows) if row.get("used") is not None) + 1
    return rows[:end], rows[end:]
