"""What a training said of itself when it began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlvr_probe.model.trace import Attempt
from rlvr_probe_otlp.planning.names import allowed
from rlvr_probe_otlp.planning.telemetry import Attributes

__all__ = ["facts_of", "model_of"]

_NAMES: Final = {
    "framework": "rl.system",
    "framework_version": "rl.system.version",
    "algorithm": "rl.algorithm",
    "model_type": "rlvr.model.type",
    "engine": "rlvr.engine",
}


def facts_of(attempt: Attempt, process: int | None = None) -> dict[str, str]:
    """By the names they go out with: as this process was told, else the first that was."""
    sessions = sorted(
        attempt.sessions,
        key=lambda session: (session.process != process, session.session, session.process),
    )
    found = dict[str, str]()
    for session in reversed(sessions):
        for name, otel in _NAMES.items():
            value = allowed(session.facts.get(name))
            if isinstance(value, str):
                found[otel] = value
    return found


def model_of(attempt: Attempt) -> Attributes:
    """Who generated, as GenAI's conventions name it.

    The model that is trained has no name but that of its architecture, and of a rollout engine how
    it runs is behind a dash: ``vllm-colocate``.
    """
    facts: Mapping[str, str] = facts_of(attempt)
    said = {
        "gen_ai.provider.name": facts.get("rlvr.engine", "").partition("-")[0],
        "gen_ai.request.model": facts.get("rlvr.model.type", ""),
    }
    return {name: value for name, value in said.items() if value}
