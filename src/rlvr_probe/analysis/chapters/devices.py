"""GPUs: how busy they are in each stage, what they draw, and what a token costs."""

from __future__ import annotations

from typing import Any, Final

from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    SeriesDefinition,
    evidence_of,
)
from rlvr_probe.analysis.chapters.integrals import integrate
from rlvr_probe.analysis.chapters.samples import is_workload, prepare
from rlvr_probe.analysis.figures import Answer, Chapter, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "devices"]

_SQL: Final = statements(__name__)

_NONE: Final = "no GPU was read during a stage of a finished step"
_MOST: Final = 64
"""GPUs that figures are made for, those that work least; all are in the sums."""
_KNOWN: Final = 0.5
"""Of a mean that is known of a smaller share of the time, nothing is said."""
_NAMED: Final = 0.5
"""A GPU that is so much more busy by NVML than by its multiprocessors is named."""

_MEANS: Final = {
    "engine_active": ("time with any engine busy", "1"),
    "sm_active": ("multiprocessors with a warp on them", "1"),
    "sm_occupancy": ("warp slots in use", "1"),
    "tensor_active": ("time with tensor cores busy", "1"),
    "dram_active": ("memory bandwidth in use", "1"),
    "utilization": ("time with any kernel, by NVML", "1"),
    "memory_b": ("memory in use", "By"),
    "power_w": ("power, of readings", "W"),
    "sm_clock_hz": ("clock of the multiprocessors", "Hz"),
    "temperature_c": ("temperature", "Cel"),
}
_RATES: Final = {
    "energy_j": (
        "power", "watts", "Energy drawn, by the device's own counter, over the time.", "W",
    ),
    "throttle_thermal_s": (
        "time held down by temperature", "throttle_thermal",
        "Time in which temperature held clocks down over the time.", "1",
    ),
    "throttle_power_s": (
        "time held down by the power cap", "throttle_power",
        "Time in which the power cap held clocks down over the time.", "1",
    ),
}  # fmt: skip


def _stage(name: str, title: str, meaning: str, unit: str, unknown: str = _NONE) -> Definition:
    return Definition(f"devices.stage.{name}", title, meaning, unit, unknown, by=("stage",))


_TIME: Final = {
    "gpus": _stage("gpus", "GPUs", "GPUs that were read in the stage (device).", "1"),
    "seconds": _stage(
        "seconds",
        "GPU time",
        "Time of the stage, summed over GPUs; where processes share a GPU, each moment counts once"
        " (span).",
        "GPU-s",
    ),
    "known": _stage(
        "known",
        "share that was read",
        "Share of that time of which sm_active, or else power or utilization, was read (reading).",
        "1",
    ),
}
_STAGE_MEANS: Final = {
    name: _stage(
        name,
        title,
        f"Mean of {name} over GPUs and over the time of which it is known: windows weighted by"
        " overlap, other readings joined by straight lines (reading).",
        unit,
        f"{name} was read for less than half of the time, or not at all",
    )
    for name, (title, unit) in _MEANS.items()
}
_STAGE_RATES: Final = {
    counter: _stage(
        name,
        title,
        f"{meaning[:-1]}, of GPUs whose {counter} was read; between two readings its rate"
        " changes once, or not at all (reading).",
        unit,
        f"{counter} was read for less than half of the time, or not at all",
    )
    for counter, (title, name, meaning, unit) in _RATES.items()
}
_ENERGY: Final = {
    "energy": _stage(
        "energy",
        "energy of a step",
        "Energy that all GPUs drew in the stage, mean of the steps of which all of it is known"
        " (reading.energy_j).",
        "J",
        "energy_j was not read over the whole of any step",
    ),
    "energy_per_token": _stage(
        "energy_per_token",
        "energy of a token",
        "Energy that all GPUs drew in the stage over response tokens generated in the same steps"
        " (reading.energy_j, trajectory.response_tokens).",
        "J/token",
        "energy_j was not read over the whole of any step, or lengths of these are not known",
    ),
}
_IDLE: Final = _stage(
    "busy_but_idle",
    "busy by NVML, idle by SM",
    "Mean utilization less mean sm_active, at least 0: how much of the time a kernel ran on some"
    " multiprocessor while others had none (reading).",
    "1",
    "utilization and sm_active were not both read",
)


def _gpu(name: str, title: str, meaning: str, unit: str) -> Definition:
    return Definition(
        f"devices.gpu.{name}", title, meaning, unit, f"{name} was not read of it", by=("device",)
    )


