"""Writes the report as one HTML file, with a policy that forbids it to ask any network.

:mod:`contents` gathers what is on the page; it is put into ``page.html`` with the styles of
``page.css`` and the scripts of ``scripts/``. Numbers are counted over everything: only what is
drawn is a sample, and the page says of what.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final

from rlvr_probe.analysis.characterization import Characterization
from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.page.contents import document
from rlvr_probe.report.page.encode import embedded

__all__ = ["SCRIPTS", "page_text", "write_page"]

SCRIPTS: Final = (
    "elements", "numbers", "categories", "tips", "plots", "heat", "details", "ledger", "axis",
    "tracks", "timeline", "figures", "series", "causes", "overview", "notes", "navigation",
    "selection", "search", "page",
)  # fmt: skip
"""Parts of the script, in the order in which they are put together."""


def write_page(path: Path, tables: Tables, found: Characterization) -> None:
    """Write the report as one HTML file.

    Args:
        path: Where to; what is there is replaced.
        tables: Open, those that it was made of.
        found: What was found.

    Raises:
        OSError: The file cannot be written.
    """
    path.write_text(page_text(document(tables, found)), encoding="utf-8")


def page_text(contents: dict[str, Any]) -> str:
    """The page of a document."""
    files = resources.files("rlvr_probe.report.page")
    style = files.joinpath("page.css").read_text(encoding="utf-8")
    parts = [
        files.joinpath("scripts").joinpath(f"{name}.js").read_text("utf-8") for name in SCRIPTS
    ]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    first, second = contents["headline"]
    return Template(files.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(f"{contents['run'].get('run') or contents['source']} · rlvr-probe"),
        headline=html.escape(first),
        cause=html.escape(second),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=embedded(text),
    )


def _hash(text: str) -> str:
    """Of what stands in an element, as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
