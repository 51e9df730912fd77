"""A real Prometheus scrapes an endpoint that is started anew in the middle of a run."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from rlvr_probe_otlp import PrometheusEndpoint
from rlvr_probe_otlp.exporter import VARIABLE
from rlvr_probe_otlp.scraping.endpoint import Endpoint
from rlvr_probe_otlp.scraping.exposition import REGISTRY, prometheus_name
from rlvr_probe_otlp.tests.prometheus import Prometheus, prometheus
from rlvr_probe_otlp.tests.recordings import read

from tests.actors import Job
from tests.jobs import wait_for

pytestmark = pytest.mark.conformance

LATER = 1 << 62
PATIENCE_S = 120.0


def value(server: Prometheus, query: str) -> float | None:
    server.moment = time.time()
    answer = server.ask(query)
    return answer[0][1] if answer else None


def test_no_counter_goes_back_and_none_is_counted_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Job(folder, steps=6, turns=3).write()
    trace = read(folder, tmp_path)
    steps = [step for attempt in trace.attempts for step in attempt.steps]
    done = sum(step.done for step in steps)
    rows = sum(batch.rows for step in steps for batch in (*step.batches, *step.evaluations))

    def session(port: int) -> Endpoint:
        return PrometheusEndpoint().open(folder, {VARIABLE: f"127.0.0.1:{port}"})

    with ExitStack() as stack:
        first = session(0)
        host, port = first.address
        server = stack.enter_context(prometheus(tmp_path, f"{host}:{port}", ["/metrics"]))
        for count, step in enumerate(steps[:4], 1):
            first.steps(trace, [step], LATER)
            wait_for(lambda: value(server, "rl_train_steps_total") == count, PATIENCE_S)  # noqa: B023
        first.close(0.0)
        again = session(port)
        stack.callback(again.close, 0.0)
        again.steps(trace, steps[:2], LATER)
        wait_for(lambda: value(server, "min_over_time(up[10m])") == 0, PATIENCE_S)
        again.steps(trace, steps[2:], LATER)
        wait_for(lambda: value(server, "rl_train_steps_total") == done, PATIENCE_S)
        for metric in REGISTRY.values():
            name = prometheus_name(metric)
            for part in {"sum": ("",), "histogram": ("_bucket", "_count")}.get(metric.kind, ()):
                assert value(server, f"sum(resets({name}{part}[10m]))") in (0, None)
        assert value(server, "sum(rl_sample_samples_total)") == rows
        assert value(server, "max_over_time(rl_train_steps_total[10m])") == done
