"""Records TRL trainers that generate while they train: GRPO, RLOO and their subclasses."""

from rlvr_probe_trl.adapter import TrlAdapter

__all__ = ["TrlAdapter"]
