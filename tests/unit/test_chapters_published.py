"""Every reference statistic of the published PolyTrace runs is among the figures."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.analysis.metrics.imbalance import imbalance
from rlvr_probe.analysis.metrics.lengths import lengths
from rlvr_probe.analysis.metrics.occupancy import occupancy
from rlvr_probe.analysis.metrics.rewards import rewards
from rlvr_probe.analysis.metrics.tools import tools
from rlvr_probe.analysis.results import Figure
from rlvr_probe.cli.installed_exporters import find_reader
from rlvr_probe.recording.tables import open_tables
from tests import today
from tests.chaptered import Said, decoded, said
from tests.published import WORKLOADS

STATISTICS = WORKLOADS / "stats.json"
SOURCE = os.environ.get("POLYTRACE_SRC", "")
WHOLE = ("rllm/20260616_024512", "verl/20260614_023133")
"""Runs that are whole beside the statistics; the others take a checkout of PolyTrace."""
TOLD = ("type", "note", "share_of_step", "max_response_assumed", "complete", "dapo_filter.records")
"""Words, assumptions, and the number of lines of a file."""

pytestmark = pytest.mark.skipif(
    not STATISTICS.is_file(), reason="POLYTRACE_DATA: no published workloads there"
)


def place(run: str) -> Path:
    """Folder of a whole run."""
    framework, name = run.split("/")
    kind = "multiturn_workload_log" if framework == "search_r1" else "packed_length_log"
    found = Path(SOURCE) / framework / "profile" / kind / name
    if SOURCE and found.is_dir():
        return found
    if run in WHOLE:
        return WORKLOADS / run
    pytest.skip("POLYTRACE_SRC names no PolyTrace checkout, and only a part of the run is here")


def expected(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(STATISTICS.read_bytes(), parse_float=Decimal)[run]
    return found


def ask(folder: Path, cap: int | None = None) -> Said:
    reader = find_reader(folder)
    assert reader is not None
    with open_tables(reader.read(folder), threads=1) as tables:
        if cap is not None:
            # A packed workload does not say it.
            tables.sql.execute(f"UPDATE run SET max_response_tokens = {cap}")
        chapters = (lengths, occupancy, imbalance, rewards, tools)
        return said(chapter(tables) for chapter in chapters)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


ROUNDED = ("trajectory_engine_s", "batch_tail_idle_fraction", "reward_time_s.all")
"""What the reference rounds before it takes quantiles and means, so that the last digit differs."""


def agree(found: Any, one: Any, path: str) -> bool:
    """Whether a figure is a statistic, to the digits that it is given with."""
    if not isinstance(one, Decimal):
        return bool(found == one)
    last = 10.0 ** int(one.as_tuple().exponent)
    share = 1.0 if any(part in path for part in ROUNDED) else 0.5001
    return math.isclose(found, float(one), rel_tol=1e-12, abs_tol=share * last)


def wrong(found: Mapping[str, Any], statistics: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Statistics that are missing or other than found."""
    told = dict(leaves(found))
    return {
        path: (told.get(path, "missing"), one)
        for path, one in leaves(statistics)
        if path not in TOLD and path.rpartition(".")[2] not in TOLD
        and (path not in told or not agree(told[path], one, path))
    }  # fmt: skip


