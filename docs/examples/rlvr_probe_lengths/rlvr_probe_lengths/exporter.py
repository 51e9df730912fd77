"""The format ``lengths``: a file ``lengths.csv`` with one line per trajectory."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlvr_probe.exceptions import ValidationError
from rlvr_probe.exporter import Problem, Written
from rlvr_probe.model.workload import Workload

__all__ = ["LengthsExporter"]

FILE = "lengths.csv"
COLUMNS = ["batch", "group", "sample", "prompt_tokens", "response_tokens", "truncated"]


class LengthsExporter:
    """One line per trajectory; no names in it, so that there are none to replace by aliases."""

    name = "lengths"
    flavors = ()

    def write(
        self, workload: Workload, directory: Path, *, keep_names: bool, flavor: str | None = None
    ) -> Written:
        """Write ``workload`` into ``directory``, which exists and is empty."""
        counts = Counter[str]()
        with open(directory / FILE, "w", encoding="ascii", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(COLUMNS)
            for taken in workload.batches:
                for group in taken.batch.groups():
                    counts["groups"] += 1
                    for one in group.trajectories:
                        counts["trajectories"] += 1
                        # Unknown is absent, never 0.
                        cut = "" if one.truncated is None else int(one.truncated)
                        row = (group.index, one.sample, one.prompt_tokens, one.response_tokens)
                        lines.writerow((taken.index, *row, cut))
        return Written(len(workload.batches), counts["groups"], counts["trajectories"], files=1)

    def recognizes(self, directory: Path) -> bool:
        """Whether ``directory`` holds a table of lengths, judged by its name."""
        return (directory / FILE).is_file()

    def validate(
        self,
        directory: Path,
        *,
        steps: Sequence[int] | None = None,
        response_cap: int | None = None,
    ) -> Sequence[Problem]:
        """Every problem found in ``directory``, in the order of its lines."""
        try:
            with open(directory / FILE, encoding="ascii", newline="") as file:
                return list(_problems(csv.reader(file), steps, response_cap))
        except (OSError, ValueError, csv.Error) as error:
            kind = type(error).__name__
            raise ValidationError(f"{FILE} cannot be read as a table ({kind})") from None


def _problems(
    lines: Iterator[list[str]], steps: Sequence[int] | None, cap: int | None
) -> Iterator[Problem]:
    head = next(lines, [])
    if head != COLUMNS:
        yield Problem(FILE, 1, None, ",".join(head)[:40], ",".join(COLUMNS))
        return
    seen = set[int]()
    for number, line in enumerate(lines, 2):
        row = dict(zip(COLUMNS, line, strict=False))
        wrong = [name for name in COLUMNS[:5] if not row.get(name, "").isdecimal()]
        if len(line) != len(COLUMNS) or wrong:
            place = wrong[0] if wrong else None
            yield Problem(FILE, number, place, ",".join(line)[:40], "six columns of numbers")
            continue
        batch, length = int(row["batch"]), int(row["response_tokens"])
        if steps is not None and batch not in steps:
            continue
        seen.add(batch)
        if cap is not None and length > cap:
            yield Problem(FILE, number, "response_tokens", str(length), f"at most {cap}")
    for batch in sorted(set(steps or ()) - seen):
        yield Problem(FILE, None, "batch", "no line", f"batch {batch}")
