"""Installing the package into an environment of a framework changes nothing that is in it.

The environments are locks in ``requirements/frameworks``; only metadata is downloaded.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.environments import ENVIRONMENTS, FOLDER, Environment, pins, resolve

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
CORE = [one for one in metadata.requires("rlvr-probe") or [] if "extra ==" not in one]
CORE_NAMES = {re.split(r"[<>=]", one)[0] for one in CORE}

every_environment = pytest.mark.parametrize(
    "environment", ENVIRONMENTS, ids=[one.name for one in ENVIRONMENTS]
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.iterdir()
    return built


def installed(environment: Environment) -> dict[str, str]:
    return pins(environment.lock.read_text("utf-8"))


def pretend(folder: Path, versions: dict[str, str]) -> Path:
    """A Python in which ``versions`` are installed, as far as an installer can see."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    for name, version in versions.items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(text)
        (info / "INSTALLER").write_text("pip\n")
        (info / "RECORD").touch()
    return folder / "bin" / "python"


def would_install(python: Path, requirement: str) -> dict[str, str]:
    """What pip would install for ``requirement``, new or in the place of what is there."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    dry = ["install", "--dry-run", "--quiet", "--only-binary", ":all:", "--report", "-"]
    done = subprocess.run([*pip, *dry, requirement], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [one["metadata"] for one in json.loads(done.stdout)["install"]]
    return {one["name"].lower().replace("_", "-"): one["version"] for one in found}


def test_every_lock_is_of_an_environment_that_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {one.name for one in ENVIRONMENTS}
    for one in ENVIRONMENTS:
        name, _, version = one.requirement.replace("[vllm]", "").partition("==")
        assert installed(one)[name] == version
        assert len(installed(one)) > 100


@every_environment
@pytest.mark.parametrize("extra", ["", "[cli]"])
def test_an_installer_only_adds_our_own_dependencies(
    environment: Environment, extra: str, wheel: Path, tmp_path: Path
) -> None:
    versions = installed(environment)
    python = pretend(tmp_path / "venv", versions)
    new = would_install(python, f"rlvr-probe{extra} @ {wheel.as_uri()}")
    assert "rlvr-probe" in new
    assert set(new) & set(versions) == set()
    added = CORE_NAMES | ({"duckdb", "nanoarrow"} if extra else set())
    assert set(new) - {"rlvr-probe"} == added - set(versions)


@every_environment
def test_whatever_is_installed_allows_the_core(environment: Environment) -> None:
    versions = installed(environment)
    pinned = [f"{name}=={version}" for name, version in versions.items()]
    both = pins(resolve([*pinned, *CORE]))
    assert {name: both[name] for name in versions} == versions
    assert set(both) - set(versions) == CORE_NAMES - set(versions)


@every_environment
def test_installed_together_with_a_framework_nothing_else_is_chosen(
    environment: Environment,
) -> None:
    alone = installed(environment)
    both = pins(resolve([environment.requirement, *CORE], environment.day))
    # What the core needs needs nothing itself, so only these can be chosen differently because of
    # it. What else differs was published, or taken back, since the lock was made.
    assert both.keys() >= CORE_NAMES
    shared = CORE_NAMES & alone.keys()
    assert {name: both[name] for name in shared} == {name: alone[name] for name in shared}


def test_a_framework_that_is_really_installed_stays_as_it_is(wheel: Path) -> None:
    new = would_install(Path(sys.executable), f"rlvr-probe @ {wheel.as_uri()}")
    assert metadata.version("trl")
    assert set(new) == {"rlvr-probe"}


def test_a_change_would_be_seen(wheel: Path, tmp_path: Path) -> None:
    python = pretend(tmp_path / "venv", {"wrapt": "1.14.0", "msgspec": "0.19.0"})
    new = would_install(python, f"rlvr-probe @ {wheel.as_uri()}")
    assert "wrapt" in new, "it is older than our bound"
    assert "msgspec" not in new
