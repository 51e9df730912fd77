"""Group-relative policy optimization of a policy with one parameter."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

__all__ = ["STOP", "Policy", "Trainer"]

STOP = 0
Tokens = list[int]
Verifier = Callable[[list[Tokens], list[Tokens]], list[float]]


class Policy:
    """Ends a response with probability ``stop`` after each token."""

    def __init__(self, stop: float = 0.05) -> None:
        self.stop = stop

    def sample(self, limit: int, draw: random.Random) -> Tokens:
        """One response of at most ``limit`` tokens; the last one is STOP unless it was cut off."""
        tokens: Tokens = []
        while len(tokens) < limit:
            if draw.random() < self.stop:
                return [*tokens, STOP]
            tokens.append(draw.randrange(1, 100))
        return tokens


class Trainer:
    """Samples groups of responses, has verifiers score them, and moves the policy."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[Tokens],
        verifiers: list[Verifier],
        *,
        steps: int = 5,
        prompts_per_step: int = 4,
        group_size: int = 4,
        max_tokens: int = 32,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.prompts = prompts
        self.verifiers = verifiers
        self.steps = steps
        self.prompts_per_step = prompts_per_step
        self.group_size = group_size
        self.max_tokens = max_tokens
        self.step = 0
        self._draw = random.Random(seed)

    def fit(self) -> Policy:
        """Train; ``step`` counts from 1."""
        for step in range(1, self.steps + 1):
            self.step = step
            self.train_step()
        return self.policy

    def train_step(self) -> None:
        """One step on ``prompts_per_step`` prompts."""
        chosen = self._draw.sample(self.prompts, self.prompts_per_step)
        prompts = [prompt for prompt in chosen for _ in range(self.group_size)]
        responses = self.generate(prompts)
        self.update(responses, self.verify(prompts, responses))

    def generate(self, prompts: list[Tokens]) -> list[Tokens]:
        """One response to each prompt; the prompts of a group stand one after the other."""
        return [self.policy.sample(self.max_tokens, self._draw) for _ in prompts]

    def verify(self, prompts: list[Tokens], responses: list[Tokens]) -> list[float]:
        """Sum of what the verifiers give, by response."""
        scores = [verifier(prompts, responses) for verifier in self.verifiers]
        return [sum(column) for column in zip(*scores, strict=True)]

    def update(self, responses: list[Tokens], rewards: list[float]) -> None:
        """A step towards the length of the responses that did better than their group."""
        size = self.group_size
        for first in range(0, len(rewards), size):
            group = range(first, first + size)
            mean = sum(rewards[i] for i in group) / size
            for i in group:
                towards = 1 / max(1, len(responses[i]))
                self.policy.stop += 0.01 * (rewards[i] - mean) * (towards - self.policy.stop)
