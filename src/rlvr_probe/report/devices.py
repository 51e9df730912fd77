"""What GPUs and hosts did in each stage, and what is known of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlvr_probe.analysis.summary.devices import held_down, least_busy
from rlvr_probe.model import names
from rlvr_probe.report.document import Block, Column, Line, clean, duration, grid, seconds

__all__ = ["device_alarms", "device_table"]

_GIB: Final = 1 << 30
_COUNTERS: Final = 7
_REASONS: Final = 6
"""Counters of a reason, and reasons, that are said."""

_HOLDS: Final = {"throttle_power_s": "their power cap", "throttle_thermal_s": "heat"}
"""What holds clocks down, by its counter."""


def device_alarms(found: Mapping[str, Any] | None) -> list[Block]:
    """Errors that drivers reported, sidecars that died, and what else went wrong in them."""
    if found is None:
        return []
    lines = list[str]()
    for one in found["list"]:
        counts = Counter((fault["what"], fault["code"]) for fault in one["faults"])
        for (what, code), count in counts.most_common(2):
            alike = [f["time_s"] for f in one["faults"] if (f["what"], f["code"]) == (what, code)]
            error = clean(what, 16) if code is None else f"{clean(what, 16)} {code}"
            times = "" if count == 1 else f" {count:,} times, first"
            lines.append(
                f"GPU FAULT: {error} of {_short(one['uuid'])} ({_where(one)}){times} after"
                f" {duration(min(alike))}"
            )
    more = len(lines) - 6
    lines = lines[:6] + ([f"GPU FAULT: {more} more"] if more > 0 else [])
    lost = sum(sum(one["lost"].values()) for one in found["sidecars"])
    died = sum(one["state"] == "died" for one in found["sidecars"])
    if died:
        lines.append(f"{died} of the sidecars that read devices died")
    if lost:
        lines.append(f"LOST: {lost:,} readings of devices")
    faults = sum((Counter(one["faults"]) for one in found["sidecars"]), Counter[str]())
    if faults:
        some = ", ".join(f"{count:,} in {clean(at, 72)}" for at, count in faults.most_common(5))
        rest = f", and {len(faults) - 5} more" if len(faults) > 5 else ""
        lines.append(f"FAULTS of the sidecar, which the run does not see: {some}{rest}")
    return [Line(text, "alarm") for text in lines]


def device_table(found: Mapping[str, Any] | None) -> list[Block]:
    """What devices did by stage, and what they are; nothing where none was read."""
    if found is None or not found["list"]:
        return []
    blocks: list[Block] = []
    gpus = {one["stage"]: one for one in found["stages"] if one["kind"] == "gpu"}
    hosts = {one["stage"]: one for one in found["stages"] if one["kind"] == "host"}
    stages = [
        stage for stage in (names.STEP.name, *names.STAGES) if stage in gpus or stage in hosts
    ]
    rows = [_row(stage, gpus.get(stage), hosts.get(stage)) for stage in stages]
    if any(any(row[1:]) for row in rows):
        columns = (
            Column("stage", number=False),
            Column("GPUs"),
            Column("SM"),
            Column("tensor"),
            Column("DRAM"),
            Column("any kernel"),
            Column("W each"),
            Column("kJ/step"),
            Column("GiB max"),
            Column("CPU cores"),
            Column("", number=False),
        )
        of = [*(["kJ of all GPUs"] if gpus else []), *(["cores of all programs"] if hosts else [])]
        title = f"Devices (means over the stage; {', '.join(of)})"
        blocks.append(grid(title, columns, rows, head=24, tail=0, what="stages"))
    blocks += [Line(text) for text in _findings(found)]
    return [*blocks, *(Line(text, "quiet") for text in _about(found))]


def _row(
    stage: str, gpu: Mapping[str, Any] | None, host: Mapping[str, Any] | None
) -> Sequence[str]:
    cores = None if host is None else host["per_second"].get("cpu_s")
    cells = [stage, *_gpu_cells(gpu), "" if cores is None else f"{cores:,.1f}"]
    marks = list[str]()
    told = host if gpu is None else gpu
    if told is not None:
        marks += ["rough"] if told["quality"] == "low" else []
        marks += ["shared"] if told["shared"] else []
    return [*cells, ", ".join(marks)]


def _gpu_cells(one: Mapping[str, Any] | None) -> list[str]:
    if one is None:
        return [""] * 8
    means, maxima = one["means"], one["maxima"]
    watts = one["per_second"].get("energy_j", means.get("power_w"))
    energy_j = one["per_step"].get("energy_j")
    # How busy it was, if nothing better is known.
    plain = None if "sm_active" in means else means.get("utilization")
    return [
        f"{one['devices']:,}",
        *(_percent(means.get(name)) for name in ("sm_active", "tensor_active", "dram_active")),
        _percent(plain),
        "" if watts is None else f"{watts:,.0f}",
        seconds(None if energy_j is None else energy_j / 1000),
        _gib(maxima.get("memory_b")),
    ]


def _about(found: Mapping[str, Any]) -> list[str]:
    """What the devices are, and what they cannot tell."""
    lines = list[str]()
    gpus = [one for one in found["list"] if one["kind"] == "gpu"]
    if gpus:
        models = Counter(clean(one["model"] or "GPU", 32) for one in gpus)
        what = ", ".join(f"{count:,} x {model}" for model, count in models.most_common(4))
        rates = {one["hz"] for one in gpus if one["hz"] is not None}
        often = f", read {_range(rates)} times a second" if rates else ""
        lines.append(f"{what} on {_hosts(gpus)}{often}")
    lines += _absent(gpus)
    scopes = {one["scope"] for one in found["stages"] if one["kind"] == "gpu"}
    if any(one["quality"] == "low" for one in found["stages"]):
        lines.append("rough: most of the time lies in spans too short for so few readings")
    if any(one["shared"] for one in found["stages"]):
        lines.append(
            "shared: other processes worked on these GPUs at the same time; nothing is split"
        )
    if "node" in scopes:
        lines.append("no process told which GPUs it works on: these are all of its node")
    return lines


def _absent(gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """What GPUs cannot tell, by reason, and of how many that is so where it is not all."""
    alike = dict[tuple[str, tuple[str, ...]], int]()
    for one in gpus:
        by_reason = dict[str, list[str]]()
        for name, reason in one["absent"].items():
            by_reason.setdefault(clean(reason, 60), []).append(clean(name, 24))
        for reason, told in by_reason.items():
            key = reason, tuple(told)
            alike[key] = alike.get(key, 0) + 1
    lines = list[str]()
    for (reason, counters), count in sorted(alike.items(), key=lambda item: -item[1]):
        more = f" and {len(counters) - _COUNTERS} more" if len(counters) > _COUNTERS else ""
        of = "" if count == len(gpus) else f" (of {count:,} of {len(gpus):,} GPUs)"
        lines.append(f"not known: {', '.join(counters[:_COUNTERS])}{more}: {reason}{of}")
    rest = len(lines) - _REASONS
    return [*lines[:_REASONS], *([f"not known: {rest} more reasons, --json has them"] * (rest > 0))]


def _findings(found: Mapping[str, Any]) -> list[str]:
    """What stands out."""
    lines = list[str]()
    least = least_busy(found)
    if least is not None:
        facts = next(one for one in found["list"] if one["uuid"] == least.uuid)
        what = "SM" if least.counter == "sm_active" else "any kernel"
        lines.append(
            f"least busy: {_short(least.uuid)} ({_where(facts)}): {what} {_percent(least.share)} in"
            f" {clean(least.stage)}, where the mean is {_percent(least.mean)}"
        )
    for name, share in held_down(found).items():
        lines.append(f"GPUs were held down by {_HOLDS[name]} {share:.1%} of the time of steps")
    return lines


def _where(one: Mapping[str, Any]) -> str:
    """Host and ranks of a device."""
    ranks = [f"rank {rank}" for rank in one["ranks"][:4]]
    return ", ".join([clean(one["host"], 24), *ranks])


def _hosts(gpus: Sequence[Mapping[str, Any]]) -> str:
    hosts = sorted({clean(one["host"], 24) for one in gpus})
    return hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"


def _range(rates: set[float]) -> str:
    low, high = min(rates), max(rates)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def _gib(value: float | None) -> str:
    return "" if value is None else f"{value / _GIB:,.1f}"


def _short(uuid: str) -> str:
    """Enough of a name to tell it from the others of a node."""
    return clean(uuid, 13).rstrip("…-")
