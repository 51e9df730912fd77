"""Argument, then variable, then default; DISABLED above all; errors that name what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlvr_probe.config import Config, place_note
from rlvr_probe.exceptions import ConfigError

VARIABLES = {
    "RLVR_PROBE_OUT": "/variable",
    "RLVR_PROBE_RUN_ID": "from-variable",
    "RLVR_PROBE_FRAMEWORKS": "a, b,",
    "RLVR_PROBE_FLUSH_S": "0.5",
    "RLVR_PROBE_QUEUE_ROWS": "10",
    "RLVR_PROBE_SEGMENT_B": "8192",
    "RLVR_PROBE_SIDECAR": "off",
    "RLVR_PROBE_GPU_HZ": "0.5",
}


def test_the_defaults_need_nothing() -> None:
    assert Config.from_environ({}) == Config(out=Path.cwd() / "rlvr-probe-runs")


def test_a_variable_beats_the_default() -> None:
    assert Config.from_environ(VARIABLES) == Config(
        out=Path("/variable"),
        run_id="from-variable",
        frameworks=("a", "b"),
        flush_s=0.5,
        queue_rows=10,
        segment_b=8192,
        sidecar=False,
        gpu_hz=0.5,
    )


def test_an_argument_beats_the_variable() -> None:
    config = Config.from_environ(
        VARIABLES,
        out=Path("/argument"),
        run_id="from-argument",
        frameworks=["c"],
        flush_s=1,
        queue_rows=20,
        segment_b=16384,
        sidecar=True,
        gpu_hz=9,
    )
    assert config == Config(
        Path("/argument"), "from-argument", ("c",), 1.0, 20, 16384, sidecar=True, gpu_hz=9.0
    )


@pytest.mark.parametrize(("text", "on"), [("1", True), ("yes", True), ("0", False), ("Off", False)])
def test_a_sidecar_is_switched_on_and_off(text: str, on: bool) -> None:
    assert Config.from_environ({"RLVR_PROBE_SIDECAR": text}).sidecar is on
    assert Config.from_environ({}, sidecar=text).sidecar is on


def test_a_lake_is_a_place_in_object_storage() -> None:
    config = Config.from_environ({"RLVR_PROBE_UPLOAD": "s3://bucket/name/"})
    assert config.upload == "s3://bucket/name"
    assert Config.from_environ(config.to_environ()).upload == config.upload
    assert Config.from_environ({}).upload is None


def test_the_counters_of_gpus_can_be_left_out() -> None:
    assert Config.from_environ({"RLVR_PROBE_GPU_HZ": "0"}).gpu_hz == 0


def test_an_argument_of_none_is_not_given() -> None:
    config = Config.from_environ(VARIABLES, out=None, run_id=None, frameworks=None)
    assert config == Config.from_environ(VARIABLES)


@pytest.mark.parametrize("variable", VARIABLES)
def test_an_empty_variable_is_not_given(variable: str) -> None:
    assert Config.from_environ({variable: ""}) == Config.from_environ({})


@pytest.mark.parametrize("text", ["1", "true", "YES", "on", " 1 ", "anything"])
def test_disabled_wins_over_everything(text: str) -> None:
    environ = VARIABLES | {"RLVR_PROBE": "1", "RLVR_PROBE_DISABLED": text}
    assert Config.from_environ(environ, disabled=False).disabled


@pytest.mark.parametrize("text", ["", "0", "false", "No", "off", " 0 "])
def test_what_reads_as_no_does_not_disable(text: str) -> None:
    assert not Config.from_environ({"RLVR_PROBE_DISABLED": text}).disabled


def test_disabled_can_be_an_argument() -> None:
    assert Config.from_environ({}, disabled=True).disabled


@pytest.mark.parametrize("name", ["out", "run_id", "frameworks", "flush_s", "queue_rows"])
def test_a_disabled_probe_has_no_unusable_variable(name: str) -> None:
    environ = {f"RLVR_PROBE_{name.upper()}": "\0 /"}
    assert Config.from_environ(environ | {"RLVR_PROBE_DISABLED": "1"}).disabled


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_id", "a/b"),
        ("run_id", ".hidden"),
        ("run_id", "x" * 129),
        ("run_id", "ü"),
        ("flush_s", "soon"),
        ("flush_s", "0"),
        ("flush_s", "nan"),
        ("flush_s", "1e9"),
        ("queue_rows", "0"),
        ("queue_rows", "1.5"),
        ("segment_b", "1"),
        ("segment_b", "64M"),
        ("frameworks", ","),
        ("gpu_hz", "0.1"),
        ("gpu_hz", "10"),
        ("gpu_hz", "-1"),
        ("gpu_hz", "nan"),
        ("upload", "/recordings"),
        ("upload", "s3://"),
        ("upload", "://bucket"),
    ],
)
def test_an_unusable_value_is_refused_by_the_name_it_came_under(name: str, value: str) -> None:
    variable = f"RLVR_PROBE_{name.upper()}"
    with pytest.raises(ConfigError, match=variable):
        Config.from_environ({variable: value})
    with pytest.raises(ConfigError, match=f"argument {name}"):
        Config.from_environ({}, **{name: value})


@pytest.mark.parametrize(("name", "value"), [("out", ""), ("run_id", ""), ("frameworks", 7)])
def test_an_unusable_argument_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"argument {name}"):
        Config.from_environ({}, **{name: value})


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'output'"):
        Config.from_environ({}, output="x")


def test_the_folder_is_made_absolute_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = Config.from_environ({}, out="runs/../here")
    monkeypatch.chdir("/")
    assert Config.from_environ(config.to_environ()).out == tmp_path / "here"


def test_a_folder_in_a_working_directory_that_is_gone_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="working directory"):
        Config.from_environ({})
    assert Config.from_environ({}, out="/somewhere").out == Path("/somewhere")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What Ray unpacks of a working directory, as working directory; and a home."""
    cache = tmp_path / "ray" / "session_1" / "runtime_resources" / "working_dir_files"
    (cache / "_ray_pkg_1" / "src").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(cache / "_ray_pkg_1" / "src")
    return cache / "_ray_pkg_1" / "src"


