"""Whatever a spool goes through, its run is a recording at any moment, and whole at the end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rlvr_probe.sidecar import spool_mover
from tests import today
from tests.property.spooling import play

HERE = 8
CONFORMANCE = 100
FULL = 2_000


@pytest.fixture(autouse=True)
def small_files_are_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_mover, "LEAST_B", 3_000)
    monkeypatch.setattr(spool_mover, "_KEPT_S", 0.0)


def lives(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    node = play(folder, monkeypatch, seed)
    assert list(folder.glob("spool*")) == []
    for writer in node.writers:
        for number, data in writer.files.items():
            path = node.target / f"p{writer.process}.{number:04d}.jsonl"
            packed = Path(f"{path}.gz")
            assert path.exists() != packed.exists()
            found = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
            assert found == data
        assert node.seen[writer.process] == writer.rows


def test_what_is_moved_is_a_beginning_at_any_moment_and_all_of_it_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = today.seed() * HERE % FULL
    several(tmp_path, monkeypatch, range(begin, begin + HERE))


@pytest.mark.conformance
@pytest.mark.parametrize("count", [CONFORMANCE, pytest.param(FULL, marks=pytest.mark.full)])
@pytest.mark.timeout(3_600)
def test_so_it_is_in_many_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    several(tmp_path, monkeypatch, range(count))


def several(folder: Path, monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    for seed in seeds:
        print(f"life {seed}")
        (folder / str(seed)).mkdir()
        lives(folder / str(seed), monkeypatch, seed)
