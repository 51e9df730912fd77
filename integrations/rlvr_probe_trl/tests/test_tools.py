"""Real trainings with tools, recorded, compared with what the tools and TRL wrote down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_trl.reading import loss_runs
from rlvr_probe_trl.tests.runs import run_script
from rlvr_probe_trl.tests.train_tools import CANARY, GROUP, ROWS

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.batch import Batch, Trajectory
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.workload import build_workload
from tests import trainings
from tests.summarized import summary_of

pytestmark = pytest.mark.timeout(2000)

SCRIPT = Path(__file__).with_name("train_tools.py")


@dataclass(frozen=True)
class Run:
    """One training: its folder and what it printed."""

    folder: Path
    output: str

    @property
    def recording(self) -> Path:
        """Its run folder."""
        [recording] = [path for path in (self.folder / "recordings").iterdir() if path.is_dir()]
        return recording

    @cached_property
    def trace(self) -> Trace:
        """What was recorded."""
        return read_run(self.recording)

    @cached_property
    def result(self) -> dict[str, Any]:
        """What the script wrote at its end."""
        results: dict[str, Any] = json.loads((self.folder / "books" / "result.json").read_text())
        return results

    def book(self, name: str) -> list[dict[str, Any]]:
        """Lines of one of its books."""
        path = self.folder / "books" / f"{name}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def batches(self, mode: str = "train") -> list[Batch]:
        """Recorded batches, in order."""
        steps = self.trace.steps()
        return [
            batch
            for step in steps
            for batch in (step.batches if mode == "train" else step.evaluations)
        ]


class Runs:
    """Starts each training once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._done: dict[str, Run] = {}

    def __call__(self, arguments: str) -> Run:
        if arguments not in self._done:
            folder = self._root / f"run-{len(self._done)}"
            folder.mkdir()
            self._done[arguments] = Run(folder, run_script(SCRIPT, folder, arguments))
        return self._done[arguments]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("tools"))


TOOLS = "--attach before --kind tools --steps 2 --eval-every 2"
ENVIRONMENT = "--attach before --kind environment --steps 2"
ROLLOUT_FUNC = "--attach before --kind rollout_func --steps 2"


def rows(batch: Batch) -> list[Trajectory]:
    return [sample for group in batch.groups() for sample in group.trajectories]


def turns_of(run: Run, batch: int) -> list[list[tuple[int, int, int]]]:
    """Turn, tokens sent and generated of every row, from the book of the engine."""
    result: list[list[tuple[int, int, int]]] = [[] for _ in range(ROWS)]
    for call in (line for line in run.book("engine") if line["batch"] == batch):
        for place, row in enumerate(call["rows"]):
            result[row].append((call["turn"], call["prompts"][place], call["responses"][place]))
    return result


def calls_of(run: Run, batch: int) -> list[list[tuple[int, str | None, str]]]:
    """Turn, tool and status of every call of every row, from the books of the tools."""
    result: list[list[tuple[int, str | None, str]]] = [[] for _ in range(ROWS)]
    for line in run.book("tools"):
        key = line["key"].split()[0]
        number, _, rest = key[1:].partition("r")
        row, _, rest = rest.partition("t")
        if int(number) == batch:
            result[int(row)].append((int(rest.partition("c")[0]), line["tool"], line["status"]))
    return result


def every(run: Run) -> list[tuple[int, Batch]]:
    """Recorded batches by number, those of evaluations in their place."""
    modes = [line["mode"] for line in run.book("batches")]
    left = {mode: iter(run.batches(mode)) for mode in ("train", "eval")}
    return [(number, next(left[mode])) for number, mode in enumerate(modes)]


conformance = pytest.mark.conformance
recorded = pytest.mark.parametrize("arguments", [TOOLS, ENVIRONMENT])
every_kind = pytest.mark.parametrize("arguments", [TOOLS, ENVIRONMENT, ROLLOUT_FUNC])


@conformance
@every_kind
def test_nothing_is_lost_and_nothing_failed(runs: Runs, arguments: str) -> None:
    trace = runs(arguments).trace
    assert [dict(process.faults) for process in trace.processes] == [{}]
    assert (trace.lost, trace.notes, trace.open_spans) == ({}, [], [])


@conformance
@every_kind
def test_lengths_and_tokens_in_the_loss_are_those_that_trl_trains_on(
    runs: Runs, arguments: str
) -> None:
    run = runs(arguments)
    assert len(run.book("batches")) >= 2
    for line, (_, batch) in zip(run.book("batches"), every(run), strict=True):
        result = rows(batch)
        assert batch.step == line["step"]
        assert [trajectory.prompt_tokens for trajectory in result] == line["prompts"]
        assert [trajectory.response_tokens for trajectory in result] == line["responses"]
        assert [trajectory.loss_tokens for trajectory in result] == line["loss"]
        assert [not trajectory.truncated for trajectory in result] == line["stopped"]
        assert sum(line["loss"]) < sum(line["responses"])


