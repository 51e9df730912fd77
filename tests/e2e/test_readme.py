"""What README and tutorial show is what happens: their commands are run, output compared.

Numbers, their signs, run ids and bars are left out of the comparison; words, columns and order are
not. A line ``...`` stands for any lines, and ``...`` in a line for any text.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import names
from rlvr_probe.recording import find_run, read_run

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "first-recording.md"
BENCHMARK = TUTORIAL.with_name("run-to-benchmark.md")
FORMAT = ROOT / "docs" / "reference" / "polytrace-workload.md"
ELISION = "..."


@dataclass(frozen=True)
class Shown:
    """A command of a page and the output shown below it."""

    command: str
    output: tuple[str, ...]


def shown(page: Path) -> Iterator[Shown]:
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *output = part.replace("\\\n", "").splitlines()
            yield Shown(command, tuple(line for line in output if line.strip()))


def shape(line: str) -> str:
    """``line`` without what differs from run to run."""
    line = re.sub(r"\d{8}-\d{6}-[0-9a-f]{6}", "RUN", line)
    line = re.sub(r"<?[-+]?\d[\d,.]*", "0", line)
    line = re.sub("% (less|more) time", "% other time", line)
    return " ".join(re.sub("[#▇]+", "", line).split())


def differences(expected: tuple[str, ...], printed: str) -> list[str]:
    """What is wrong with ``printed``, one line each."""
    actual = [shape(line) for line in printed.splitlines() if line.strip()]
    position, gap = 0, False
    for line in expected:
        if line == ELISION:
            gap = True
            continue
        pattern = re.compile(re.escape(shape(line)).replace(re.escape(ELISION), ".*"))
        last = len(actual) if gap else min(position + 1, len(actual))
        found = [at for at in range(position, last) if pattern.fullmatch(actual[at])]
        if not found:
            there = actual[position] if position < len(actual) else "the end"
            return [f"shown: {shape(line)}", f"printed: {there}"]
        position, gap = found[0] + 1, False
    return [] if gap or not expected else [f"not shown: {line}" for line in actual[position:]]


class Reader:
    """Somebody who types what a page says, in a folder that looks like a clone.

    Of the clone there are the recipes, and the virtual environment ``prefix`` as ``.venv``.
    """

    def __init__(self, folder: Path, prefix: Path = Path(sys.prefix)) -> None:
        self.folder = folder
        (folder / ".venv").symlink_to(prefix)
        for recipe in ROOT.glob("integrations/*/recipe"):
            link = folder / recipe.relative_to(ROOT)
            link.parent.mkdir(parents=True)
            link.symlink_to(recipe)
        self.environ = {
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            "PATH": f"{prefix / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUTF8": "1",
        }

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, command: str) -> tuple[int, str]:
        process = self.start(command)
        printed, _ = process.communicate(timeout=600)
        return process.returncode, printed


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("clone"))


def recipe_of(target: str) -> str:
    """The one command that ``make TARGET`` runs; make itself would make a .venv in the folder."""
    found = re.findall(rf"^{target}: .*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.M)
    return str(found[0]).replace("$(ARGS)", "").strip()


def test_the_demo_of_the_readme_prints_what_it_shows(reader: Reader) -> None:
    [demo] = [one for one in shown(ROOT / "README.md") if one.command == "make demo"]
    status, printed = reader.type(recipe_of("demo"))
    assert status == 0, printed
    assert differences(demo.output, printed) == []


def test_the_tutorial_prints_what_it_shows(reader: Reader) -> None:
    follow_tutorial(reader)


def test_a_run_becomes_the_benchmark_that_the_tutorial_shows(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    follow_tutorial(Reader(tmp_path_factory.mktemp("benchmark")), BENCHMARK, 6)


def follow_tutorial(reader: Reader, page: Path = TUTORIAL, least: int = 7) -> None:
    """Type all commands of a page but those that set up, and compare what they print."""
    commands = [one for one in shown(page) if not one.command.startswith(("make ", "source "))]
    assert len(commands) >= least
    for one in commands:
        if one.command.startswith("timeout --signal=KILL 20 "):
            kill_once_it_trains(reader, one.command.replace(" 20 ", " 900 "))
            continue
        status, printed = reader.type(one.command)
        assert status == 0, printed
        expected = one.output
        if "OPEN SPANS: never ended" in expected:
            check_open_spans(printed)
            # Where it was killed differs from run to run.
            cut = expected.index("OPEN SPANS: never ended") + 1
            expected = (*expected[:cut], ELISION)
        assert differences(expected, printed) == [], one.command


def kill_once_it_trains(reader: Reader, command: str) -> None:
    """What ``timeout`` does when its time is over, which on a busy machine may be too early."""
    process = reader.start(command)
    try:
        deadline = time.monotonic() + 600
        while steps_in(reader.folder / "killed") < 3 and time.monotonic() < deadline:
            time.sleep(0.5)
        assert os.getpgid(process.pid) == process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
    assert steps_in(reader.folder / "killed") >= 3, printed


def steps_in(folder: Path) -> int:
    """Steps that a recording has so far."""
    try:
        return sum(step.done for step in read_run(find_run(folder)).steps())
    except RecordingError:
        return 0


def check_open_spans(printed: str) -> None:
    table = printed.partition("OPEN SPANS: never ended\n")[2].partition("\n\n")[0].splitlines()
    assert table[0].split()[0] == "span"
    known = {name.name for name in names.ALL if name.coarse}
    assert {row.split()[0] for row in table[1:]} <= known
    assert all("died" in row.split() for row in table[1:])


def test_every_key_of_a_workload_is_documented(reader: Reader) -> None:
    """Uses the workload that the tutorial made."""
    folder = reader.folder / "workload"
    if not folder.exists():
        pytest.skip("the tutorial was not run")
    manifest = json.loads((folder / "manifest.json").read_text())
    packed = json.loads((folder / "packed_lengths_step_0.jsonl").read_text().splitlines()[0])
    timing = json.loads((folder / "reward_timings_step_0.jsonl").read_text().splitlines()[0])
    keys = {*manifest, *packed, *packed["x_rlvr"], *timing}
    keys |= {item["reason"] for item in manifest["left_out"]}
    text = FORMAT.read_text("utf-8")
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (("a 1", "b"), "a 2\n\nb\n", True),
        (("a 1", "b"), "a 2\n", False),
        (("a",), "a\nb\n", False),
        (("a", "..."), "a\nb\n", True),
        (("...", "c"), "a\nb\nc\n", True),
        (("a", "c"), "a\nb\nc\n", False),
        (('{"x": {...}}',), '{"x": {"y": 7}}', True),
    ],
)
def test_the_comparison_tells_what_is_shown_from_what_is_not(
    expected: tuple[str, ...], printed: str, same: bool
) -> None:
    assert (differences(expected, printed) == []) == same
