"""What nodes upload of a run is the run, whatever is killed, away or in between."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.cli import OK, UNABLE, main
from rlvr_probe.model import names
from rlvr_probe.recording import read_run
from rlvr_probe.recording.files import list_files
from rlvr_probe.recording.lake import local_folder
from rlvr_probe.recording.tables import TABLES, open_tables
from rlvr_probe.sidecar.segments import compact, compress, unfinished
from rlvr_probe.sidecar.startup import Lock
from rlvr_probe.sidecar.upload_child import UploadChild
from rlvr_probe.sidecar.uploader import Uploader
from rlvr_probe.storage import to_place
from tests.journals import JournalFile
from tests.s3 import BUCKET
from tests.simulated import SMALL, TRAINED, Corpus


def rows(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    with open_tables(folder, signals=False) as tables:
        return {
            table.name: sorted(tables.sql.execute(f"FROM {table.name}").fetchall(), key=repr)
            for table in TABLES
        }


def journal(folder: Path, count: int, number: int = 1) -> JournalFile:
    """A process that generated trajectories, each with a turn."""
    made = JournalFile(folder, number=number)
    for row in range(count):
        own = made.next_span()
        made.span(names.TRAJECTORY, row, row + 0.5, own=own, row=row, response_tokens=row)
        made.span(names.TURN, row, row + 0.5, parent=own, turn=0, response_tokens=row)
    return made


def test_what_is_uploaded_is_the_run(bucket: str, corpus: Corpus, tmp_path: Path) -> None:
    folder, _ = corpus.run(TRAINED)
    copy = tmp_path / "run"
    copy.mkdir()
    for path in folder.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    stored = f"{bucket}/run={read_run(folder).run}"
    uploader = Uploader(copy, to_place(bucket))
    uploader.round(whole=False)
    for path in sorted(copy.glob("*.jsonl")):
        if compact(path, unfinished(Path(f"{path}.parquet"))):
            uploader.round(whole=False)  # both forms are there
            with local_folder(to_place(stored)) as fetched:
                assert rows(fetched) == rows(folder)
            path.unlink()
    uploader.round(whole=True)
    with local_folder(to_place(stored)) as fetched:
        assert rows(fetched) == rows(folder)
        assert {path.name for path in fetched.iterdir()} == {
            path.name for path in copy.iterdir() if path.name.startswith("p")
        }
    # Nothing is uploaded twice, by nobody.
    again = Uploader(copy, to_place(bucket))
    again.round(whole=True)
    assert again.sent == len(list(copy.glob("*.open")))


def test_a_first_part_never_hides_the_rest(bucket: str, tmp_path: Path) -> None:
    path = journal(tmp_path / "run", 300).close()
    uploader = Uploader(tmp_path / "run", to_place(bucket))
    part = path.read_bytes()
    path.write_bytes(part[: len(part) // 2])
    uploader.round(whole=False)
    path.write_bytes(part)
    assert compact(path, unfinished(Path(f"{path}.parquet")))
    root = to_place(f"{bucket}/run=run-1/recording")
    uploaded = root / path.name
    assert 0 < len(uploaded.read_bytes()) < len(part) // 2
    # Killed between the two: the final form is there, and what it was as well.
    (root / f"{path.name}.parquet").write_bytes(Path(f"{path}.parquet").read_bytes())
    with local_folder(root.parent) as fetched:
        assert {found.name for found in fetched.iterdir()} >= {path.name, f"{path.name}.parquet"}
        [[segment]] = list_files(fetched).segments.values()
        assert segment.path.name == f"{path.name}.parquet"
    Uploader(tmp_path / "run", to_place(bucket)).round(whole=True)
    assert [found.name for found in root.iterdir()] == [f"{path.name}.parquet"]


def test_a_part_ends_with_a_whole_chunk_and_names_no_line_that_is_missing(
    bucket: str, corpus: Corpus, tmp_path: Path
) -> None:
    folder, _ = corpus.run(SMALL)
    draw = random.Random(5)
    copy = tmp_path / "run"
    copy.mkdir()
    whole = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for name, data in whole.items():
        cut = draw.randrange(len(data) // 2, len(data)) if name.endswith(".jsonl") else len(data)
        (copy / name).write_bytes(data[:cut])
    Uploader(copy, to_place(bucket)).round(whole=False)
    with local_folder(to_place(f"{bucket}/run={read_run(folder).run}")) as fetched:
        found = read_run(fetched)
    assert not {"torn_rows", "damaged_rows"} & found.lost.keys()


def test_nodes_upload_their_own_files(bucket: str, tmp_path: Path) -> None:
    for number in (1, 2):
        journal(tmp_path / "run", 5, number).close()
    one, other = sorted((tmp_path / "run").glob("p*.jsonl"))
    Uploader(tmp_path / "run", to_place(bucket), other.name[:17]).round(whole=True)
    root = f"{bucket}/run=run-1/recording"
    assert [path.name for path in to_place(root).iterdir()] == [other.name]
    Uploader(tmp_path / "run", to_place(bucket), one.name[:17]).round(whole=True)
    assert sorted(path.name for path in to_place(root).iterdir()) == [one.name, other.name]


JOB = """
import rlvr_probe, time
rlvr_probe.attach()
for _ in range(20):
    with rlvr_probe.span("work"):
        time.sleep(0.1)
