"""Simulates RL post-training runs whose truth is known, and writes their recordings.

The judge of what is said about recordings. It shares names and journals with the recorder, and
nothing with what reads them; the README beside this file says what it assumes.
"""

from tests.simulator.scenarios import KINDS, scenario
from tests.simulator.setting import Costs, Scenario
from tests.simulator.truth import Truth, simulate

__all__ = ["KINDS", "Costs", "Scenario", "Truth", "scenario", "simulate"]
