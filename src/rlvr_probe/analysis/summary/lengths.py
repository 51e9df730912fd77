"""How many trajectories there are, and the lengths of those that are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.analysis.statistics import distribution_of
from rlvr_probe.model.batch import Batch

__all__ = ["Lengths", "counted", "counts"]


def counted(batches: Iterable[Batch], *, whole: bool) -> list[Batch]:
    """The batches that figures are made of.

    Args:
        batches: Some of a run.
        whole: Whether any batch of the run is whole: then those that are. What a batch lacks is
            rather long than short.
    """
    return [batch for batch in batches if batch.whole or not whole]


def counts(batches: Sequence[Batch]) -> dict[str, int]:
    """Groups, trajectories and tokens of ``batches``."""
    shards = [shard for batch in batches for shard in batch.shards]
    return {
        "groups": sum(batch.count_groups()[0] for batch in batches),
        "trajectories": sum(batch.rows for batch in batches),
        "prompt_tokens": sum(sum(shard.prompt_tokens) for shard in shards),
        "response_tokens": sum(sum(shard.response_tokens) for shard in shards),
    }


@dataclass(slots=True)
class Lengths:
    """Lengths by how often each is there: adding up such counts costs less than to sort again.

    Attributes:
        prompt, response: Of the trajectories, tokens.
        stopped: Trajectories that the cap stopped.
        known: Those of which it is known whether it did.
    """

    prompt: Counter[int] = field(default_factory=Counter)
    response: Counter[int] = field(default_factory=Counter)
    stopped: int = 0
    known: int = 0

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> Lengths:
        """Those of ``batches``."""
        found = cls()
        for batch in batches:
            for shard in batch.shards:
                found.prompt.update(shard.prompt_tokens)
                found.response.update(shard.response_tokens)
                if shard.truncated is not None:
                    found.stopped += sum(map(bool, shard.truncated))
                    found.known += len(shard.truncated)
        return found

    def add(self, other: Lengths) -> None:
        """Take those of ``other``, too."""
        self.prompt.update(other.prompt)
        self.response.update(other.response)
        self.stopped += other.stopped
        self.known += other.known

    def figures(self) -> dict[str, Any]:
        """How long prompts and responses are, and how many the cap stopped."""
        return {
            "prompt_tokens": distribution_of(self.prompt),
            "response_tokens": distribution_of(self.response),
            "truncated_share": self.stopped / self.known if self.known else None,
        }
