"""Every command answers of a damaged recording, or says why it cannot."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rlvr_probe import cli
from tests import today
from tests.corpus.recordings import RECORDED, folder_of, unpacked
from tests.damaged import DAMAGE, cut
from tests.seeds import draw

_CODES = {cli.OK, cli.UNSOUND, cli.UNABLE}


def answers(run: Path, whole: Path, out: Path) -> dict[str, int]:
    """Exit codes of the commands that read a recording, which was ``whole``.

    Another error is the test's.
    """
    found = dict[str, int]()
    for command in (
        ("show", run),
        ("characterize", run, "--json", out / "found.json", "--html", out / "page.html"),
        ("stuck", run),
        ("convert", run, "--to", "polytrace", "--out", out / "workload"),
        ("export", run, "--to", "perfetto", "--out", out / "timeline.json"),
        ("compare", run, whole, "--html", out / "compared.html"),
        ("fidelity", run, whole),
    ):
        found[str(command[0])] = cli.main([str(word) for word in command])
    return found


def test_a_stage_without_a_reading_of_its_devices_has_no_figures_of_them(tmp_path: Path) -> None:
    whole = folder_of(unpacked("trl", tmp_path / "training"))
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    cut(run)
    assert answers(run, whole, tmp_path)["characterize"] == cli.OK


@pytest.mark.parametrize("name", today.some(list(RECORDED), 1))
@pytest.mark.parametrize("kind", today.some(list(DAMAGE), 1))
def test_a_damaged_recording_ends_no_command_with_a_traceback(
    tmp_path: Path, name: str, kind: str
) -> None:
    [seed] = draw(1)
    print(f"seed {seed}")
    whole = folder_of(unpacked(name, tmp_path / "training"))
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    DAMAGE[kind](run, random.Random(seed))
    codes = answers(run, whole, tmp_path)
    assert set(codes.values()) <= _CODES, codes
