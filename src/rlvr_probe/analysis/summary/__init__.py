"""What ``rlvr-probe show`` says of a run, asked of its trace: a module per subject.

In Python, over columns: a run that ``show`` is asked for while it trains is small, and to load what
SQL takes longer than all of this. Lengths, turns and rewards are defined as in the sections of
:mod:`rlvr_probe.analysis.metrics`; tests hold one against the other.
"""

from rlvr_probe.analysis.summary.summary import SHOW_SCHEMA_VERSION, summarize

__all__ = ["SHOW_SCHEMA_VERSION", "summarize"]