"""


def job(tmp_path: Path, variables: dict[str, str]) -> Path:
    """Run a command that marks 20 spans, and which has a sidecar."""
    environ = os.environ | variables
    environ |= {
        "RLVR_PROBE_OUT": str(tmp_path / "runs"),
        "RLVR_PROBE_RUN_ID": "job",
        "RLVR_PROBE_SIDECAR": "1",
    }
    subprocess.run([sys.executable, "-c", JOB], env=environ, check=True, timeout=60)
    return tmp_path / "runs" / "job"


def sidecar(folder: Path) -> int | None:
    """The process that is the sidecar of a run, until it has left."""
    lock = Lock.take(folder)
    if isinstance(lock, Lock):
        lock.release()
        return None
    return lock


def test_the_sidecar_uploads_the_run_to_its_end(
    bucket: str, server: dict[str, str], tmp_path: Path
) -> None:
    folder = job(tmp_path, {**server, "RLVR_PROBE_UPLOAD": bucket})
    while sidecar(folder) is not None:
        time.sleep(0.1)
    with local_folder(to_place(f"{bucket}/run=job")) as fetched:
        trace = read_run(fetched)
    assert sum(span.name == "user" for span in trace.user_spans) == 20
    assert trace.lost == {}
    for path in folder.glob("p*"):
        assert b"canary" not in path.read_bytes()


def test_a_storage_that_is_away_is_a_fault_by_the_kind_of_its_error(
    server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    for name, value in (server | away).items():
        monkeypatch.setenv(name, value)
    journal(tmp_path / "run", 3).close()
    faults = list[tuple[str, str]]()
    child = UploadChild(
        tmp_path / "run", f"s3://{BUCKET}/away", "p", lambda *fault: faults.append(fault)
    )
    try:
        while not faults:
            child.look(time.monotonic_ns())
            time.sleep(0.05)
    finally:
        child.stop()
    assert faults == [("sidecar.upload", "EndpointConnectionError")]


def test_a_storage_that_is_away_holds_up_nothing(server: dict[str, str], tmp_path: Path) -> None:
    away = {**server, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    away["RLVR_PROBE_UPLOAD"] = f"s3://{BUCKET}/away"
    folder = job(tmp_path, away)
    trace = read_run(folder)
    assert sum(span.name == "user" for span in trace.user_spans) == 20
    # It goes on trying for minutes.
    pid = sidecar(folder)
    assert pid
    os.kill(pid, signal.SIGKILL)
    command = [sys.executable, "-m", "rlvr_probe.cli", "run", "--", sys.executable, "-c", JOB]
    environ = os.environ | away | {"RLVR_PROBE_SIDECAR": "1", "RLVR_PROBE_OUT": str(tmp_path)}
    refused = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert refused.returncode == UNABLE
    assert "RLVR_PROBE_UPLOAD: s3://bucket/away cannot be reached" in refused.stderr


def test_a_run_of_which_every_file_is_in_its_final_form_is_uploaded(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, compacted = (journal(tmp_path / "run", 300, number).close() for number in (1, 2))
    for _ in compress(packed):
        pass
    assert compact(compacted, unfinished(Path(f"{compacted}.parquet")))
    packed.unlink()
    compacted.unlink()
    assert main(["upload", str(tmp_path / "run"), bucket]) == OK
    assert "2 files uploaded" in capsys.readouterr().out
    with local_folder(to_place(f"{bucket}/run=run-1")) as fetched:
        assert rows(fetched) == rows(tmp_path / "run")


def test_a_run_that_says_nowhere_which_it_is_is_refused(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = journal(tmp_path / "run", 3).close()
    path.write_bytes(b"garbage\n" * 9)
    assert main(["upload", str(tmp_path / "run"), bucket]) == UNABLE
    assert "says in no file which run it is; nothing was uploaded" in capsys.readouterr().err


def test_by_hand_a_run_is_uploaded_once(
    bucket: str, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = corpus.run(SMALL)
    assert main(["upload", str(folder), bucket]) == OK
    assert "files uploaded" in capsys.readouterr().out
    assert main(["ls", bucket, "--json"]) == OK
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert [(row["run"], row["steps"]) for row in listed] == [(read_run(folder).run, None)]
    assert main(["upload", str(folder), "/tmp"]) == UNABLE
    assert "expected a place such as s3://bucket/name" in capsys.readouterr().err
