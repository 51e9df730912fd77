"""Which tests of a checkout run which line of its product code."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from coverage import CoverageData

__all__ = ["PRODUCT", "Lines", "cover", "is_product"]

PRODUCT: Final = ("src", "integrations", "exporters")

Lines = Mapping[str, Mapping[int, frozenset[str]]]
"""Tests by path, from the root of the checkout, and number of the line."""

_SETTINGS: Final = """\
[run]
context = ${COVERAGE_CONTEXT-}
data_file = %(data)s
include = %(include)s
omit = */tests/*,*/recipe/*
parallel = true
patch = _exit,fork
sigterm = true
disable_warnings = no-data-collected,module-not-measured,couldnt-parse
"""


def is_product(path: Path) -> bool:
    """Whether a path from the root of a checkout is product code."""
    parts = path.parts
    return parts[0] in PRODUCT and path.suffix == ".py" and not {"tests", "recipe"} & {*parts}


def cover(checkout: Path, data: Path, marked: str = "not conformance") -> Lines:
    """Run the suite of a checkout, unless ``data`` exists, which is then what a run has given.

    Args:
        checkout: Its root; ``.venv`` is in it.
        data: File of coverage data.
        marked: Which tests are run.
    """
    data = data.resolve()
    if not data.exists():
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            _run(checkout, data, Path(folder), marked)
        command = ["combine", "--quiet", f"--data-file={data}"]
        subprocess.run([checkout / ".venv/bin/coverage", *command], cwd=data.parent, check=True)
    found = CoverageData(str(data))
    found.read()
    return {
        str(path): {
            line: frozenset(test for test in tests if test)
            for line, tests in found.contexts_by_lineno(str(checkout / path)).items()
        }
        for path in (Path(file).relative_to(checkout) for file in found.measured_files())
        if is_product(path)
    }


def _run(checkout: Path, data: Path, folder: Path, marked: str) -> None:
    settings = folder / "coveragerc"
    include = ",".join(f"{checkout}/{top}/*" for top in PRODUCT)
    settings.write_text(_SETTINGS % {"data": data, "include": include})
    plugin = folder / "plugin"
    plugin.mkdir()
    shutil.copy(Path(__file__).with_name("covering.py"), plugin)
    environ = {name: value for name, value in os.environ.items() if "PYTHONDONT" not in name}
    environ |= {"PYTHONPATH": str(plugin), "COVERAGE_PROCESS_START": str(settings)}
    # Measuring slows tests, and some that look at threads, files or times fail: their lines count.
    command = [
        str(checkout / ".venv/bin/python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "covering",
        "-m",
        marked,
    ]
    spread = ["-n", "3", "--dist", "loadfile", "-o", "timeout=600"]
    subprocess.run([*command, *spread], cwd=checkout, env=environ, check=False)
