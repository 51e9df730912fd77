"""Recording on users' threads, and the thread that writes it down."""

from rlvr_probe.probe.recorder.bookkeeping import FULL, OFF, STAGES
from rlvr_probe.probe.recorder.owntime import Account
from rlvr_probe.probe.recorder.recorder import CURRENT, Recorder

__all__ = ["CURRENT", "FULL", "OFF", "STAGES", "Account", "Recorder"]