@conformance
@recorded
def test_the_turns_of_each_trajectory_are_those_that_the_engine_made(
    runs: Runs, arguments: str
) -> None:
    run = runs(arguments)
    assert max(len(line["rows"]) for line in run.book("engine") if line["turn"]) < ROWS
    for number, batch in every(run):
        assert [
            [(turn.index, turn.prompt_tokens, turn.response_tokens) for turn in row.turns]
            for row in rows(batch)
        ] == turns_of(run, number)


@conformance
@recorded
def test_the_tool_calls_of_each_trajectory_are_those_that_the_tools_saw(
    runs: Runs, arguments: str
) -> None:
    run = runs(arguments)
    assert run.book("tools")
    for number, batch in every(run):
        expected = calls_of(run, number)
        if arguments == TOOLS:  # what reached no tool, from the script of the answers
            expected[4].append((0, None, "not_found"))
            expected[5].append((0, "search", "error"))
        assert [
            sorted((call.turn, call.tool or "", call.status) for call in row.tool_calls)
            for row in rows(batch)
        ] == [
            sorted((turn, tool or "", status) for turn, tool, status in trajectory)
            for trajectory in expected
        ]


@conformance
def test_a_tool_that_raised_is_known_by_its_exception_type_alone(runs: Runs) -> None:
    errors = {
        (row, call.tool, call.error)
        for _, batch in every(runs(TOOLS))
        for row, trajectory in enumerate(rows(batch))
        for call in trajectory.tool_calls
        if call.error is not None
    }
    assert errors == {(3, "broken", "LookupError"), (5, "search", "TypeError")}


@conformance
def test_a_call_took_as_long_as_its_tool_and_lies_between_its_turns(runs: Runs) -> None:
    run = runs(TOOLS)
    for number, batch in every(run):
        own = {"search": 0.0, "fetch": 0.0}
        for line in run.book("tools"):
            if line["key"].startswith(f"b{number}r") and line["tool"] in own:
                own[line["tool"]] += line["seconds"]
        result = rows(batch)
        for tool, seconds in own.items():
            calls = [
                call for trajectory in result for call in trajectory.tool_calls if call.tool == tool
            ]
            assert sum(call.latency_s for call in calls) >= seconds > 0
        for trajectory in result:
            for call in trajectory.tool_calls:
                assert call.turn is not None
                before, *after = trajectory.turns[call.turn : call.turn + 2]
                assert before.end_ns is not None
                assert before.end_ns <= call.start_ns <= call.end_ns
                assert all((turn.start_ns or 0) >= call.end_ns for turn in after)


@conformance
def test_asynchronous_tools_of_one_turn_overlap(runs: Runs) -> None:
    for _, batch in every(runs(TOOLS)):
        span, other = (call for call in rows(batch)[3].tool_calls if call.tool == "fetch")
        assert max(span.start_ns, other.start_ns) < min(span.end_ns, other.end_ns)


@conformance
def test_results_and_log_are_those_of_the_run_without_a_probe(runs: Runs) -> None:
    bare = runs(TOOLS.replace("before", "no"))
    assert runs(TOOLS).result == bare.result
    assert bare.result["dicts"] == ["dict"]
    assert not (bare.folder / "recordings").exists()


@conformance
@pytest.mark.full
def test_a_detach_from_inside_a_tool_leaves_the_tools_as_they_were(runs: Runs) -> None:
    run = runs(f"{TOOLS} --detach")
    assert run.result == runs(TOOLS).result
    assert [dict(process.faults) for process in run.trace.processes] == [{}]


@conformance
def test_the_report_says_how_many_turns_and_calls_there_were(runs: Runs) -> None:
    run = runs(TOOLS)
    summary = summary_of(run.recording)
    training = [n for n, line in enumerate(run.book("batches")) if line["mode"] == "train"]
    assert summary["turns"]["turns"] == sum(
        len(turns) for number in training for turns in turns_of(run, number)
    )
    assert summary["turns"]["loss_tokens"] == sum(
        sum(run.book("batches")[number]["loss"]) for number in training
    )
    counted = {tool["tool"]: tool["statuses"] for tool in summary["tools"]}
    each = len(training)
    assert counted == {
        "search": {"ok": 7 * each, "error": each},
        "fetch": {"ok": 3 * each},
        "broken": {"error": each},
        "endless": {"ok": each},
        None: {"not_found": each},
    }


def polytrace(run: Run, folder: Path, flavor: str | None = None) -> list[list[dict[str, Any]]]:
    """Records by step of the workload written from a run, judged sound by its own exporter."""
    exporter = trainings.polytrace()
    folder.mkdir()
    exporter.write(build_workload(run.trace), folder, keep_names=True, flavor=flavor)
    assert [problem for problem in exporter.validate(folder) if not problem.warning] == []
    kind = "packed_lengths" if flavor == "packed" else "multiturn_workload"
    return [
        [
            json.loads(line)
            for line in (folder / f"{kind}_step_{step}.jsonl").read_text().splitlines()
        ]
        for step in range(len(run.batches()))
    ]


