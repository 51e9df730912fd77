"""What GPUs and hosts did while the training was in a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rlvr_probe_otlp.scraping.exposition import label_name
from rlvr_probe_otlp.views.queries import grown, held, rate, seconds_of_stages, short, taken, total
from rlvr_probe_otlp.views.table import OUTPUT, TOKENS, Board, Panel, alarm, each, number

__all__ = ["GPUS"]

_GPU = ', hw_type="gpu"'
_DEVICE = ("host.name", "hw.id")


def _of_each(query: str, *more: str) -> Sequence[tuple[str, str]]:
    """A query by device, with a legend that names its host, the first digits of its id and more."""
    told = "".join(f" {{{{{label_name(one)}}}}}" for one in more)
    return [(f"{{{{host_name}}}} {{{{gpu}}}}{told}", short(query))]


GPUS: Final = Board(
    "gpus",
    "rlvr-probe: GPUs against stages",
    "What the GPUs did while the training was in a stage; both on one axis of time.",
    (
        (
            "GPUs",
            (
                Panel(
                    "Ranks in each stage",
                    "As on the dashboard of steps: to be read with what is below.",
                    "none",
                    (("{{rlvr_stage}}", seconds_of_stages()),),
                    width=24,
                    stacked=True,
                    axis="ranks",
                ),
                Panel(
                    "SM activity",
                    "Mean share of multiprocessors with a warp on them.",
                    "percentunit",
                    _of_each(held("rlvr.gpu.sm.active", *_DEVICE)),
                    whole=True,
                ),
                Panel(
                    "Tensor core activity",
                    "Low in an update means that it waits for memory, for"
                    " other GPUs or for the host.",
                    "percentunit",
                    _of_each(held("rlvr.gpu.tensor.active", *_DEVICE)),
                    whole=True,
                ),
                Panel(
                    "Memory bandwidth in use",
                    "High in a rollout: decoding reads weights and caches.",
                    "percentunit",
                    _of_each(held("rlvr.gpu.dram.active", *_DEVICE)),
                    whole=True,
                ),
                Panel(
                    "Any kernel running",
                    "One busy multiprocessor makes it 100 %: a bound, no measure of work.",
                    "percentunit",
                    _of_each(held("hw.gpu.utilization", *_DEVICE)),
                    whole=True,
                ),
                Panel(
                    "Memory",
                    "In use, of all processes together.",
                    "bytes",
                    _of_each(held("hw.gpu.memory.usage", *_DEVICE, how="max")),
                ),
                Panel(
                    "Power", "Drawn at the moment.", "watt", _of_each(held("hw.power", *_DEVICE))
                ),
            ),
        ),
        (
            "Energy and limits",
            (
                number(
                    "Energy of a step",
                    "Of all GPUs, what was drawn between steps included.",
                    "joule",
                    f"{grown('hw.energy', where=_GPU)} / {grown('rl.train.steps')}",
                ),
                number(
                    "Energy of 1000 response tokens",
                    "Of all GPUs.",
                    "joule",
                    f"1000 * {grown('hw.energy', where=_GPU)}"
                    f" / {taken(TOKENS, what='sum', where=OUTPUT, per='increase')}",
                ),
                alarm(
                    "Memory errors",
                    "That could not be corrected, since the start.",
                    total("hw.errors", where=_GPU),
                ),
                number(
                    "Hottest GPU",
                    "At the moment.",
                    "celsius",
                    held("hw.temperature", how="max", where=_GPU),
                ),
                Panel(
                    "Time held down",
                    "Share of time in which clocks were held down.",
                    "percentunit",
                    _of_each(
                        rate("rlvr.gpu.throttle.time", *_DEVICE, "rlvr.throttle.reason"),
                        "rlvr.throttle.reason",
                    ),
                ),
                Panel(
                    "SM clock",
                    "Falls where power or temperature holds it down.",
                    "hertz",
                    _of_each(held("rlvr.gpu.clock.sm", *_DEVICE)),
                ),
                Panel(
                    "NVLink",
                    "Bytes per second.",
                    "Bps",
                    _of_each(
                        rate("rlvr.gpu.nvlink.io", *_DEVICE, "network.io.direction"),
                        "network.io.direction",
                    ),
                ),
                Panel(
                    "PCIe",
                    "Bytes per second.",
                    "Bps",
                    _of_each(
                        held("rlvr.gpu.pcie.throughput", *_DEVICE, "network.io.direction"),
                        "network.io.direction",
                    ),
                ),
            ),
        ),
        (
            "Hosts",
            (
                Panel(
                    "CPU",
                    "Cores that were busy.",
                    "none",
                    (("{{host_name}}", rate("rlvr.host.cpu.time", "host.name")),),
                ),
                Panel(
                    "Memory of the host",
                    "In use.",
                    "bytes",
                    each("system.memory.usage", "{{host_name}}", "host.name"),
                ),
                Panel(
                    "Network",
                    "Loopback left out.",
                    "Bps",
                    (
                        (
                            "{{host_name}} {{network_io_direction}}",
                            rate("system.network.io", "host.name", "network.io.direction"),
                        ),
                    ),
                ),
                Panel(
                    "Disks",
                    "Bytes per second.",
                    "Bps",
                    (
                        (
                            "{{host_name}} {{disk_io_direction}}",
                            rate("system.disk.io", "host.name", "disk.io.direction"),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
