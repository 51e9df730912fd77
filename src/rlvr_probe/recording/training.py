"""Facts of training runs: which count where a script trained more than once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rlvr_probe.model.trace import Attempt, Session

__all__ = ["FACTS", "changed_facts", "last_training", "retrained"]

FACTS: Final = (
    "framework", "framework_version", "algorithm", "engine", "model_type", "world_size",
    "accelerators", "rollout_tp", "group_size", "max_prompt_tokens", "max_response_tokens",
    "steps_per_generation", "iterations", "accumulation", "prompts_per_update",
    "reward_functions",
)  # fmt: skip
"""What is the same on every rank."""


def last_training(attempts: Iterable[Attempt]) -> dict[str, object]:
    """Facts of the last training run, by name: the first that any of its processes recorded."""
    trainings = list(_trainings(attempts))
    return _facts(trainings[-1]) if trainings else {}


def retrained(attempts: Sequence[Attempt]) -> list[str]:
    """What a reader should know where the facts of one training are not those of the next."""
    trainings = list(_trainings(attempts))
    changed = [
        f"{name} {', then '.join(values)}" for name, values in changed_facts(attempts).items()
    ]
    if not changed:
        return []
    return [
        f"{len(trainings)} training runs were recorded with different settings, and those of the"
        f" last are stated: {'; '.join(changed)}"
    ]


def changed_facts(attempts: Iterable[Attempt]) -> dict[str, list[str]]:
    """Values of each fact that has several, in the order of the training runs."""
    told = [_facts(sessions) for sessions in _trainings(attempts)]
    values = {
        name: list(dict.fromkeys(str(facts[name]) for facts in told if name in facts))
        for name in FACTS
    }
    return {name: several for name, several in values.items() if len(several) > 1}


def _trainings(attempts: Iterable[Attempt]) -> Iterator[list[Session]]:
    """Sessions of each training, of all its processes, in the order of their start."""
    for attempt in attempts:
        for number in sorted({session.session for session in attempt.sessions}):
            yield [session for session in attempt.sessions if session.session == number]


def _facts(sessions: Sequence[Session]) -> dict[str, object]:
    facts = dict[str, object]()
    for session in sessions:
        for name in FACTS:
            value = session.facts.get(name)
            if value is not None:
                facts.setdefault(name, value)
    return facts
