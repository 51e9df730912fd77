"""The bars that the figures are held to, and whether they are met."""

from __future__ import annotations

from typing import Any

from tests.bench import analysis, compaction, conversion, ranks, rate, ray_engine, slowdown
from tests.bench.report import table

__all__ = ["judge", "tables"]

EVENT_US = 3.0
GROWTH = 1.2
"""Times as long per trajectory at a million as at a hundred thousand: above this is not linear."""


def judge(figures: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What is held to a bar, the bar, the figure, and ``met``, ``missed`` or ``not known``."""
    event = figures["event"]["variants"]["hook, 5"]["p50_us"]
    held, uncounted = figures["rate"]["held_per_s"], figures["rate"]["uncounted"]
    *smaller, largest, by_large_steps = figures["conversion"]["cases"]
    memory_b = max(largest["memory_b"], by_large_steps["memory_b"])
    growth = _per_trajectory(largest) / _per_trajectory(smaller[-1])
    return [
        (
            "an event with 5 values on the calling thread, median",
            f"{EVENT_US:g} µs",
            f"{event:.2f} µs",
            _met(event <= EVENT_US),
        ),
        (
            "events held per second",
            f"{rate.BAR_PER_S:,}",
            f"{held:,.0f}",
            _met(held >= rate.BAR_PER_S),
        ),
        ("events in no count", "0", f"{uncounted:,}", _met(uncounted == 0)),
        _slowdown("slowdown of a run", figures["slowdown"]),
        _slowdown("the same with a sidecar that sends", figures.get("beside")),
        (
            "memory to convert a million trajectories",
            f"{conversion.BAR_B / 1e6:.0f} MB and the largest step",
            f"{memory_b / 1e6:.0f} MB",
            _met(memory_b <= conversion.BAR_B),
        ),
        (
            "time for each of a million trajectories, by that for each of a tenth of them",
            f"{GROWTH:g}",
            f"{growth:.2f}",
            _met(growth <= GROWTH),
        ),
        *_analysis(figures.get("analysis")),
        _compaction(figures.get("compaction")),
        _ray(figures.get("ray_engine")),
        _ranks(figures.get("ranks")),
    ]


def _analysis(figures: dict[str, Any] | None) -> list[tuple[str, str, str, str]]:
    bar = f"{analysis.BAR_S:g} s, {analysis.BAR_B / 2**30:g} GiB"
    questions = (
        "characterizing ten million trajectories on two cores",
        "characterizing 2,048 processes with 100 steps",
    )
    if figures is None:
        return [(what, bar, "not measured", "not known") for what in questions]
    found = []
    for what, case in zip(questions, (figures["cases"][-1], figures["processes"]), strict=True):
        seconds, memory_b = case["tables_s"] + case["figures_s"], case["memory_b"]
        met = seconds <= analysis.BAR_S and memory_b <= analysis.BAR_B
        found.append((what, bar, f"{seconds:.0f} s, {memory_b / 2**30:.2f} GiB", _met(met)))
    return found


def _compaction(figures: dict[str, Any] | None) -> tuple[str, str, str, str]:
    said = (
        "the same ten million, compacted",
        f"{compaction.BAR_S:g} s, {compaction.BAR_CPU_S:g} CPU s, {analysis.BAR_B / 2**30:g} GiB",
    )
    if figures is None:
        return *said, "not measured", "not known"
    found = figures["cases"][-1]["compacted"]
    met = found["s"] <= compaction.BAR_S and found["cpu_s"] <= compaction.BAR_CPU_S
    measured = (
        f"{found['s']:.0f} s, {found['cpu_s']:.0f} CPU s, {found['memory_b'] / 2**30:.2f} GiB"
    )
    return *said, measured, _met(met and found["memory_b"] <= analysis.BAR_B)


def _ray(figures: dict[str, Any] | None) -> tuple[str, str, str, str]:
    said = (
        "the same on Ray: 2 workers against 1, CPU against that without Ray",
        f"{ray_engine.BAR_SPEED:g} times as fast, {ray_engine.BAR_CPU:g}",
    )
    if figures is None:
        return *said, "not measured", "not known"
    here, alone, both = (figures["cases"][name] for name in ("here", "1 worker", "2 workers"))
    speed, cpu = alone["s"] / both["s"], both["cpu_s"] / here["cpu_s"]
    met = speed >= ray_engine.BAR_SPEED and cpu <= ray_engine.BAR_CPU
    return *said, f"{speed:.2f} times as fast, {cpu:.2f}", _met(met)


def _ranks(figures: dict[str, Any] | None) -> tuple[str, str, str, str]:
    said = (
        "2,048 real ranks: a step of each, and characterizing all",
        f"{ranks.ARGUS_B:,} bytes, {analysis.BAR_S:g} s, {analysis.BAR_B / 2**30:g} GiB",
    )
    if figures is None:
        return *said, "not measured", "not known"
    case = figures["cases"][-1]
    step_b = case["folder_b"] / case["ranks"] / figures["steps"]
    seconds, memory_b = case["characterize"]["s"], case["characterize"]["memory_b"]
    met = step_b <= ranks.ARGUS_B and seconds <= analysis.BAR_S and memory_b <= analysis.BAR_B
    return *said, f"{step_b:,.0f} bytes, {seconds:.0f} s, {memory_b / 2**30:.2f} GiB", _met(met)


def _slowdown(what: str, figures: dict[str, Any] | None) -> tuple[str, str, str, str]:
    said = f"{what}, upper bound at 95 %, half-width", "below 1 %, 0.5 %"
    if figures is None:
        return *said, "not measured", "not known"
    training = figures["trainings"]["small"]
    _, low, high = training["wall"]["ratio"]
    return *said, f"{high - 1:+.2%}, {(high - low) / 2:.2%}", slowdown.verdict(training)


def _per_trajectory(case: dict[str, Any]) -> float:
    seconds: float = case["read_s"] + case["build_s"] + case["write_s"]
    return seconds / float(case["trajectories"])


def _met(met: bool) -> str:
    return "met" if met else "missed"


def tables(figures: dict[str, Any]) -> str:
    """The bars as a table."""
    return table(("what", "bar", "measured", ""), judge(figures))
