"""Whether the other dashboards can be believed."""

from __future__ import annotations

from typing import Final

from rlvr_probe_otlp.scraping.exposition import label_name
from rlvr_probe_otlp.views.queries import grown, total
from rlvr_probe_otlp.views.table import Board, Panel, alarm, number

__all__ = ["HEALTH"]


def _by(metric: str, attribute: str) -> str:
    """A total by an attribute, without the series that says that there is none."""
    return total(metric, attribute, where=f', {label_name(attribute)}!=""')


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
                    decimals=0,
                ),
                alarm(
                    "Rows that are missing",
                    "Since the start; `rlvr-probe show` says why. Sent when a run is over,"
                    " scraped all along.",
                    total("rlvr.lost"),
                ),
                alarm(
                    "Errors inside the probe",
                    "Since the start; the training went on.",
                    total("rlvr.faults"),
                ),
                number(
                    "Open spans",
                    "Of a run that died: what it was doing.",
                    "none",
                    total("rlvr.spans.open"),
                    decimals=0,
                ),
                Panel(
                    "Rows that are missing",
                    "By reason.",
                    "none",
                    (("{{rlvr_lost_reason}}", _by("rlvr.lost", "rlvr.lost.reason")),),
                    empty="Nothing is known to be missing",
                ),
                Panel(
                    "Open spans",
                    "By what is open.",
                    "none",
                    (("{{rlvr_span}}", _by("rlvr.spans.open", "rlvr.span")),),
                    empty="Nothing is known to be open",
                ),
            ),
        ),
    ),
)
