"""Train a tiny model with verl on a machine without a GPU, recorded in every process.

    .venv/bin/python integrations/rlvr_probe_verl/recipe/job.py --out FOLDER [--verl 0.9.1]

It is the job of the conformance tests: verl's own trainer, unmodified, with pretend GPUs and a
small engine (``tests/job``). The first one builds an environment for verl in ``.venv/releases``,
which takes minutes, a package index and a gigabyte.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # for what tests share

from rlvr_probe_verl.tests.releases import RELEASES  # noqa: E402
from rlvr_probe_verl.tests.runs import Runner, Scenario  # noqa: E402

from tests.wheels import numbers  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that must not exist")
    parser.add_argument("--verl", default="0.9.1", choices=RELEASES)
    parser.add_argument("--trainer", default="v1", choices=("v0", "v1"), help="v1: verl 0.9")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tools", action="store_true", help="multi-turn, verl 0.8 and newer")
    options = vars(parser.parse_args())
    # The job runs in a folder of its own.
    folder: Path = options.pop("out").resolve()
    folder.mkdir(parents=True)
    if numbers(options["verl"]) < (0, 9):
        options["trainer"] = "v0"
    runner = Runner(folder)
    finished = runner.finished(Scenario(**options, how="launcher"))
    runner.close()
    print(finished.recording)


if __name__ == "__main__":
    main()
