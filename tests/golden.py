"""What the commands say of recordings of every kind, kept, and compared with what another says.

python -m tests.golden record RECORDINGS
python -m tests.golden ask RECORDINGS BEFORE --command /before/.venv/bin/rlvr-probe
python -m tests.golden ask RECORDINGS AFTER
python -m tests.golden compare BEFORE AFTER

For a change that should change no answer: keys that were renamed stand in ``RENAMED``, and every
other difference is an error.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.corpus.recordings import RECORDED, folder_of, unpacked
from tests.damaged import cut, garble
from tests.simulated import BESIDE, FILTERED, SMALL, TRAINED, brief
from tests.simulator import scenario, simulate
from tests.trained_twice import trained_twice

__all__ = ["PROGRAM", "RENAMED", "ask", "compare", "differences", "record", "without"]

PROGRAM: Final = Path(sys.executable).with_name("rlvr-probe")

RENAMED: Final[Mapping[str, str]] = {}
"""Keys of JSON: what each was called before, and is called now."""

_UNCOMPARED: Final = frozenset({"query", "inputs"})
"""Keys of how an answer was found, which is none."""

_ROUNDING: Final = 1e-12
"""How far sums may be apart, as a share: threads add up in any order."""

_SIMULATED: Final = {
    "small": SMALL,
    "trained": TRAINED,
    "filtered": FILTERED,
    "beside": BESIDE,
    "ranks-64": replace(brief(scenario(4), steps=2, prompts=64), ranks=64, gpus_per_node=8),
}
_COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "show.json": ("show", "RUN", "--json"),
    "show.txt": ("show", "RUN"),
    "characterize": ("characterize", "RUN", "--json", "OUT/characterize.json"),
    "stuck.json": ("stuck", "RUN", "--json"),
    "polytrace": ("convert", "RUN", "--to", "polytrace", "--out", "OUT/workload"),
    "otlp.json": (
        "export", "RUN", "--to", "otlp", "--dry-run", "--json", "--share", "1",
        "--max-trajectories", "127",
    ),
    "perfetto": ("export", "RUN", "--to", "perfetto", "--out", "OUT/timeline.json"),
}  # fmt: skip

_ELAPSED = re.compile(r"""[\d.,]+ (?:s|min|h|d|days) ago|(?<="seen_s": )[\d.]+""")
"""Time until now."""


_DAMAGED: Final[Mapping[str, tuple[str, Callable[[Path], None]]]] = {
    "trl-cut": ("trl", cut),
    "verl-garbled": ("verl", garble),
    "small-cut": ("small", cut),
    "beside-garbled": ("beside", garble),
}


def record(folder: Path) -> None:
    """Put a recording of every kind into ``folder``, one folder each."""
    folder.mkdir(parents=True)
    for name in RECORDED:
        training = unpacked(name, folder / "trainings" / name)
        shutil.copytree(folder_of(training), folder / name)
    shutil.rmtree(folder / "trainings")
    for name, drawn in _SIMULATED.items():
        simulate(drawn, folder / name)
    trained_twice(folder / "twice")
    for name, (source, damage) in _DAMAGED.items():
        damage(Path(shutil.copytree(folder / source, folder / name)))


def ask(recordings: Path, out: Path, program: Path = PROGRAM) -> None:
    """Put into ``out`` what ``program``, an rlvr-probe, says of each recording."""
    for run in sorted(path for path in recordings.iterdir() if path.is_dir()):
        here = out / run.name
        here.mkdir(parents=True)
        for name, command in _COMMANDS.items():
            given = [word.replace("RUN", str(run)).replace("OUT", str(here)) for word in command]
            done = subprocess.run(
                [program, *given],
                capture_output=True,
                check=False,
                env={**os.environ, "COLUMNS": "100"},
            )
            said = f"{done.returncode}\n".encode() + done.stderr
            (here / f"{name}.status").write_text(without(said, run, here), encoding="utf-8")
            (here / f"{name}.out").write_text(without(done.stdout, run, here), encoding="utf-8")


def without(said: bytes, run: Path, out: Path) -> str:
    """What a command said, without where it ran and when."""
    text = said.decode(errors="replace")
    for path, word in ((out, "$OUT"), (run, "$RUN"), (run.parent, "$RUNS")):
        text = text.replace(str(path), word)
    return _ELAPSED.sub("0", text)


def compare(before: Path, after: Path) -> Iterator[str]:
    """What differs, a line each: the file, the place in it and both values."""
    names = sorted(
        {
            path.relative_to(folder)
            for folder in (before, after)
            for path in folder.rglob("*")
            if path.is_file()
        }
    )
    for name in names:
        was, now = before / name, after / name
        if not was.exists() or not now.exists():
            yield f"{name}: is in {before if was.exists() else after} alone"
        elif was.read_bytes() != now.read_bytes():
            found = differences(_parsed(was), _parsed(now))
            yield from (f"{name}: {difference}" for difference in found)


def _parsed(path: Path) -> Any:
    """JSON as values, JSON lines as a list of them, anything else as lines."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


def differences(
    was: object, now: object, place: str = "$", rounding: float = _ROUNDING
) -> Iterator[str]:
    """Where two values of JSON differ, as sentences; ``rounding`` is a share of a number."""
    if isinstance(was, dict) and isinstance(now, dict):
        was = {RENAMED.get(key, key): value for key, value in was.items()}
        for key in sorted((was.keys() | now.keys()) - _UNCOMPARED):
            if key not in was or key not in now:
                yield f"{place}.{key}: {'is gone' if key in was else 'is new'}"
            else:
                yield from differences(was[key], now[key], f"{place}.{key}", rounding)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, f"{place}[{index}]", rounding)
    elif isinstance(was, float) and isinstance(now, float):
        if not math.isclose(was, now, rel_tol=rounding):
            yield f"{place}: {was!r}, then {now!r}"
    elif was != now or type(was) is not type(now):
        yield f"{place}: {_brief(was)}, then {_brief(now)}"


def _brief(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:120]}…"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked; 1 if something differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("recordings", type=Path)
    asking = commands.add_parser("ask")
    asking.add_argument("recordings", type=Path)
    asking.add_argument("out", type=Path)
    asking.add_argument("--command", dest="program", type=Path, default=PROGRAM)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "record":
        record(options.recordings)
    elif options.command == "ask":
        ask(options.recordings.resolve(), options.out.resolve(), options.program)
    else:
        found = list(compare(options.before, options.after))
        print(*found, sep="\n")
        print(f"{len(found)} differences")
        return int(bool(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
