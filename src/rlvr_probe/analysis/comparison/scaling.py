"""Several scales of one job: which stage takes more GPU time per token the more GPUs there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.comparison.side import Side
from rlvr_probe.analysis.stages import STAGES

__all__ = ["Scaled", "scales", "scaling"]

_TOKENS: Final = 1e6
"""Tokens of prompts and responses that GPU time is given for."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """How one stage scales.

    Attributes:
        name, title: Of the stage.
        gpu_s: GPU time for a million tokens, of each run, s; 0 where it did not take place.
        exponent: By which it grows with GPUs, between the smallest and the largest run: 0 scales, 1
            gains nothing from more GPUs; None where one of them did without it.
    """

    name: str
    title: str
    gpu_s: Sequence[float]
    exponent: float | None

    @property
    def lost(self) -> float:
        """GPU time for a million tokens that the largest run takes more than the smallest, s."""
        return self.gpu_s[-1] - self.gpu_s[0]


def scales(sides: Sequence[Side]) -> list[Side]:
    """The first side of each number of GPUs, in ascending order."""
    first = {side.gpus: side for side in reversed(sides)}
    return [first[gpus] for gpus in sorted(first)]


def scaling(sides: Sequence[Side]) -> list[Scaled]:
    """How stages scale, that which loses most first; none where tokens are unknown.

    Args:
        sides: Two or more, in ascending order of their GPUs, each with another number of them.
    """
    tokens = [side.mean_tokens() for side in sides]
    if None in tokens:
        return []
    scaled = list[Scaled]()
    for stage in STAGES:
        gpu_s = [
            (side.mean_s(stage) or 0.0) * side.gpus / (count or 1.0) * _TOKENS
            for side, count in zip(sides, tokens, strict=True)
        ]
        if not any(gpu_s):
            continue
        known = gpu_s[0] > 0 and gpu_s[-1] > 0
        larger = math.log(sides[-1].gpus / sides[0].gpus)
        exponent = math.log(gpu_s[-1] / gpu_s[0]) / larger if known else None
        scaled.append(Scaled(stage.name, stage.title, gpu_s, exponent))
    return sorted(scaled, key=lambda stage: -stage.lost)
