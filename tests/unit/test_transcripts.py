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


def number(block: str, pattern: str) -> float:
    """What is said in words."""
    [found] = set(re.findall(pattern, block, re.M))
    return float(found.replace(",", ""))


@pytest.mark.parametrize("page", [README, TUTORIAL])
def test_stages_have_their_share_of_a_step(page: Path) -> None:
    block = shown(page, "Stages (per step")
    stages = table(block, "Stages (per step")
    assert len(RUN.findall(block)) >= 1
    assert len(set(RUN.findall(block))) == 1
    step_s = stages["step"][0]
    for name in ("rollout", "reward"):
        assert stages[name][-1] == pytest.approx(100 * stages[name][0] / step_s, abs=0.3), name


def test_the_steps_of_the_readme_are_those_of_its_stages_and_of_its_ledger() -> None:
    block = shown(README, "Steps (response tokens")
    steps = list(table(block, "Steps (response tokens").values())
    stages = table(block, "Stages (per step")
    ledger = table(block, "Where the rank time went")
    # Samples, p50, p90, longest, stopped by the cap, rollout, reward, update, step.
    columns = list(zip(*steps, strict=True))
    assert len(steps) == number(block, r"^(\d+) steps recorded") == 6
    assert sum(columns[0]) == number(block, r"(\d+) trajectories")
    cut = sum(share * count / 100 for share, count in zip(columns[4], columns[0], strict=True))
    assert number(block, r"([\d.]+)% stopped by the cap") == pytest.approx(
        100 * cut / sum(columns[0]), abs=0.1
    )
    for place, name in ((5, "rollout"), (6, "reward"), (7, "update_actor"), (8, "step")):
        assert stages[name][0] == pytest.approx(sum(columns[place]) / 6, abs=0.0011), name
    assert number(block, r"(\d+) response tokens") == number(block, r"(\d+) tokens in responses")
    whole_s = number(block, r"([\d.]+) rank-seconds\n")
    assert sum(row[0] for row in ledger.values()) == pytest.approx(whole_s, abs=0.04)
    assert sum(columns[8]) < whole_s < 1.05 * sum(columns[8])
    waited = ledger["rollout"][0] + ledger["wait for rollout"][0]
    assert waited == pytest.approx(sum(columns[5]), abs=0.02)
    for name, (seconds, share, *_) in ledger.items():
        assert share == pytest.approx(100 * seconds / whole_s, abs=0.5), name
