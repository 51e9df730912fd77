"""What GPUs and hosts did while the training was in a stage."""

from __future__ import annotations

from typing import Final

from rlvr_probe_otlp.views.queries import grown, held, rate, seconds_of_stages, taken, total
from rlvr_probe_otlp.views.table import OUTPUT, TOKENS, Board, Panel, each, number

__all__ = ["GPUS"]

_GPU = ', hw_type="gpu"'
_HOST = ', hw_type="host"'

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
                ),
                Panel(
                    "SM activity",
                    "Mean share of multiprocessors with a warp on them.",
                    "percentunit",
                    each("rlvr.gpu.sm.active", "{{hw_id}}", "hw.id"),
                ),
                Panel(
                    "Tensor core activity",
                    "Low in an update means that it waits for memory, for"
                    " other GPUs or for the host.",
                    "percentunit",
                    each("rlvr.gpu.tensor.active", "{{hw_id}}", "hw.id"),
                ),
                Panel(
                    "Memory bandwidth in use",
                    "High in a rollout: decoding reads weights and caches.",
                    "percentunit",
                    each("rlvr.gpu.dram.active", "{{hw_id}}", "hw.id"),
                ),
                Panel(
                    "Any kernel running",
                    "One busy multiprocessor makes it 100 %: a bound, no measure of work.",
                    "percentunit",
                    each("hw.gpu.utilization", "{{hw_id}}", "hw.id"),
                ),
                Panel(
                    "Memory",
                    "In use, of all processes together.",
                    "bytes",
                    (("{{hw_id}}", held("hw.gpu.memory.usage", "hw.id", how="max", where=_GPU)),),
                ),
                Panel(
                    "Power", "Drawn at the moment.", "watt", each("hw.power", "{{hw_id}}", "hw.id")
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
                number(
                    "Memory errors",
                    "That could not be corrected, since the start.",
                    "none",
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
                    (
                        (
                            "{{hw_id}} {{rlvr_throttle_reason}}",
                            rate("rlvr.gpu.throttle.time", "hw.id", "rlvr.throttle.reason"),
                        ),
                    ),
                ),
                Panel(
                    "SM clock",
                    "Falls where power or temperature holds it down.",
                    "hertz",
                    each("rlvr.gpu.clock.sm", "{{hw_id}}", "hw.id"),
                ),
                Panel(
                    "NVLink",
                    "Bytes per second.",
                    "Bps",
                    (
                        (
                            "{{hw_id}} {{network_io_direction}}",
                            rate("rlvr.gpu.nvlink.io", "hw.id", "network.io.direction"),
                        ),
                    ),
                ),
                Panel(
                    "PCIe",
                    "Bytes per second.",
                    "Bps",
                    (
                        (
                            "{{hw_id}} {{network_io_direction}}",
                            rate("rlvr.gpu.pcie.io", "hw.id", "network.io.direction"),
                        ),
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
                    (("{{host_name}}", rate("system.cpu.time", "host.name", where=_HOST)),),
                ),
                Panel(
                    "Memory of the host",
                    "In use.",
                    "bytes",
                    each("hw.gpu.memory.usage", "{{host_name}}", "host.name", where=_HOST),
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
