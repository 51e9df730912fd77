"""How many GPUs a run without device data has: by what its cluster gave whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rlvr_probe.analysis.ledger.gpu_owners import find_places
from rlvr_probe.model import names
from rlvr_probe.recording import read_run
from rlvr_probe.recording.tables import Tables, open_tables
from tests.corpus.recordings import unpacked
from tests.journals import JournalFile

ROLES = ("PolicyModelActor", "ReferenceModelActor", "RolloutRayActor")
"""Who works on GPUs in the job of OpenRLHF: two of each."""


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Tables]:
    """A job without device data, of which nobody recorded what Ray gave it."""
    [run] = (unpacked("openrlhf", tmp_path) / "recordings").iterdir()
    with open_tables(run) as tables:
        tables.sql.execute("DELETE FROM process_accelerator")
        tables.sql.execute("DELETE FROM device_process")
        yield tables


def give(tables: Tables, numbers: Mapping[str, tuple[int, int]]) -> None:
    """Say which GPU Ray gave each of the two processes of a role."""
    for role, gpus in numbers.items():
        processes = tables.sql.execute(
            "SELECT process FROM process WHERE role = ? ORDER BY process", [role]
        ).fetchall()
        for (process,), number in zip(processes, gpus, strict=True):
            tables.sql.execute(
                "INSERT INTO process_accelerator VALUES (?, ?)", [process, f"GPU {number}"]
            )


def test_processes_that_share_a_gpu_are_counted_as_one(recorded: Tables) -> None:
    give(recorded, dict.fromkeys(ROLES, (0, 1)))
    found = find_places(recorded)
    assert [(len(gpu.processes), gpu.part) for gpu in found.gpus] == [(3, "both")] * 2
    assert found.notes == []


def test_engines_on_gpus_of_their_own_are_not_taken_for_those_of_ranks(recorded: Tables) -> None:
    give(recorded, {role: (2 * at, 2 * at + 1) for at, role in enumerate(ROLES)})
    found = find_places(recorded)
    assert [gpu.part for gpu in found.gpus] == ["train"] * 4 + ["rollout"] * 2
    assert found.notes == []


@pytest.mark.parametrize(("first", "parts"), [(4, 6), (0, 4)])
def test_an_engine_on_several_gpus_has_those_of_its_workers(
    recorded: Tables, first: int, parts: int
) -> None:
    give(recorded, {role: (2 * at, 2 * at + 1) for at, role in enumerate(ROLES[:2])})
    for number in (first, first + 1):
        recorded.sql.execute(
            "INSERT INTO process BY NAME"
            " SELECT * REPLACE (? AS process, 'RayWorkerWrapper' AS role) FROM process"
            " WHERE role = 'RolloutRayActor' LIMIT 1",
            [100 + number],
        )
        recorded.sql.execute(
            "INSERT INTO process_accelerator VALUES (?, ?)", [100 + number, f"GPU {number}"]
        )
    found = find_places(recorded)
    assert len(found.gpus) == parts
    served = {gpu for _, _, gpu in found.engines}
    assert {one for gpu in served for one in found.gpus[gpu].processes} >= {
        100 + first,
        101 + first,
    }


def test_a_device_that_is_known_is_the_accelerator_that_was_given(recorded: Tables) -> None:
    give(recorded, dict.fromkeys(ROLES, (0, 1)))
    [(first,), (second,)] = recorded.sql.execute(
        "SELECT process FROM process WHERE role = 'PolicyModelActor' ORDER BY process"
    ).fetchall()
    for number, process in enumerate((first, second)):
        recorded.sql.execute(
            "INSERT INTO device (device, uuid, host, boot, kind)"
            " SELECT ?, ?, host, boot, 'gpu' FROM process WHERE process = ?",
            [100 + number, f"GPU-{number}", process],
        )
        recorded.sql.execute(
            "INSERT INTO device_process VALUES (?, ?, 'torch')", [100 + number, process]
        )
    assert [(gpu.device, len(gpu.processes)) for gpu in find_places(recorded).gpus] == [
        (100, 3),
        (101, 3),
    ]


def test_what_a_cluster_gave_a_process_is_read(tmp_path: Path) -> None:
    for number, accelerators in enumerate((["GPU 0"], ["GPU 0", "GPU 1"], None), 1):
        journal = JournalFile(tmp_path, number)
        journal.event(names.PROCESS, 0.1, role="Worker", accelerators=accelerators)
        journal.close()
    given = [process.given for process in read_run(tmp_path).processes]
    assert given == [("GPU 0",), ("GPU 0", "GPU 1"), ()]
