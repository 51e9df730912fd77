"""What a process is, as the resource of its spans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rlvr_probe.model import names
from rlvr_probe.model.trace import Attempt, Process, Trace
from rlvr_probe_otlp.planning.data_model import Attributes, Value
from rlvr_probe_otlp.planning.identity import facts_of, node_id, sender_of
from rlvr_probe_otlp.planning.names import VERSION, allowed

__all__ = ["SERVICE", "process_resources", "run_resource"]

SERVICE: Final = "rlvr-training"
"""``service.name`` unless OTEL_SERVICE_NAME gives another one."""

_ID = re.compile(r"[a-z][a-z0-9_]{0,63}")


def run_resource(trace: Trace) -> Attributes:
    """The resource of what concerns all processes whose recordings one node sends."""
    sender = sender_of(trace)
    facts = dict[str, Value]()
    for attempt in reversed(trace.attempts):
        facts.update(facts_of(attempt))
    return {
        "service.name": SERVICE,
        # What keeps two runs, and two nodes of one, apart where no other attribute is kept.
        **_text("service.instance.id", f"{trace.run}@{node_id(sender)}"),
        **_text("rl.run.id", trace.run),
        **({} if sender is None else _text("host.name", sender.host)),
        **_versions(),
        **facts,
    }


def process_resources(trace: Trace) -> Sequence[Attributes]:
    """The resource of every process, in the order of :attr:`Trace.processes`."""
    attempts = {index: attempt for attempt in trace.attempts for index in attempt.processes}
    return [
        _resource(trace.run, process, attempts.get(process.index)) for process in trace.processes
    ]


def _resource(run: str, process: Process, attempt: Attempt | None) -> Attributes:
    found: dict[str, Value] = {
        "service.name": SERVICE,
        **_text("service.instance.id", process.key),
        **_text("rl.run.id", run),
        **_versions(),
        **_text("host.name", process.host),
        "process.pid": process.pid,
        **_text("rlvr.role", process.role),
    }
    if process.rank is not None:
        found["rlvr.rank"] = process.rank
    if process.world_size is not None:
        found["rlvr.world_size"] = process.world_size
    for name, value in sorted(process.ids.items()):
        if _ID.fullmatch(name):
            found.update(_text(f"rlvr.id.{name}", value))
    return {**found, **({} if attempt is None else facts_of(attempt, process.index))}


def _versions() -> dict[str, Value]:
    return {"rlvr.names.version": names.NAMES_VERSION, "rlvr.otlp.version": VERSION}


def _text(name: str, value: str) -> dict[str, Value]:
    checked = allowed(value)
    return {name: checked} if isinstance(checked, str) and checked else {}
