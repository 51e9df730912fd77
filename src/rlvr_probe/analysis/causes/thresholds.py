"""From which size on something is named: every number that a cause depends on.

They were fixed on seeds 0 to 499 of the simulator in ``tests/simulator``, those of several
stragglers on seeds 1000 to 1149 of its wider scenarios, of their gap and of how many steps starve
on seeds 3000 to 3079, those of few occasions on seeds 6000 to 6399 and what 500 drawn ones missed,
never on the seeds that score them.
"Natural" is what runs show there in which the fault was not planted; a threshold stands about where
the tail of that, continued beyond the largest, leaves two runs in a thousand.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CLOCKS_APART_S", "CONFIDENCE", "EMPTY_SLACK", "EMPTY_USUAL", "EVALUATION_SHARE", "FEW_KEPT",
    "FOLLOWING", "GAP", "GAP_CHANCE", "GREW", "GROWN", "HOT_MIN", "HOT_NOISE", "IDLE_SHARE",
    "LONGER",
    "LONG_TAIL_SHARE", "MANY_STEPS_STARVED", "NOISE", "OPEN_LEAST_S", "PARALLEL", "PATTERN",
    "PROBE_SHARE", "QUEUED_MOST", "RARE", "RARE_ALONE", "RARE_SEVERAL", "RARE_TOGETHER",
    "REWARD_SHARE", "SERIAL", "SIGMAS", "SLIGHTLY", "SLOW_IN_EACH", "SLOW_IN_EACH_STEPS",
    "SLOW_MIN", "SLOW_MIN_OF_TWO", "SLOW_SIGMAS", "SOMETIMES", "STAGE_MIN", "STAGE_SURE",
    "STAGE_USUAL",
    "STARVED", "STARVED_OFTEN", "STARVED_USUAL", "SYNC_OF_CHECKPOINT", "SYNC_SHARE",
    "SYNC_SHARE_ASYNCHRONOUS",
    "SYNC_USUAL", "SYNC_USUAL_OF_CHECKPOINT", "TAIL", "TOOL_ALIKE_NS", "TOOL_RATIO", "TOOL_SHARE",
    "WARM_UP_S",
]  # fmt: skip

NOISE: Final = 0.01
"""Share of the GPU time of the run below which nothing is named."""

IDLE_SHARE: Final = 0.1
"""Share of the GPU time of a stage that could lie beside the work of the GPUs, or be rarer, from
which on it is named however steady it is: a budget, taken from no run."""

EVALUATION_SHARE: Final = 0.2
"""The same of evaluations, which are asked for: GPUs work in them."""

PROBE_SHARE: Final = 0.01
"""The same of the probe itself: what it promises to stay below."""

WARM_UP_S: Final = 60.0
"""Seconds that the first step after a start may take longer, for compilation, captured graphs and
caches, and belong to the workload: a budget, taken from no run."""

GREW: Final = 1.1
"""By that factor the end of a run exceeds its start, or steps one after another the others, where
noise is small."""

LONGER: Final = 1.25
"""By that factor a step alone exceeds the usual one, where noise is small."""

SLIGHTLY: Final = 1.05
"""By that factor several stages take longer at once where the machine does."""

SIGMAS: Final = 4.0
"""How many times the noise of the run it exceeds it by, where noise is larger."""

SLOW_MIN: Final = 0.03
"""Logarithm of how much longer a slow rank takes: 3 %. Natural up to 0.029, mostly below 0.02."""

SLOW_MIN_OF_TWO: Final = 0.1
"""As :data:`SLOW_MIN`, of two ranks: 10 %. Without a third rank, how much ranks of this run differ
by chance is unknown. Natural up to 0.07 in sound TRL runs on two ranks of one CPU."""

SLOW_SIGMAS: Final = 3.0
"""How far a slow rank is from the other ranks, by the spread between these."""

SLOW_IN_EACH: Final = 0.5
"""Least share of its slowdown that a slow rank shows in each stage, else it is not slow in all it
does: a median between stages with and without the slowdown fits neither. A rank slow in one stage
alone is found by ``late``, at the cost of that stage."""

SLOW_IN_EACH_STEPS: Final = 5
"""Fewest steps in which one stage shows that a rank is not slow there."""

GROWN: Final = 1.6
"""A call that takes that much longer at the end of a run than at its start has grown. Natural up to
1.4."""

HOT_MIN: Final = 0.015
"""As :data:`SLOW_MIN`, where counters of the GPU say that it was held down by temperature."""

HOT_NOISE: Final = 0.0075
"""As :data:`NOISE`, there: that the GPU was hot is measured, and not estimated."""

STAGE_MIN: Final = 0.1
"""As :data:`SLOW_MIN`, of one stage alone, in the median of its steps."""

STAGE_SURE: Final = 5.0
"""Standard errors by which its mean over steps, by ratio or by seconds, exceeds zero: in a few
steps a rank is the later one by chance."""

STAGE_USUAL: Final = 0.05
"""As :data:`STAGE_MIN`, in at least four of five steps: longer samples are in some steps only."""

TAIL: Final = (10, 20, 50)
"""How many of the longest other trajectories the tail of lengths is estimated from."""

RARE: Final = 5e-4
"""Most trajectories as long as a straggler that the run's own tail leads to expect.

