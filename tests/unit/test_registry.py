"""Integrations are found although other packages on the path are broken."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import rlvr_probe
from rlvr_probe.registry import discover
from tests import toy

NAMED = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the toy framework and its integration are installed."""
    folder = tmp_path / "site"
    toy.install(folder)
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    yield folder
    for name in ("toyrl", "rlvr_probe_toyrl"):
        sys.modules.pop(name, None)


@pytest.fixture
def other(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put one more distribution in front of those in ``site``."""

    def put(name: str, **files: bytes) -> None:
        info = tmp_path / "other" / f"{name}.dist-info"
        info.mkdir(parents=True)
        for file, content in files.items():
            (info / file.replace("_txt", ".txt")).write_bytes(content)
        monkeypatch.syspath_prepend(str(info.parent))
        importlib.invalidate_caches()

    return put


@pytest.mark.parametrize(
    "content", [b"[console_scripts]\nnot a pair\n", b"[a]\nx = \xff\xfe:y\n", b"no section\n"]
)
def test_entry_points_that_cannot_be_read_are_of_no_account(
    other: Callable[..., None], tmp_path: Path, content: bytes
) -> None:
    other("foo-1", METADATA=NAMED.format("foo", 1).encode(), entry_points_txt=content)
    attachment = rlvr_probe.attach(out=tmp_path / "runs", frameworks=["toyrl"])
    assert attachment.frameworks["toyrl"].version == "1.2.3"


@pytest.mark.parametrize("files", [{"RECORD": b""}, {"METADATA": b""}, {"METADATA": b"\xff\xfe"}])
def test_what_a_failed_uninstall_left_does_not_hide_the_framework(
    other: Callable[..., None], tmp_path: Path, files: dict[str, bytes]
) -> None:
    other("toyrl-1.1.0", **files)
    attachment = rlvr_probe.attach(out=tmp_path / "runs")
    status = attachment.frameworks["toyrl"]
    assert (status.state, status.version, status.reason) == ("waiting", "1.2.3", None)


@pytest.mark.parametrize("module", [True, False], ids=["with a module", "without a module"])
def test_a_framework_without_a_version(site: Path, module: bool) -> None:
    (site / "toyrl-1.2.3.dist-info" / "METADATA").write_text("")
    if not module:
        (site / "toyrl.py").unlink()
    status = discover(["toyrl"])["toyrl"]
    if module:
        assert status.state == "waiting"
        assert status.reason == "tested with toyrl>=1,<2 only"
    else:
        assert str(status) == "toyrl absent: toyrl is not installed"


def test_a_stand_in_for_a_framework_that_is_not_installed_is_absent(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "toyrl-1.2.3.dist-info" / "METADATA").unlink()
    monkeypatch.setitem(sys.modules, "toyrl", ModuleType("toyrl"))
    assert str(discover(["toyrl"])["toyrl"]) == "toyrl absent: toyrl is not installed"


def test_a_version_that_is_no_number_is_attached_with_a_warning(site: Path) -> None:
    (site / "toyrl-1.2.3.dist-info" / "METADATA").write_text(NAMED.format("toyrl", "main"))
    status = discover(["toyrl"])["toyrl"]
    assert (status.state, status.reason) == ("waiting", "tested with toyrl>=1,<2 only")


def test_an_integration_found_twice_counts_as_the_path_says(
    other: Callable[..., None], site: Path
) -> None:
    other(
        "rlvr_probe_toyrl-0.2",
        METADATA=NAMED.format("rlvr_probe_toyrl", "0.2").encode(),
        entry_points_txt=b"[rlvr_probe.integrations]\ntoyrl = rlvr_probe_toyrl:NewAdapter\n",
    )
    source = site / "rlvr_probe_toyrl.py"
    source.write_text(
        source.read_text() + "\nclass NewAdapter(ToyAdapter):\n    tested = '==1.2'\n"
    )
    status = discover(["toyrl"])["toyrl"]
    assert (status.state, status.reason) == ("waiting", "tested with toyrl==1.2 only")


def test_a_finder_that_fails_hides_only_what_is_behind_it(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        @staticmethod
        def find_spec(*_: object) -> None:
            return None

        @staticmethod
        def find_distributions(_: object) -> Iterator[metadata.Distribution]:
            raise RuntimeError
            yield

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Broken])
    assert discover(["toyrl"])["toyrl"].state == "waiting"


@pytest.mark.parametrize(
    "replacement",
    [
        ("distribution =", "other ="),
        ("tested =", "other ="),
        ("        return (\n", '        return ("x",\n'),
    ],
    ids=["no distribution", "no versions", "no hook point"],
)
def test_an_integration_that_does_not_keep_its_contract_has_failed(
    site: Path, replacement: tuple[str, str]
) -> None:
    source = site / "rlvr_probe_toyrl.py"
    changed = source.read_text().replace(*replacement)
    assert changed != source.read_text()
    source.write_text(changed)
    assert discover(["toyrl"])["toyrl"].state == "failed"
