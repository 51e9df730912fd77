"""The tables that fine rows go to, and what joins them: ``tables.sql`` says what they hold."""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording.columns import tables_of

__all__ = [
    "ALL",
    "BATCH_ROW",
    "CHOSEN",
    "KEY",
    "MEMBER",
    "PART",
    "REQUEST",
    "REWARD",
    "SERVE",
    "SHARD",
    "TOOL",
    "TRAJECTORY",
    "TURN",
    "VERIFICATION",
]

_TABLES: Final = tables_of("rlvr_probe.recording.fine", "tables.sql")

TRAJECTORY: Final = _TABLES["q_trajectory"]
TURN: Final = _TABLES["q_turn"]
TOOL: Final = _TABLES["q_tool"]
VERIFICATION: Final = _TABLES["q_verification"]
REQUEST: Final = _TABLES["q_request"]
KEY: Final = _TABLES["q_key"]
MEMBER: Final = _TABLES["q_member"]
SERVE: Final = _TABLES["q_serve"]
PART: Final = _TABLES["q_part"]
BATCH_ROW: Final = _TABLES["q_batch_row"]
SHARD: Final = _TABLES["q_shard"]
REWARD: Final = _TABLES["q_reward"]
CHOSEN: Final = _TABLES["q_chosen"]

ALL: Final = tuple(_TABLES.values())
