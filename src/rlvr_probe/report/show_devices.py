"""What GPUs and hosts did in each stage, and what is known of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from rlvr_probe.analysis.summary.devices import held_down, least_busy
from rlvr_probe.model import names
from rlvr_probe.report.blocks import Block, Line, clean, duration, number, seconds, table

__all__ = ["device_alarms", "device_table"]

_GIB: Final = 1 << 30
_COUNTERS: Final = 7
_REASONS: Final = 6
"""Counters of a reason, and reasons, that are said."""

_HEADINGS: Final = (
    "<stage", "GPUs", "SM", "tensor", "DRAM", "any kernel", "W each", "kJ/step", "GiB max",
    "CPU cores", "<",
)  # fmt: skip

_HOLDS: Final = {"throttle_power_s": "their power cap", "throttle_thermal_s": "heat"}
"""What reduces clocks, by its counter."""


def device_alarms(devices: Mapping[str, Any] | None) -> list[Block]:
    """Errors that drivers reported, sidecars that died, and what else went wrong in them."""
    if devices is None:
        return []
    lines = list[str]()
    for device in devices["list"]:
        times = dict[tuple[str, int | None], list[float]]()
        for fault in device["faults"]:
            times.setdefault((fault["what"], fault["code"]), []).append(fault["time_s"])
        for (what, code), times_s in sorted(times.items(), key=lambda item: -len(item[1]))[:2]:
            error = clean(what, 16) if code is None else f"{clean(what, 16)} {code}"
            often = "" if len(times_s) == 1 else f" {len(times_s):,} times, first"
            lines.append(
                f"GPU FAULT: {error} of {_short(device['uuid'])} ({_where(device)}){often} after"
                f" {duration(min(times_s))}"
            )
    more = len(lines) - 6
    lines = lines[:6] + ([f"GPU FAULT: {more} more"] if more > 0 else [])
    sidecars = devices["sidecars"]
    lost = sum(sum(sidecar["lost"].values()) for sidecar in sidecars)
    died = sum(sidecar["state"] == "died" for sidecar in sidecars)
    if died:
        lines.append(f"{died} of the sidecars that read devices died")
    if lost:
        lines.append(f"LOST: {lost:,} readings of devices")
    faults = sum((Counter(sidecar["faults"]) for sidecar in sidecars), Counter[str]())
    if faults:
        some = ", ".join(f"{count:,} in {clean(at, 72)}" for at, count in faults.most_common(5))
        rest = f", and {len(faults) - 5} more" if len(faults) > 5 else ""
        lines.append(f"FAULTS inside the sidecar, hidden from the run: {some}{rest}")
    return [Line(text, "alarm") for text in lines]


def device_table(devices: Mapping[str, Any] | None) -> list[Block]:
    """What devices did by stage, and what they are; nothing where none was read."""
    if devices is None or not devices["list"]:
        return []
    gpus, hosts = (
        {entry["stage"]: entry for entry in devices["stages"] if entry["kind"] == kind}
        for kind in ("gpu", "host")
    )
    rows = [
        _row(stage, gpus.get(stage), hosts.get(stage))
        for stage in (names.STEP.name, *names.STAGES)
        if stage in gpus or stage in hosts
    ]
    if not any(any(row[1:]) for row in rows):
        rows = []
    columns = {heading: itemgetter(place) for place, heading in enumerate(_HEADINGS)}
    of = [*(["kJ of all GPUs"] if gpus else []), *(["cores of all programs"] if hosts else [])]
    title = f"Devices (means over the stage; {', '.join(of)})"
    blocks = table(title, columns, rows, head=24, what="stages")
    blocks += [Line(text) for text in _findings(devices)]
    return [*blocks, *(Line(text, "quiet") for text in _about(devices))]


def _row(
    stage: str, gpu: Mapping[str, Any] | None, host: Mapping[str, Any] | None
) -> Sequence[str]:
    cores = None if host is None else host["per_second"].get("cpu_s")
    entry = (host if gpu is None else gpu) or {"quality": "", "shared": False}
    marks = ["rough"] if entry["quality"] == "low" else []
    marks += ["shared"] if entry["shared"] else []
    return [stage, *_gpu_cells(gpu), number(cores, ",.1f"), ", ".join(marks)]


def _gpu_cells(gpu: Mapping[str, Any] | None) -> list[str]:
    if gpu is None:
        return [""] * 8
    means = gpu["means"]
    energy_j, memory_b = gpu["per_step"].get("energy_j"), gpu["maxima"].get("memory_b")
    return [
        f"{gpu['devices']:,}",
        *(_percent(means.get(name)) for name in ("sm_active", "tensor_active", "dram_active")),
        # How busy it was, if nothing better is known.
        "" if "sm_active" in means else _percent(means.get("utilization")),
        number(gpu["per_second"].get("energy_j", means.get("power_w")), ",.0f"),
        seconds(None if energy_j is None else energy_j / 1000),
        number(None if memory_b is None else memory_b / _GIB, ",.1f"),
    ]


def _about(devices: Mapping[str, Any]) -> list[str]:
    """What the devices are, and which counters they lack."""
    lines = list[str]()
    gpus = [device for device in devices["list"] if device["kind"] == "gpu"]
    if gpus:
        models = Counter(clean(gpu["model"] or "GPU", 32) for gpu in gpus)
        what = ", ".join(f"{count:,} x {model}" for model, count in models.most_common(4))
        rates = {gpu["hz"] for gpu in gpus if gpu["hz"] is not None}
        often = f", read {_range(rates)} times a second" if rates else ""
        lines.append(f"{what} on {_hosts(gpus)}{often}")
    lines += _absent(gpus)
    stages = devices["stages"]
    if any(entry["quality"] == "low" for entry in stages):
        lines.append("rough: most spans are short for this rate of readings")
    if any(entry["shared"] for entry in stages):
        lines.append(
            "shared: other processes used these GPUs at the same time; values are of whole GPUs"
        )
    if any(entry["kind"] == "gpu" and entry["scope"] == "node" for entry in stages):
        lines.append("GPUs of each process unknown: shown are all of its node")
    return lines


def _absent(gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """Counters that GPUs lack, by reason, and of how many where it is not all."""
    alike = Counter[tuple[str, tuple[str, ...]]]()
    for gpu in gpus:
        by_reason = dict[str, list[str]]()
        for name, reason in gpu["absent"].items():
            by_reason.setdefault(clean(reason, 60), []).append(clean(name, 24))
        alike.update((reason, tuple(counters)) for reason, counters in by_reason.items())
    lines = list[str]()
    for (reason, counters), count in alike.most_common():
        more = f" and {len(counters) - _COUNTERS} more" if len(counters) > _COUNTERS else ""
        of = "" if count == len(gpus) else f" (of {count:,} of {len(gpus):,} GPUs)"
        lines.append(f"unknown: {', '.join(counters[:_COUNTERS])}{more}: {reason}{of}")
    rest = len(lines) - _REASONS
    return [*lines[:_REASONS], *([f"unknown: {rest} more reasons, see --json"] * (rest > 0))]


def _findings(devices: Mapping[str, Any]) -> list[str]:
    """What stands out."""
    lines = list[str]()
    least = least_busy(devices)
    if least is not None:
        device = next(entry for entry in devices["list"] if entry["uuid"] == least.uuid)
        what = "SM" if least.counter == "sm_active" else "any kernel"
        lines.append(
            f"least busy: {_short(least.uuid)} ({_where(device)}): {what} {_percent(least.share)}"
            f" in {clean(least.stage)}, where the mean is {_percent(least.mean)}"
        )
    for name, share in held_down(devices).items():
        lines.append(f"GPU clocks reduced by {_HOLDS[name]} for {share:.1%} of step time")
    return lines


def _where(device: Mapping[str, Any]) -> str:
    """Host and ranks of a device."""
    ranks = [f"rank {rank}" for rank in device["ranks"][:4]]
    return ", ".join([clean(device["host"], 24), *ranks])


def _hosts(gpus: Sequence[Mapping[str, Any]]) -> str:
    hosts = sorted({clean(gpu["host"], 24) for gpu in gpus})
    return hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"


def _range(rates: set[float]) -> str:
    low, high = min(rates), max(rates)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def _short(uuid: str) -> str:
    """Enough of a name to distinguish it from the others of a node."""
    return clean(uuid, 13).rstrip("…-")