def packed(told: Said) -> dict[str, Any]:
    """The statistics of a packed workload, of figures."""
    steps = told.rows("lengths.response.by_step")
    quantities = ("min", "mean", "p50", "p90", "p99", "max")
    prompts = {row["unit"]: row for row in told.rows("lengths.unique_prompt.by_step")}
    idle = {row["batch_id"]: row for row in told.rows("occupancy.length_idle.by_batch")}
    per_step = dict[str, Any]()
    for row in steps:
        unit = row["unit"]
        ranks = [one for one in told.rows("imbalance.replica.by_batch") if one["batch_id"] == unit]
        tokens = [one["tokens"] for one in ranks]
        longest = [one["longest"] for one in ranks]
        prompt = prompts[unit]
        per_step[str(row["workload_step"])] = {
            "prompts": row["groups"],
            "samples": row["trajectories"],
            "input": {"n": prompt["count"], **{name: prompt[name] for name in quantities}},
            "output": {"n": row["trajectories"], **{name: row[name] for name in quantities}},
            "output_tokens": row["tokens"],
            "input_tokens_unique": round(prompt["count"] * prompt["mean"]),
            "dp_ranks": len(ranks),
            "dp_output_tokens": {str(one["replica"]): one["tokens"] for one in ranks},
            "dp_output_imbalance_max_over_mean": max(tokens) * len(tokens) / sum(tokens),
            "dp_max_output": {str(one["replica"]): one["longest"] for one in ranks},
            "dp_longest_imbalance": max(longest) / min(longest),
            "batch_tail_idle_fraction": idle[unit]["length_idle"],
            "p99_over_p50": row["p99"] / row["p50"],
            "max_over_p50": row["max"] / row["p50"],
        }
    count = told.value("lengths.response.count")
    return {
        "steps": [row["workload_step"] for row in steps],
        "n_steps": len(steps),
        "prompts": told.value("lengths.unique_prompt.count"),
        "samples": count,
        "n_sampling": sizes(told),
        "input": told.spread("lengths.unique_prompt"),
        "output": told.spread("lengths.response"),
        "fraction_at_max": told.value("lengths.response.at_cap"),
        "n_at_max": round(told.value("lengths.response.at_cap") * count),
        "output_cv": told.value("lengths.response.cv"),
        "dp_output_imbalance_max_over_mean": told.spread("imbalance.replica.tokens", 1.0),
        "batch_tail_idle_fraction": told.spread("occupancy.length_idle"),
        "group_max_over_mean": told.spread("lengths.group.max_over_mean"),
        "p99_over_p50": told.value("lengths.response.p99_over_p50"),
        "mean_output_by_step": {str(row["workload_step"]): row["mean"] for row in steps},
        "per_step": per_step,
    }


def sizes(told: Said) -> dict[str, int]:
    rows = told.rows("lengths.group.histogram")
    return {str(row["trajectories"]): row["groups"] for row in rows}


def filtered(told: Said) -> dict[str, Any]:
    steps = told.rows("lengths.filter.by_step")
    return {
        "prompts_generated": told.value("lengths.filter.groups"),
        "kept": told.value("lengths.filter.kept"),
        "used": told.value("lengths.filter.used"),
        "kept_fraction": told.value("lengths.filter.kept_share"),
        "used_fraction": told.value("lengths.filter.used_share"),
        "output_used": told.spread("lengths.used"),
        "output_not_used": told.spread("lengths.unused"),
        "wasted_output_token_fraction": told.value("lengths.filter.unused_tokens"),
        "gen_batches_per_trainer_step": {str(row["step"]): row["batches"] for row in steps},
    }


def rewarded(told: Said) -> dict[str, Any]:
    by_batch = dict[int, dict[str, dict[str, Any]]]()
    for row in told.rows("rewards.by_process"):
        by_batch.setdefault(row["step"], {})[str(row["process"])] = row
    per_step = dict[str, Any]()
    for step, rows in by_batch.items():
        seconds = {rank: row["seconds"] for rank, row in rows.items()}
        mean = sum(seconds.values()) / len(seconds)
        per_step[str(step)] = {
            "per_dp": seconds,
            "max": max(seconds.values()),
            "mean": mean,
            "skew_max_over_min": max(seconds.values()) / min(seconds.values()),
            "s_per_sample": sum(seconds.values()) / sum(row["samples"] for row in rows.values()),
        }
    names = ("min", "mean", "p50", "p90", "p99", "max")
    of = {"function": "(unknown)"}
    every = {name: told.value(f"rewards.function.{name}", **of) for name in names}
    return {
        "per_step": per_step,
        "all": {"n": told.value("rewards.function.calls", **of), **every},
        "barrier_wait_fraction": told.value("rewards.wait_share"),
        "skew": told.spread("rewards.skew"),
    }


