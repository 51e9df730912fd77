"""What a step file holds in sum: compared between files, and with the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Share", "StepSums"]


@dataclass(slots=True)
class Share:
    """What one data-parallel rank holds of one step.

    Attributes:
        prompts, samples: Counts.
        prompt_tokens: Summed, each prompt once.
        response_tokens: Summed, tokens.
        longest: Longest response, tokens.
    """

    prompts: int = 0
    samples: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    longest: int = 0

    def add(self, prompt: int, responses: Sequence[int]) -> None:
        """Count one prompt and its responses, tokens."""
        self.prompts += 1
        self.samples += len(responses)
        self.prompt_tokens += prompt
        self.response_tokens += sum(responses)
        self.longest = max(self.longest, *responses)


@dataclass(slots=True)
class StepSums:
    """What one step file holds, for the checks across files.

    Attributes:
        step: Its number.
        n: Samples per prompt, of the first sound record; None if there was none.
        shares: By data-parallel rank; all on 0 where the format has none.
        ranks: Global rank by data-parallel rank.
        sound: Whether every record could be counted.
    """

    step: int
    n: int | None = None
    shares: dict[int, Share] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    sound: bool = True

    @property
    def prompts(self) -> int:
        """Prompts counted."""
        return sum(share.prompts for share in self.shares.values())
