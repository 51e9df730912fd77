"""Dashboards against a real Prometheus that holds what recordings give.

Each recording is there twice: scraped, with buckets, and with native histograms, as Prometheus
keeps what comes by OTLP. Debian's Prometheus is built without its OTLP receiver, so the second is
scraped too, in the one format that can say it.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp import dashboards
from rlvr_probe_otlp.planning.data_model import Buckets, Point, Snapshot
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.run_metrics import Histograms
from rlvr_probe_otlp.scraping import exposition
from rlvr_probe_otlp.tests import native
from rlvr_probe_otlp.tests.prometheus import Prometheus, pages, prometheus
from rlvr_probe_otlp.tests.recordings import MADE, died, gpu, read

from rlvr_probe.model import names
from rlvr_probe.model.counters import COUNTERS
from tests.actors import Job
from tests.debian import program
from tests.journals import JournalFile, Training

pytestmark = pytest.mark.conformance

DASHBOARDS = Path(dashboards.__path__[0]) / "grafana" / "dashboards"

Planned = dict[tuple[str, str], list[Point]]

FORMS: dict[str, Histograms] = {"scraped": "explicit", "native": "exponential"}


def machines(folder: Path) -> None:
    """A GPU and its host, of which everything is told that a counter is for."""
    MADE["ranks"](folder)
    sidecar = JournalFile(folder, 90, run=folder.name)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    host = {"cpu_s", "memory_b", "io_read_b", "io_write_b", "network_tx_b", "network_rx_b"}
    for device, kind in enumerate(("gpu", "host")):
        mine = [
            one
            for one in COUNTERS
            if (one.name in host) == (kind == "host") or one.name == "memory_b"
        ]
        sidecar.event(names.DEVICE, 0, device=device, uuid=gpu(device), kind=kind, hz=5.0)
        for tick in range(1, 200):
            for name, fast in ((names.DEVICE_SAMPLE, True), (names.DEVICE_STATE, False)):
                said: dict[str, Any] = {"window_s": 0.2} if fast else {}
                for one in mine:
                    if fast == (one.pace == "fast"):
                        said[one.name] = tick if one.kind == "total" else 0.5
                sidecar.event(name, tick / 5, device=device, **said)
    sidecar.close()


def rare(folder: Path) -> None:
    """A training with stages that few have, and with what should not happen."""
    journal = JournalFile(folder, run=folder.name)
    training = Training(journal)
    training.begin()
    stages = [one for one in names.ALL if one.stage]
    for step in (1, 2):
        begin = training.now_s
        training.step(step)
        for place, stage in enumerate(stages):
            start = begin + place / 100
            where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
            journal.span(stage, start, start + 0.01, **where)
    journal.row("lost", 10, "queue_full", 9)
    journal.row("fault", 10, "hook", "ValueError", 2)
    journal.close()


RECORDINGS = {
    "rare": rare,
    "job": lambda folder: Job(folder, steps=4, turns=4).write(),
    "ahead": MADE["ahead"],
    "died": died,
    "machines": machines,
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """Points of each recording, in each form."""
    found = Planned()
    for name, write in RECORDINGS.items():
        folder = tmp_path_factory.mktemp(name)
        write(folder / name)
        trace = read(folder / name, folder)
        for form, histograms in FORMS.items():
            plan = Plan(trace, histograms=histograms)
            found[form, name] = [point for unit in plan.units() for point in unit.points]
    return found


def twice(point: Point) -> Point:
    """The point as it is once everything has happened again."""
    if point.kind == "gauge":
        return point
    shot = point.value
    if isinstance(shot, (int, float)):
        return replace(point, value=2 * shot)
    counts = tuple(2 * one for one in shot.counts)
    grown = replace(shot, count=2 * shot.count, sum=2 * shot.sum, counts=counts)
    if isinstance(grown, Snapshot):
        grown = replace(grown, zero=2 * grown.zero)
    return replace(point, value=grown)


def scraped(name: str, points: Sequence[Point]) -> tuple[str, bytes]:
    board = exposition.Board({"rl.run.id": f"scraped {name}"})
    board.take(points)
    return exposition.CONTENT_TYPE, board.page()


def as_native(name: str, points: Sequence[Point]) -> tuple[str, bytes]:
    return native.CONTENT_TYPE, native.page(points, {"rl.run.id": f"native {name}"})


@pytest.fixture(scope="module")
def server(planned: Planned, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    paths = [f"/{form}/{name}" for form, name in planned]
    make = {"scraped": scraped, "native": as_native}
    with pages() as served:
        folder = tmp_path_factory.mktemp("server")
        with prometheus(folder, served.address, paths) as running:
            for change in (lambda point: point, twice):
                served.show(
                    {
                        f"/{form}/{name}": make[form](name, [change(one) for one in some])
                        for (form, name), some in planned.items()
                    },
                    times=3,
                )
            running.moment = time.time()
            yield running


def filled(query: str, run: str) -> str:
    wide = query.replace("$window", "10m").replace("$__rate_interval", "10m")
    return wide.replace("$run", run)


@pytest.mark.parametrize("form", FORMS)
def test_every_query_of_every_dashboard_has_an_answer(server: Prometheus, form: str) -> None:
    empty = set[str]()
    asked = 0
    for path in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            for target in panel.get("targets", ()):
                asked += 1
                answer = server.ask(filled(target["expr"], f"{form} .*"))
                if not any(math.isfinite(value) for _, value in answer):
                    empty.add(f"{path.stem}: {panel['title']}: {target['legendFormat']}")
    assert empty == set()
    assert asked > 60


def test_all_runs_together_are_the_sum_of_each(server: Prometheus, planned: Planned) -> None:
    query = "sum (increase(rl_train_steps_total{rl_run_id=~'$run'}[$window]))"
    ((_, whole),) = server.ask(filled(query, ".*"))
    each = [server.ask(filled(query, f"{form} {name}")) for form, name in planned]
    assert len(each) == 2 * len(RECORDINGS)
    assert whole == pytest.approx(sum(value for ((_, value),) in each))


def shown(metric: str) -> str:
    """Name of a metric in Prometheus."""
    return exposition.prometheus_name(exposition.REGISTRY[metric])


def mean(metric: str) -> str:
    """As the dashboards ask for it."""
    where = "{rl_run_id=~'$run'}[$window]"
    total, count = (
        f"(sum (rate(NAME_{part}{where})) or sum (histogram_{part}(rate(NAME{where}))))"
        for part in ("sum", "count")
    )
    return f"{total} / {count}".replace("NAME", shown(metric))


def quantile(share: float, metric: str, where: str) -> str:
    """As the dashboards ask for it."""
    chosen = f"{{rl_run_id=~'$run'{where}}}[$window]"
    classic = f"histogram_quantile({share:g}, sum by (le) (rate(NAME_bucket{chosen})))"
    native = f"histogram_quantile({share:g}, sum (rate(NAME{chosen})))"
    return f"{classic} or {native}".replace("NAME", shown(metric))


@pytest.mark.parametrize("form", FORMS)
def test_means_are_those_of_what_was_recorded(
    server: Prometheus, form: str, planned: Planned
) -> None:
    for name in ("job", "machines"):
        for metric in ("rl.loop.duration", "rl.sample.duration", "gen_ai.client.token.usage"):
            ours = last(planned[form, name], metric)
            expected = sum(one.sum for one in ours) / sum(one.count for one in ours)
            ((_, value),) = server.ask(filled(mean(metric), f"{form} {name}"))
            assert value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_quantiles_are_within_a_bucket_of_what_was_recorded(
    server: Prometheus, form: str, planned: Planned
) -> None:
    said = {"gen_ai.token.type": "output", "rlvr.mode": "train"}
    metric = "gen_ai.client.token.usage"
    chosen = [one for one in planned[form, "job"] if said.items() <= one.attributes.items()]
    (shot,) = last(chosen, metric)
    for share in (0.5, 0.9, 0.99):
        where = ', gen_ai_token_type="output", rlvr_mode="train"'
        query = quantile(share, metric, where)
        ((_, value),) = server.ask(filled(query, f"{form} job"))
        # Where a share ends exactly at a bound, the next bucket is as right.
        low, high = bucket(shot, share * (1 - 1e-6))[0], bucket(shot, share * (1 + 1e-6))[1]
        assert low <= value <= high


def bucket(shot: Snapshot | Buckets, share: float) -> tuple[float, float]:
    """Bounds of the bucket that holds this share of the values."""
    if isinstance(shot, Buckets):
        bounds = [0.0, *shot.bounds, math.inf]
    else:
        places = range(shot.offset, shot.offset + len(shot.counts) + 1)
        bounds = [2.0 ** (place / 2**shot.scale) for place in places]
    # A native histogram is never finer than 2^(1/256).
    slack = 1.0 if isinstance(shot, Buckets) else 2**0.01
    below = 0
    for place, count in enumerate(shot.counts):
        below += count
        if below >= share * shot.count:
            return bounds[place] / slack, bounds[place + 1] * slack
    raise AssertionError("an empty histogram")


def last(points: Sequence[Point], metric: str) -> list[Snapshot | Buckets]:
    """Last state of each series of a histogram."""
    series = {
        str(sorted(one.attributes.items())): one.value
        for one in points
        if one.metric == metric and isinstance(one.value, (Snapshot, Buckets))
    }
    return list(series.values())


def test_everything_that_goes_out_was_here(planned: Planned) -> None:
    found = {point.metric for some in planned.values() for point in some}
    assert found == exposition.REGISTRY.keys()


def test_labels_of_a_page_are_those_of_queries(server: Prometheus) -> None:
    ((labels, _),) = server.ask(
        filled(
            "sum by (rl_run_id) (rate(rl_sample_samples_total{rl_run_id=~'$run'}[$window]))",
            "scraped ahead",
        )
    )
    assert labels == {"rl_run_id": "scraped ahead"}


def test_promtool_has_nothing_to_say_about_a_page(planned: Planned) -> None:
    promtool = program("prometheus", "usr/bin/promtool")
    for (form, name), some in planned.items():
        if form != "scraped":
            continue
        _, body = scraped(f'{name} "\\\n', some)
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=body, capture_output=True, check=True, timeout=60
        )
        assert (checked.stdout, checked.stderr) == (b"", b"")