def test_the_default_is_no_folder_that_ray_deletes(package: Path, tmp_path: Path) -> None:
    config = Config.from_environ({})
    assert config.out == tmp_path / "home" / "rlvr-probe-runs"
    assert Config().checked({}).out == config.out
    note = place_note(config, {})
    assert note.startswith(f"recording to {config.out}: the working directory is in Ray's package")
    # A child has been told where.
    environ = config.to_environ()
    assert place_note(Config.from_environ(environ), environ) == ""


def test_a_folder_of_the_user_s_choice_is_kept_and_he_is_warned_of_ray(package: Path) -> None:
    config = Config.from_environ({}, out="mine")
    assert config.out == package / "mine"
    assert place_note(config, {}) == (
        f"{package}/mine is in Ray's package cache, which Ray empties; set RLVR_PROBE_OUT"
    )
    assert place_note(Config.from_environ({}, out="/data/runs"), {}) == ""


def test_without_a_home_to_write_to_the_working_directory_is_used(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    config = Config.from_environ({})
    assert config.out == package / "rlvr-probe-runs"
    assert "which Ray empties; set RLVR_PROBE_OUT" in place_note(config, {})


def test_elsewhere_nothing_is_said_of_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    config = Config.from_environ({})
    assert config.out == tmp_path / "rlvr-probe-runs"
    assert place_note(config, {}) == ""


def test_a_folder_may_be_bytes() -> None:
    config = Config.from_environ({}, out="/ü/".encode() + b"\xff")
    assert os.fsencode(config.out) == "/ü/".encode() + b"\xff"


@pytest.mark.parametrize("out", ["a\0b", b"a\0b", Path("a\0b"), "\ud800", 7])
def test_a_folder_that_no_path_can_name_is_refused(out: object) -> None:
    with pytest.raises(ConfigError, match="argument out"):
        Config.from_environ({}, out=out)


@pytest.mark.parametrize("name", ["a\0b", "a,b", " a", "", "none"])
def test_a_name_of_a_framework_that_children_would_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="argument frameworks"):
        Config.from_environ({}, frameworks=[name])


def test_a_child_of_a_process_that_uses_no_integration_uses_none() -> None:
    config = Config.from_environ({}, frameworks=())
    inherited = config.to_environ()
    assert inherited["RLVR_PROBE_FRAMEWORKS"] == "none"
    assert Config.from_environ(inherited) == config


def test_a_home_folder_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of")
    assert Config.from_environ({"RLVR_PROBE_OUT": "~/runs"}).out == Path("/home/of/runs")


@pytest.mark.parametrize("environ", [{}, VARIABLES])
def test_a_child_gets_the_same_configuration(environ: dict[str, str]) -> None:
    config = Config.from_environ(environ)
    inherited = config.to_environ()
    assert Config.from_environ(inherited) == config
    assert inherited["RLVR_PROBE"] == "1"
    assert "RLVR_PROBE_DISABLED" not in inherited


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RLVR_PROBE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RLVR_PROBE_RUN_ID", "here")
    assert Config.from_environ().run_id == "here"
