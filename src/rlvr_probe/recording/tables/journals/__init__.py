"""The tables of a large recording, whose fine rows DuckDB reads straight from the journal files.

What a run is, its steps, batches and lengths, comes from :mod:`rlvr_probe.recording` as ever. Only
the
rows of single trajectories, of which there are tens of millions, do not pass through Python.
"""

from rlvr_probe.recording.tables.journals.reading import read_tables

__all__ = ["read_tables"]
