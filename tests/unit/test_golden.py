"""What differs between the answers of two products is found, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import golden


def answers(folder: Path, **files: object) -> Path:
    for name, value in files.items():
        path = folder / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": {"steps": [1, 2]}}, {"a": {"steps": [1, 2]}}, []),
        ({"a": {"steps": [1, 2]}}, {"a": {"steps": [1, 3]}}, ["run/a: $.steps[1]: 2, then 3"]),
        ({"a": {"steps": 1}}, {"a": {"steps": 1.0}}, ["run/a: $.steps: 1, then 1.0"]),
        ({"a": {"s": 0.1 + 0.2, "query": "a"}}, {"a": {"s": 0.3, "query": "b"}}, []),
        ({"a": {"s": 0.3}}, {"a": {"s": 0.300001}}, ["run/a: $.s: 0.3, then 0.300001"]),
        ({"a": {"steps": None}}, {"a": {}}, ["run/a: $.steps: is gone"]),
        ({"a": {}}, {"a": {"steps": 0}}, ["run/a: $.steps: is new"]),
        ({"a": {"old": 1}}, {"a": {"new": 1}}, []),
        ({"a": {"old": 1}}, {"a": {"new": 2}}, ["run/a: $.new: 1, then 2"]),
        ({"a": "x\ny\n"}, {"a": "x\nz\n"}, ['run/a: $[1]: "y", then "z"']),
        ({"a": "x\n"}, {"a": "x\ny\n"}, ['run/a: $: ["x"], then ["x", "y"]']),
    ],
)
def test_every_difference_is_told_but_a_renamed_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Mapping[str, object],
    after: Mapping[str, object],
    expected: list[str],
) -> None:
    monkeypatch.setattr(golden, "RENAMED", {"old": "new"})
    was, now = answers(tmp_path / "before", **before), answers(tmp_path / "after", **after)
    assert list(golden.compare(was, now)) == expected


def test_an_answer_of_one_product_alone_is_told(tmp_path: Path) -> None:
    was = answers(tmp_path / "before", a="x", b="x")
    now = answers(tmp_path / "after", a="x")
    assert list(golden.compare(was, now)) == [f"run/b: is in {was} alone"]


def test_where_and_when_a_command_ran_is_no_part_of_its_answer(tmp_path: Path) -> None:
    run, out = tmp_path / "runs" / "run", tmp_path / "out"
    said = f'{run} in {out}, last seen 9.4 h ago, {{"seen_s": 24410.42}}'
    expected = '$RUN in $OUT, last seen 0, {"seen_s": 0}'
    assert golden.without(said.encode(), run, out) == expected
