"""What a replay was asked to repeat, kept beside the recording that it makes.

It is the input of a replay alone; what came of it stands in the journals.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Final, Literal

import msgspec

from rlvr_probe.exceptions import RecordingError

__all__ = ["NOTE", "Half", "ReplayNote", "encode_note", "read_note", "scaled"]

NOTE: Final = "replay.json"
"""Its name in a run folder."""

Half = Literal["rollout", "training"]
"""Of a step: prompts, generation, tools and rewards; or what is computed from them."""


class ReplayNote(msgspec.Struct, frozen=True):
    """The plan of a replay, without its lengths.

    Attributes:
        source: Name of the run folder or workload directory.
        steps: Trainer step that each batch of the plan was recorded in, in the order of the replay.
        cap: Longest response allowed, tokens.
        scale: What all lengths were multiplied by, as a fraction; None if by nothing.
        naive: Whether lengths, waits and rewards were the means.
        slept: What slept as long as recorded: ``reward``, ``tool_call``.
        half: Of each step that was done alone; None if all of it was.
        schema: Of the file.
    """

    source: str
    steps: tuple[int, ...]
    cap: int
    scale: str | None
    naive: bool
    slept: tuple[str, ...]
    half: Half | None = None
    schema: Literal[1] = 1

    @property
    def factor(self) -> Fraction:
        """What all lengths were multiplied by."""
        return Fraction(self.scale or 1)


def scaled(tokens: int, factor: Fraction) -> int:
    """A length times ``factor``, rounded to even, and at least 1 token."""
    return max(1, round(tokens * factor))


def encode_note(note: ReplayNote) -> bytes:
    """The content of the file."""
    return msgspec.json.encode(note) + b"\n"


def read_note(folder: Path) -> ReplayNote | None:
    """The note in a run folder; None if the run was not a replay.

    Raises:
        RecordingError: There is a note, and it cannot be read.
    """
    try:
        note = msgspec.json.decode((folder / NOTE).read_bytes(), type=ReplayNote)
        _ = note.factor
    except FileNotFoundError:
        return None
    # In the oldest release of msgspec that is taken, its errors are apart from ValueError.
    except (OSError, msgspec.MsgspecError, ValueError, ZeroDivisionError) as error:
        raise RecordingError(
            f"{folder.name}/{NOTE} cannot be read ({error}); expected what replay of this version"
            " writes"
        ) from error
    return note
