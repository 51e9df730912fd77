"""Writes the lengths of a recorded training as one table."""

from rlvr_probe_lengths.exporter import LengthsExporter

__all__ = ["LengthsExporter"]
