"""Records OpenRLHF: its controllers, its ranks and its agents, each in the process it runs in."""

from rlvr_probe_openrlhf.adapter import OpenRLHFAdapter

__all__ = ["OpenRLHFAdapter"]
