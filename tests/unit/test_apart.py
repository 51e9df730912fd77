"""What other processes decode and answer is what this one would have decoded and answered.

The processes are played here: what passes from one to another is pickled, and nothing else passes.
Those of a real Ray cluster are in ``tests/e2e/test_ray_engine.py``.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from rlvr_probe.analysis.characterization import HERE, PARTS, Answered, Engine, answer
from rlvr_probe.analysis.metrics import CHAPTERS
from rlvr_probe.cli import OK, UNABLE, main
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.journal_files import JournalFiles, decode
from rlvr_probe.recording.store import FineStore
from rlvr_probe.recording.tables import Tables
from rlvr_probe.recording.tables.shipped import adopt, open_shipped, ship
from tests.apart import said
from tests.corpus.recordings import RECORDED, folder_of, unpacked
from tests.damaged import cut, garble
from tests.golden import differences
from tests.simulated import FILTERED, SMALL, TRAINED, Corpus

LONG = pytest.mark.conformance
_DAILY = (("openrlhf-agent", False), ("verl", True))

_Value = TypeVar("_Value")
_EXACT = 1e-9
"""How far sums may be apart, as a share: those of several threads add up in any order."""


def passed(value: _Value) -> _Value:
    """What another process gets of it."""
    copy: _Value = pickle.loads(pickle.dumps(value))
    return copy


def decode_apart(
    journals: Iterable[JournalFiles], fine: FineStore | None
) -> Iterator[tuple[JournalFiles, Journal, int]]:
    assert fine is not None
    every = list(journals)
    for group in (every[2::3], every[::3], every[1::3]):
        with FineStore(1, whole=True, signals=False, hold=False) as store:
            found = passed([(journal, seen) for _, journal, seen in decode(passed(group), store)])
            first = fine.unpack(passed(store.pack()))
        for files, (journal, seen) in zip(group, found, strict=True):
            journal.renumber_keys(first)
            yield files, journal, seen


def answer_apart(tables: Tables, slots: int | None) -> Iterator[Answered]:
    with tempfile.TemporaryDirectory() as folder:
        path, back = Path(folder) / "it's", Path(folder) / "back"
        ship(tables, path)
        for part in PARTS:
            with open_shipped(str(path), (tables.source, tables.notes)) as shipped:
                answered = passed(answer(shipped, part, slots))
                ship(shipped, back, made=True)
            adopt(tables, back)
            back.unlink()
            yield answered


APART = Engine(decode_apart, answer_apart)


def check(run: Path) -> None:
    assert list(differences(said(run, HERE), said(run, APART), rounding=_EXACT)) == []


def test_every_section_is_in_one_part_in_the_order_of_the_report() -> None:
    assert [name for part in PARTS for name in part] == ["causes", *CHAPTERS]


@pytest.mark.parametrize(
    "drawn",
    [FILTERED, pytest.param(SMALL, marks=LONG), pytest.param(TRAINED, marks=LONG)],
    ids=["filtered", "small", "trained"],
)
def test_simulated_runs(corpus: Corpus, drawn: object) -> None:
    check(corpus.run(drawn)[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        pytest.param(name, packed, marks=() if (name, packed) in _DAILY else LONG)
        for name in RECORDED
        for packed in (False, True)
    ],
)
def test_recorded_runs(name: str, packed: bool, tmp_path: Path) -> None:
    run = folder_of(unpacked(name, tmp_path))
    if packed:
        assert main(["compact", str(run)]) == OK
    check(run)


@pytest.mark.parametrize("damage", [garble, pytest.param(cut, marks=LONG)])
def test_a_damaged_run(corpus: Corpus, damage: object, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(corpus.run(SMALL)[0], run)
    damage(run)  # type: ignore[operator]
    check(run)


@pytest.mark.parametrize("engine", ["spark", "ray:", "ray://", "ray://a/b", "RAY"])
def test_an_engine_that_is_none_is_refused(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["characterize", "RUN", "--engine", engine])
    assert f"found {engine}, expected duckdb, ray or ray://HOST:PORT" in capsys.readouterr().err


def test_without_ray_the_command_says_what_to_install(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["characterize", str(corpus.run(SMALL)[0]), "--engine", "ray"]) == UNABLE
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "--engine ray needs ray, which is not installed; install it with pip" in said.err
