"""What a job with a sidecar is run beside: two scripted GPUs and a collector that is not ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from rlvr_probe_otlp.tests.receiver import Receiver, attributes, identifier, receiver

from rlvr_probe.analysis.summary.devices import stage_devices
from rlvr_probe.model.trace import Trace
from rlvr_probe.probe.election import holder, lock_path, open_lock
from tests.jobs import wait_for
from tests.nvml import Nvml, gpu_uuid
from tests.summarized import summary_of

__all__ = [
    "GPUS",
    "Received",
    "check_what_is_told_of_it",
    "planned",
    "received",
    "wait_for_the_end_of_its_sidecar",
    "watched",
]

GPUS = (gpu_uuid(0), gpu_uuid(1))
"""Their UUIDs; the second one takes three times the power and is half as busy."""

_ROWS = (
    "0 sys count 2",
    *("0 0 power_mw 100000", "0 0 gpm.2 80", "0 0 mem_used 4e10"),
    *("0 1 power_mw 300000", "0 1 gpm.2 40", "0 1 mem_used 2e10"),
)
_GOT = "received.json"


@dataclass(frozen=True)
class Received:
    """Spans and points that a collector got, and how often.

    Attributes:
        meanwhile: When the sidecar had left.
        whole: After ``rlvr-probe export`` had sent what was missing then.
    """

    meanwhile: Counter[str]
    whole: Counter[str]


@contextmanager
def watched(folder: Path) -> Iterator[dict[str, str]]:
    """Variables for a job that records into ``folder/recordings`` and whose sidecar is waited for.

    What the collector got is kept in ``folder``.
    """
    nvml = Nvml(folder, *_ROWS, virtual=False)
    with receiver(folder) as one:
        yield {
            **nvml.environ(),
            "CUDA_VISIBLE_DEVICES": ",".join(GPUS),
            "OTEL_EXPORTER_OTLP_ENDPOINT": one.http,
        }
        meanwhile = _kept(one)
        # A busy machine may need more than the time that a sidecar takes for the end of a run.
        _export(folder / "recordings", "--endpoint", one.http)
        (folder / _GOT).write_text(json.dumps([meanwhile, _kept(one)]))


def _kept(one: Receiver) -> list[str]:
    spans = [
        [identifier(span["trace_id"]), identifier(span["span_id"]), span["name"]]
        for _, span in one.spans()
    ]
    points = [
        [metric["name"], str(sorted(attributes(point).items())), int(point["time_unix_nano"])]
        for _, metric, point in one.points()
    ]
    return [json.dumps(each) for each in (*spans, *points)]


def _export(recordings: Path, *arguments: str) -> str:
    program = [sys.executable, "-m", "rlvr_probe.cli", "export", str(recordings), "--to", "otlp"]
    done = subprocess.run(
        [*program, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for_the_end_of_its_sidecar(recording: Path) -> None:
    """Until nobody is the sidecar of this run, and its lock is deleted."""
    path = lock_path(recording)

    def is_over() -> bool:
        fd = open_lock(path)
        found = holder(fd)
        # No sidecar in this process, so to close it lets go of nothing.
        with open(fd, "rb"):
            return found is None

    wait_for(is_over, 120)
    path.unlink()


def received(folder: Path) -> Received:
    """What the collector of a job got that ran in ``folder``."""
    meanwhile, whole = json.loads((folder / _GOT).read_text())
    return Received(Counter(meanwhile), Counter(whole))


def planned(recording: Path) -> Counter[str]:
    """Spans and points that ``rlvr-probe export --dry-run --json`` has."""
    units = json.loads(_export(recording, "--dry-run", "--json"))["units"]
    spans = [
        [trace["trace_id"], span["span_id"], span["name"]]
        for unit in units
        for trace in unit["traces"]
        for span in trace["spans"]
    ]
    points = [
        [point["metric"], str(sorted(point["attributes"].items())), int(point["time_unix_nano"])]
        for unit in units
        for point in unit["points"]
    ]
    return Counter(json.dumps(one) for one in (*spans, *points))


def check_what_is_told_of_it(
    trace: Trace, recording: Path, folder: Path, *, lasting: bool = True
) -> None:
    """One sidecar, which is none of the job's processes, read both GPUs and told all of it.

    Args:
        trace: Of the job.
        recording: Its run folder.
        folder: Where it was watched.
        lasting: It went on for long enough that its steps were read; a short one may be over before
            its sidecar begins.
    """
    [sidecar] = trace.sidecars
    assert (sidecar.state, dict(sidecar.lost)) == ("exited", {})
    assert dict(sidecar.faults) in ({}, {"live.otlp: Timeout": 1})
    assert sidecar.pid not in {process.pid for process in trace.processes}
    shown = summary_of(recording)["devices"]
    assert [one["state"] for one in shown["sidecars"]] == ["exited"]
    got, plan = received(folder), planned(recording)
    assert got.whole.keys() == plan.keys()
    assert got.meanwhile
    if not sidecar.faults:
        assert got.meanwhile.keys() == plan.keys()
    if not lasting:
        return
    [step] = [one for one in stage_devices(trace) if (one.stage, one.kind) == ("step", "gpu")]
    assert step.by_device.keys() == set(GPUS)
    if step.quality != "ok":  # on a busy machine its sidecar began late
        return
    for uuid, share, watts in zip(GPUS, (0.8, 0.4), (100, 300), strict=True):
        assert step.by_device[uuid]["sm_active"] == pytest.approx(share)
        assert step.by_device[uuid]["energy_j"] == pytest.approx(watts, rel=0.1)
