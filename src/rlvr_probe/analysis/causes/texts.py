"""What usually helps against a cause, what would refute it, and values in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["HELPS", "REFUTED", "per_cent", "placed", "seconds", "times", "whom"]

_NAMED: Final = 3
"""Processes that are told one by one."""

HELPS: Final = {
    "slow_rank": "Exchange the GPU or its node; look for another job on it, a power cap, a slow"
    " link or a core that is shared. If its batches are larger than those of others: balance them.",
    "thermal_throttling": "Look at the cooling of that GPU and its node, and at its power limit;"
    " take the node out until it is cool.",
    "straggler": "Cap the length of responses, or let the step go on without the last"
    " trajectories and train on them in the next one (partial or asynchronous rollout).",
    "serial_reward": "Verify in parallel: more workers or processes for this function, or a"
    " service; begin when a trajectory ends, not when a batch does.",
    "slow_reward": "Make the function cheaper or cap its time; run it beside the next stage; verify"
    " in parallel, or in a service.",
    "slow_tool": "Look at the service behind the tool; cap its time, add workers, cache its"
    " results; begin other trajectories while one waits.",
    "slow_weight_sync": "Move weights in larger buckets, over the fastest link, and only what"
    " changed; look for a copy over the host or a network that is shared.",
    "aggressive_filter": "Choose prompts that the policy neither always nor never solves before"
    " they are generated; generate more prompts at once; loosen the filter.",
    "starving_trainer": "Give rollout more GPUs, or training fewer; shorten responses; raise what"
    " may be on its way at the same time.",
    "waiting_rollout": "Give training more GPUs, or rollout fewer; enlarge the queue only if older"
    " samples do no harm.",
    "clock_skew": "Let the machines follow one time server (NTP or PTP). Nothing is lost by it but"
    " the meaning of times between them.",
    "long_tail": "Cap the length of responses, or go on without the last trajectories.",
    "unfinished": "Look at what `rlvr-probe stuck` says of the run and at the log of that process"
    " around then; cap the time of reward functions, tools and collectives, so that the run ends or"
    " goes on by itself; begin again from the last checkpoint.",
}
"""By kind."""

REFUTED: Final = {
    "slow_rank": "Its samples are longer than those of others, or the difference is gone after the"
    " process has moved to another GPU.",
    "thermal_throttling": "The clock of the GPU is that of others while the throttle counter"
    " rises.",
    "straggler": "The step waits as long without it: another trajectory, tool or reward ends just"
    " before it.",
    "serial_reward": "Calls with twice as many rows do not take longer, or nothing is queued while"
    " verification takes long.",
    "slow_reward": "Its calls lie beside work of the GPUs: nobody waits for them.",
    "slow_tool": "Calls of this tool are meant to take that long: its work is larger than that of"
    " other tools.",
    "slow_weight_sync": "The size of the weights by the bandwidth of the link gives that time.",
    "aggressive_filter": "The trainer would have generated again without the filter: too few"
    " prompts are asked for at once.",
    "starving_trainer": "The queue had what a step needs while the trainer waited: something else"
    " held it.",
    "waiting_rollout": "The queue was not full while few trajectories were on their way.",
    "clock_skew": "Ends of one collective differ by something else than a constant.",
    "long_tail": "Lengths are as intended: it is part of the workload.",
    "unfinished": "It had got on when it was ended: its output grew, or its GPU worked.",
}
"""By kind."""


def per_cent(share: float) -> str:
    """A share in words."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def placed(rank: int | None, team: str, process: int) -> tuple[str, dict[str, str | int]]:
    """A rank in words, and as the place of a cause.

    Args:
        rank: Its number in its group; None where that is not known.
        team: That group, where several have methods of one name; else empty.
        process: Its number among the processes.
    """
    kind, number = ("process", process) if rank is None else ("rank", rank)
    if not team:
        return f"{kind} {number}", {kind: number}
    return f"{kind} {number} of {team}", {kind: number, "worker_group": team}


def whom(rows: Iterable[Mapping[str, Any]]) -> str:
    """Processes in words, the first three of them: by ``rank``, or by ``role`` and ``process``."""
    names = dict.fromkeys(
        f"{row['role'] or 'process'} {row['process']}" if row["rank"] is None
        else f"rank {row['rank']}"
        for row in rows
    )  # fmt: skip
    more = len(names) - _NAMED
    return " and ".join([*names][:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def seconds(ns: float) -> str:
    """A duration in words; ``ns`` in ns."""
    value = ns / 1e9
    if value < 10:
        return f"{value:.2g} s" if value < 1 else f"{value:.1f} s"
    return f"{value:,.0f} s"


def times(factor: float) -> str:
    """A factor in words."""
    return f"{factor:.2f}x" if factor < 1.2 else f"{factor:.1f}x"