def training(run: Run) -> list[int]:
    """Numbers of the batches that were trained on, as in the books."""
    return [n for n, line in enumerate(run.book("batches")) if line["mode"] == "train"]


@conformance
@recorded
def test_a_multi_turn_workload_has_every_length_of_the_books(
    runs: Runs, arguments: str, tmp_path: Path
) -> None:
    run = runs(arguments)
    for number, records in zip(training(run), polytrace(run, tmp_path / "w"), strict=True):
        line = run.book("batches")[number]
        assert [record["prompt_len"] for record in records] == line["prompts"]
        assert [record["final_response_len"] for record in records] == line["responses"]
        assert [record["final_response_loss_len"] for record in records] == line["loss"]
        assert [record["finish_reason"] == "stop" for record in records] == line["stopped"]
        assert [
            [
                (turn["turn"], turn["generation_prompt_len"], turn["completion_tokens"])
                for turn in record["turns"]
            ]
            for record in records
        ] == turns_of(run, number)


@conformance
def test_a_multi_turn_workload_has_every_tool_call_and_what_it_added(
    runs: Runs, tmp_path: Path
) -> None:
    run = runs(TOOLS)
    for (_, batch), records in zip(
        [pair for pair in every(run) if pair[0] in training(run)],
        polytrace(run, tmp_path / "w"),
        strict=True,
    ):
        words = {"ok": "success", "error": "api_error"}
        for row, sample in zip(records, rows(batch), strict=True):
            assert [
                (call["turn"], call["tool_name"], call["status"]) for call in row["tool_calls"]
            ] == [
                (call.turn, call.tool or "unknown", words.get(call.status or "", "unknown"))
                for call in sorted(sample.tool_calls, key=lambda call: call.turn or 0)
            ]
            # The context grows by what was generated and by what tools added, and by no more.
            for turn, following in pairwise(row["turns"]):
                added = sum(
                    call["append_len"] for call in row["tool_calls"] if call["turn"] == turn["turn"]
                )
                assert following["generation_prompt_len"] == (
                    turn["generation_prompt_len"] + turn["completion_tokens"] + added
                )
                assert turn["assistant_loss_len"] == turn["completion_tokens"]
            assert sum(call["loss_len"] for call in row["tool_calls"]) == 0


@conformance
@every_kind
def test_packed_lengths_of_such_a_run_are_whole_responses(
    runs: Runs, arguments: str, tmp_path: Path
) -> None:
    run = runs(arguments)
    for number, records in zip(
        training(run), polytrace(run, tmp_path / "w", flavor="packed"), strict=True
    ):
        line = run.book("batches")[number]
        assert [tokens for record in records for tokens in record["output"]] == line["responses"]
        assert [tokens for record in records for tokens in record["x_rlvr"]["loss_tokens"]] == (
            line["loss"]
        )
    said = json.loads((tmp_path / "w" / "manifest.json").read_text())
    assert said["response_tokens"].startswith("whole responses")


@conformance
def test_a_rollout_function_told_no_turns_and_the_exporter_says_so(
    runs: Runs, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadError, match="trajectories have no recorded turn"):
        polytrace(runs(ROLLOUT_FUNC), tmp_path / "w")
    assert list((tmp_path / "w").iterdir()) == []


@conformance
def test_a_rollout_function_of_the_user_is_the_rollout(runs: Runs) -> None:
    run = runs(ROLLOUT_FUNC)
    assert [batch.group_size for batch in run.batches()] == [GROUP, GROUP]
    for batch in run.batches():
        [shard] = batch.shards
        assert shard.start_ns is not None
        assert shard.end_ns is not None
        assert shard.end_ns - shard.start_ns > 0.05e9
        assert [row.turns for row in rows(batch)] == [()] * ROWS


@conformance
@pytest.mark.parametrize("place", CANARY)
def test_what_models_and_tools_say_appears_nowhere(runs: Runs, place: str) -> None:
    run = runs(TOOLS)
    texts = [path.read_bytes() for path in (run.folder / "recordings").rglob("*.jsonl")]
    assert any(b'"search"' in text for text in texts)
    assert [text for text in texts if CANARY[place].encode() in text] == []
    assert CANARY[place] not in run.output


@pytest.mark.parametrize(
    ("masks", "lengths", "runs"),
    [
        ([[1, 1, 0, 1], [1]], [4, 1], [[2, 1, 1], [1]]),
        ([[0, 0, 1]], [3], [[0, 2, 1]]),
        ([[1, 0], []], [2, 0], [[1, 1], []]),
        ([[1, 1]], [3], None),
        ([[1, 2]], [2], None),
        ([[1, -1]], [2], None),
        ([[1.0, 0.0]], [2], None),
        ([[1], [1]], [1], None),
        ([None], [1], None),
        (None, [1], None),
        ([], [], None),
    ],
)
def test_a_mask_becomes_runs_and_an_unsound_one_is_unknown(
    masks: Any, lengths: list[int], runs: list[list[int]] | None
) -> None:
    assert loss_runs(masks, lengths) == runs
