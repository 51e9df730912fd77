"""Pictures that no chapter has: how lengths are spread over the steps of the run."""

from __future__ import annotations

from typing import Any

from rlvr_probe.analysis.page.lengths import CLASSES, length_classes
from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.page.plain import drawn

__all__ = ["lengths_of"]


def lengths_of(tables: Tables) -> dict[str, Any] | None:
    """How many responses of each length there are in each step; None of a source without any."""
    found = length_classes(tables)
    if found is None:
        return None
    return {
        "together": found.together,
        "first": [first for first, _ in found.bars],
        "last": [last for _, last in found.bars],
        "per_doubling": CLASSES,
        "cells": drawn(found.cells.rows),
        "cap": found.cap,
        "query": found.cells.query,
    }
