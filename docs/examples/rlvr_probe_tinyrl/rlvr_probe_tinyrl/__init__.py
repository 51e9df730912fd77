"""Records runs of tinyrl."""

from rlvr_probe_tinyrl.adapter import TinyRLAdapter

__all__ = ["TinyRLAdapter"]
