"""Traces where a person looks at them: Arize Phoenix is asked for everything that was planned.

It keeps no resources and no links: `test_conformance.py` asks another receiver for those.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp import OTLPExporter
from rlvr_probe_otlp.planning.data_model import PlannedSpan
from rlvr_probe_otlp.planning.viewer_labels import KIND
from rlvr_probe_otlp.tests.phoenix import Phoenix, phoenix
from rlvr_probe_otlp.tests.recordings import gpus, read, spans

from tests.actors import Job
from tests.journals import JournalFile, Training

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(2500)]


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    with phoenix(tmp_path_factory.mktemp("phoenix")) as found:
        yield found


def agents(folder: Path) -> None:
    Job(folder, steps=3, turns=4).write()


def killed(folder: Path) -> None:
    """One process, killed inside its second step."""
    journal = JournalFile(folder, run=folder.name)
    training = Training(journal)
    training.begin()
    training.step(1)
    batch = training.generate(2, end=False)
    whole = journal.next_span()
    journal.close(end=False)
    now = training.now_s
    slots = ((whole, now - 0.5, "step", ""), (batch, now - 0.5, "experience", "mine"))
    journal.open_table(*slots, beat_s=now + 0.25, step=2)


def check(viewer: Phoenix, project: str, planned: list[PlannedSpan]) -> None:
    """Every planned span is there once, with its times, attributes, parent, kind and status."""
    found = arrived(viewer, project, len(planned))
    there = {(one["context"]["trace_id"], one["context"]["span_id"]): one for one in found}
    assert len(there) == len(found)
    assert there.keys() == {(one.trace_id, one.span_id) for one in planned}
    for plan in planned:
        span = there[plan.trace_id, plan.span_id]
        assert (span["name"], span["parent_id"]) == (plan.name, plan.parent_id)
        # It keeps microseconds.
        assert abs(nanoseconds(span["start_time"]) - plan.start_ns) <= 1_000
        assert abs(nanoseconds(span["end_time"]) - plan.end_ns) <= 1_000
        assert span["status_code"] == ("ERROR" if plan.failed else "UNSET")
        said = {name: plain(value) for name, value in plan.attributes.items()}
        assert span["span_kind"] == said.pop(KIND)
        # Beside ours there are counts of tokens, under names of its own.
        assert {name: span["attributes"].get(name) for name in said} == said


def arrived(viewer: Phoenix, project: str, count: int) -> list[dict[str, Any]]:
    """The spans of a project, once there are so many: it takes them before it writes them."""
    until = time.monotonic() + 300
    found = list[dict[str, Any]]()
    while time.monotonic() < until:
        if project in viewer.projects():
            found = list(viewer.spans(project))
            if len(found) >= count:
                return found
        time.sleep(0.5)
    raise AssertionError(f"{len(found)} of {count} spans arrived")


def nanoseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1e6) * 1_000


def plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("made", "protocol", "drawn_as"),
    [
        (agents, "http/protobuf", {"CHAIN", "EVALUATOR", "AGENT", "LLM", "TOOL"}),
        (agents, "grpc", {"CHAIN", "EVALUATOR", "AGENT", "LLM", "TOOL"}),
        (gpus, "http/protobuf", {"CHAIN", "EVALUATOR"}),
    ],
)
def test_every_planned_span_is_found_with_times_attributes_parent_and_kind_and_once(
    made: Callable[[Path], None],
    protocol: str,
    drawn_as: set[str],
    viewer: Phoenix,
    tmp_path: Path,
) -> None:
    # Ids follow from the name of a run: another name, and other spans.
    project = f"{made.__name__}-{protocol.partition('/')[0]}"
    folder = tmp_path / project
    made(folder)
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": viewer.grpc if protocol == "grpc" else viewer.http,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}",
    }
    planned = list(spans(read(folder, tmp_path)))
    for state in ("first", "again"):
        export(folder, tmp_path / state, variables)
        check(viewer, project, planned)
    assert {one.attributes[KIND] for one in planned} == drawn_as


def export(folder: Path, state: Path, variables: dict[str, str]) -> None:
    """Send everything, as if nothing had been sent before."""
    others = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    program = Path(sys.executable).with_name("rlvr-probe")
    done = subprocess.run(
        [program, "export", folder, "--to", "otlp", "--state", state],
        env=others | variables, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_killed_training_was_doing_is_there_as_failed(
    viewer: Phoenix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "openinference.project.name=killed")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    killed(tmp_path / "killed")
    trace = read(tmp_path / "killed", tmp_path)
    exporter, parser = OTLPExporter(), ArgumentParser()
    exporter.add_arguments(parser)
    list(exporter.export(trace, tmp_path, parser.parse_args(["--endpoint", viewer.http])))
    planned = list(spans(trace))
    assert [one.name for one in planned if one.failed] == ["rl.loop", "rlvr.experience"]
    check(viewer, "killed", planned)
