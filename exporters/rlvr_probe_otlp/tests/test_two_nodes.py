"""Two nodes of one run, each with a folder and a sender of its own, share no id."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.planning.identity import Context, run_resource
from rlvr_probe_otlp.planning.kept_trajectories import Limits
from rlvr_probe_otlp.tests.collector import Collector, attributes
from rlvr_probe_otlp.tests.recordings import gpu, read, send, truth

from rlvr_probe.model import names
from tests.actors import SECOND, Job
from tests.journals import JournalFile, Training
from tests.truth import tell

NODES = 2
STEPS = 2


def part(folder: Path, node: int) -> Path:
    """What one node recorded: its rank, its GPU, and what it verified beside the steps."""
    place = folder / f"node-{node}" / "run-1"
    known = {"host": f"node-{node}", "boot": f"0000000{node}-0000-4000-8000-000000000001"}
    journal = JournalFile(place, number=node + 1, start_s=0.1 * node, header=known)
    training = Training(journal, rank=node, ranks=NODES)
    training.begin()
    for step in range(1, STEPS + 1):
        training.step(step)
    journal.span(names.USER, 0.1, 0.2, label="before")
    journal.close()
    sidecar = JournalFile(place, 90 + node, header=known)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    tell(sidecar, 0, gpu(node), truth())
    sidecar.close()
    return place


@pytest.fixture
def sent(tmp_path: Path, patient: None, collector: Collector) -> Collector:
    """A collector that two nodes sent their parts to."""
    for node in range(NODES):
        folder = part(tmp_path, node)
        send(read(folder, tmp_path), folder)
    return collector


def test_no_span_of_one_node_has_the_id_of_one_of_the_other(sent: Collector) -> None:
    times = Counter((span.trace_id, span.span_id) for _, span in sent.spans())
    assert len(times) > 20
    assert set(times.values()) == {1}


def test_what_both_did_of_a_step_is_in_one_trace_under_a_root_each(sent: Collector) -> None:
    loops = [span for _, span in sent.spans() if span.name == "rl.loop"]
    roots = Counter(span.trace_id for span in loops if not span.parent_span_id)
    assert [*roots.values()] == [NODES] * STEPS
    known = {(span.trace_id, span.span_id) for _, span in sent.spans()}
    parents = {(s.trace_id, s.parent_span_id) for _, s in sent.spans() if s.parent_span_id}
    assert parents <= known


def test_no_series_has_two_senders(sent: Collector) -> None:
    senders = dict[Any, set[Path]]()
    hosts = set[str]()
    for request in sent.metrics:
        for resource in request.resource_metrics:
            said = attributes(resource.resource.attributes)
            hosts.add(said["host.name"])
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in getattr(metric, metric.WhichOneof("data")).data_points:
                        series = (
                            said["service.instance.id"], metric.name,
                            *sorted(attributes(point.attributes).items()),
                        )  # fmt: skip
                        senders.setdefault(series, set()).add(said["host.name"])
    assert hosts == {"node-0", "node-1"}
    assert len(senders) > 20
    assert [series for series, found in senders.items() if len(found) > 1] == []


def test_trajectories_of_two_nodes_are_traces_of_their_own(tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=1, turns=2).write()
    trace = read(tmp_path / "run", tmp_path)
    [attempt] = trace.attempts
    step = attempt.steps[0]
    here = Context(trace, Limits())
    for one in trace.processes:
        object.__setattr__(one, "host", "elsewhere")
    there = Context(trace, Limits())
    assert here.trajectory(step, "train", 0, 0)[0] != there.trajectory(step, "train", 0, 0)[0]
    assert here.step(step)[0] == there.step(step)[0]


def test_the_parts_of_one_folder_have_one_sender_whichever_of_its_processes_are_known(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    Job(folder, steps=1, other_machine=300 * SECOND).write()
    trace = read(folder, tmp_path)
    whole = run_resource(trace)
    assert {one.host for one in trace.processes} > {whole["host.name"]}
    assert whole["rl.run.id"] == "run"
    [first, *_] = trace.processes
    assert whole["host.name"] == first.host
    trace.processes[:] = [one for one in trace.processes if one.host == first.host]
    assert run_resource(trace) == whole
