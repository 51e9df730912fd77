"""Tries mutants; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.draw import AREAS, Mutant, draw
from tests.mutants.lines import Lines, cover
from tests.mutants.trial import first_failure, mutated, ordered

OLD, NEW = "old", "new"
NOBODY = ""


class Suite:
    """Some checkouts of one suite, which take turns."""

    def __init__(self, checkouts: Iterable[Path], data: Path) -> None:
        roots = [path.resolve() for path in checkouts]
        self.root = roots[0]
        self.lines: Lines = cover(self.root, data)
        self._free: SimpleQueue[Path] = SimpleQueue()
        for root in roots:
            self._free.put(root)

    def failure(self, mutant: Mutant) -> str:
        """The first test that sees the mistake, or an empty text."""
        running = self.lines.get(mutant.path, {}).get(mutant.line, frozenset())
        checkout = self._free.get()
        try:
            with mutated(checkout, mutant):
                return first_failure(checkout, ordered(running, self.lines)) or NOBODY
        finally:
            self._free.put(checkout)


def alike(old: Suite, new: Suite) -> list[str]:
    """Paths of product code that both have."""
    return [
        path
        for path in old.lines
        if (new.root / path).is_file()
        and (old.root / path).read_bytes() == (new.root / path).read_bytes()
    ]


def main() -> int:
    """Print each mutant and who sees it, and how many the old suite alone does."""
    asked = argparse.ArgumentParser(prog="python -m tests.mutants")
    asked.add_argument("--new", type=Path, nargs="+", required=True)
    asked.add_argument("--old", type=Path, nargs="+", required=True)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--count", type=int, default=150)
    asked.add_argument("--data", type=Path, required=True, help="a folder that keeps what is found")
    given = asked.parse_args()
    print(f"seed {given.seed}, {given.count} mutants, spread over {', '.join(AREAS)}", flush=True)
    old, new = Suite(given.old, given.data / OLD), Suite(given.new, given.data / NEW)
    mutants = draw(old.root, old.lines, alike(old, new), given.seed, given.count)
    results = given.data / f"results-{given.seed}.json"
    seen: dict[str, tuple[str, str]] = json.loads(results.read_text()) if results.exists() else {}

    def judge(mutant: Mutant) -> tuple[str, str]:
        by_new = new.failure(mutant)
        return (NEW, by_new) if by_new else (OLD, old.failure(mutant))

    with ThreadPoolExecutor(len(given.new)) as pool:
        waiting = [mutant for mutant in mutants if str(mutant) not in seen]
        for mutant, verdict in zip(waiting, pool.map(judge, waiting), strict=True):
            seen[str(mutant)] = verdict
            results.write_text(json.dumps(seen, indent=1))
            print(f"{verdict[1] and verdict[0]:4} {mutant}  {verdict[1]}", flush=True)
    verdicts = [suite if test else "nobody" for suite, test in map(tuple, seen.values())]
    print(dict(Counter(verdicts)))
    return int(verdicts.count(OLD) > 3)


if __name__ == "__main__":
    sys.exit(main())
