"""Train a tiny model with OpenRLHF on a machine without a GPU, recorded in every process.

    .venv/bin/python integrations/rlvr_probe_openrlhf/recipe/job.py --out FOLDER [--agent]

It is the job of the conformance tests: OpenRLHF's own trainer, unmodified, on Ray and DeepSpeed,
with pretend GPUs and stand-ins for vLLM and flash-attn (``tests/job``). The first one builds an
environment for OpenRLHF in ``.venv/releases``, which takes minutes, a package index and a gigabyte.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # for what tests share

from rlvr_probe_openrlhf.tests.runs import Runner, Scenario  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that must not exist")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--agent", action="store_true", help="three turns, with an environment")
    parser.add_argument("--asynchronous", action="store_true", help="generate beside the training")
    options = vars(parser.parse_args())
    # The job runs in a folder of its own.
    folder: Path = options.pop("out").resolve()
    folder.mkdir(parents=True)
    runner = Runner(folder)
    finished = runner.finished(Scenario(**options))
    runner.close()
    print(finished.recording)


if __name__ == "__main__":
    main()
