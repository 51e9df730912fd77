"""The plan as a JSON document, written piece by piece: a long run has more of it than memory."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.resources import process_resources, run_resource
from rlvr_probe_otlp.planning.values import line, unit_value

__all__ = ["SCHEMA_VERSION", "document"]

SCHEMA_VERSION = 1


def document(plan: Plan) -> Iterator[str]:
    """Lines of one JSON object; the same plan gives the same bytes."""
    keys = plan.context.keys
    head = {
        "schema_version": SCHEMA_VERSION,
        "run": plan.context.run,
        "resource": run_resource(plan.trace),
        "processes": dict(zip(keys, process_resources(plan.trace), strict=True)),
        "steps_going_on": plan.waiting,
        "open_spans_unclear": plan.unclear,
    }
    lines = [f"{json.dumps(name)}: {line(value)}," for name, value in head.items()]
    yield "{"
    yield from lines
    yield '"units": ['
    before = ""
    for unit in plan.units():
        yield f"{before}{line(unit_value(unit, keys))}"
        before = ","
    yield "]}"
