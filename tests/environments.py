"""Pinned environments of the frameworks that rlvr-probe is, or will be, installed into.

    .venv/bin/python -m tests.environments

writes one lock per environment into ``requirements/frameworks``: what `pip install` of a framework
gave on a day, for Python 3.11 on Linux. Only metadata is downloaded. With names as arguments it
writes those alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENVIRONMENTS", "Environment", "pins", "resolve"]

FOLDER = Path(__file__).resolve().parents[1] / "requirements" / "frameworks"
_SOURCE_ONLY = ("deepspeed", "flash-attn", "transformers-stream-generator")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)", re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    """A framework as it was installed on a day.

    Attributes:
        name: Name of its lock.
        requirement: What was asked for.
        day: Nothing newer is used.
    """

    name: str
    requirement: str
    day: str

    @property
    def lock(self) -> Path:
        """Its lock."""
        return FOLDER / f"{self.name}.txt"


# Weeks after the release, except for the newest. OpenRLHF 0.9.10 contradicts the vLLM of its own
# extra, and 0.9.0 needs a transformers that was taken back.
ENVIRONMENTS = (
    Environment("trl-0.20.0", "trl[vllm]==0.20.0", "2025-08-10"),
    Environment("trl-0.28.0", "trl[vllm]==0.28.0", "2026-03-01"),
    Environment("trl-1.16.0", "trl[vllm]==1.16.0", "2026-11-20"),
    Environment("verl-0.5.0", "verl[vllm]==0.5.0", "2025-08-10"),
    Environment("verl-0.9.1", "verl[vllm]==0.9.1", "2026-11-20"),
    Environment("openrlhf-0.9.10", "openrlhf==0.9.10", "2026-05-01"),
    Environment("openrlhf-0.11.2", "openrlhf[vllm]==0.11.2", "2026-11-20"),
)


def pins(text: str) -> dict[str, str]:
    """Versions by name, of a lock."""
    return {name.lower().replace("_", "-"): version for name, version in _PIN.findall(text)}


def resolve(requirements: Iterable[str], day: str | None = None) -> str:
    """The lock of what ``requirements`` give on ``day``; on the day it is called without one.

    Raises:
        subprocess.CalledProcessError: There is no such set of versions; uv says why on stderr.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header"]
    command += ["--config-file", str(FOLDER / "uv.toml"), "--no-annotate", "--only-binary", ":all:"]
    command += [word for name in _SOURCE_ONLY for word in ("--no-binary", name)]
    command += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_39"]
    command += ["--exclude-newer", day] if day else []
    text = "\n".join(requirements)
    done = subprocess.run([*command, "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout


def main(names: Sequence[str]) -> None:
    """Write the locks of ``names``, or all."""
    for one in ENVIRONMENTS:
        if not names or one.name in names:
            head = f"# {one.requirement} on {one.day}: .venv/bin/python -m tests.environments\n"
            one.lock.write_text(head + resolve([one.requirement], one.day), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
