"""A recording as tables, which the analysis asks its questions of in SQL."""

from rlvr_probe.recording.schema import TABLES, VIEWS
from rlvr_probe.recording.tables.database import Tables, open_recording, open_tables
from rlvr_probe.recording.tables.saved import is_saved, open_saved, save_tables

__all__ = [
    "TABLES", "VIEWS", "Tables", "is_saved", "open_recording", "open_saved", "open_tables",
    "save_tables",
]  # fmt: skip
