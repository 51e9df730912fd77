"""The commands as a user meets them: what they print, what they leave behind, how they end."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli
from rlvr_probe.cli import characterize, installed_exporters
from rlvr_probe.exceptions import ProbeError, WorkloadError
from rlvr_probe.exporter import Problem, Written
from rlvr_probe.exporter.atomic_output import placed, placed_file
from rlvr_probe.model.trace import Trace
from rlvr_probe.model.workload import Workload
from rlvr_probe.registry import EXPORTERS
from tests.journals import JournalFile, Training, simple_run


class ToyExporter:
    """Writes one file; fails as told by the environment."""

    name = "toy"
    flavors = ("round", "square")

    def write(
        self, workload: Workload, directory: Path, *, keep_names: bool, flavor: str | None = None
    ) -> Written:
        words = (len(workload.batches), keep_names, *([flavor] if flavor else []))
        (directory / "toy.txt").write_text(" ".join(map(str, words)))
        failure = os.environ.get("TOY")
        if failure == "format":
            raise WorkloadError("toys have no steps")
        if failure == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if failure == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        return Written(len(workload.batches), 1, 2, 1, ("a note",))

    def recognizes(self, directory: Path) -> bool:
        return (directory / "toy.txt").exists()

    def validate(
        self,
        directory: Path,
        *,
        steps: Sequence[int] | None = None,
        response_cap: int | None = None,
    ) -> list[Problem]:
        text = (directory / "toy.txt").read_text()
        problems = [Problem("toy.txt", 1, "a.b", f"{steps}", "no steps", warning=True)]
        return (
            [] if text.startswith("3") else [*problems, Problem("toy.txt", None, None, text, "3")]
        )


class ToyViewer:
    """Prints what it was given."""

    name = "viewer"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--times", type=int, default=1)

    def export(self, trace: Trace, folder: Path, args: argparse.Namespace) -> Iterator[str]:
        for _ in range(args.times):
            yield f"{len(list(trace.steps()))} steps of {folder.name}"


def offer(monkeypatch: pytest.MonkeyPatch, found: type) -> None:
    """Let every entry point be ``found``."""
    monkeypatch.setattr(EntryPoint, "load", lambda _: found)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("toy", f"{__name__}:ToyExporter", EXPORTERS)]
    monkeypatch.setattr(EntryPoint, "load", lambda _: ToyExporter)
    monkeypatch.setattr(installed_exporters, "entries", lambda group: points)


@pytest.fixture
def run(tmp_path: Path) -> str:
    simple_run(tmp_path / "runs" / "run-1", ranks=1, steps=3)
    return str(tmp_path / "runs")


def convert(run: str, out: Path, *more: str) -> int:
    return cli.main(["convert", run, "--to", "toy", "--out", str(out), *more])


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "runs")


def test_show_prints_text_and_json(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", run]) == 0
    assert "3 steps recorded over" in capsys.readouterr().out
    assert cli.main(["show", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 3


def test_an_error_is_one_line_on_stderr_and_names_the_path_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["show", "nowhere"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("rlvr-probe: nowhere does not exist")
    assert str(tmp_path) not in err


@pytest.mark.parametrize(
    "arguments", [[], ["show"], ["nonsense"], ["validate", "x", "--steps", "a"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    assert raised.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_help_states_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["--help"])
    assert raised.value.code == 0
    assert "exit codes: 0 done; 1 the thing examined is not sound" in capsys.readouterr().out


def test_convert_makes_the_directory_and_nothing_else(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(run, tmp_path / "out", "--keep-names") == 0
    assert (tmp_path / "out" / "toy.txt").read_text() == "3 True"
    assert left_behind(tmp_path) == ["out"]
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'out'}: toy workload of 3 batches, 1 groups, 2 trajectories (1 files)",
        "  a note",
    ]


def test_convert_says_what_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = Training(JournalFile(tmp_path / "runs"))
    training.begin()
    training.step(1)
    training.evaluate(1)
    training.step(2, finish=False)
    training.journal.close(end=False)
    assert convert(str(tmp_path / "runs"), tmp_path / "out") == 0
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "  omitted: 1 x evaluation, 8 trajectories",
        "  omitted: 1 x step that not every rank finished, 8 trajectories",
    ]


def test_an_existing_directory_is_refused_without_force(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert convert(run, out) == 2
    assert capsys.readouterr().err == f"rlvr-probe: {out} exists; --force replaces it\n"
    assert convert(run, out, "--force") == 0
    (out / "stale").touch()
    assert convert(run, out, "--force") == 0
    assert left_behind(tmp_path) == ["out"]
    assert left_behind(out) == ["toy.txt"]


def test_force_never_replaces_what_is_no_workload(tmp_path: Path, run: str) -> None:
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter1.tex").write_text("years of work")
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(thesis)
    file.write_text("mine")
    for out in (thesis, link, file):
        assert convert(run, out, "--force") == 2
    assert (thesis / "chapter1.tex").read_text() == "years of work"
    assert left_behind(tmp_path) == ["file", "link", "thesis"]


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        ("format", 2, "toys have no steps"),
        ("full", 2, "cannot be written: No space left on device; nothing was left behind"),
        ("signal", 130, ""),
    ],
)
def test_a_conversion_that_fails_leaves_nothing_behind_and_keeps_what_was_there(
    tmp_path: Path,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.setenv("TOY", failure)
    assert convert(run, tmp_path / "a" / "b" / "out") == code
    assert left_behind(tmp_path) == []
    assert message in capsys.readouterr().err
    monkeypatch.delenv("TOY")
    assert convert(run, tmp_path / "out") == 0
    monkeypatch.setenv("TOY", failure)
    assert convert(run, tmp_path / "out", "--force") == code
    assert left_behind(tmp_path) == ["out"]
    assert (tmp_path / "out" / "toy.txt").read_text() == "3 False"


def test_a_parent_that_is_a_file_is_a_clean_error(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert convert(run, tmp_path / "file" / "out") == 2
    assert "cannot be written" in capsys.readouterr().err


def test_what_appeared_while_it_was_written_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write() -> None:
        with placed(out, force=False, replaceable=lambda _: True) as work:
            (work / "new").touch()
            out.mkdir()
            (out / "theirs").touch()

    with pytest.raises(ProbeError, match="exists"):
        write()
    assert left_behind(tmp_path) == ["out"]
    assert left_behind(out) == ["theirs"]


@pytest.mark.parametrize("group", [False, True])
def test_a_file_is_the_user_s_own_and_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: bool
) -> None:
    monkeypatch.setenv("RLVR_PROBE_GROUP_READABLE", str(int(group)))
    target, other = tmp_path / "page.html", tmp_path / "other"
    other.write_text("theirs")
    target.hardlink_to(other)
    with placed_file(target) as path:
        path.write_text("new")
        assert target.read_text() == "theirs"
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == (0o640 if group else 0o600)
    assert other.read_text() == "theirs"
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ProbeError, match=r"page\.html cannot be written: No space"):
        write_and_fail(target, full)
    assert target.read_text() == "new"
    # Somebody made a link of it meanwhile.
    with placed_file(target) as path:
        path.write_text("newer")
        target.unlink()
        target.symlink_to(other)
    assert (target.is_symlink(), target.read_text()) == (False, "newer")
    assert other.read_text() == "theirs"
    assert left_behind(tmp_path) == ["other", "page.html"]


def write_and_fail(target: Path, error: OSError) -> None:
    with placed_file(target) as path:
        path.write_text("half")
        raise error


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_file_is_not_written_through_what_lies_there(tmp_path: Path, run: str, kind: str) -> None:
    target = tmp_path / "page.html"
    if kind == "link":
        target.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        target.mkdir()
    else:
        os.mkfifo(target)
    for option in ("--html", "--json"):
        assert cli.main(["characterize", run, option, str(target)]) == cli.UNABLE
    assert left_behind(tmp_path) == ["page.html"]


def test_an_unknown_format_names_the_known_ones(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["convert", run, "--to", "tar", "--out", str(tmp_path / "out")]) == 2
    assert "no exporter is called 'tar'; known are toy" in capsys.readouterr().err


def test_a_flavor_reaches_the_exporter_and_an_unknown_one_names_the_known_ones(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(run, tmp_path / "out", "--flavor", "square") == 0
    assert (tmp_path / "out" / "toy.txt").read_text().endswith(" square")
    assert convert(run, tmp_path / "other", "--flavor", "oval") == 2
    assert "toy has no flavor 'oval'; it has round, square" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_two_exporters_of_one_name_are_a_clash_that_names_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [EntryPoint("toy", value, EXPORTERS) for value in ("a:A", "b:B")]
    monkeypatch.setattr(installed_exporters, "entries", lambda group: points)
    with pytest.raises(ProbeError, match=r"2 exporters are called 'toy': a:A of .*, b:B of"):
        installed_exporters.find_exporter("toy")


def test_one_exporter_found_twice_is_no_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("toy", "a:A", EXPORTERS)] * 2
    monkeypatch.setattr(installed_exporters, "entries", lambda group: points)
    assert installed_exporters.find_exporter("toy").name == "toy"


def test_an_exporter_that_cannot_be_loaded_is_an_error_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(_: EntryPoint) -> Any:
        raise ImportError("No module named 'arrow'")

    monkeypatch.setattr(EntryPoint, "load", load)
    with pytest.raises(ProbeError, match="cannot be loaded: ImportError: No module named 'arrow'"):
        installed_exporters.find_exporter("toy")


@pytest.mark.parametrize("broken", [ImportError("no arrow"), RuntimeError("x"), SystemExit(3)])
def test_a_broken_exporter_costs_one_line_on_stderr_and_nothing_else(
    tmp_path: Path,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: BaseException,
) -> None:
    def load(point: EntryPoint) -> type:
        if point.name == "toy":
            return ToyExporter
        raise broken

    points = [EntryPoint(name, f"{name}_package:It", EXPORTERS) for name in ("acme", "toy")]
    monkeypatch.setattr(installed_exporters, "entries", lambda group: points)
    monkeypatch.setattr(EntryPoint, "load", load)
    assert convert(run, tmp_path / "out") == 0
    assert capsys.readouterr().err == ""
    assert cli.main(["validate", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'out'}: toy workload, sound: 0 problems, 0 warnings\n"
    [line] = err.splitlines()
    assert "exporter 'acme' (acme_package:It of an unknown package) cannot be loaded" in line
    assert type(broken).__name__ in line
    assert cli.main(["validate", str(tmp_path / "out"), "--format", "toy"]) == 0
    assert capsys.readouterr().err == ""
    # A recording is no workload, whatever is installed.
    assert characterize._reader(Path(run)) is None
    assert capsys.readouterr().err == ""
    assert cli.main(["validate", str(tmp_path / "out"), "--format", "acme"]) == cli.UNABLE
    assert "cannot be loaded" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("RUN", "--to", "toy", "--times", "2"),
        ("--times=2", "RUN", "--to=toy"),
        ("--to", "toy", "--times", "2", "RUN"),
    ],
)
def test_export_hands_the_run_to_a_destination_with_options_of_its_own(
    arguments: Sequence[str],
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    offer(monkeypatch, ToyViewer)
    assert cli.main(["export", *(run if word == "RUN" else word for word in arguments)]) == 0
    assert capsys.readouterr().out == "3 steps of run-1\n" * 2


def test_the_help_of_export_has_the_options_of_the_destination(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(monkeypatch, ToyViewer)
    for arguments, there in ((["--help"], False), (["--to", "toy", "--help"], True)):
        with pytest.raises(SystemExit) as ended:
            cli.main(["export", *arguments])
        assert ended.value.code == 0
        assert ("--times" in capsys.readouterr().out) is there


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--to",),
        ("RUN", "--to"),
        ("RUN", "--times", "2"),
        ("RUN", "--to", "toy", "--what"),
        ("RUN", "--to", "toy", "--tim", "2"),
    ],
)
def test_export_refuses_options_that_neither_it_nor_the_destination_has(
    arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, ToyViewer)
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", *arguments])
    assert ended.value.code == cli.UNABLE


def test_a_workload_format_is_no_destination_of_a_trace_nor_the_other_way_round(
    run: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["export", run, "--to", "toy"]) == cli.UNABLE
    assert "does not export traces; use rlvr-probe convert" in capsys.readouterr().err
    offer(monkeypatch, ToyViewer)
    assert convert(run, tmp_path / "out") == cli.UNABLE
    assert "does not convert workloads; use rlvr-probe export" in capsys.readouterr().err
    with pytest.raises(ProbeError, match="none is installed"):
        installed_exporters.find_format(tmp_path)


def test_validate_ends_with_0_or_1_and_a_warning_is_no_problem(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    convert(run, out)
    capsys.readouterr()
    assert cli.main(["validate", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: toy workload, sound: 0 problems, 0 warnings\n"
    (out / "toy.txt").write_text("\x1b[2J")
    assert cli.main(["validate", str(out), "--steps", "1,0"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "warning: toy.txt:1: a.b found [0, 1], expected no steps",
        "toy.txt: found ?[2J, expected 3",
        f"{out}: toy workload, NOT SOUND: 1 problems, 1 warnings",
    ]
    assert cli.main(["validate", str(out), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], found["format"], len(found["problems"])) == (False, "toy", 2)


def test_validate_refuses_what_is_no_workload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for path, message in (
        (tmp_path, "is not a workload of a known format (toy)"),
        (tmp_path / "gone", "does not exist"),
        (tmp_path / "file", "is not a directory"),
    ):
        assert cli.main(["validate", str(path)]) == 2
        assert message in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error(run: str) -> None:
    script = f"{sys.executable} -m rlvr_probe.cli show {run} --json | head -c 10"
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr, len(ended.stdout)) == (0, "", 10)


def test_the_command_line_starts_without_what_the_commands_need() -> None:
    script = (
        "import sys, rlvr_probe; before = set(sys.modules); import rlvr_probe.cli as cli;"
        "[__import__(f'rlvr_probe.cli.{name}') for name in cli.COMMANDS];"
        "print([m for m in sorted(set(sys.modules) - before)"
        " if m.partition('.')[0] in ('rich', 'msgspec')"
        " or m.startswith(('rlvr_probe.recording', 'rlvr_probe.report', 'rlvr_probe.launch'))])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert re.fullmatch(r"rlvr-probe \d\S*\n", capsys.readouterr().out)
