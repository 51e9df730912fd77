"""Chooses the conformance tests that a change can affect, by the paths that it touches.

    python3 -m tests.affected COMMIT

prints the folders and files that `make conformance` has to run, for what changed since COMMIT: of
a framework whose folder alone changed, its own; of an exporter, all exporters and the framework
that the demo trains with; of anything else but pages, everything, which is an empty line. Without
a commit, or with one that this clone does not have, everything.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

__all__ = ["affected", "changed_since", "main"]

ROOT = Path(__file__).resolve().parents[1]
SHARED = frozenset({"rlvr_probe_ray", "rlvr_probe_vllm"})
"""Integrations that are at work in trainings of the other ones, too."""
DEMO = "integrations/rlvr_probe_trl"
ALWAYS = ("tests/e2e/test_readme.py",)
"""What a page, too, can break."""


def affected(changed: Iterable[str]) -> list[str]:
    """Arguments for pytest; none stands for everything.

    Args:
        changed: Paths from the root of the repository, with ``/``.
    """
    chosen = dict.fromkeys(ALWAYS)
    for path in map(PurePosixPath, changed):
        top, *rest = path.parts
        if path.suffix == ".md":
            continue
        if top == "integrations" and len(rest) > 1 and rest[0] not in SHARED:
            chosen[f"integrations/{rest[0]}"] = None
        elif top == "exporters" and len(rest) > 1:
            chosen |= dict.fromkeys(["exporters", DEMO])
        else:
            return []
    return list(chosen)


def changed_since(commit: str) -> list[str] | None:
    """Paths that differ from ``commit``, both names of what was moved; none if it is unknown."""
    command = ["git", "diff", "--name-only", "--no-renames", "-z", commit, "--"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split("\0")[:-1] if done.returncode == 0 else None


def main(arguments: Sequence[str]) -> None:
    """Print what to run."""
    commit = arguments[0] if arguments else ""
    changed = changed_since(commit) if commit and not commit.startswith("-") else None
    print(*(affected(changed) if changed else []))


if __name__ == "__main__":
    main(sys.argv[1:])
