"""How like a recorded run its replays are: accuracy by stage and step, and what lies behind it."""

from rlvr_probe.analysis.fidelity.card import Card, Flight, Kind, Lengths, Likeness, make_card
from rlvr_probe.analysis.fidelity.log import read_log
from rlvr_probe.analysis.fidelity.run import Run, read_run

__all__ = [
    "Card", "Flight", "Kind", "Lengths", "Likeness", "Run", "make_card", "read_log", "read_run",
]  # fmt: skip
