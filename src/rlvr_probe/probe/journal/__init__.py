"""Writing a recording: journal segments and the open-span table of this process.

The shape is :mod:`rlvr_probe.model.schema`; reading it is :mod:`rlvr_probe.recording`.
"""

from rlvr_probe.probe.journal.opentable import OpenTable
from rlvr_probe.probe.journal.space import Space
from rlvr_probe.probe.journal.writer import JournalWriter

__all__ = ["JournalWriter", "OpenTable", "Space"]
