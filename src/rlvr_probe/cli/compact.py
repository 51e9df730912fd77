"""``rlvr-probe compact``: put the finished files of a run into the form that reads fastest."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rlvr_probe.cli import Subparsers, add_run

__all__ = ["add_parser", "execute"]

_KEPT_S: Final = 2.0
"""How long an original stays beside what was made of it, for who listed the folder before."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``compact``."""
    parser = subparsers.add_parser(
        "compact",
        help="put finished files of a run into Parquet, which takes less room and reads faster",
        description="Put the journals of processes that write no more into Parquet, checksummed, "
        "of which each comes out again byte by byte: that is tried before the original is "
        "deleted. Those without turns, tool calls or trajectories of their own are gzipped. The "
        "sidecar of a run does the same as it goes on, where DuckDB is installed.",
    )
    add_run(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Compact the run and return the exit code."""
    from rlvr_probe.cli import OK, UNABLE, complain
    from rlvr_probe.cli.chosen_run import choose_run
    from rlvr_probe.filesystem import reach
    from rlvr_probe.model.schema import COMPACTED_SUFFIX, PACKED_SUFFIX
    from rlvr_probe.sidecar.segments import compact, compress, delete_unfinished, unfinished

    folder = reach(choose_run(args.run))[0]
    delete_unfinished(folder)
    done, before_b, after_b, failed = list[tuple[Path, float]](), 0, 0, 0
    for path in _finished(folder):
        target = _plain(path).with_name(_plain(path).name + COMPACTED_SUFFIX)
        try:
            if not compact(path, unfinished(target)):
                if _plain(path) != path:
                    continue
                target = path.with_name(path.name + PACKED_SUFFIX)
                for _ in compress(path):
                    pass
            before_b += path.stat().st_size
            after_b += target.stat().st_size
            done.append((path, time.monotonic()))
        except OSError as error:
            failed += 1
            complain(f"{path.name} stays as it is: {error.strerror or error}")
    for path, made_s in done:
        time.sleep(max(0.0, made_s + _KEPT_S - time.monotonic()))
        path.unlink(missing_ok=True)
    files = "1 file" if len(done) == 1 else f"{len(done):,} files"
    sizes = f": {before_b / 1e6:,.1f} MB became {after_b / 1e6:,.1f} MB" if done else ""
    print(f"{folder.name}: {files} compacted{sizes}")
    return UNABLE if failed else OK


def _finished(folder: Path) -> Iterator[Path]:
    """Segments of processes that write no more, of a size that is worth it, in one form each."""
    from rlvr_probe.model.schema import PACKED_SUFFIX
    from rlvr_probe.recording.files import JOURNAL
    from rlvr_probe.sidecar.segments import LEAST_B, is_open_for_writing
    from rlvr_probe.sidecar.writers import Writers

    over = Writers(folder, "", every_node=True).look_over()
    for path in sorted(folder.iterdir()):
        found = JOURNAL.fullmatch(path.name)
        if found is None or path.is_symlink():
            continue
        # In both forms, after a crash, a segment has the same lines.
        packed = found[3] == PACKED_SUFFIX and not _plain(path).exists()
        plain = not found[3] and found[1] in over and path.stat().st_size >= LEAST_B
        if packed or (plain and not is_open_for_writing(path)):
            yield path


def _plain(path: Path) -> Path:
    """A segment by the name that it was written under."""
    from rlvr_probe.model.schema import PACKED_SUFFIX

    return path.with_name(path.name.removesuffix(PACKED_SUFFIX))
