"""The tables that fine rows of journals go to as they are, before they are joined.

``p`` is the number of a process in its :class:`~rlvr_probe.recording.fine.store.FineStore`. Times
are ns, ``start`` since the header of the process was written.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording.columns import Column, Table

__all__ = ["ALL", "KEY", "REQUEST", "TOOL", "TRAJECTORY", "TURN", "VERIFICATION"]


def _table(name: str, meaning: str, **columns: str) -> Table:
    return Table(name, meaning, tuple(Column(one, kind, "") for one, kind in columns.items()))


_SERVED: Final = {
    "queue_s": "DOUBLE", "prefill_s": "DOUBLE", "decode_s": "DOUBLE", "preemptions": "BIGINT",
    "finish": "VARCHAR",
}  # fmt: skip
_SPAN: Final = {"start": "BIGINT", "duration": "BIGINT"}

TRAJECTORY: Final = _table(
    "q_trajectory", "a trajectory, as the process that generated it tells",
    p="INTEGER", span="BIGINT", **_SPAN, key="VARCHAR", engine="BIGINT", oldest="BIGINT",
    newest="BIGINT", prompt="BIGINT", response="BIGINT", truncated="BOOLEAN", loss="BIGINT",
    runs="UINTEGER[]",
)  # fmt: skip
TURN: Final = _table(
    "q_turn",
    "a turn of one trajectory. ``call`` is NULL where it was alone in its call of the engine, else"
    " it numbers those of its process, which had ``entries`` turns. ``local`` is its row in the"
    " batch, ``last`` the highest of the call; ``whole`` where none was named: they are all rows",
    p="INTEGER", span="BIGINT", **_SPAN, call="BIGINT", entries="BIGINT", last="BIGINT",
    batch="BIGINT", local="BIGINT", whole="BOOLEAN", turn="BIGINT", prompt="BIGINT",
    response="BIGINT", cached="BIGINT", request="VARCHAR", **_SERVED,
)  # fmt: skip
TOOL: Final = _table(
    "q_tool", "a call of a tool",
    p="INTEGER", **_SPAN, batch="BIGINT", row="BIGINT", turn="BIGINT", tool="VARCHAR",
    status="VARCHAR", error="VARCHAR",
)  # fmt: skip
VERIFICATION: Final = _table(
    "q_verification", "a verification; ``value`` is NaN where the function gave no finite number",
    p="INTEGER", **_SPAN, batch="BIGINT", function="VARCHAR", value="DOUBLE", attempts="BIGINT",
    timeouts="BIGINT", shared="BIGINT[]",
)  # fmt: skip
REQUEST: Final = _table(
    "q_request", "one side of a request of an engine",
    p="INTEGER", parent="BIGINT", **_SPAN, client="BOOLEAN", key="VARCHAR", request="VARCHAR",
    prompt="BIGINT", response="BIGINT", cached="BIGINT", **_SERVED,
)  # fmt: skip
KEY: Final = _table(
    "q_key", "the key of a row of a batch; ``k`` numbers batches that have keys",
    k="INTEGER", local="INTEGER", key="VARCHAR",
)  # fmt: skip

ALL: Final = (TRAJECTORY, TURN, TOOL, VERIFICATION, REQUEST, KEY)
