"""``make bench``: what the probe costs, as a table and as JSON.

    python tests/bench/run.py [--json FILE] [--quick]

Ratios between rows of one run can be trusted; absolute times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import hotpath, startup


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="what the probe costs")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    arguments = parser.parse_args()
    few = arguments.quick
    figures: dict[str, Any] = {
        "python": platform.python_version(),
        "event_cost": hotpath.event_cost(rounds=5 if few else 30),
        "sustained": hotpath.sustained(100_000 if few else 600_000),
        "startup": startup.measure(20 if few else 100),
    }
    print(
        f"{'one event, calling thread':40s} {'p50 us':>8s} {'90 % of rounds':>16s} {'p99 us':>8s}"
    )
    for name, row in figures["event_cost"].items():
        if "p50_us" in row:
            spread = f"{row['p50_low_us']:.2f} .. {row['p50_high_us']:.2f}"
            print(f"{name:40s} {row['p50_us']:8.2f} {spread:>16s} {row['p99_us']:8.2f}")
    for part in ("sustained", "startup"):
        print(f"\n{part}")
        for name, value in figures[part].items():
            print(f"  {name:38s} {value if isinstance(value, str) else round(value, 3)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
