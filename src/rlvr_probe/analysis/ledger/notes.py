"""What a ledger cannot tell, in sentences."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["HIDDEN", "notes_of"]

_SQL: Final = statements(__name__)

HIDDEN = (
    "waiting inside a collective of an update cannot be told from work: tensor activity was not"
    " read of every GPU that took part"
)


def notes_of(tables: Tables) -> list[str]:
    """What cannot be told of this recording."""
    sql = tables.sql
    notes = list[str]()
    [[after_s]] = sql.execute(_SQL["after"]).fetchall()
    if after_s is not None:
        notes.append(
            f"the training was seen for {after_s:,.0f} s more after its last step and what was open"
            " in it: nothing says what it did then, and it is not in the ledger"
        )
    [[gpus, known]] = sql.execute(_SQL["gpus"]).fetchall()
    if gpus and not known:
        ranks = (
            "a rank stands for one" if gpus == 1 else f"{gpus} ranks or engines stand for one each"
        )
        notes.append(f"no GPU is known that this run worked on: {ranks}")
    [[unread]] = sql.execute(_SQL["unread"]).fetchall()
    if unread:
        notes.append(HIDDEN)
    whole = sql.execute(_SQL["whole"]).fetchall()
    if whole:
        names = ", ".join(f"{name} ({count})" for name, count in whole)
        notes.append(
            "some stages are known only as a whole, so that waiting in them counts as work:"
            f" {names}"
        )
    [[missing]] = sql.execute(_SQL["unrecorded"]).fetchall()
    if missing:
        notes.append(f"{missing} ranks of the training recorded nothing")
    [[beside]] = sql.execute(_SQL["beside"]).fetchall()
    if beside:
        notes.append(f"{beside} GPUs were read that nobody of this run is known to work on")
    [[width]] = sql.execute(_SQL["width"]).fetchall()
    if width is not None and width > 0:
        notes.append(
            f"machines wait for each other by clocks that are known to {width:.3g} s: what is"
            " shorter counts as dispatch"
        )
    return notes
