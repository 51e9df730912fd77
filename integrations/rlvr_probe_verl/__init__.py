"""Records verl: its controller, its ranks and its agent loops, each in the process it runs in."""

from rlvr_probe_verl.adapter import VerlAdapter

__all__ = ["VerlAdapter"]