Natural tails are heavier than a test of one run can show: at 0.01, 4 of 74 runs without a fault
would have a straggler."""

RARE_SEVERAL: Final = 1e-3
"""The same of two or more apart from all others. Natural down to 4.6e-3 in 249 runs."""

GAP: Final = 1.1
"""By that factor the shortest of those that lie apart exceeds the longest other."""

GAP_CHANCE: Final = 0.01
"""Most likely gap, beside those between the longer ones, with how likely their steps follow each
other: in a tail there is a gap below any of them. Natural down to 0.008, so that it does not decide
alone: so many have to be rare, too."""

RARE_ALONE: Final = -15.0
"""Logarithm (base 10) of how likely so many apart from all others are, wherever they are. Natural
down to -12.4 in 115 runs: the gap was looked for."""

RARE_TOGETHER: Final = -9.0
"""The same, with how likely their gap is and that their steps follow each other."""

FOLLOWING: Final = -1.0
"""The latter alone: one in ten. Of 2,400 runs without a straggler 12 have several by both, of
2,400 with some they are found in 2,220."""

PATTERN: Final = -0.3
"""The same of steps that are named as their place, whatever says that there are so many."""

LONG_TAIL_SHARE: Final = 0.03
"""Share of the GPU time from which a single trajectory is named as a natural long tail."""

SERIAL: Final = 0.8
"""How much longer, in logarithms, a reward function takes for twice as many rows: 1 is one after
another. Natural up to 0.78, with 16 at a time."""

PARALLEL: Final = 16
"""Verifications at a time that a serial reward function is compared with."""

QUEUED_MOST: Final = 0.5
"""Least share of the wait for verification that queueing explains where it is named ahead of a
function that just takes long."""

SOMETIMES: Final = 0.75
"""Share of the wait for a reward function that lies in calls longer than usual, from which on only
these are named. Usual is the lower quartile of its calls."""

REWARD_SHARE: Final = 0.06
"""Share of the GPU time that waits for a reward function that is not serial. Natural up to
0.042."""

TOOL_RATIO: Final = 7.0
"""Median latency of a tool, by that of the fastest other one. Natural up to 6.7."""

TOOL_ALIKE_NS: Final = 10_000_000
"""Median latency, ns, from which on another tool is comparable: 10 ms. A faster one asks no service
and starts no process; a sound tool of 20 ms takes 150 times as long as one that only makes a
text."""

TOOL_SHARE: Final = 0.06
"""Share of the GPU time that waits for a tool, whatever others take. Natural up to 0.050."""

SYNC_OF_CHECKPOINT: Final = 0.53
"""Time of moving weights, by that of writing a checkpoint, which writes the same weights and more,
to a disk. Natural up to 0.51."""

SYNC_SHARE: Final = 0.2
"""Share of the GPU time that weights take to move, where no checkpoint was written. Natural up to
0.13, in a sound OpenRLHF job of a tiny model; up to 0.082 in the simulator."""

SYNC_SHARE_ASYNCHRONOUS: Final = 0.24
"""The same where rollout goes on beside the training, whose steps are shorter. Natural up to
0.19."""

SYNC_USUAL_OF_CHECKPOINT: Final = 0.18
"""What is usual, by the time of a checkpoint: the median where it is natural."""

SYNC_USUAL: Final = 0.03
"""What is usual, as a share of the GPU time: the median where it is natural."""

FEW_KEPT: Final = 0.875
"""Share of groups that pass a filter, below which it is called aggressive. Natural is 0.9."""

STARVED: Final = 0.045
"""Share of wall time that a trainer waits for its queue, after it was first filled."""

STARVED_USUAL: Final = 0.07
"""The same up to which that is how the workload is. Natural up to 0.071 in 298 runs, and in one of
fifty more than 0.05."""

STARVED_OFTEN: Final = 0.015
"""The same, where it waits in many steps."""

MANY_STEPS_STARVED: Final = 0.5
"""Share of steps, that are many: the usual one waits. Natural up to 0.33."""

EMPTY_SLACK: Final = 0.31
"""Share of wall time that rollout could save if it always had as many trajectories in flight as
while the queue was first filled. Natural up to 0.245."""

EMPTY_USUAL: Final = 0.12
"""What of that is usual: the median where it is natural."""

CONFIDENCE: Final = {
    "slow_rank": 0.97, "thermal_throttling": 0.98, "straggler": 0.83, "serial_reward": 0.98,
    "slow_tool": 0.95, "slow_weight_sync": 0.95, "aggressive_filter": 0.97,
    "starving_trainer": 0.97, "waiting_rollout": 0.96, "clock_skew": 0.98,
}  # fmt: skip
"""By kind, how likely it is what cost most once it is named first: ``(n + 1) / (n + 2)`` of the
``n`` runs of seeds 0 to 499 in which it was, always rightly. What no run there has is absent."""

OPEN_LEAST_S: Final = 10.0
"""Seconds that a span was open at the end of a recording, from which on it is named, where few of
its kind ended before."""

CLOCKS_APART_S: Final = 0.1
"""Wall clocks of two machines that differ by less are as time servers leave them."""
