"""``rlvr-probe ls``: the runs of a lake, one line each."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_probe.cli import OK, Subparsers, orderly
from rlvr_probe.exceptions import ProbeError

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``ls``."""
    parser = subparsers.add_parser(
        "ls",
        help="list the runs of a lake: what trained, how much it took, what cost it most",
        description="List the runs that `characterize --lake` put into a lake, and those that were"
        " uploaded there and not characterized yet. Needs the extra analysis.",
    )
    parser.add_argument(
        "lake", metavar="LAKE", help="a folder, or a place such as s3://bucket/name"
    )
    parser.add_argument(
        "--where",
        metavar="SQL",
        help="only runs of which this holds, for example \"framework = 'verl' AND gpu_hours > 10\"",
    )
    parser.add_argument("--json", action="store_true", help="print all that is known of each")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """List the runs and return the exit code."""
    from rlvr_probe.analysis.open_run import require

    require("duckdb", "ls")
    from rlvr_probe.recording.lake import list_runs
    from rlvr_probe.report.render import draw
    from rlvr_probe.report.runs import lay_out_runs
    from rlvr_probe.storage import to_place

    with orderly():
        found = list_runs(to_place(args.lake))
        runs = _chosen(found, args.where)
        if args.json:
            print(json.dumps({"schema_version": 1, "runs": runs}, allow_nan=False, default=str))
        else:
            draw(lay_out_runs(args.lake, runs, len(found)), sys.stdout)
    return OK


def _chosen(runs: Sequence[Mapping[str, Any]], where: str | None) -> list[dict[str, Any]]:
    """The runs of which a condition holds, the newest first; what is unknown is None.

    Raises:
        ProbeError: DuckDB does not take the condition.
    """
    import duckdb

    from rlvr_probe.recording.lake import COLUMNS

    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    with duckdb.connect(config={"enable_external_access": False}) as sql:
        sql.execute(f"CREATE TABLE runs ({columns})")
        # As one value: a statement for each row takes a millisecond.
        kinds = json.dumps([{name: kind for name, (kind, _) in COLUMNS.items()}])
        try:
            sql.execute(
                "INSERT INTO runs SELECT unnest(from_json(?, ?), recursive := true)",
                [json.dumps(list(runs)), kinds],
            )
            found = sql.execute(
                f"FROM runs WHERE {where or 'true'} ORDER BY started DESC NULLS LAST, run"
            ).fetchall()
        except duckdb.Error as error:
            raise ProbeError(
                f"found --where {where!r}, expected a condition on {', '.join(COLUMNS)}: {error}"
            ) from None
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]
