"""Whether the other dashboards can be believed."""

from __future__ import annotations

from typing import Final

from rlvr_probe_otlp.views.queries import grown, total
from rlvr_probe_otlp.views.table import Board, Panel, number

__all__ = ["HEALTH"]

HEALTH: Final = Board(
    "health",
    "rlvr-probe: health of the recording",
    "Whether the other dashboards can be believed.",
    (
        (
            "Recording",
            (
                number(
                    "Steps of the last hour",
                    "None: the training hangs, or nothing arrives.",
                    "none",
                    grown("rl.train.steps").replace("$window", "1h"),
                ),
                number(
                    "Rows that are missing",
                    "Since the start; `rlvr-probe show` says why.",
                    "none",
                    total("rlvr.lost"),
                ),
                number(
                    "Errors inside the probe",
                    "Since the start; the training went on.",
                    "none",
                    total("rlvr.faults"),
                ),
                number(
                    "Open spans",
                    "Of a run that died: what it was doing.",
                    "none",
                    total("rlvr.spans.open"),
                ),
                Panel(
                    "Rows that are missing",
                    "By reason.",
                    "none",
                    (("{{rlvr_lost_reason}}", total("rlvr.lost", "rlvr.lost.reason")),),
                ),
                Panel(
                    "Open spans",
                    "By what is open.",
                    "none",
                    (("{{rlvr_span}}", total("rlvr.spans.open", "rlvr.span")),),
                ),
            ),
        ),
    ),
)
