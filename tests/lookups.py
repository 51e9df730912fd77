"""Names looked up in releases that never change: an answer holds until the question is another.

A question is all that a look-up depends on: the pinned release, the hook points, and the code that
looks. Beside the tests of a framework, a file holds the digest of the question for each release in
which nothing was missing. So continuous integration looks into the oldest and the newest release,
and into those between only if it has something new to ask.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import rlvr_probe.lookup
from rlvr_probe.adapter import HookPoint

__all__ = ["Lookups", "ends", "names"]

_CODE = sorted(Path(rlvr_probe.lookup.__file__).parent.glob("*.py"))
"""Of all look-ups."""


class Lookups:
    """Those of a framework.

    Args:
        test: The file that looks up; the answers are kept beside it.
        asked: What is asked of a release, as JSON could say it.
        missing: What is wrong with a release, in words: this looks it up.
    """

    def __init__(
        self,
        test: str,
        asked: Callable[[str], Sequence[object]],
        missing: Callable[[str], Iterable[str]],
    ) -> None:
        self.kept = Path(test).with_name("looked_up.json")
        self._test, self._asked, self._missing = Path(test), asked, missing

    def look_up(self, release: str) -> list[str]:
        """What is missing in a release. That nothing is, is remembered."""
        found = list(self._missing(release))
        if not found:
            self._write({**self._answered(), release: self._question(release)})
        return found

    def look_up_new(self, releases: Iterable[str]) -> dict[str, list[str]]:
        """What is missing in those of which something is asked that was not asked before."""
        answered = self._answered()
        new = [one for one in releases if answered.get(one) != self._question(one)]
        found = {release: self.look_up(release) for release in new}
        return {release: missing for release, missing in found.items() if missing}

    def _question(self, release: str) -> str:
        digest = hashlib.sha256(json.dumps(self._asked(release)).encode())
        for path in (self._test, *_CODE):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def _answered(self) -> dict[str, str]:
        answered: dict[str, str] = json.loads(self.kept.read_text()) if self.kept.exists() else {}
        return answered

    def _write(self, answered: Mapping[str, str]) -> None:
        if answered != self._answered():
            written = self.kept.with_suffix(f".{os.getpid()}")
            written.write_text(json.dumps(answered, indent=1, sort_keys=True) + "\n")
            written.replace(self.kept)


def names(points: Iterable[HookPoint]) -> list[tuple[str, bool, tuple[str, ...]]]:
    """What is looked up of hook points."""
    return [(point.target, point.optional, point.parameters) for point in points]


def ends(releases: Sequence[str]) -> list[Any]:
    """Parameters of a test: the first and the last release, and where there is time all others."""
    first, *between, last = releases
    return [first, *(pytest.param(one, marks=pytest.mark.full) for one in between), last]