_GPU: Final = {
    "sm_active": _gpu(
        "sm_active",
        "multiprocessors with a warp on them",
        "Mean of sm_active over the time of steps (reading).",
        "1",
    ),
    "utilization": _gpu(
        "utilization",
        "time with any kernel, by NVML",
        "Mean of utilization over the time of steps (reading).",
        "1",
    ),
    "watts": _gpu("watts", "power", "Energy drawn in steps over their time (reading).", "W"),
    "throttle_thermal": _gpu(
        "throttle_thermal",
        "time held down by temperature",
        "Time in which temperature held clocks down over the time of steps (reading).",
        "1",
    ),
    "memory_max": _gpu(
        "memory_max", "most memory", "Largest reading of memory_b in the run (reading).", "By"
    ),
    "temperature_max": _gpu(
        "temperature_max",
        "highest temperature",
        "Largest reading of temperature_c in the run (reading).",
        "Cel",
    ),
}
_FAULTS: Final = Definition(
    "devices.faults",
    "faults of devices",
    "Errors that drivers reported (device_fault).",
    "1",
    "no device was read",
)
DEFINITIONS: Final = (
    *_TIME.values(), *_STAGE_MEANS.values(), *_STAGE_RATES.values(), *_ENERGY.values(), _IDLE,
    *_GPU.values(), _FAULTS,
)  # fmt: skip
_BY_STEP: Final = SeriesDefinition(
    "devices.by_step",
    "energy and activity by step",
    "Of all GPUs in each step: energy, where all of it is known, and mean sm_active (reading).",
    {"step": "", "energy": "J", "sm_active": "1", "seconds": "GPU-s"},
)
SERIES: Final = (_BY_STEP,)


def devices(tables: Tables) -> Chapter:
    """What GPUs did."""
    found = Found("devices", "GPUs")
    prepare(tables)
    readings = query(tables, _SQL["readings"]).row[0]
    if not readings:
        why = "no device was read: without a sidecar nothing is known of GPUs"
        if is_workload(tables):
            why = "a workload has no readings of devices"
        found.add(_TIME["seconds"].of(None, why=why))
        found.notes.append(why)
        return found.chapter()
    integrate(tables)
    _stages(tables, found)
    _gpus(tables, found)
    [others] = query(tables, _SQL["elsewhere"]).row
    if others:
        found.notes.append(
            f"{others:,} GPUs were read that no recorded stage works on, such as those of an engine"
            " that is a server: they are in no figure of a stage"
        )
    answer = query(tables, _SQL["faults"])
    count, faulty = answer.row
    found.add(_FAULTS.of(count, answer, evidence=evidence_of(device=faulty)))
    return found.chapter()


def _stages(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["by_stage"])
    if not answer.rows:
        found.add(_TIME["seconds"].of(None, answer))
        return
    energy = query(tables, _SQL["energy"])
    joules = {row["stage"]: row for row in energy.dicts}
    for told in answer.dicts:
        _stage_figures(found, told, answer, joules.get(told["stage"], {}), energy)
    scopes = {told["scope"] for told in answer.dicts}
    if "node" in scopes:
        found.notes.append(
            "some processes did not tell which GPUs they work on: all of their nodes"
        )
    [period_ns] = query(tables, _SQL["period"]).row
    short = [
        told["stage"] for told in answer.dicts if period_ns and told["mean_ns"] < 3 * period_ns
    ]
    if short:
        found.notes.append(
            f"rough, shorter than three periods of reading ({period_ns / 1e9:.1f} s): "
            + ", ".join(short)
        )
    steps = query(tables, _SQL["by_step"])
    found.series.append(_BY_STEP.of(steps))


def _stage_figures(
    found: Found, told: dict[str, Any], answer: Answer, joules: dict[str, Any], energy: Answer
) -> None:
    by = {"stage": told["stage"]}
    counters = told["counters"] or {}
    known = next(
        (counters[name]["known"] for name in ("sm_active", "power_w", "utilization") if
         name in counters),
        None,
    )  # fmt: skip
    read = evidence_of(
        device=dict.fromkeys(one for counter in counters.values() for one in counter["least"] or ())
    )
    for name, one in _TIME.items():
        value = known if name == "known" else told[name]
        found.add(one.of(value, answer, evidence=read, by=by))

    def mean(name: str, kind: str = "mean") -> float | None:
        one = counters.get(name)
        return one[kind] if one and one["known"] >= _KNOWN else None

    for name, one in (*_STAGE_MEANS.items(), *_STAGE_RATES.items()):
        least = evidence_of(device=counters[name]["least"]) if name in counters else None
        kind = "mean" if name in _STAGE_MEANS else "rate"
        found.add(one.of(mean(name, kind), answer, evidence=least, by=by))
    steps = evidence_of(step=joules.get("steps"))
    for name, one in _ENERGY.items():
        found.add(one.of(joules.get(name), energy, evidence=steps, by=by))
    busy, active = mean("utilization"), mean("sm_active")
    both = busy is not None and active is not None
    gap = max(0.0, busy - active) if busy is not None and active is not None else None
    least = evidence_of(device=counters["sm_active"]["least"]) if both else None
    found.add(_IDLE.of(gap, answer, evidence=least, by=by))
    if gap is not None and gap >= _NAMED:
        found.notes.append(
            f"in {told['stage']} GPUs are busy {busy:.0%} of the time by NVML, and"
            f" {active:.0%} of their multiprocessors work: utilization says little here"
        )


def _gpus(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["gpus"])
    for told in answer.dicts[:_MOST]:
        by = {"device": told["uuid"]}
        for name, one in _GPU.items():
            behind = evidence_of(device=[told["device"]])
            found.add(one.of(told[name], answer, evidence=behind, by=by))
    if len(answer.rows) > _MOST:
        found.notes.append(f"of {len(answer.rows):,} GPUs, {_MOST} have figures, the least active")
