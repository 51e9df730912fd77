"""The file: how it appears, how it grows, and the command that makes it."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import stat
import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from rlvr_probe_perfetto import drawing
from rlvr_probe_perfetto.drawing import draw
from rlvr_probe_perfetto.exporter import written
from rlvr_probe_perfetto.tests.reading import exported
from rlvr_probe_perfetto.tests.recordings import MADE, with_devices

from rlvr_probe import cli
from rlvr_probe.exceptions import ProbeError
from rlvr_probe.recording import read_run
from tests.actors import Job

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "draw-a-timeline.md"


def command(run: Path, out: Path, *more: str) -> list[str]:
    return ["export", str(run), "--to", "perfetto", "--out", str(out), *more]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with_devices(tmp_path / "run")
    return tmp_path / "run"


def test_the_same_recording_gives_the_same_bytes_wherever_it_lies(
    run: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere" / "run"
    shutil.copytree(run, elsewhere)
    for name in ("a.json", "a.json.gz"):
        exported(run, tmp_path / name)
        exported(elsewhere, tmp_path / f"other-{name}")
        assert (tmp_path / name).read_bytes() == (tmp_path / f"other-{name}").read_bytes()
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.json").read_bytes()
    assert packed[3:8] == bytes(5), "neither a name nor a time of day"


def test_only_its_owner_may_read_it(run: Path, tmp_path: Path) -> None:
    exported(run, tmp_path / "a.json")
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o600


def test_the_group_may_read_it_where_it_may_read_recordings(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLVR_PROBE_GROUP_READABLE", "1")
    for name in ("a.json", "a.json.gz"):
        exported(run, tmp_path / name)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640


def test_a_file_in_the_way_is_refused_and_only_a_timeline_is_replaced(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.json"
    out.write_text("mine")
    assert cli.main(command(run, out)) == cli.UNABLE
    assert "exists; --force replaces it" in capsys.readouterr().err
    assert cli.main(command(run, out, "--force")) == cli.UNABLE
    assert "neither empty nor a timeline" in capsys.readouterr().err
    assert out.read_text() == "mine"
    for name in ("a.json", "a.json.gz"):
        out = tmp_path / name
        out.write_text("")
        exported(run, out, "--force")
        exported(run, out, "--force", "--steps", "1")
    (tmp_path / "link.json").symlink_to(out)
    assert cli.main(command(run, tmp_path / "link.json", "--force")) == cli.UNABLE
    assert cli.main(command(run, tmp_path / "no" / "a.json")) == cli.UNABLE
    assert "expected a folder to write into" in capsys.readouterr().err


def test_a_failure_leaves_what_was_there_and_nothing_else(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a.json"
    exported(run, out)
    before, names = out.read_bytes(), sorted(os.listdir(tmp_path))

    def half() -> None:
        with written(out, force=True) as stream:
            stream.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ProbeError, match="No space left on device; nothing was left behind"):
        half()
    assert (out.read_bytes(), sorted(os.listdir(tmp_path))) == (before, names)
    monkeypatch.setattr(drawing, "draw_devices", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(command(run, out, "--force"))
    assert (out.read_bytes(), sorted(os.listdir(tmp_path))) == (before, names)


def test_a_command_that_is_ended_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(os.listdir(tmp_path))
    monkeypatch.setattr(drawing, "draw_devices", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert cli.main(command(run, tmp_path / "a.json")) == 128 + signal.SIGINT
    assert sorted(os.listdir(tmp_path)) == names


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--steps", "x"), "is neither a step like 3"),
        (("--steps", "3-1"), "ends before it starts"),
        (("--steps", "99"), "has no step 99"),
        (("--max-points", "0"), "not a whole number from 1 on"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    more: tuple[str, ...], said: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.main(command(run, tmp_path / "a.json", *more))
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "a.json").exists()


def test_the_command_says_what_was_drawn_and_that_it_is_not_for_sharing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = exported(run, tmp_path / "a.json")
    first, *rest = capsys.readouterr().out.splitlines()
    points = sum(event["ph"] == "C" for event in timeline.events)
    # The notes are slices too, made of what the command says.
    assert f"timeline of 1 process, {len(timeline.bars):,} slices" in first
    assert f"{points:,} values of 1 device" in first
    assert any("not for sharing" in line for line in rest)


class Counting(BytesIO):
    """Takes what is written, and keeps how much it was."""

    length = 0

    def write(self, data: object) -> int:
        self.length += len(bytes(data))  # type: ignore[call-overload]
        return 0


@pytest.mark.conformance
def test_memory_does_not_grow_with_the_file_and_the_file_grows_with_the_run(
    tmp_path: Path,
) -> None:
    peaks, sizes = list[int](), list[int]()
    for steps in (6, 24):
        folder = tmp_path / f"run-{steps}"
        Job(folder, steps=steps, prompts=10, turns=4, booked=False).write()
        trace = read_run(folder)
        # A trace makes its indexes when they are first asked for.
        draw(trace, Counting())
        out = Counting()
        tracemalloc.start()
        draw(trace, out)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(out.length)
    assert sizes[1] == pytest.approx(4 * sizes[0], rel=0.1)
    assert sizes[1] > 1_500_000
    assert peaks[1] - peaks[0] < (sizes[1] - sizes[0]) / 5


def commands() -> Iterator[str]:
    text = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from (line[2:] for line in block.splitlines() if line.startswith("$ "))


def test_the_commands_of_the_guide_make_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MADE["actors"](tmp_path / "rlvr-probe-runs" / "run")
    monkeypatch.chdir(tmp_path)
    lines = list(commands())
    for line in lines:
        program, *words = shlex.split(line)
        assert (program, cli.main(words)) == ("rlvr-probe", 0)
    files = [path for path in tmp_path.iterdir() if path.suffix == ".gz"]
    assert len(files) == len(lines) == 2
    assert all(json.loads(gzip.decompress(path.read_bytes())) for path in files)
