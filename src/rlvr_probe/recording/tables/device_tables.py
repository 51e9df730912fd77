"""Tables of what devices read."""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording.columns import Column, Table
from rlvr_probe.recording.tables.kinds import (
    DEVICE,
    NUMBER,
    PROCESS,
    REAL,
    id_,
    ns,
    number,
    text,
)

__all__ = ["DEVICE_TABLES"]

DEVICE_TABLES: Final = (
    Table(
        "device",
        "one device of a node: a GPU, a part of one, or the host",
        (
            id_("device", "its number, from 0"),
            text("uuid", "its own name"),
            text("host", "host name"),
            text("boot", "boot id of its machine"),
            text("kind", "`gpu` or `host`; empty if it was not told"),
            text("vendor", "who made it"),
            text("model", "its model"),
            text("parent", "`uuid` of the GPU that it is a part of"),
            Column("memory_limit_b", NUMBER, "memory that it has", "B"),
        ),
    ),
    Table(
        "device_process",
        "one device that one process works on, or may",
        (
            DEVICE,
            PROCESS,
            text("how", "`torch`: it said so; `visible`: one of those that it may use"),
        ),
    ),
    Table(
        "reading",
        "one value of one counter of one device; what was not read has no row",
        (
            DEVICE,
            text("counter", "its name"),
            ns("start_ns", "begin of the time that a share is the mean of; else `end_ns`"),
            ns("end_ns", "when it was read"),
            Column("value", REAL, "in the unit of the counter", "of the counter"),
        ),
    ),
    Table(
        "device_fault",
        "one error that a driver reported",
        (
            DEVICE,
            ns("time_ns", "when"),
            text("what", "`xid`, `lost`, `reset_required` or `unresponsive`"),
            number("code", "of an `xid`, or of the error"),
        ),
    ),
)
