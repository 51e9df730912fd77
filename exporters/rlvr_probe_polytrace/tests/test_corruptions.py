"""Every corruption is refused where it is, and every genuine run is accepted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rlvr_probe_polytrace import PolyTraceExporter
from rlvr_probe_polytrace.tests.corruptions import CORRUPTIONS, Corruption
from rlvr_probe_polytrace.tests.foreign import RUNS, copy_published, make_up

from rlvr_probe.exporter import Problem
from tests.published import WORKLOADS

each = pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda one: one.name)
each_kind = pytest.mark.parametrize("kind", RUNS)
needs_published = pytest.mark.skipif(
    not WORKLOADS.is_dir(), reason="POLYTRACE_DATA: no published workloads there"
)


class Originals:
    """Sound runs: each is made once, judged once for what is asked of it, and copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[object, list[Problem]] = {}

    def copy(self, kind: str, to: Path, make: Callable[[str, Path], Path]) -> Path:
        original = self._folder / f"{make.__name__} {kind}"
        if not original.exists():
            make(kind, original)
        return Path(shutil.copytree(original, to))

    def errors(self, directory: Path, one: Corruption, make: Callable[..., Path]) -> list[Problem]:
        asked = (one.kind, make, one.steps, one.cap)
        if asked not in self._found:
            self._found[asked] = errors(directory, one)
        return self._found[asked]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Originals:
    return Originals(tmp_path_factory.mktemp("originals"))


def errors(directory: Path, corruption: Corruption | None = None) -> list[Problem]:
    steps, cap = (corruption.steps, corruption.cap) if corruption else (None, None)
    found = PolyTraceExporter().validate(directory, steps=steps, response_cap=cap)
    return [problem for problem in found if not problem.warning]


def assert_refused(
    originals: Originals, corruption: Corruption, make: Callable[[str, Path], Path], folder: Path
) -> None:
    directory = originals.copy(corruption.kind, folder, make)
    assert originals.errors(directory, corruption, make) == []
    corruption.plant(directory)
    found = errors(directory, corruption)
    assert found, "accepted"
    assert any(
        problem.file == corruption.file
        and (corruption.line is None or problem.line == corruption.line)
        and (corruption.field is None or corruption.field == problem.field)
        for problem in found
    ), [str(problem) for problem in found]


def test_all_37_are_planted() -> None:
    assert len({one.name for one in CORRUPTIONS}) == 37


@each
def test_a_corruption_of_a_made_up_run_is_refused(
    originals: Originals, corruption: Corruption, tmp_path: Path
) -> None:
    assert_refused(originals, corruption, make_up, tmp_path / "w")


@needs_published
@each
def test_a_corruption_of_a_published_run_is_refused(
    originals: Originals, corruption: Corruption, tmp_path: Path
) -> None:
    assert_refused(originals, corruption, copy_published, tmp_path / "w")


@each_kind
def test_a_made_up_run_is_accepted(kind: str, tmp_path: Path) -> None:
    assert errors(make_up(kind, tmp_path / "w")) == []


@needs_published
@each_kind
def test_a_published_run_is_accepted(kind: str, tmp_path: Path) -> None:
    assert errors(WORKLOADS / RUNS[kind]) == []


def test_a_lone_step_is_refused_unless_asked_for(tmp_path: Path) -> None:
    directory = make_up("verl", tmp_path / "w")
    for path in directory.iterdir():
        if path.name != "packed_lengths_step_1.jsonl":
            path.unlink()
    assert [one.file for one in errors(directory)] == ["packed_lengths_step_0.jsonl"]
    assert list(PolyTraceExporter().validate(directory, steps=[1])) == []


def test_a_hole_is_a_warning_where_nothing_refers_to_it(tmp_path: Path) -> None:
    directory = make_up("verl-video", tmp_path / "w")
    (problem,) = PolyTraceExporter().validate(directory)
    assert problem.warning
    assert problem.file == "packed_lengths_step_0.jsonl"


def test_a_hole_is_refused_where_the_filter_refers_to_it(tmp_path: Path) -> None:
    directory = make_up("verl", tmp_path / "w")
    (directory / "packed_lengths_step_4.jsonl").unlink()
    (problem,) = errors(directory)
    assert (problem.file, problem.line) == ("dapo_filter_indices.jsonl", 5)


def test_a_hole_is_refused_where_reward_times_refer_to_it(tmp_path: Path) -> None:
    directory = make_up("rllm", tmp_path / "w")
    (directory / "packed_lengths_step_4.jsonl").unlink()
    (problem,) = errors(directory)
    assert problem.file == "reward_timings_step_4.jsonl"


def test_steps_that_are_not_asked_for_are_not_judged(tmp_path: Path) -> None:
    directory = make_up("verl", tmp_path / "w")
    (directory / "packed_lengths_step_5.jsonl").write_text("{}\n")
    assert errors(directory)
    assert not [
        one for one in PolyTraceExporter().validate(directory, steps=range(5)) if not one.warning
    ]


def test_raw_shards_are_refused_until_they_are_merged(tmp_path: Path) -> None:
    directory = make_up("search_r1", tmp_path / "w")
    shard = directory / "multiturn_workload_step_0_rank_4.jsonl"
    shard.write_text("{}\n")
    assert errors(directory) == []
    (directory / "multiturn_workload_step_0.jsonl").unlink()
    assert shard.name in {one.file for one in errors(directory)}


def test_a_record_that_cannot_be_read_is_reported_once(tmp_path: Path) -> None:
    directory = make_up("verl", tmp_path / "w")
    path = directory / "packed_lengths_step_0.jsonl"
    text = path.read_text().splitlines()
    text[3] = "{oops"
    path.write_text("\n".join(text) + "\n")
    assert [(one.file, one.line) for one in errors(directory)] == [(path.name, 4)]
