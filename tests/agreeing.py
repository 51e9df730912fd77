"""What ``show`` and ``characterize`` both say of a recording, under one name each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["disagreements", "of_characterize", "of_show"]

Figures = dict[tuple[str, ...], Any]

_COUNTS = ("steps", "groups", "trajectories", "prompt_tokens", "response_tokens", "processes")
_SPREAD = ("mean", "p50", "p90", "p99", "max")
_RATES = {
    "watts": "energy_j",
    "throttle_thermal": "throttle_thermal_s",
    "throttle_power": "throttle_power_s",
}
_MEANS = (
    "engine_active", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "utilization",
    "memory_b", "power_w", "sm_clock_hz", "temperature_c",
)  # fmt: skip
_USE = ("gpus", "seconds", "energy", *_RATES, *_MEANS)
_FACTS = (
    "framework", "framework_version", "algorithm", "engine", "rollout_tp", "accelerators",
    "group_size", "max_prompt_tokens", "max_response_tokens",
)  # fmt: skip


def disagreements(show: Mapping[str, Any], characterized: Mapping[str, Any]) -> list[str]:
    """Where two documents of one recording differ; a figure that one of them lacks is unknown."""
    here, there = of_show(show), of_characterize(characterized)
    # Of a step with several batches, one of them says something of each.
    here = {name: value for name, value in here.items() if name in there or "step" not in name[0]}
    return [
        f"{' '.join(name)}: {here.get(name)} in show, {there.get(name)} in characterize"
        for name in sorted({*here, *there})
        if not _same(here.get(name), there.get(name))
    ]


def _same(one: object, other: object) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def of_show(found: Mapping[str, Any]) -> Figures:
    """By name, what ``show --json`` says that ``characterize`` says too."""
    figures: Figures = {(name,): found[name] for name in _COUNTS}
    figures["lost",] = found["lost_records"]
    for name in _FACTS:
        figures["training", name] = (found["training"] or {}).get(name)
    lengths = found["lengths"]
    figures |= _spread("prompt", lengths["prompt_tokens"])
    figures |= _spread("response", lengths["response_tokens"])
    figures["truncated",] = lengths["truncated_share"]
    for step, tokens in _steps(
        (one["step"], one["lengths"]["response_tokens"]) for one in found["step_list"]
    ):
        figures |= _spread(f"step {step}", tokens)
    if found["turns"] is not None and found["turns"]["several_turns"]:
        figures |= _spread("turns", found["turns"]["per_trajectory"])
    for tool in found["tools"]:
        name = f"tool {tool['tool'] or '(unknown)'}"
        figures |= {(name, "calls"): tool["calls"], (name, "time"): tool["total_s"]}
        figures |= _spread(name, tool["latency_s"])
        figures |= {(name, what): count for what, count in tool["statuses"].items()}
        figures |= {(name, "raised", what): count for what, count in tool["errors"].items()}
    for function in found["rewards"]:
        name = f"reward {function['function']}"
        figures |= {(name, what): function[what] for what in ("values", "not_finite", "missing")}
        if function["calls"]:
            figures |= {(name, "calls"): function["calls"], (name, "time"): function["total_s"]}
            figures |= {(name, what): function[what] for what in ("retries", "timeouts")}
    for stage in (found["devices"] or {"stages": ()})["stages"]:
        if stage["kind"] == "gpu" and stage["stage"] != "wait":
            told = {
                "energy": stage["per_step"].get("energy_j"),
                **{name: stage["per_second"].get(of) for name, of in _RATES.items()},
                **{name: stage["means"].get(name) for name in _MEANS},
                "gpus": stage["devices"],
                "seconds": stage["seconds"],
            }
            figures |= {(f"devices in {stage['stage']}", what): told[what] for what in _USE}
    chosen = found["selection"] or {}
    return figures | {("filter", what): chosen[what] for what in ("kept", "used") if chosen}


def of_characterize(found: Mapping[str, Any]) -> Figures:
    """By name, what ``characterize --json`` says that ``show`` says too."""
    counts = dict(zip(found["counts"]["columns"], found["counts"]["rows"][0], strict=True))
    figures: Figures = {(name,): counts[name] for name in (*_COUNTS, "lost")}
    for name in _FACTS:
        figures["training", name] = found["training"][name]
    told = [one for chapter in found["chapters"] for one in chapter["figures"]]
    plain = {one["id"]: one["value"] for one in told if not one["by"]}
    for name, id_ in (
        ("prompt", "lengths.prompt"), ("response", "lengths.response"), ("turns", "lengths.turns"),
    ):  # fmt: skip
        figures |= {(name, what): plain.get(f"{id_}.{what}") for what in _SPREAD}
    figures["truncated",] = plain["lengths.response.truncated"]
    figures |= {("filter", what): plain.get(f"lengths.filter.{what}") for what in ("kept", "used")}
    series = {one["id"]: one for chapter in found["chapters"] for one in chapter["series"]}
    by_step = series["lengths.response.by_step"]
    rows = [dict(zip(by_step["units"], row, strict=True)) for row in by_step["rows"]]
    for step, row in _steps((row["step"], row) for row in rows):
        figures |= _spread(f"step {step}", row)
    for one in told:
        head, _, what = one["id"].rpartition(".")
        if head == "tools.tool" and what in ("calls", "time", *_SPREAD):
            figures[f"tool {one['by'].get('tool')}", what] = one["value"]
        elif head == "devices.stage" and what in _USE and one["by"]:
            figures[f"devices in {one['by']['stage']}", what] = one["value"]
        elif one["id"] == "tools.status":
            figures[f"tool {one['by']['tool']}", one["by"]["status"]] = one["value"]
        elif one["id"] == "tools.error":
            figures[f"tool {one['by']['tool']}", "raised", one["by"]["error"]] = one["value"]
        elif head == "rewards.function" and what in ("calls", "time", "retries", "timeouts"):
            figures[f"reward {one['by'].get('function')}", what] = one["value"]
        elif head == "rewards.value":
            name = "values" if what == "finite" else what
            figures[f"reward {one['by'].get('function')}", name] = one["value"]
    return {
        name: value
        for name, value in figures.items()
        if name[0] not in ("tool None", "reward None")
    }


def _spread(name: str, found: Mapping[str, Any] | None) -> Figures:
    return {(name, what): None if found is None else found[what] for what in _SPREAD}


def _steps(found: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Steps by their number, where it is that of one step and one batch alone.

    What no step trained on has none.
    """
    steps: Sequence[tuple[Any, Any]] = [entry for entry in found if entry[0] is not None]
    times = Counter(number for number, _ in steps)
    return ((number, told) for number, told in steps if times[number] == 1)
