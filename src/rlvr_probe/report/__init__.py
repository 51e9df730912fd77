"""Says what a recorded run did: as JSON, as tables on a terminal, as plain text in a pipe."""

from rlvr_probe.report.render import render
from rlvr_probe.report.summary import SHOW_SCHEMA_VERSION, summarize

__all__ = ["SHOW_SCHEMA_VERSION", "render", "summarize"]