CAPS = {
    "verl/20260610_092349": 32_768,
    "verl/20260614_023133": 32_768,
    "verl-video/20260609_033329": 16_000,
    "rllm/20260616_024512": 16_000,
}


@pytest.mark.parametrize("run", today.some(list(CAPS), 1))
def test_every_statistic_of_a_packed_run_is_a_figure(run: str) -> None:
    statistics = expected(run)

    told = ask(place(run), CAPS[run])

    found = packed(told)
    if "dapo_filter" in statistics:
        found["dapo_filter"] = filtered(told)
    if "reward_time_s" in statistics:
        found["reward_time_s"] = rewarded(told)
    assert wrong(found, statistics) == {}


def test_every_statistic_of_steps_that_are_here_of_a_cut_run_is_a_figure() -> None:
    run = "verl-video/20260609_033329"

    found = packed(ask(WORKLOADS / run, CAPS[run]))

    statistics = expected(run)
    steps = {step: statistics["per_step"][step] for step in ("1", "2", "3")}
    assert wrong(found, {"per_step": steps}) == {}


@pytest.mark.parametrize("run", today.some([*WHOLE, "verl-video/20260609_033329"], 1))
def test_slots_in_use_are_those_of_a_count_of_every_token(run: str) -> None:
    """One response of 16,000 tokens among short ones is most of the time of three steps."""
    batches = [
        [tokens for line in path.read_bytes().splitlines() for tokens in json.loads(line)["output"]]
        for path in (WORKLOADS / run).glob("packed_lengths_step_*.jsonl")
    ]

    told = ask(WORKLOADS / run)

    figure = told.figure("occupancy.by_lengths")
    assert figure.value == pytest.approx(decoded(batches))
    assert figure.low is not None
    assert figure.low >= 0.0
    assert told.value("occupancy.least") is None


def several_turns(told: Said) -> dict[str, Any]:
    """The statistics of complete steps of several turns, of figures."""
    names = ("min", "mean", "p50", "p90", "p99", "max")

    def spread(series: str, unit: int) -> dict[str, Any] | None:
        rows = told.rows(f"{series}.by_step") if f"{series}.by_step" in told.series else []
        for row in rows:
            if row["unit"] == unit:
                return {"n": row["count"], **{name: row[name] for name in names}}
        return None

    sent = {row["unit"]: row for row in told.rows("lengths.turn.by_step")}
    per_step = dict[str, Any]()
    for row in told.rows("lengths.response.by_step"):
        unit = row["unit"]
        per_step[str(row["workload_step"])] = {
            "records": row["trajectories"],
            "groups": row["groups"],
            "turns": spread("lengths.turns", unit),
            "tool_calls": spread("lengths.tool_calls", unit),
            "final_response": {"n": row["trajectories"], **{name: row[name] for name in names}},
            "completion_per_turn": spread("lengths.turn.response", unit),
            "prompt_tokens_sum": sent[unit]["sent"],
            "cached_tokens_sum": sent[unit]["cached"],
            "cached_share": sent[unit]["cached"] / sent[unit]["sent"],
            "completion_tokens_sum": sent[unit]["generated"],
            "tool_latency_s": spread("tools.call_s", unit),
            "engine_latency_turn_s": spread("occupancy.turn_s", unit),
            "trajectory_engine_s": spread("occupancy.trajectory_s", unit),
            "trajectory_tool_s": spread("tools.trajectory_s", unit),
        }
    turns = told.rows("lengths.turns.histogram")
    calls = told.rows("lengths.tool_calls.histogram")
    by_turn = told.rows("lengths.turn.by_turn")
    status, by_tool = Counter[str](), Counter[str]()
    for (name, _), one in told.figures.items():
        if name == "tools.status":
            status[str(one.by["status"])] += count_of(one)
            by_tool[str(one.by["tool"])] += count_of(one)
    return {
        "records": told.value("lengths.response.count"),
        "prompt_len": told.spread("lengths.prompt"),
        "final_response": told.spread("lengths.response"),
        "final_response_loss": told.spread("lengths.loss"),
        "final_total": told.spread("lengths.context"),
        "fraction_response_at_max": told.value("lengths.response.at_cap"),
        "turns": told.spread("lengths.turns"),
        "turn_hist": {str(row["turns"]): row["trajectories"] for row in turns},
        "tool_calls": told.spread("lengths.tool_calls"),
        "tool_call_hist": {str(row["tool_calls"]): row["trajectories"] for row in calls},
        "generation_prompt_len": told.spread("lengths.turn.prompt"),
        "completion_per_turn": told.spread("lengths.turn.response"),
        "cached_share": told.value("lengths.turn.cached_share"),
        "prompt_tokens": told.value("lengths.turn.sent"),
        "cached_tokens": told.value("lengths.turn.cached"),
        "completion_tokens": told.value("lengths.turn.generated"),
        "cached_share_by_turn": {str(row["turn"]): row["cached_share"] for row in by_turn},
        "tool_latency_s": told.spread("tools.call_s"),
        "tool_append_len": told.spread("lengths.tool_result"),
        "query_count": told.spread("tools.queries"),
        "engine_latency_turn_s": told.spread("occupancy.turn_s"),
        "trajectory_engine_s": told.spread("occupancy.trajectory_s"),
        "trajectory_tool_s": told.spread("tools.trajectory_s"),
        "tool_share_of_trajectory_time": told.value("tools.trajectory_share"),
        "loss_token_share": told.value("lengths.loss_share"),
        "group_sizes": sizes(told),
        "tool_status": status,
        "tools": by_tool,
        "per_step": per_step,
    }


