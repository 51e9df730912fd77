"""``make bench``: what the probe costs, as tables and as JSON.

    make bench                              everything, about an hour on an idle machine
    make bench ARGS="--only event rate"     some of it; each family also runs by itself
    make bench ARGS="--write-docs"          and into docs/explanation: overhead.md, fidelity.md

Ratios between rows of one run can be trusted; absolute times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import (
    analysis,
    bars,
    beside,
    columns,
    compaction,
    conversion,
    event,
    live,
    ranks,
    rate,
    ray_engine,
    replay,
    sampling,
    slowdown,
    startup,
)
from tests.bench.report import machine

__all__ = ["FAMILIES", "fill"]

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = {
    "event": event,
    "rate": rate,
    "columns": columns,
    "startup": startup,
    "conversion": conversion,
    "analysis": analysis,
    "compaction": compaction,
    "ray_engine": ray_engine,
    "ranks": ranks,
    "sampling": sampling,
    "live": live,
    "slowdown": slowdown,
    "beside": beside,
    "replay": replay,
}
NOT_YET = "Not measured yet on a machine that was left alone."
PAGE = ROOT / "docs" / "explanation" / "overhead.md"
FIGURES = PAGE.with_suffix(".json")
REPLAY_PAGE = PAGE.with_name("fidelity.md")
PAGES = {PAGE: tuple(name for name in FAMILIES if name != "replay"), REPLAY_PAGE: ("replay",)}
"""Families that each page of the documentation has; their figures lie beside it."""
_BLOCK = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, figures: dict[str, Any]) -> str:
    """``page`` with every block (a family, the bars, the machine) made from ``figures``."""

    def block(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        return f"{begin}\n{_content(name, figures)}\n\n{end}"

    return _BLOCK.sub(block, page)


def _content(name: str, figures: dict[str, Any]) -> str:
    if name == "bars":
        return bars.tables(figures)
    if name != "machine":
        command = f'```bash\nmake bench ARGS="--only {name}"\n```'
        found = FAMILIES[name].tables(figures[name]) if name in figures else NOT_YET
        return f"{command}\n\n{found}"
    found = figures[name]
    return (
        f"Measured on {found['cores']} cores of {found['processor']}, {found['system']},"
        f" Python {found['python']}."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what the probe costs", allow_abbrev=False)
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--quick", action="store_true", help="only whether it works")
    parser.add_argument("--minutes", type=float, default=slowdown.MINUTES, help="for each slowdown")
    parser.add_argument(
        "--json", type=Path, default=Path("bench.json"), help="default: %(default)s"
    )
    parser.add_argument("--read", action="store_true", help="measure nothing: take --json as it is")
    parser.add_argument(
        "--write-docs", action="store_true", help="fill the pages of which all was measured"
    )
    chosen = parser.parse_args()
    if chosen.quick and chosen.write_docs:
        parser.error("a quick run says nothing that could be documented")
    return chosen


def main() -> None:
    """Measure, print, write JSON and, if asked, the documentation."""
    chosen = _options()
    figures: dict[str, Any] = {}
    if chosen.json.exists() and (chosen.read or chosen.only != list(FAMILIES)):
        figures = json.loads(chosen.json.read_text(encoding="utf-8"))
    if chosen.read:
        for name in (name for name in FAMILIES if name in figures):
            print(f"\n== {name}\n\n{FAMILIES[name].tables(figures[name])}")
    else:
        figures |= {"quick": chosen.quick, "machine": machine()}
        for name in chosen.only:
            print(f"\n== {name}\n", flush=True)
            figures[name] = _measure(name, chosen)
            chosen.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"\nwritten: {chosen.json.resolve()}")
    if figures.keys() >= set(PAGES[PAGE]) and not figures["quick"]:
        print(f"\n== bars\n\n{bars.tables(figures)}")
    if chosen.write_docs:
        _write_docs(figures)


def _measure(name: str, chosen: argparse.Namespace) -> Any:
    """Figures of one family, from a process of its own: what one leaves behind hits no other."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "figures.json"
        command = [sys.executable, "-m", f"tests.bench.{name}", f"--json={out}"]
        command += ["--quick"] if chosen.quick else []
        command += [f"--minutes={chosen.minutes}"] if name in ("slowdown", "beside") else []
        begin = time.monotonic()
        subprocess.run(command, cwd=ROOT, check=True)
        figures: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return figures | {"took_s": round(time.monotonic() - begin, 1)}


def _write_docs(figures: dict[str, Any]) -> None:
    if figures["quick"]:
        raise SystemExit("measured by a quick run, which says nothing that could be documented")
    whole = {page: names for page, names in PAGES.items() if figures.keys() >= set(names)}
    if not whole:
        missing = [name for name in PAGES[PAGE] if name not in figures]
        raise SystemExit(f"not measured yet: {', '.join(missing)}; a page takes all of its own")
    for page, names in whole.items():
        own = {name: figures[name] for name in ("quick", "machine", *names)}
        path = page.with_suffix(".json")
        path.write_text(json.dumps(own, indent=1) + "\n", encoding="utf-8")
        page.write_text(fill(page.read_text(encoding="utf-8"), own), encoding="utf-8")
        print(f"written: {path} and {page}")


if __name__ == "__main__":
    main()
