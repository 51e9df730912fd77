"""A framework to write an integration for: it trains with verifiable rewards, in plain Python."""

from tinyrl.trainer import STOP, Policy, Trainer

__all__ = ["STOP", "Policy", "Trainer"]
