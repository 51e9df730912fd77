"""Plans made from a plan: shorter ones, and the naive one that a replay has to be better than."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

from rlvr_probe.model.replay_note import scaled
from rlvr_probe.steering.plan import Plan, PlannedBatch, PlannedCall, PlannedGroup, PlannedSample

__all__ = ["make_naive", "scale_lengths", "shape"]


def scale_lengths(plan: Plan, factor: Fraction) -> Plan:
    """``plan`` with every length and the cap times ``factor``, rounded, and at least 1 token.

    Waits stay as they are.
    """

    def sample(own: PlannedSample) -> PlannedSample:
        turns = tuple(
            replace(
                turn,
                prompt_tokens=scaled(turn.prompt_tokens, factor),
                response_tokens=scaled(turn.response_tokens, factor),
            )
            for turn in own.turns
        )
        return replace(own, response_tokens=scaled(own.response_tokens, factor), turns=turns)

    def group(own: PlannedGroup) -> PlannedGroup:
        samples = tuple(map(sample, own.samples))
        return replace(own, prompt_tokens=scaled(own.prompt_tokens, factor), samples=samples)

    batches = tuple(
        replace(batch, groups=tuple(map(group, batch.groups))) for batch in plan.batches
    )
    return replace(plan, batches=batches, cap=scaled(plan.cap, factor))


def make_naive(plan: Plan) -> Plan:
    """What somebody would run who knows means alone, as a row to compare a replay with.

    Every prompt and response has the mean length, ends by itself and gets the mean reward; every
    call of a reward function takes the mean time. As many groups, of as many samples.
    """
    prompt = round(fmean(group.prompt_tokens for group in plan.groups))
    samples = list(plan.samples)
    response = round(fmean(sample.response_tokens for sample in samples))
    rewards = tuple(
        _mean([sample.rewards[index] for sample in samples]) for index in range(len(plan.functions))
    )
    mean = PlannedSample(response, False, rewards)

    waits, of_rows = _mean_waits(plan), _mean_calls(plan)

    def batch(own: PlannedBatch) -> PlannedBatch:
        groups = tuple(PlannedGroup(prompt, (mean,) * len(group.samples)) for group in own.groups)
        calls = [
            PlannedCall(function, share, seconds)
            for function, seconds in waits
            for share in range(own.shares)
        ]
        # Those of single rows overlap: each takes the mean, when it was.
        calls += [
            replace(call, seconds=of_rows[call.function]) for call in own.calls
            if call.row is not None
        ]  # fmt: skip
        return replace(own, groups=groups, calls=tuple(calls))

    return replace(plan, batches=tuple(map(batch, plan.batches)), notes=())


def _mean_waits(plan: Plan) -> list[tuple[int, float]]:
    """For each function with calls for a share of a batch, the mean of what those took, s."""
    shares = sum(batch.shares for batch in plan.batches)
    calls = [call for batch in plan.batches for call in batch.calls if call.row is None]
    return [
        (index, sum(call.seconds for call in calls if call.function == index) / shares)
        for index in sorted({call.function for call in calls})
    ]


def _mean_calls(plan: Plan) -> dict[int, float]:
    """By function, the mean of a call for a single row, s."""
    seconds = defaultdict[int, list[float]](list)
    for batch in plan.batches:
        for call in batch.calls:
            if call.row is not None:
                seconds[call.function].append(call.seconds)
    return {function: fmean(own) for function, own in seconds.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def shape(plan: Plan) -> str:
    """The lengths of a plan in a line, to see what a scaling did to them."""
    responses = [sample.response_tokens for sample in plan.samples]
    prompts = [group.prompt_tokens for group in plan.groups]
    # What a batch waits for, against what it does in the mean.
    tails = [
        max(own) / fmean(own)
        for own in ([s.response_tokens for s in batch.samples] for batch in plan.batches)
    ]
    cut = sum(sample.cut for sample in plan.samples) / len(responses)
    return (
        f"prompts of {fmean(prompts):,.1f} tokens in the mean, responses of"
        f" {fmean(responses):,.1f}, the longest {max(responses):,} and"
        f" {fmean(tails):.2f} times the mean of its batch, {cut:.1%} cut at {plan.cap:,}"
    )
