"""What ``rlvr-probe characterize --json`` writes: every number with its query, inputs and ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from rlvr_probe.analysis.characterization import LEDGER_QUERY, Characterization
from rlvr_probe.analysis.ledger import MEANING, Ledger
from rlvr_probe.analysis.results import Answer, Queried

__all__ = ["CHARACTERIZE_SCHEMA_VERSION", "to_document"]

CHARACTERIZE_SCHEMA_VERSION = 1
"""Version of the JSON; a removed or redefined key raises it."""


def to_document(found: Characterization) -> dict[str, Any]:
    """The whole characterization, ready for JSON: unknown is null, never 0."""
    return {
        "schema_version": CHARACTERIZE_SCHEMA_VERSION,
        "source": found.source,
        "kind": found.kind,
        "training": dict(found.facts),
        "counts": _answer(found.counts),
        "ledger": None if found.ledger is None else _ledger(found, found.ledger),
        "causes": [_plain(cause) for cause in found.causes],
        "chapters": [_plain(chapter) for chapter in found.chapters],
        "notes": list(found.notes),
    }


def _ledger(found: Characterization, ledger: Ledger) -> dict[str, Any]:
    return {
        "unit": found.unit.name,
        "gpus": [_plain(gpu) for gpu in ledger.gpus],
        "begin_s": ledger.begin_ns / 1e9,
        "end_s": ledger.end_ns / 1e9,
        "gpu_s": ledger.gpu_s,
        "query": LEDGER_QUERY,
        "inputs": ["ledger"],
        "categories": [
            {
                "category": category,
                "meaning": MEANING[category],
                "gpu_s": ns / 1e9,
                "share": ledger.share(category) if ledger.gpu_s else None,
            }
            for category, ns in ledger.ns.items()
        ],
        "by_step": None if found.ledger_by_step is None else _answer(found.ledger_by_step),
        "waits": None if found.waits is None else _answer(found.waits),
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "query": answer.query,
        "inputs": list(answer.inputs),
        "columns": list(answer.columns),
        "rows": [_plain(row) for row in answer.rows],
    }


def _plain(value: Any) -> Any:
    """``value`` as JSON knows it."""
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        if isinstance(value, Queried):
            names.insert(names.index("query") + 1, "inputs")
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value
