"""Every key that is written is on the page that explains the format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rlvr_probe_polytrace import plan
from rlvr_probe_polytrace.tests.agents import agents
from rlvr_probe_polytrace.tests.test_filtering import TWO_STEPS, filtered
from rlvr_probe_polytrace.tests.workloads import lines, manifest, simple, write

from rlvr_probe.model.workload import Workload

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "polytrace-workload.md"

KINDS = {
    "lengths": simple(rows=(8, 8)),
    "filter": filtered(*TWO_STEPS),
    "turns": agents(seed=1, engines=2)[0],
}


def keys(directory: Path) -> Iterator[str]:
    yield from manifest(directory)
    for path in directory.glob("*.jsonl"):
        for record in lines(path):
            yield from record
            yield from record.get("x_rlvr", ())
            for item in (*record.get("turns", ()), *record.get("tool_calls", ())):
                yield from item


@pytest.mark.parametrize("made", KINDS.values(), ids=KINDS)
def test_every_key_is_explained(made: Workload, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = set(keys(write(made, tmp_path / "w")))
    assert sorted(key for key in found if f"`{key}`" not in text) == []


def test_every_reason_to_leave_something_out_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [reason for reason in plan.REASONS if f"`{reason}`" not in text] == []
