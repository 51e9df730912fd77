"""What a run was to repeat, where it was a replay."""

from __future__ import annotations

from pathlib import Path

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model.replay_note import NOTE, ReplayNote, decode_note

__all__ = ["read_note"]


def read_note(folder: Path) -> ReplayNote | None:
    """The note in a run folder; None if the run was not a replay.

    Raises:
        RecordingError: There is a note, and it cannot be read.
    """
    try:
        return decode_note((folder / NOTE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, ZeroDivisionError) as error:
        raise RecordingError(
            f"{folder.name}/{NOTE} cannot be read ({error}); expected what replay of this version"
            " writes"
        ) from error
