"""The launcher and the start-up hook reach every Python below them, and only frameworks arm it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import zipapp
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import today, toy
from tests.surroundings import ROOMY

LAUNCHER = str(Path(sys.executable).with_name("rlvr-probe"))
PYTHON = sys.executable

TRAIN = "import toyrl; toyrl.Trainer(lambda rows: [1.0] * len(rows), steps=1).train()"
# What of ours a process has loaded.
LOADED = "import sys; print(sorted(name for name in sys.modules if 'rlvr_probe' in name))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the toy framework and its integration are installed."""
    toy.install(tmp_path / "packages")
    return tmp_path / "packages"


@pytest.fixture
def environ(folder: Path, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(folder),
        "HOME": str(tmp_path / "home"),
        "RLVR_PROBE_SIDECAR": "0",
        **ROOMY,
    }


def launch(
    *command: str, environ: dict[str, str], cwd: Path, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAUNCHER, "run", *options, "--", *command],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def recorded(root: Path) -> int:
    """Number of processes recorded below ``root``, in one run."""
    journals = list(root.glob("*/p*.0000.jsonl"))
    assert len({journal.parent for journal in journals}) == min(1, len(journals))
    return len(journals)


def test_the_last_line_says_where_the_recording_is_and_what_to_type(
    environ: dict[str, str], tmp_path: Path
) -> None:
    ended = launch(PYTHON, "-c", TRAIN, environ=environ, cwd=tmp_path)
    path = r"rlvr-probe-runs/\d{8}-\d{6}-[0-9a-f]{6}"
    line = rf"rlvr-probe: recorded 1 process in ({path}); next: rlvr-probe show \1\n"
    assert re.fullmatch(line, ended.stderr)
    assert recorded(tmp_path / "rlvr-probe-runs") == 1


def test_a_path_is_shown_as_it_was_typed_and_can_be_pasted(
    environ: dict[str, str], tmp_path: Path
) -> None:
    options = ("--out", "my runs", "--run-id", "one")
    ended = launch(PYTHON, "-c", TRAIN, environ=environ, cwd=tmp_path, options=options)
    path = "'my runs/one'"
    assert (
        ended.stderr == f"rlvr-probe: recorded 1 process in {path}; next: rlvr-probe show {path}\n"
    )


def test_a_run_that_is_continued_counts_what_was_added(
    environ: dict[str, str], tmp_path: Path
) -> None:
    options = ("--run-id", "one")
    for _ in range(2):
        ended = launch(PYTHON, "-c", TRAIN, environ=environ, cwd=tmp_path, options=options)
        assert "recorded 1 process in" in ended.stderr
    assert recorded(tmp_path / "rlvr-probe-runs") == 2


def started(method: str) -> str:
    return f"""
        import multiprocessing, toyrl

        def train():
            toyrl.Trainer(lambda rows: [1.0] * len(rows), steps=1).train()

        if __name__ == "__main__":
            train()
            context = multiprocessing.get_context({method!r})
            children = [context.Process(target=train) for _ in range(2)]
            for child in children: child.start()
            for child in children: child.join()
    """


@pytest.mark.parametrize("method", today.some(["spawn", "fork", "forkserver"], 1))
def test_every_child_is_reached(environ: dict[str, str], tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(started(method)))
    ended = launch(PYTHON, str(script), environ=environ, cwd=tmp_path)
    assert "recorded 3 processes in" in ended.stderr
    assert recorded(tmp_path / "rlvr-probe-runs") == 3


def test_a_subprocess_elsewhere_is_reached(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TRAIN!r}], cwd='/')"
    script = f'cd elsewhere && "{PYTHON}" -c "$0" & "{PYTHON}" -c "$0"; wait'
    ended = launch("sh", "-c", script, code, environ=environ, cwd=tmp_path)
    assert "recorded 2 processes in" in ended.stderr
    assert recorded(tmp_path / "rlvr-probe-runs") == 2


@pytest.mark.parametrize("flag", today.some(["-I", "-E", "-s", "-O"], 1))
def test_an_isolated_python_is_reached(
    environ: dict[str, str], folder: Path, tmp_path: Path, flag: str
) -> None:
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); {TRAIN}"
    launch(PYTHON, flag, "-c", code, environ=environ, cwd=tmp_path)
    # -I and -E keep Python from our variables as little as from anybody's.
    assert recorded(tmp_path / "rlvr-probe-runs") == 1


