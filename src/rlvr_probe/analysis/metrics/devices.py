"""GPUs: how busy they are in each stage, what they draw, and what a token costs.

Every counter is an amount that grows over pieces of time: what counts up by itself, a share times
the window it is the mean of, a reading between two readings. What a device did from one moment to
another is the difference of two sums, and how much of that time was read is known beside it. A
reading is not extended beyond what it measures: a piece is omitted where a counter went back, or
where nothing was read for five periods. A counter that counts up by itself goes on meanwhile: such
a gap counts where neither end of a stage lies in it.

Inside of a piece an amount grows as :mod:`rlvr_probe.model.readings` has it for ``show``; the tests
hold one against the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlvr_probe.analysis.metrics.registry import FAMILIES
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.results import Answer, Chapter
from rlvr_probe.analysis.samples import is_workload, prepare
from rlvr_probe.analysis.statements import fill, islands, make, statements
from rlvr_probe.model import names
from rlvr_probe.model.counters import COUNTERS
from rlvr_probe.recording.tables import Tables

__all__ = ["TABLES", "devices"]

_SQL: Final = statements(__name__)

_MOST: Final = 64
"""GPUs that have metrics, those that work least; all are in the sums."""
_KNOWN: Final = 0.5
"""A mean that is known of a smaller share of the time is omitted."""
_NAMED: Final = 0.5
"""A GPU that is so much more busy by NVML than by its multiprocessors is named."""

_MEANS: Final = tuple(FAMILIES["devices.stage"].metrics)
"""Counters that have a mean."""
_RATES: Final = {
    "energy_j": "watts",
    "throttle_thermal_s": "throttle_thermal",
    "throttle_power_s": "throttle_power",
}
"""Counters that count up, with the metric of their rate."""
_GPU: Final = (
    "sm_active", "utilization", "watts", "throttle_thermal", "memory_max", "temperature_max",
)  # fmt: skip


def _list(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _merged(rows: str, keys: str) -> str:
    return fill(_SQL["apart"], keys=keys, islands=islands(rows, keys))


def _stages() -> str:
    leaves = [name for name in ("step", *names.STAGES) if name != names.WAIT.name]
    spans = _merged(fill(_SQL["spans"], leaves=_list(leaves)), "step_id, stage, owner")
    return _merged(fill(_SQL["stages"], spans_apart=spans), "step_id, stage, device")


TABLES: Final = {
    **_SQL.derived("works_on", "owned"),
    "device_stage": (
        "a stage of a finished step on a GPU, once where processes share it", _stages(),
    ),
    **_SQL.derived(
        "counter_piece",
        used=_list((*_MEANS, *_RATES)),
        **{
            kind: _list([counter.name for counter in COUNTERS if counter.kind == kind])
            for kind in ("total", "window")
        },
    ),
    **_SQL.derived("device_use"),
}  # fmt: skip
"""By name: what a row is, and the query that makes it."""


def devices(tables: Tables) -> Chapter:
    """What GPUs did."""
    section = Section(tables, "devices", "GPUs")
    prepare(tables)
    if not section.ask(_SQL["readings"]).row[0]:
        why = (
            "a workload has no readings of devices"
            if is_workload(tables)
            else "no device was read: GPU metrics need the sidecar"
        )
        section.add("stage.seconds", None, why=why)
        section.notes.append(why)
        return section.chapter()
    make(tables, TABLES)
    _stage_metrics(section)
    _gpus(section)
    [others] = section.ask(_SQL["elsewhere"]).row
    if others:
        section.notes.append(
            f"{others:,} GPUs were read that no recorded stage works on, such as those of an engine"
            " that is a server: the metrics of stages omit them"
        )
    answer = section.ask(_SQL["faults"])
    count, faulty = answer.row
    section.add("faults", count, answer, evidence=evidence_of(device=faulty))
    return section.chapter()


def _stage_metrics(section: Section) -> None:
    answer = section.ask(_SQL["by_stage"])
    if not answer.rows:
        section.add("stage.seconds", None, answer)
        return
    energy = section.ask(_SQL["energy"])
    joules = {row["stage"]: row for row in energy.dicts}
    for row in answer.dicts:
        _stage(section, row, answer, joules.get(row["stage"], {}), energy)
    if any(row["scope"] == "node" for row in answer.dicts):
        section.notes.append(
            "some processes did not record which GPUs they work on: all GPUs of their nodes count"
        )
    [period_ns] = section.ask(_SQL["period"]).row
    short = [row["stage"] for row in answer.dicts if period_ns and row["mean_ns"] < 3 * period_ns]
    if short:
        section.notes.append(
            f"rough, shorter than three periods of reading ({period_ns / 1e9:.1f} s): "
            + ", ".join(short)
        )
    section.add_series("by_step", section.ask(_SQL["by_step"]))


def _stage(
    section: Section, row: Mapping[str, Any], answer: Answer, joules: Mapping[str, Any],
    energy: Answer,
) -> None:  # fmt: skip
    by, counters = {"stage": row["stage"]}, row["counters"] or {}
    known = [name for name in ("sm_active", "power_w", "utilization") if name in counters]
    read = evidence_of(
        device=dict.fromkeys(
            device for counter in counters.values() for device in counter["least"] or ()
        )
    )
    for name in ("gpus", "seconds"):
        section.add(f"stage.{name}", row[name], answer, evidence=read, by=by)
    share = counters[known[0]]["known"] if known else None
    section.add("stage.known", share, answer, evidence=read, by=by)

    def mean(counter: str, kind: str = "mean") -> float | None:
        values = counters.get(counter)
        return values[kind] if values and values["known"] >= _KNOWN else None

    for name, counter in (*zip(_MEANS, _MEANS, strict=True), *((v, k) for k, v in _RATES.items())):
        kind = "rate" if counter in _RATES else "mean"
        least = evidence_of(device=counters[counter]["least"]) if counter in counters else None
        section.add(f"stage.{name}", mean(counter, kind), answer, evidence=least, by=by)
    for name in ("energy", "energy_per_token"):
        steps = evidence_of(step=joules.get("steps"))
        section.add(f"stage.{name}", joules.get(name), energy, evidence=steps, by=by)
    busy, active = mean("utilization"), mean("sm_active")
    gap = None if busy is None or active is None else max(0.0, busy - active)
    least = None if gap is None else evidence_of(device=counters["sm_active"]["least"])
    section.add("stage.busy_but_idle", gap, answer, evidence=least, by=by)
    if gap is not None and gap >= _NAMED:
        section.notes.append(
            f"in {row['stage']} GPUs are busy {busy:.0%} of the time by NVML, and"
            f" {active:.0%} of their multiprocessors work: utilization says little here"
        )


def _gpus(section: Section) -> None:
    answer = section.ask(_SQL["gpus"])
    for row in answer.dicts[:_MOST]:
        evidence, by = evidence_of(device=[row["device"]]), {"device": row["uuid"]}
        for name in _GPU:
            section.add(f"gpu.{name}", row[name], answer, evidence=evidence, by=by)
    if len(answer.rows) > _MOST:
        section.notes.append(f"{_MOST} of {len(answer.rows):,} GPUs have metrics, the least active")
