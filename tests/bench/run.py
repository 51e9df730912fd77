"""``make bench``: what the probe costs, as tables and as JSON.

    make bench                              everything, about 40 minutes on an idle machine
    make bench ARGS="--only event rate"     some of it; each family also runs by itself
    make bench ARGS="--write-docs"          and into docs/explanation/overhead.md and overhead.json

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
    conversion,
    event,
    live,
    rate,
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
    "sampling": sampling,
    "live": live,
    "slowdown": slowdown,
    "beside": beside,
}
NOT_YET = "Not measured yet on a machine that was left alone."
PAGE = ROOT / "docs" / "explanation" / "overhead.md"
FIGURES = PAGE.with_suffix(".json")
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
    parser.add_argument("--write-docs", action="store_true", help=f"fill {PAGE.relative_to(ROOT)}")
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
    if figures.keys() >= FAMILIES.keys() and not figures["quick"]:
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
    missing = [name for name in FAMILIES if name not in figures]
    if missing:
        raise SystemExit(f"not measured yet: {', '.join(missing)}; the documentation takes all")
    if figures["quick"]:
        raise SystemExit("measured by a quick run, which says nothing that could be documented")
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print(f"written: {FIGURES} and {PAGE}")


if __name__ == "__main__":
    main()
