"""A receiver that is not ours, asked for everything that was planned."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.planning.data_model import Snapshot
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.tests.receiver import Receiver, attributes, identifier, receiver
from rlvr_probe_otlp.tests.recordings import read

from rlvr_probe.model.trace import Trace
from tests.actors import Job

pytestmark = pytest.mark.conformance

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "send-to-a-collector.md"
KINDS = {
    "internal": "SPAN_KIND_INTERNAL",
    "server": "SPAN_KIND_SERVER",
    "client": "SPAN_KIND_CLIENT",
}


@pytest.fixture
def got(tmp_path: Path) -> Iterator[Receiver]:
    with receiver(tmp_path) as found:
        yield found


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    folder = tmp_path / "rlvr-probe-runs" / "run"
    Job(folder, steps=4, turns=4, other_machine=300 * 10**9).write()
    return read(folder, tmp_path)


def export(folder: Path, *arguments: str, **variables: str) -> str:
    program = str(Path(sys.executable).with_name("rlvr-probe"))
    environment = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    ended = subprocess.run(
        [program, "export", *arguments], cwd=folder, env=environment | variables,
        capture_output=True, text=True, check=True, timeout=250,
    )  # fmt: skip
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_every_planned_span_and_point_is_found_with_attributes_parents_and_links(
    protocol: str, got: Receiver, trace: Trace, tmp_path: Path
) -> None:
    endpoint = got.grpc if protocol == "grpc" else got.http
    to = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    export(tmp_path, "rlvr-probe-runs", "--to", "otlp", **to)
    spans = {identifier(span["span_id"]): (said, span) for said, span in got.spans()}
    planned = [span for unit in Plan(trace).units() for one in unit.traces for span in one.spans]
    assert spans.keys() == {span.span_id for span in planned}
    assert len(planned) > 300
    for plan in planned:
        said, span = spans[plan.span_id]
        assert identifier(span["trace_id"]) == plan.trace_id
        assert identifier(span.get("parent_span_id", "")) == (plan.parent_id or "")
        assert (span["name"], span["kind"]) == (plan.name, KINDS[plan.kind])
        assert int(span["start_time_unix_nano"]) == plan.start_ns
        assert int(span["end_time_unix_nano"]) == plan.end_ns
        assert attributes(span) == dict(plan.attributes)
        assert [
            (identifier(link["trace_id"]), identifier(link["span_id"]), attributes(link))
            for link in span.get("links", ())
        ] == [(link.trace_id, link.span_id, dict(link.attributes)) for link in plan.links]
        assert said["service.instance.id"] == trace.processes[plan.process].key
    assert _points(got) == _planned_points(trace)


def _points(got: Receiver) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for said, metric, point in got.points():
        assert said["rl.run.id"] == "run"
        value: Any = point.get("as_double", point.get("as_int"))
        if "count" in point:
            value = (int(point["count"]), point["sum"], point["min"], point["max"])
        where = sorted(attributes(point).items())
        found[metric["name"], str(where), int(point["time_unix_nano"]), _number(value)] += 1
    return found


def _planned_points(trace: Trace) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for unit in Plan(trace).units():
        for point in unit.points:
            value: Any = point.value
            if isinstance(value, Snapshot):
                value = (value.count, value.sum, value.min, value.max)
            where = sorted(point.attributes.items())
            found[point.metric, str(where), point.time_ns, _number(value)] += 1
    return found


def _number(value: Any) -> Any:
    return tuple(map(float, value)) if isinstance(value, tuple) else float(value)


def test_the_commands_of_the_guide_do_what_it_says(
    got: Receiver, trace: Trace, tmp_path: Path
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    variables = dict[str, str]()
    printed = list[str]()
    for line in lines:
        here = line.replace("http://localhost:4318", got.http)
        here = here.replace("http://localhost:4317", got.grpc)
        command, *words = shlex.split(here)
        if command == "export":
            variables.update({word.partition("=")[0]: word.partition("=")[2] for word in words})
        elif command == "rlvr-probe":
            printed.append(export(tmp_path, *words[1:], **variables))
        else:
            assert (command, *words[:1]) == ("pip", "install"), line
    sent, summary, plan, again, rejected = printed
    assert "spans in" in sent
    assert "nothing was sent" in summary
    assert plan.startswith("{")
    assert "spans in" in again
    assert "0 spans in 0 units" in rejected
    times = Counter(Counter(span["span_id"] for _, span in got.spans()).values())
    assert times.keys() == {2}, "once over HTTP, once over gRPC"
