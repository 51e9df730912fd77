"""File names, keys and limits of PolyTrace's workload format."""

from __future__ import annotations

import re

__all__ = [
    "ENV",
    "FILTER",
    "FLAVORS",
    "FORMAL_LOG",
    "FORMAL_NAME",
    "FORMAT",
    "MANIFEST",
    "MAX_COUNT",
    "MULTITURN",
    "MULTITURN_FLAVOR",
    "PACKED",
    "PACKED_FLAVOR",
    "REWARDS",
    "SCHEMA_VERSION",
    "STEP_NAME",
    "SUITE",
    "SUITE_NAME",
    "console_metrics",
    "of_group",
    "step_file",
]

FORMAT = "rlvr-probe/polytrace"
"""Value of ``format`` in the manifest."""

SCHEMA_VERSION = 1
"""Version of the manifest and of the ``x_rlvr`` object; a reader refuses a higher one."""

PACKED = "packed_lengths"
REWARDS = "reward_timings"
MULTITURN = "multiturn_workload"
FILTER = "dapo_filter_indices.jsonl"

PACKED_FLAVOR = "packed"
MULTITURN_FLAVOR = "multiturn"
FLAVORS = (PACKED_FLAVOR, MULTITURN_FLAVOR)
"""What a workload can be written as."""

MANIFEST = "manifest.json"
SUITE = "suite.yaml"
FORMAL_LOG = "formal.log"
ENV = "benchmark.env"

SUITE_NAME = re.compile(r"suite(_group_\d{1,9})?\.yaml", re.ASCII)
"""File name of a suite config: of the whole workload, or of one launch for each group."""

FORMAL_NAME = re.compile(r"formal(_group_\d{1,9})?\.log", re.ASCII)

STEP_NAME = re.compile(rf"({PACKED}|{REWARDS}|{MULTITURN})_step_(.+)\.jsonl", re.DOTALL)
"""File name of one step: kind, then the name of the step."""

MAX_COUNT = 2**31 - 1
"""Largest token count or index that a reader can be trusted with."""

_CONSOLE_PAIR = re.compile(r"([A-Za-z0-9_./-]+):([-+0-9.eE]+)")


def step_file(kind: str, step: int) -> str:
    """Name of the file of ``kind`` for workload step ``step``."""
    return f"{kind}_step_{step}.jsonl"


def of_group(name: str, group: int | None) -> str:
    """Name of a file that is there once per launch, for the launch of one group; None for all."""
    if group is None:
        return name
    stem, _, suffix = name.rpartition(".")
    return f"{stem}_group_{group}.{suffix}"


def console_metrics(line: str) -> dict[str, float]:
    """Metrics in a console line of verl as PolyTrace's analysis sees it; empty if it sees none."""
    if "timing_s/" not in line or "step:" not in line:
        return {}
    metrics: dict[str, float] = {}
    for key, text in _CONSOLE_PAIR.findall(line):
        try:
            metrics[key] = float(text)
        except ValueError:
            continue
    return metrics
