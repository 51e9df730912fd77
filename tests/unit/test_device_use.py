"""Whose the devices of a span are, what they did in it, and what ``show`` says of that."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.analysis.metrics.devices import devices
from rlvr_probe.analysis.summary.devices import StageDevices, stage_devices
from rlvr_probe.analysis.summary.span_devices import Attribution
from rlvr_probe.model import names
from rlvr_probe.model.counters import BY_NAME
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.report import render
from tests.by_hand import tables_of
from tests.journals import JournalFile, Training
from tests.summarized import summary_of
from tests.truth import Phase, Truth, tell

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "show-json.md"
STEP_S = 16.0
STEPS = 3
BEGIN_S = 0.5

IDLE = Phase("idle", BEGIN_S, 80.0, 0.0)
ROLLOUT = Phase("rollout", STEP_S / 4, 400.0, 0.6, 1e10)
REWARD = Phase("reward", STEP_S / 4, 120.0, 0.0, 1e10)
UPDATE = Phase("update_actor", STEP_S / 2, 600.0, 0.9, 2e10)


def gpu(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def truth(scale: float = 1.0) -> Truth:
    phases = [IDLE, *[ROLLOUT, REWARD, UPDATE] * STEPS, IDLE, IDLE]
    return Truth([Phase(p.name, p.seconds, p.watts * scale, p.sm, p.memory_b) for p in phases], 1)


def sidecar(folder: Path, gpus: int = 2, *, number: int = 90, **header: Any) -> JournalFile:
    journal = JournalFile(folder, number, header=header)
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    for place in range(gpus):
        tell(journal, place, gpu(place), truth(1.0 + place))
    return journal


def rank(
    folder: Path, number: int, ranks: int = 2, *, use: Sequence[str] | None = None, **header: Any
) -> Training:
    journal = JournalFile(folder, number + 1, header=header)
    training = Training(journal, rank=number, ranks=ranks, step_s=STEP_S)
    training.begin()
    if use is not None:
        journal.event(names.DEVICES_USED, 0.6, uuids=list(use), how="torch")
    for step in range(1, STEPS + 1):
        training.step(step)
    return training


def by_stage(trace: Trace, kind: str = "gpu") -> dict[str, StageDevices]:
    return {
        stage_device.stage: stage_device
        for stage_device in stage_devices(trace)
        if stage_device.kind == kind
    }


def text(folder: Path) -> str:
    out = io.StringIO()
    summary = summary_of(folder)
    json.dumps(summary, allow_nan=False)
    render(summary, out, color=False)
    return out.getvalue()


def test_a_sidecar_is_no_process_of_the_job(tmp_path: Path) -> None:
    for number in range(2):
        rank(tmp_path, number, use=[gpu(number)]).journal.close()
    sidecar(tmp_path).close()
    trace = read_run(tmp_path)
    assert [process.rank for process in trace.processes] == [0, 1]
    assert [sidecar.role for sidecar in trace.sidecars] == ["sidecar"]
    assert [attempt.processes for attempt in trace.attempts] == [[0, 1]]
    assert len(trace.devices) == 2
    assert trace.notes == []
    assert trace.lost == {}


def test_ranks_with_gpus_of_their_own_give_each_stage_its_energy(tmp_path: Path) -> None:
    for number in range(2):
        rank(tmp_path, number, use=[gpu(number)]).journal.close()
    sidecar(tmp_path).close()
    found = by_stage(read_run(tmp_path))
    assert set(found) == {"step", "rollout", "reward", "update_actor"}
    for phase in (ROLLOUT, REWARD, UPDATE):
        one = found[phase.name]
        # Both GPUs, the second draws twice as much.
        assert one.per_step["energy_j"] == pytest.approx(3 * phase.watts * phase.seconds, rel=0.06)
        assert one.per_second["energy_j"] == pytest.approx(1.5 * phase.watts, rel=0.06)
        assert one.means["sm_active"] == pytest.approx(phase.sm, abs=0.02)
        assert one.maxima["memory_b"] >= phase.memory_b
        assert (one.scope, one.devices, one.steps) == ("process", 2, STEPS)
        assert one.known_steps["energy_j"] == STEPS
        assert (one.quality, one.shared) == ("ok", False)
        assert one.energy_error_j is not None
        assert abs(one.per_step["energy_j"] - 3 * phase.watts * phase.seconds) <= one.energy_error_j
    stages = [found[phase.name].per_step["energy_j"] for phase in (ROLLOUT, REWARD, UPDATE)]
    assert sum(stages) == pytest.approx(found["step"].per_step["energy_j"])


def test_stages_of_a_driver_have_the_devices_of_its_workers(tmp_path: Path) -> None:
    training = rank(tmp_path, 0, ranks=1)
    driver = training.journal.header["process"]
    training.journal.close()
    for number in range(2):
        worker = JournalFile(tmp_path, 50 + number, header={"owner": driver})
        worker.event(names.DEVICES_USED, 1, uuids=[gpu(number)], how="torch")
        worker.span(names.OPTIMIZER_STEP, 1, 2)
        worker.close()
    sidecar(tmp_path, gpus=3).close()
    found = by_stage(read_run(tmp_path))
    assert (found["rollout"].scope, found["rollout"].devices) == ("job", 2)
    assert not found["rollout"].shared


def test_where_nobody_tells_the_gpus_of_the_node_are_shown_as_such(tmp_path: Path) -> None:
    rank(tmp_path, 0, ranks=1).journal.close()
    sidecar(tmp_path, gpus=2).close()
    elsewhere = {"host": "node-2", "boot": "another"}
    other = JournalFile(tmp_path, 91, header=elsewhere)
    other.event(names.PROCESS, 0, role=names.SIDECAR)
    tell(other, 0, gpu(7), truth())
    other.close()
    found = by_stage(read_run(tmp_path))
    assert (found["rollout"].scope, found["rollout"].devices) == ("node", 2)
    assert "GPUs of each process unknown: shown are all of its node" in text(tmp_path)


def test_of_several_that_it_may_use_none_is_taken_for_its_own(tmp_path: Path) -> None:
    training = rank(tmp_path, 0, ranks=1)
    training.journal.event(names.DEVICES_USED, 0.7, uuids=[gpu(0), gpu(1)], how="visible")
    training.journal.close()
    sidecar(tmp_path, gpus=3).close()
    assert by_stage(read_run(tmp_path))["rollout"].scope == "node"


def test_two_ranks_on_one_gpu_share_it_and_its_energy_counts_once(tmp_path: Path) -> None:
    for number in range(2):
        rank(tmp_path, number, use=[gpu(0)]).journal.close()
    sidecar(tmp_path).close()
    trace = read_run(tmp_path)
    one = by_stage(trace)["rollout"]
    assert one.shared
    assert one.devices == 1
    true_j = ROLLOUT.watts * ROLLOUT.seconds
    assert one.per_step["energy_j"] == pytest.approx(true_j, rel=0.06)
    rollout = next(s for step in trace.steps() for s in step.spans if s.name == "rollout")
    attribution = Attribution(trace)
    scope, [device] = attribution.devices(rollout.process)
    assert (scope, device.uuid) == ("process", gpu(0))
    assert attribution.is_shared(rollout, gpu(0))
    energy_j = device.over(rollout.start_ns, rollout.end_ns).total("energy_j")
    assert energy_j == pytest.approx(true_j, rel=0.06)
    assert "shared: other processes used these GPUs" in text(tmp_path)


def test_a_second_job_on_the_gpus_of_a_driver_shares_them(tmp_path: Path) -> None:
    for job in range(2):
        training = rank(tmp_path, 10 * job, ranks=1, job=f"job-{job}", ppid=10 * job + 5)
        driver = training.journal.header["process"]
        training.journal.close()
        worker = JournalFile(tmp_path, 50 + job, header={"owner": driver, "job": f"job-{job}"})
        worker.event(names.DEVICES_USED, 1, uuids=[gpu(0)], how="torch")
        worker.span(names.OPTIMIZER_STEP, 1, 2)
        worker.close()
    sidecar(tmp_path, gpus=1).close()
    one = by_stage(read_run(tmp_path))["rollout"]
    assert (one.scope, one.shared) == ("job", True)


def test_a_gpu_without_profiling_shows_how_busy_it_was(tmp_path: Path) -> None:
    rank(tmp_path, 0, ranks=1, use=[gpu(0)]).journal.close()
    journal = JournalFile(tmp_path, 90)
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    absent = [f"{name}: no GPM before Hopper" for name in ("sm_active", "tensor_active")]
    tell(journal, 0, gpu(0), truth(), gpm=False, model="NVIDIA A100", absent=absent)
    for second in range(60):
        journal.event(names.DEVICE_STATE, second, device=0, utilization=0.75, throttle_power_s=0.0)
    journal.close()
    trace = read_run(tmp_path)
    [device] = trace.devices
    assert device.facts.absent == dict.fromkeys(
        ("sm_active", "tensor_active"), "no GPM before Hopper"
    )
    assert "sm_active" not in by_stage(trace)["rollout"].means
    said = text(tmp_path)
    assert "any kernel" in said
    assert "75%" in said
    assert " SM " not in said
    assert "unknown: sm_active, tensor_active: no GPM before Hopper" in said
    assert "1 x NVIDIA A100 on node-1, read 5 times a second" in said


def test_stages_too_short_for_the_readings_are_said_to_be_rough(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, 1)
    training = Training(journal, step_s=2.0)
    training.begin()
    journal.event(names.DEVICES_USED, 0.6, uuids=[gpu(0)], how="torch")
    for step in range(1, 4):
        training.step(step)
    journal.close()
    sidecar(tmp_path, gpus=1).close()
    found = by_stage(read_run(tmp_path))
    assert {stage: result.quality for stage, result in found.items()} == {
        "step": "ok",
        "rollout": "low",
        "reward": "low",
        "update_actor": "ok",
    }
    lines = [line for line in text(tmp_path).splitlines() if line.endswith(" rough")]
    assert [line.split()[0] for line in lines] == ["rollout", "reward"]


def test_a_step_before_the_sidecar_read_is_left_out_of_the_energy_per_step(tmp_path: Path) -> None:
    rank(tmp_path, 0, ranks=1, use=[gpu(0)]).journal.close()
    late = JournalFile(tmp_path, 90, start_s=3.0)
    late.event(names.PROCESS, 0, role=names.SIDECAR)
    tell(late, 0, gpu(0), Truth([Phase("all", STEP_S * STEPS, 100.0, 0.5)], 1))
    late.close()
    one = by_stage(read_run(tmp_path))["step"]
    assert (one.steps, one.known_steps["energy_j"]) == (STEPS, STEPS - 1)
    assert one.per_step["energy_j"] == pytest.approx(100.0 * STEP_S, rel=0.01)


@pytest.mark.parametrize("lost", [range(0), range(8, 32), range(20, 150), range(60)])
def test_power_is_that_of_characterize_where_readings_are_missing_or_begin_anew(
    tmp_path: Path, lost: range
) -> None:
    rank(tmp_path, 0, ranks=1, use=[gpu(0)]).journal.close()
    journal, whole = JournalFile(tmp_path, 90), truth()
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    journal.event(names.DEVICE, 0, device=0, uuid=gpu(0), kind="gpu", hz=5.0)
    for tick in range(5 * round(whole.end_ns / 1e9) - 1):
        if tick not in lost:
            # Its driver was loaded again at tick 171.
            energy_j = whole.energy_j(tick * 200_000_000) - 1_000 * (tick > 170)
            journal.event(names.DEVICE_SAMPLE, tick / 5, device=0, energy_j=energy_j + 9_000)
    journal.close()
    trace = read_run(tmp_path)
    shown = {stage: item.per_second.get("energy_j") for stage, item in by_stage(trace).items()}
    with tables_of(trace) as tables:
        figures = devices(tables).figures
    told = {
        figure.by["stage"]: figure.value for figure in figures if figure.id == "devices.stage.watts"
    }
    assert told == pytest.approx(shown)
    for phase in (ROLLOUT, REWARD, UPDATE):
        watts = shown.get(phase.name)
        # Of what was read for less than half of the time nothing is said.
        assert watts == pytest.approx(phase.watts, rel=0.06) if watts else lost == range(20, 150)


def test_the_gpu_that_is_far_less_busy_than_the_others_is_named(tmp_path: Path) -> None:
    lazy = Truth([IDLE, *[ROLLOUT, REWARD, Phase("update_actor", 8.0, 300, 0.3)] * STEPS, IDLE], 1)
    journal = JournalFile(tmp_path, 90)
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    for number in range(4):
        rank(tmp_path, number, ranks=4, use=[gpu(number)]).journal.close()
        tell(journal, number, gpu(number), lazy if number == 2 else truth())
    journal.close()
    found = by_stage(read_run(tmp_path))["update_actor"]
    assert {uuid: round(own["sm_active"], 1) for uuid, own in found.by_device.items()} == {
        gpu(number): 0.3 if number == 2 else 0.9 for number in range(4)
    }
    assert found.by_device[gpu(2)]["energy_j"] == pytest.approx(300.0, rel=0.03)
    short = gpu(2)[:12]
    said = f"least busy: {short} (node-1, rank 2): SM 30% in update_actor, where the mean is 75%"
    assert said in text(tmp_path)


def test_the_host_is_shown_beside_the_gpus(tmp_path: Path) -> None:
    rank(tmp_path, 0, ranks=1, use=[gpu(0)]).journal.close()
    journal = sidecar(tmp_path, gpus=1)
    journal.event(names.DEVICE, 0, device=1, uuid="host-1", kind="host", vendor="linux", hz=5.0)
    for tick in range(300):
        journal.event(names.DEVICE_SAMPLE, tick / 5, device=1, cpu_s=tick / 5 * 12.5, memory_b=3e11)
        journal.event(
            names.DEVICE_STATE, tick / 5, device=1,
            network_tx_b=1e3 * tick, network_rx_b=1e3 * tick, io_read_b=1e3 * tick,
        )  # fmt: skip
    journal.close()
    found = by_stage(read_run(tmp_path), "host")
    rates = found["reward"].per_second
    assert len(rates) == 4
    assert list(rates) == [name for name in BY_NAME if name in rates]
    assert found["reward"].per_second["cpu_s"] == pytest.approx(12.5)
    assert found["reward"].maxima["memory_b"] == 3e11
    assert re.search(r"reward +1 .* 12\.5\n", text(tmp_path))


def test_errors_of_a_driver_are_shown_with_the_rank(tmp_path: Path) -> None:
    rank(tmp_path, 0, ranks=1, use=[gpu(0)]).journal.close()
    journal = sidecar(tmp_path, gpus=1)
    for second in (5, 9):
        journal.event(names.DEVICE_FAULT, second, device=0, what="xid", code=79)
    journal.event(names.DEVICE_FAULT, 20, device=0, what="lost", code=15)
    journal.close(end=False)
    said = text(tmp_path)
    short = gpu(0)[:12]
    assert f"GPU FAULT: xid 79 of {short} (node-1, rank 0) 2 times, first after 5.00 s" in said
    assert f"GPU FAULT: lost 15 of {short} (node-1, rank 0) after 20.0 s" in said


def test_what_gpus_cannot_tell_is_shown_with_each_reason_and_of_how_many(tmp_path: Path) -> None:
    gpm = ["engine_active", "sm_active", "sm_occupancy", "tensor_active", "dram_active"]
    absent = [
        *(f"{name}: no GPM: no permission (4)" for name in gpm),
        "energy_j: not supported (3)",
        "power_w: not supported (3)",
        "memory_b: NVML error 999; asked again each minute",
        "pcie_tx_b_per_s: its counter goes round too fast for so few readings",
    ]
    journal = JournalFile(tmp_path, 90)
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    for place in range(3):
        told = [] if place == 2 else absent[:-1] if place else absent
        tell(journal, place, gpu(place), truth(), gpm=False, absent=told)
    journal.event(names.DEVICE_FAULT, 20, device=0, what="unresponsive", code=None)
    journal.event(names.DEVICE_NOTE, 1, text="GPU 3 cannot be opened: no permission (4)")
    journal.close()
    rank(tmp_path, 0, 1).journal.close()
    shown = " ".join(text(tmp_path).split())
    of = "(of 2 of 3 GPUs)"
    assert f"unknown: {', '.join(gpm)}: no GPM: no permission (4) {of}" in shown
    assert f"unknown: energy_j, power_w: not supported (3) {of}" in shown
    assert f"unknown: memory_b: NVML error 999; asked again each minute {of}" in shown
    assert "pcie_tx_b_per_s: its counter goes round" in shown
    assert "(of 1 of 3 GPUs)" in shown
    assert "GPU FAULT: unresponsive of GPU-00000000" in shown
    assert "GPU 3 cannot be opened: no permission (4) (" in shown


def test_a_device_names_the_ranks_that_surely_work_on_it(tmp_path: Path) -> None:
    worker = rank(tmp_path, 1, use=None)
    worker.journal.event(names.DEVICES_USED, 0.6, uuids=[gpu(1)], how="visible")
    controller = rank(tmp_path, 0, use=None)
    controller.journal.event(names.DEVICES_USED, 0.6, uuids=[gpu(0), gpu(1)], how="visible")
    for training in (worker, controller):
        training.journal.close()
    sidecar(tmp_path).close()
    shown = summary_of(tmp_path)["devices"]["list"]
    assert [(item["uuid"], item["ranks"]) for item in shown] == [(gpu(0), []), (gpu(1), [1])]


def test_a_sidecar_that_took_over_is_read_as_one_series(tmp_path: Path) -> None:
    rank(tmp_path, 0, ranks=1, use=[gpu(0)]).journal.close()
    whole = truth()
    for number, (begin_s, end_s) in enumerate([(0.0, 20.0), (21.0, 60.0)]):
        journal = JournalFile(tmp_path, 90 + number, start_s=begin_s)
        journal.event(names.PROCESS, 0, role=names.SIDECAR)
        journal.event(names.DEVICE, 0, device=0, uuid=gpu(0), kind="gpu", hz=5.0)
        for tick in range(round(5 * (min(end_s, whole.end_ns / 1e9 - 0.2) - begin_s))):
            energy_j = whole.energy_j(round((begin_s + tick / 5) * 1e9))
            journal.event(names.DEVICE_SAMPLE, tick / 5, device=0, energy_j=energy_j)
        journal.close()
    trace = read_run(tmp_path)
    assert (len(trace.sidecars), len(trace.devices)) == (2, 1)
    found = by_stage(trace)
    assert found["step"].known_steps["energy_j"] == STEPS
    true_j = ROLLOUT.watts * 4 + REWARD.watts * 4 + UPDATE.watts * 8
    assert found["step"].per_step["energy_j"] == pytest.approx(true_j, rel=0.02)


def test_a_run_without_a_sidecar_says_nothing_of_devices(tmp_path: Path) -> None:
    rank(tmp_path, 0, ranks=1, use=[gpu(0)]).journal.close()
    trace = read_run(tmp_path)
    assert stage_devices(trace) == []
    assert summary_of(tmp_path)["devices"] is None
    assert trace.processes[0].devices == (gpu(0),)
    assert "Devices" not in text(tmp_path)


def test_gpus_that_are_equally_busy_are_not_named(tmp_path: Path) -> None:
    for number in range(2):
        rank(tmp_path, number, use=[gpu(number)]).journal.close()
    sidecar(tmp_path).close()
    assert "least busy" not in text(tmp_path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (names.DEVICE_SAMPLE, {"device": 0, "power_w": "much"}),
        (names.DEVICE_SAMPLE, {"device": 0, "power_w": True}),
        (names.DEVICE_SAMPLE, {"device": 0, "power_w": 1e31}),
        (names.DEVICE_SAMPLE, {"device": 0, "power_w": [1.0]}),
        (names.DEVICE_SAMPLE, {"device": 7, "power_w": 1.0}),
        (names.DEVICE_SAMPLE, {"device": [0], "power_w": 1.0}),
        (names.DEVICE_SAMPLE, {"power_w": 1.0}),
        (names.DEVICE_SAMPLE, {"device": 0, "window_s": "x", "power_w": 1.0}),
        (names.DEVICE, {"device": 1, "uuid": 5}),
        (names.DEVICE, {"device": -1, "uuid": "GPU-9"}),
        (names.DEVICE, {"device": 1, "uuid": "GPU-9", "hz": 0}),
        (names.DEVICE, {"device": 1, "uuid": "GPU-9", "absent": "all"}),
        (names.DEVICE_FAULT, {"device": 0, "what": 3, "code": 1}),
        (names.DEVICES_USED, {"uuids": "GPU-9", "how": "torch"}),
        (names.DEVICES_USED, {"uuids": ["GPU-9"], "how": "magic"}),
    ],
)
def test_a_row_that_breaks_the_schema_is_counted_and_changes_no_other(
    tmp_path: Path, name: names.Name, values: dict[str, Any]
) -> None:
    journal = JournalFile(tmp_path, 90)
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    journal.event(names.DEVICE, 0, device=0, uuid="GPU-1", kind="gpu", hz=5.0)
    for tick in range(100):
        journal.event(names.DEVICE_SAMPLE, tick / 5, device=0, power_w=50.0, energy_j=10.0 * tick)
        if tick == 50:
            journal.event(name, tick / 5 + 0.1, **values)
    journal.close()
    rank(tmp_path, 0, ranks=1).journal.close()
    trace = read_run(tmp_path)
    assert trace.lost == {"bad_row": 1}
    [device] = trace.devices
    use = device.over(1_000_000_000, 19_000_000_000)
    assert use.total("energy_j") == pytest.approx(900.0)
    assert use.mean("power_w") == pytest.approx(50.0)
    assert use.samples == 91


def test_every_key_about_devices_is_documented(tmp_path: Path) -> None:
    rank(tmp_path, 0, ranks=1, use=[gpu(0)]).journal.close()
    journal = sidecar(tmp_path, gpus=1)
    journal.event(names.DEVICE_FAULT, 5, device=0, what="xid", code=79)
    journal.close()
    documented = set(re.findall(r"`([a-z_0-9]+)`", REFERENCE.read_text(encoding="utf-8")))
    by_name = (
        "lost",
        "faults",
        "absent",
        "per_step",
        "known_steps",
        "per_second",
        "means",
        "maxima",
        "by_device",
    )

    def keys(value: Any, path: str = "") -> set[str]:
        if isinstance(value, list):
            return set().union(*(keys(item) for item in value))
        if not isinstance(value, dict) or path in by_name:
            return set()
        return set(value).union(*(keys(item, key) for key, item in value.items()))

    found = summary_of(tmp_path)["devices"]
    assert keys(found) - documented == set()
    assert found["list"][0]["faults"] == [{"time_s": 5.0, "what": "xid", "code": 79}]
