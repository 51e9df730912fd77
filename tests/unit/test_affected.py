"""Continuous integration runs what a change can break, and everything where it cannot know."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import affected
from tests.affected import ALWAYS, DEMO, ROOT

EVERYTHING: list[str] = []


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["integrations/rlvr_probe_verl/adapter.py"], ["integrations/rlvr_probe_verl"]),
        (
            ["integrations/rlvr_probe_verl/adapter.py", "integrations/rlvr_probe_trl/tests/x.py"],
            ["integrations/rlvr_probe_verl", "integrations/rlvr_probe_trl"],
        ),
        (["integrations/rlvr_probe_verl/a.py", "docs/index.md"], ["integrations/rlvr_probe_verl"]),
        (["exporters/rlvr_probe_otlp/exporter.py"], ["exporters", DEMO]),
        (["README.md", "docs/howto/x.md", "integrations/rlvr_probe_ray/README.md"], []),
    ],
)
def test_a_change_of_one_plugin_or_of_pages_runs_its_own_tests(
    changed: list[str], chosen: list[str]
) -> None:
    assert affected.affected(changed) == [*ALWAYS, *chosen]


@pytest.mark.parametrize(
    "path",
    [
        "src/rlvr_probe/guard.py",
        "tests/trainings.py",
        "requirements/dev.txt",
        "pyproject.toml",
        "Makefile",
        ".ci/run",
        "boot/rlvr_probe_boot.pth",
        "integrations/rlvr_probe_ray/adapter.py",
        "integrations/rlvr_probe_vllm/adapter.py",
        "integrations/stray.py",
    ],
)
def test_a_change_of_what_all_share_runs_everything(path: str) -> None:
    assert affected.affected(["integrations/rlvr_probe_verl/adapter.py", path]) == EVERYTHING


def test_what_is_chosen_exists() -> None:
    assert all((ROOT / path).exists() for path in [DEMO, *ALWAYS])
    assert all((ROOT / "integrations" / name).is_dir() for name in affected.SHARED)


@pytest.mark.parametrize("commit", ["", "0" * 40, "no-such-branch", "--output=x"])
def test_an_unknown_commit_runs_everything(commit: str, capsys: pytest.CaptureFixture[str]) -> None:
    affected.main([commit])
    assert capsys.readouterr().out == "\n"


def test_what_changed_since_a_commit_are_both_names_of_what_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        names = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    (tmp_path / "old name.py").write_text("here = 1\n")
    git("add", ".")
    git("commit", "--quiet", "--message=one")
    git("mv", "old name.py", "new.py")
    git("commit", "--quiet", "--message=two")
    monkeypatch.setattr(affected, "ROOT", tmp_path)
    assert affected.changed_since("HEAD~1") == ["new.py", "old name.py"]
    assert affected.changed_since("HEAD") == []
