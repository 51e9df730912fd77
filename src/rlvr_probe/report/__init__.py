"""Lays out what was found of a run: for a terminal, as plain text for a pipe, as a page.

Nothing is computed here: figures, and what of them stands out, come from
:mod:`rlvr_probe.analysis`.
"""

from rlvr_probe.report.render import render

__all__ = ["render"]
