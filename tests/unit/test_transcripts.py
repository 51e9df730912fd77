"""What a page shows of a run is of one run: its numbers agree with each other.

That they are those that the program prints today is asked with words alone, elsewhere: numbers
differ from run to run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "first-recording.md"
RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")


def shown(page: Path, title: str) -> str:
    """The console block of a page that has this line."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    [block] = [block for block in blocks if title in block]
    return str(block)


def table(block: str, title: str) -> dict[str, list[float]]:
    """Numbers of the rows below a title, by what stands before them; bars and dots left out."""
    rows = {}
    below = block[block.index(title) :].split("\n\n")[0].splitlines()[2:]
    for line in below:
        found = re.match(r"\s+(\S.*?)\s\s+(-?\d[\d.,]*%?(?:\s+\d[\d.]*%?)*)", f"{line}  ")
        if found:
            numbers = re.findall(r"-?\d[\d.]*", found[2].replace(",", ""))
            rows[found[1]] = [float(number) for number in numbers]
    return rows


@pytest.mark.parametrize("page", [README, TUTORIAL])
def test_stages_have_their_share_of_a_step(page: Path) -> None:
    block = shown(page, "Stages (per step")
    stages = table(block, "Stages (per step")
    assert len(set(RUN.findall(block))) <= 1
    step_s = stages["step"][0]
    for name in ("rollout", "reward"):
        assert stages[name][-1] == pytest.approx(100 * stages[name][0] / step_s, abs=0.3), name