def test_a_zipped_application_is_reached(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(TRAIN)
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    launch(PYTHON, str(tmp_path / "app.pyz"), environ=environ, cwd=tmp_path)
    assert recorded(tmp_path / "rlvr-probe-runs") == 1


def test_a_framework_run_as_a_module_is_reached(
    environ: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    (folder / "toyrl_main.py").write_text("import runpy, toyrl\n" + TRAIN)
    launch(PYTHON, "-m", "toyrl_main", environ=environ, cwd=tmp_path)
    assert recorded(tmp_path / "rlvr-probe-runs") == 1


def test_a_launcher_in_a_launcher_records_one_run(environ: dict[str, str], tmp_path: Path) -> None:
    ended = launch(LAUNCHER, "run", "--", PYTHON, "-c", TRAIN, environ=environ, cwd=tmp_path)
    assert recorded(tmp_path / "rlvr-probe-runs") == 1
    assert "recorded 1 process in" in ended.stderr


def test_disabled_wins_over_the_launcher(environ: dict[str, str], tmp_path: Path) -> None:
    environ["RLVR_PROBE_DISABLED"] = "1"
    launch(PYTHON, "-c", TRAIN, environ=environ, cwd=tmp_path)
    assert recorded(tmp_path / "rlvr-probe-runs") == 0


def test_nothing_is_recorded_below_a_framework_that_was_not_chosen(
    environ: dict[str, str], tmp_path: Path
) -> None:
    options = ("--frameworks", "trl")
    ended = launch(PYTHON, "-c", TRAIN, environ=environ, cwd=tmp_path, options=options)
    assert ended.stderr.startswith(
        "rlvr-probe: nothing was recorded: no Python process of the command imported trl on this"
        " node, or"
    )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "import toyrl, sys; sys.exit(3)",
            "nothing was recorded: 1 process imported toyrl 1.2.3, and the command ended with"
            " status 3 before its first stage",
        ),
        (
            "import toyrl, subprocess, sys; subprocess.run([sys.executable, '-c', 'import toyrl'])",
            "nothing was recorded: 2 processes imported toyrl 1.2.3, and the command ended before"
            " its first stage",
        ),
        (
            f"open('rlvr-probe-runs', 'w').close(); {TRAIN}",
            r"nothing was recorded in rlvr-probe-runs/[0-9a-f-]+: 1 process could not write there"
            r" \((Not a directory|File exists)\)",
        ),
    ],
)
def test_why_nothing_was_recorded_is_what_happened(
    environ: dict[str, str], tmp_path: Path, code: str, why: str
) -> None:
    ended = subprocess.run(
        [LAUNCHER, "run", "--", PYTHON, "-c", code],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert re.fullmatch(f"rlvr-probe: {why}\n", ended.stderr)


def test_a_framework_that_cannot_be_hooked_is_named_with_the_reason(
    environ: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    source = folder / "toyrl.py"
    names = ("generate", "one_step", "train")
    text = source.read_text()
    for name in names:
        text = text.replace(name, f"new_{name}")
    source.write_text(text)
    code = "import toyrl; toyrl.Trainer(lambda rows: [1.0] * len(rows), steps=1).new_train()"
    ended = launch(PYTHON, "-c", code, environ=environ, cwd=tmp_path)
    assert re.fullmatch(
        r"rlvr-probe: nothing was recorded: toyrl 1\.2\.3 cannot be hooked: toyrl:Trainer\.\w+ does"
        r" not exist in 1\.2\.3; .*doctor looks all of it up\n",
        ended.stderr,
    )


def test_a_folder_that_somebody_prepared_is_not_used_and_that_is_said_before_the_command(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one").chmod(0o777)
    options = ("--out", "runs", "--run-id", "one")
    ended = launch(PYTHON, "-c", TRAIN, environ=environ, cwd=tmp_path, options=options)
    assert ended.stderr.splitlines() == [
        "rlvr-probe: runs/one is somebody else's, a link, or open to everybody: recording to"
        " runs/one+1",
        "rlvr-probe: recorded 1 process in runs/one+1; next: rlvr-probe show runs/one+1",
    ]
    assert list((tmp_path / "runs" / "one").iterdir()) == []


@pytest.mark.parametrize("launched", today.some([True, False], 1))
def test_in_ray_s_package_cache_the_home_folder_is_recorded_to_and_that_is_said_once(
    environ: dict[str, str], tmp_path: Path, launched: bool
) -> None:
    package = tmp_path / "session_1" / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    for folder in (package, tmp_path / "home"):
        folder.mkdir(parents=True)
    train = f"import rlvr_probe; rlvr_probe.attach(); {TRAIN}"
    child = f"import subprocess, sys; {train}; subprocess.run([sys.executable, '-c', {train!r}])"
    command = [PYTHON, "-c", child]
    ended = subprocess.run(
        [LAUNCHER, "run", "--", *command] if launched else command,
        env=environ,
        cwd=package,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    runs = tmp_path / "home" / "rlvr-probe-runs"
    assert recorded(runs) == 2
    assert list(package.iterdir()) == []
    first, *rest = ended.stderr.splitlines()
    assert f"recording to {runs}: the working directory is in Ray's package cache" in first
    assert len(rest) == launched
    if launched:
        assert f"recorded 2 processes in {runs}/" in rest[0]


def test_the_last_line_says_how_much_was_lost_and_why(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["RLVR_PROBE_FREE_B"] = str(1 << 59)
    ended = launch(PYTHON, "-c", TRAIN, environ=environ, cwd=tmp_path)
    assert re.match(
        r"rlvr-probe: recorded 1 process in \S+; LOST (\d+) records \(\1 low_space\); next:",
        ended.stderr,
    )


@pytest.mark.parametrize(
    ("size_kib", "said"),
    [
        (0, r"nothing was recorded in \S+: 1 process could not write there \(No space left .*\)"),
        (60, r"recorded 1 process in \S+; LOST [\d,]+ records.*, the disk is full; next: .*"),
    ],
)
def test_on_a_full_disk_the_last_line_says_what_was_lost(
    environ: dict[str, str],
    tmp_path: Path,
    tmpfs: Callable[[str], Path],
    size_kib: int,
    said: str,
) -> None:
    disk = tmpfs("size=256k")
    (disk / "fill").write_bytes(bytes((256 - size_kib) << 10))
    train = "import toyrl; toyrl.Trainer(lambda rows: [1.0] * len(rows), steps=1000).train()"
    options = ("--out", str(disk / "runs"))
    ended = launch(PYTHON, "-c", train, environ=environ, cwd=tmp_path, options=options)
    assert re.fullmatch(f"rlvr-probe: {said}\n", ended.stderr)


def python(code: str, environ: dict[str, str], *flags: str) -> str:
    ended = subprocess.run(
        [PYTHON, *flags, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"RLVR_PROBE": ""},
        {"RLVR_PROBE": "0"},
        {"RLVR_PROBE": "off"},
        {"RLVR_PROBE": "1", "RLVR_PROBE_DISABLED": "1"},
    ],
)
def test_unarmed_nothing_waits_for_an_import(
    environ: dict[str, str], variables: dict[str, str]
) -> None:
    code = (
        "import toyrl, sys; print(any('rlvr' in type(each).__module__ for each in sys.meta_path))"
    )
    assert python(code, environ | variables) == "False\n"


def test_only_a_framework_s_import_loads_the_probe(environ: dict[str, str]) -> None:
    environ["RLVR_PROBE"] = "1"
    code = "import sys; {}; print(any('rlvr_probe_toyrl' in name for name in sys.modules))"
    assert python(code.format("import json, iniconfig"), environ) == "False\n"
    assert python(code.format("import iniconfig, toyrl"), environ) == "True\n"


def test_the_hook_alone_loads_nothing_but_python_s_own_start(environ: dict[str, str]) -> None:
    # As a package without contents: what `import rlvr_probe` itself loads is its own business.
    code = """
        import sys, types
        before = set(sys.modules)
        package = types.ModuleType("rlvr_probe")
        package.__path__ = [{path!r}]
        sys.modules["rlvr_probe"] = package
        import rlvr_probe._boot
        print(sorted(set(sys.modules) - before - {{"__future__"}}))
    """
    import rlvr_probe

    code = textwrap.dedent(code.format(path=str(Path(rlvr_probe.__file__).parent)))
    assert python(code, environ | {"RLVR_PROBE": ""}) == "['rlvr_probe', 'rlvr_probe._boot']\n"


def test_what_the_hook_cannot_use_changes_no_import(
    environ: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    (folder / "rlvr_probe_toyrl.py").write_text("raise SystemError('a broken integration')")
    (folder / "odd-1.dist-info").mkdir()
    (folder / "odd-1.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe[rlvr_probe.integ")
    (folder / "file-1.dist-info").write_text("not a folder")
    environ |= {"RLVR_PROBE": "1", "RLVR_PROBE_OUT": str(tmp_path / "runs")}
    assert python(TRAIN + "; print('trained')", environ) == "trained\n"
    # An unusable variable is the launcher's to report; here it must not end a training.
    assert python(TRAIN + "; print('trained')", environ | {"RLVR_PROBE_FLUSH_S": "x"})


def test_a_framework_found_on_a_path_added_later_is_armed(
    environ: dict[str, str], folder: Path
) -> None:
    environ["RLVR_PROBE"] = "1"
    del environ["PYTHONPATH"]
    code = f"""
        import iniconfig, sys
        sys.path.append({str(folder)!r})
        import toyrl
        print(hasattr(toyrl.Trainer.train, "__wrapped__"))
    """
    assert python(textwrap.dedent(code), environ) == "True\n"
