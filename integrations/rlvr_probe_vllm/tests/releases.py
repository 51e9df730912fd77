"""Releases of vLLM: the Python files of their wheels, which are a thirtieth of them."""

from __future__ import annotations

import re
from pathlib import Path

from tests import members, wheels

__all__ = ["DEPENDENCIES", "LIST", "RELEASES", "RUN", "looked_up", "run"]

LIST = members.listed("vllm-releases.txt")
RELEASES = tuple(name for name in LIST if not name.endswith("+run"))
"""Those that names are looked up in."""

RUN = tuple(name.removesuffix("+run") for name in LIST if name.endswith("+run"))
"""Those whose code is run, the newest first."""

DEPENDENCIES = "vllm.txt"
_ENGINE = re.compile(r"vllm/(v1/(engine|metrics|core/sched)/.*|v1/request|plugins/__init__)\.py")
_PYTHON = re.compile(r"vllm/.*\.py|vllm-[^/]*/METADATA")


def looked_up(version: str) -> Path:
    """A folder with the modules of the engine."""
    line = LIST[version]
    return members.unpacked(f"vllm-{version}", line, lambda name: bool(_ENGINE.fullmatch(name)))


def run(version: str) -> tuple[Path, Path]:
    """A folder with all of a release that is Python, and one with what it needs to be imported."""
    line = LIST[f"{version}+run"]
    folder = members.unpacked(
        f"vllm-{version}+run", line, lambda name: bool(_PYTHON.fullmatch(name))
    )
    pins = (wheels.REQUIREMENTS / DEPENDENCIES).read_text()
    return folder, wheels.unpacked("vllm-dependencies", pins)
