"""Write the recording of a seed and what is true of it.

python -m tests.simulator --seed 7 --out FOLDER
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from tests.simulator import scenario, simulate
from tests.simulator.draws import SECOND
from tests.simulator.wider import wider_scenario


def main() -> None:
    """The recording goes to FOLDER/run, the truth to FOLDER/truth.json."""
    parser = argparse.ArgumentParser(description="simulate a run whose truth is known")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--wider", action="store_true", help="its faults may have a course")
    parser.add_argument("--shape", choices=("trl", "verl", "async"))
    for name in ("steps", "ranks", "prompts", "group-size"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--hz", type=float, help="readings of a device per second; 0 for none")
    parser.add_argument("--once", action="store_true", help="no re-run: too large for memory")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    out: Path = given.pop("out")
    seed = given.pop("seed")
    drawn = wider_scenario(seed) if given.pop("wider") else scenario(seed)
    again = not given.pop("once")
    truth = simulate(replace(drawn, **given), out / "run", again=again)
    truth.write(out / "truth.json")
    whole = truth.gpus * (truth.end_ns - truth.begin_ns)
    print(f"{truth.shape}, {truth.gpus} GPUs, {whole / SECOND:,.0f} GPU-seconds, {truth.rows} rows")
    for fault in truth.faults:
        share = fault["saved_gpu_ns"] / whole
        print(f"{fault['kind']} of size {fault['size']:.3g}: {share:.1%} of them are lost by it")
    if not truth.faults:
        print("nothing is wrong with it")


if __name__ == "__main__":
    main()
