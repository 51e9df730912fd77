"""The table of the dashboards: what each panel asks, and how its answer is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rlvr_probe_otlp.views.queries import (
    NOT_EVAL,
    grown,
    held,
    mean,
    quantile,
    rate,
    seconds_of_stages,
    share,
    taken,
    total,
)

__all__ = ["DASHBOARDS", "Board", "Panel"]

_GPU = ', hw_type="gpu"'
_HOST = ', hw_type="host"'
_TOOL = "gen_ai.tool.name"
_TOKENS = "gen_ai.client.token.usage"
_OUTPUT = f', gen_ai_token_type="output"{NOT_EVAL}'


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: What it shows, with its unit where Grafana has none for it.
        meaning: How to read it.
        unit: By the name that Grafana has for it.
        queries: Legend and query of each line.
        kind: ``timeseries`` draws over time, ``stat`` is one number.
        width: Of 24.
        stacked: Whether lines are laid on each other.
        signed: Whether values may be below 0.
    """

    title: str
    meaning: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 12
    stacked: bool = False
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard.

    Attributes:
        name: Of its file; its uid is made from it.
        rows: Title and panels of each row.
    """

    name: str
    title: str
    meaning: str
    rows: Sequence[tuple[str, Sequence[Panel]]]


def _number(title: str, meaning: str, unit: str, query: str) -> Panel:
    return Panel(title, meaning, unit, (("", query),), kind="stat", width=6)


def _spread(metric: str, *by: str, where: str = "") -> Sequence[tuple[str, str]]:
    """Median, 90 % and 99 % of a histogram."""
    named = "".join(f" {{{{{name.replace('.', '_')}}}}}" for name in by)
    return [
        (f"{label}{named}", quantile(below, metric, *by, where=where))
        for label, below in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99))
    ]


def _each(metric: str, legend: str, *by: str, where: str = "") -> Sequence[tuple[str, str]]:
    return [(legend, held(metric, *by, where=where))]


_STEPS = Board(
    "steps",
    "rlvr-probe: anatomy of a step",
    "How long steps take, and which stage takes that time.",
    (
        (
            "Steps",
            (
                _number(
                    "Steps", "that every rank finished, within the window.", "none",
                    grown("rl.train.steps"),
                ),
                _number("Step time, mean", "from the first to the last rank.", "s",
                    mean("rl.loop.duration")),
                _number(
                    "Trajectories per second", "generated, evaluations left out.", "none",
                    rate("rl.sample.samples", where=NOT_EVAL),
                ),
                _number(
                    "Response tokens per second", "of all ranks, evaluations left out.", "none",
                    taken(_TOKENS, what="sum", where=_OUTPUT),
                ),
                Panel(
                    "Step time", "A step lasts from its first to its last rank.", "s",
                    _spread("rl.loop.duration"),
                ),
                Panel(
                    "Mean reward of a step", "By reward function; evaluations are lines of their"
                    " own.", "none",
                    _each("rl.environment.reward.mean", "{{rlvr_reward_fn}} {{rlvr_mode}}",
                        "rlvr.reward.fn", "rlvr.mode"), signed=True,
                ),
            ),
        ),
        (
            "Stages",
            (
                Panel(
                    "Ranks in each stage", "How many ranks are in a stage at a time, on average:"
                    " its height is its share of the GPU-hours. What is missing up to the number of"
                    " ranks is spent in no stage.", "none",
                    (("{{rlvr_stage}}", seconds_of_stages()),), width=24, stacked=True,
                ),
                Panel("Rollout of a rank", "The slowest rank is what the others wait for.", "s",
                    _spread("rl.sample.duration", where=NOT_EVAL)),
                Panel("Reward of a rank", "Waiting for other ranks included.", "s",
                    _spread("rl.reward.duration", where=NOT_EVAL)),
                Panel("Update of a rank", "By stage: actor and critic.", "s",
                    _spread("rl.train.duration", "rlvr.stage")),
                Panel("Weight sync of a rank", "Rises with the model, not with the batch.", "s",
                    _spread("rl.sync.duration")),
                Panel("Waiting of a rank", "For other ranks or for data.", "s",
                    _spread("rlvr.wait.duration")),
                Panel("Evaluation, checkpoint: time of each", "Mean.", "s",
                    (("evaluation", mean("rlvr.evaluate.duration")),
                     ("checkpoint", mean("rlvr.checkpoint.duration")))),
            ),
        ),
    ),
)  # fmt: skip

_TAIL = Board(
    "tail",
    "rlvr-probe: the long tail",
    "How far the slowest trajectories and ranks are from the others.",
    (
        (
            "Lengths",
            (
                _number("Longest 1 % against the median",
                    "Response tokens: 1 if all are equally long.", "none",
                    f"({quantile(0.99, _TOKENS, where=_OUTPUT)})"
                    f" / ({quantile(0.5, _TOKENS, where=_OUTPUT)})"),
                _number("Cut by the cap", "Share of trajectories.", "percentunit",
                    f"{grown('rlvr.trajectory.truncated', where=NOT_EVAL)}"
                    f" / {grown('rl.sample.samples', where=NOT_EVAL)}"),
                _number("Slowest rollout rank against the median",
                    "99 % against 50 %: 1 if ranks are balanced.", "none",
                    f"({quantile(0.99, 'rl.sample.duration', where=NOT_EVAL)})"
                    f" / ({quantile(0.5, 'rl.sample.duration', where=NOT_EVAL)})"),
                _number("Mean response", "Tokens.", "none", mean(_TOKENS, where=_OUTPUT)),
                Panel("Response tokens", "Of each trajectory, results of tools included.", "none",
                    _spread(_TOKENS, where=_OUTPUT)),
                Panel("Prompt tokens", "Of the first prompt of each trajectory.", "none",
                    _spread(_TOKENS, where=f', gen_ai_token_type="input"{NOT_EVAL}')),
            ),
        ),
        (
            "Trajectories",
            (
                Panel("Time of a trajectory", "Where each goes its own way.", "s",
                    _spread("rlvr.trajectory.duration", where=NOT_EVAL)),
                Panel("Turns of a trajectory", "Calls of the engine.", "none",
                    _spread("rlvr.trajectory.turns", where=NOT_EVAL)),
                Panel("Time of a turn", "Calls of the engine for single trajectories.", "s",
                    _spread("rlvr.turn.duration", where=NOT_EVAL)),
                Panel("Staleness", "Steps that the trainer was ahead of the oldest weights that a"
                    " trajectory saw.", "none", _spread("rlvr.staleness")),
            ),
        ),
    ),
)  # fmt: skip

_DEVICES = Board(
    "gpus",
    "rlvr-probe: GPUs against stages",
    "What the GPUs did while the training was in a stage; both on one axis of time.",
    (
        (
            "GPUs",
            (
                Panel("Ranks in each stage", "As on the dashboard of steps: to be read with what is"
                    " below.", "none", (("{{rlvr_stage}}", seconds_of_stages()),), width=24,
                    stacked=True),
                Panel("SM activity", "Mean share of multiprocessors with a warp on them.",
                    "percentunit", _each("rlvr.gpu.sm.active", "{{hw_id}}", "hw.id")),
                Panel("Tensor core activity", "Low in an update means that it waits for memory, for"
                    " other GPUs or for the host.", "percentunit",
                    _each("rlvr.gpu.tensor.active", "{{hw_id}}", "hw.id")),
                Panel("Memory bandwidth in use", "High in a rollout: decoding reads weights and"
                    " caches.", "percentunit",
                    _each("rlvr.gpu.dram.active", "{{hw_id}}", "hw.id")),
                Panel("Any kernel running", "One busy multiprocessor makes it 100 %: a bound, no"
                    " measure of work.", "percentunit",
                    _each("hw.gpu.utilization", "{{hw_id}}", "hw.id")),
                Panel("Memory", "In use, of all processes together.",
                    "bytes", (("{{hw_id}}", held("hw.gpu.memory.usage", "hw.id", how="max",
                    where=_GPU)),)),
                Panel("Power", "Drawn at the moment.", "watt",
                    _each("hw.power", "{{hw_id}}", "hw.id")),
            ),
        ),
        (
            "Energy and limits",
            (
                _number("Energy of a step", "Of all GPUs, what was drawn between steps included.",
                    "joule", f"{grown('hw.energy', where=_GPU)} / {grown('rl.train.steps')}"),
                _number("Energy of 1000 response tokens", "Of all GPUs.", "joule",
                    f"1000 * {grown('hw.energy', where=_GPU)}"
                    f" / {taken(_TOKENS, what='sum', where=_OUTPUT, per='increase')}"),
                _number("Memory errors", "That could not be corrected, since the start.", "none",
                    total("hw.errors", where=_GPU)),
                _number("Hottest GPU", "At the moment.", "celsius",
                    held("hw.temperature", how="max", where=_GPU)),
                Panel("Time held down", "Share of time in which clocks were held down.",
                    "percentunit", (("{{hw_id}} {{rlvr_throttle_reason}}",
                    rate("rlvr.gpu.throttle.time", "hw.id", "rlvr.throttle.reason")),)),
                Panel("SM clock", "Falls where power or temperature holds it down.", "hertz",
                    _each("rlvr.gpu.clock.sm", "{{hw_id}}", "hw.id")),
                Panel("NVLink", "Bytes per second.", "Bps", (("{{hw_id}}"
                    " {{network_io_direction}}", rate("rlvr.gpu.nvlink.io", "hw.id",
                    "network.io.direction")),)),
                Panel("PCIe", "Bytes per second.", "Bps", (("{{hw_id}}"
                    " {{network_io_direction}}", rate("rlvr.gpu.pcie.io", "hw.id",
                    "network.io.direction")),)),
            ),
        ),
        (
            "Hosts",
            (
                Panel("CPU", "Cores that were busy.", "none",
                    (("{{host_name}}", rate("system.cpu.time", "host.name", where=_HOST)),)),
                Panel("Memory of the host", "In use.", "bytes",
                    _each("hw.gpu.memory.usage", "{{host_name}}", "host.name", where=_HOST)),
                Panel("Network", "Loopback left out.", "Bps", (("{{host_name}}"
                    " {{network_io_direction}}", rate("system.network.io", "host.name",
                    "network.io.direction")),)),
                Panel("Disks", "Bytes per second.", "Bps", (("{{host_name}}"
                    " {{disk_io_direction}}", rate("system.disk.io", "host.name",
                    "disk.io.direction")),)),
            ),
        ),
    ),
)  # fmt: skip

_CALLS = Board(
    "rewards",
    "rlvr-probe: rewards and tools",
    "What waits for a verifier or a tool, by its name.",
    (
        (
            "Reward functions",
            (
                Panel("Time of a call", "By function: of a batch or of one trajectory, as the"
                    " framework calls it.", "s", _spread("rlvr.verify.duration", "rlvr.reward.fn")),
                Panel("Time in calls, in a second", "More than 1: several at once.", "none",
                    (("{{rlvr_reward_fn}}",
                    taken("rlvr.verify.duration", "rlvr.reward.fn", what="sum")),), stacked=True),
                Panel("Calls per second", "By function.", "none", (("{{rlvr_reward_fn}}",
                    taken("rlvr.verify.duration", "rlvr.reward.fn")),)),
                Panel("Mean reward of a step", "By function; evaluations are lines of their own.",
                    "none", _each("rl.environment.reward.mean", "{{rlvr_reward_fn}} {{rlvr_mode}}",
                    "rlvr.reward.fn", "rlvr.mode"), signed=True),
            ),
        ),
        (
            "Tools",
            (
                Panel("Time of a call", "By tool.", "s", _spread("rlvr.tool.duration", _TOOL)),
                Panel("Time in calls, in a second", "More than 1: several at once.", "none",
                    (("{{gen_ai_tool_name}}", taken("rlvr.tool.duration", _TOOL, what="sum")),),
                    stacked=True),
                Panel("Calls per second", "By tool and by how they ended.", "none",
                    (("{{gen_ai_tool_name}} {{rlvr_tool_status}}",
                    taken("rlvr.tool.duration", _TOOL, "rlvr.tool.status")),)),
                Panel("Calls that failed", "Share of calls: the tool raised, was not there, was"
                    " called wrongly or was given up.", "percentunit", (("{{gen_ai_tool_name}}",
                    share("rlvr.tool.duration", _TOOL, where=', rlvr_tool_status!="ok"')),)),
            ),
        ),
    ),
)  # fmt: skip

_HEALTH = Board(
    "health",
    "rlvr-probe: health of the recording",
    "Whether the other dashboards can be believed.",
    (
        (
            "Recording",
            (
                _number("Steps of the last hour", "None: the training hangs, or nothing arrives.",
                    "none", grown("rl.train.steps").replace("$window", "1h")),
                _number("Rows that are missing", "Since the start; `rlvr-probe show` says why.",
                    "none", total("rlvr.lost")),
                _number("Errors inside the probe", "Since the start; the training went on.",
                    "none", total("rlvr.faults")),
                _number("Open spans", "Of a run that died: what it was doing.", "none",
                    total("rlvr.spans.open")),
                Panel("Rows that are missing", "By reason.", "none",
                    (("{{rlvr_lost_reason}}", total("rlvr.lost", "rlvr.lost.reason")),)),
                Panel("Open spans", "By what is open.", "none",
                    (("{{rlvr_span}}", total("rlvr.spans.open", "rlvr.span")),)),
            ),
        ),
    ),
)  # fmt: skip

DASHBOARDS: Final = (_STEPS, _TAIL, _DEVICES, _CALLS, _HEALTH)
"""Every dashboard."""