def count_of(figure: Figure) -> int:
    assert isinstance(figure.value, int)
    return figure.value


def test_every_statistic_of_a_run_of_several_turns_is_a_figure(tmp_path: Path) -> None:
    run = "search_r1/0617_0223"
    folder = place(run)
    # Of an unfinished step the figures say nothing, beside others; alone they do, and warn.
    last = tmp_path / "last"
    last.mkdir()
    shutil.copy(folder / "multiturn_workload_step_5.jsonl", last)
    statistics = expected(run)
    unfinished = statistics["per_step"].pop("5")
    # Figures tell how large groups are of all steps together.
    statistics["group_sizes"] = Counter[str]()
    for step in statistics["per_step"].values():
        statistics["group_sizes"] += Counter(step.pop("group_sizes"))

    told, rest = ask(folder), ask(last)

    found = several_turns(told)
    assert found["tool_status"].pop("error") == statistics["tool_status"].pop("api_error")
    found["tool_status"]["success"] = found["tool_status"].pop("ok")
    found["tool_status"]["unknown"] = found["tool_status"].pop("(unknown)")
    cut = [
        round(one.value("lengths.response.truncated") * one.value("lengths.response.count"))
        for one in (told, rest)
    ]
    records = found["records"] + rest.value("lengths.response.count")
    found["finish"] = {"length": sum(cut), "stop": records - sum(cut)}
    steps = [one.rows("lengths.response.by_step") for one in (told, rest)]
    found["steps"] = [row["workload_step"] for rows in steps for row in rows]
    found["n_steps"] = len(found["steps"])
    assert wrong(found, statistics) == {}
    alone = several_turns_of_one(rest)
    assert wrong(alone, {name: unfinished[name] for name in alone}) == {}
    assert any("no other is" in note for note in rest.notes)


def several_turns_of_one(told: Said) -> dict[str, Any]:
    """Statistics of an unfinished step without a tool call."""
    return {
        "records": told.value("lengths.response.count"),
        "groups": told.rows("lengths.response.by_step")[0]["groups"],
        "group_sizes": sizes(told),
        "final_response": told.spread("lengths.response"),
        "prompt_tokens_sum": told.value("lengths.turn.sent"),
        "cached_tokens_sum": told.value("lengths.turn.cached"),
        "cached_share": told.value("lengths.turn.cached_share"),
        "completion_tokens_sum": told.value("lengths.turn.generated"),
    }
