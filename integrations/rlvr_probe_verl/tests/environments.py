"""Virtual environments in which releases of verl run on a CPU.

One of a release is what a user has who installed verl, its dependencies and rlvr-probe, but put
together from folders, so that another release costs a few megabytes: the torch of the environment
that runs the tests, the pinned set of ``requirements/verl.txt``, and the wheel of the release.
"""

from __future__ import annotations

import shutil
import sys
import venv
from importlib import metadata
from pathlib import Path, PurePosixPath

from rlvr_probe_verl.tests.releases import unpacked

from tests import wheels

__all__ = ["DEVICE", "python"]

DEVICE = "verl_cpu_device"
"""Module that every Python process of an environment loads if its variable asks for it."""

# Before the lines of rlvr-probe, which need what these folders hold: they are read by name.
_FOLDERS = "_folders.pth"
_LOAD = f'import os; os.environ.get("VERL_CPU_DEVICE") and __import__("{DEVICE}")\n'


def python(version: str) -> Path:
    """The interpreter of an environment with this release of verl and this rlvr-probe.

    The first call for any release takes minutes and a gigabyte, the next ones seconds.
    """
    pins = (wheels.REQUIREMENTS / "verl.txt").read_text()
    folders = [unpacked(version), wheels.installed("verl-dependencies", pins)]
    listed = "".join(f"{folder}\n" for folder in folders)
    torch = _torch()
    description = f"{sys.version}\n{_LOAD}{listed}" + "".join(f"{path}\n" for path in torch)

    def fill(folder: Path, _: Path) -> None:
        venv.create(folder, symlinks=True)
        site_packages = _site_packages(folder)
        (site_packages / _FOLDERS).write_text(listed)
        (site_packages / "zz_device.pth").write_text(_LOAD)
        for path in torch:
            (site_packages / path.name).symlink_to(path)

    folder = wheels.made(f"verl-{version}-environment", description, fill)
    with wheels.alone("releases"):
        _install_probe(folder)
    return folder / "bin" / "python"


def _site_packages(environment: Path) -> Path:
    major, minor = sys.version_info[:2]
    return environment / "lib" / f"python{major}.{minor}" / "site-packages"


def _torch() -> list[Path]:
    """What the torch of this environment consists of, each at the top of site-packages."""
    distribution = metadata.distribution("torch")
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
    return sorted(Path(str(distribution.locate_file(top))) for top in tops)


def _install_probe(environment: Path) -> None:
    """Put every file there that installing rlvr-probe put into the environment of the tests."""
    distribution = metadata.distribution("rlvr-probe")
    files = [PurePosixPath(file) for file in distribution.files or ()]
    site_packages = _site_packages(environment)
    for file in files:
        source = Path(str(distribution.locate_file(file)))
        target = site_packages / file
        if not source.is_file() or "__pycache__" in file.parts:
            continue
        content = source.read_bytes()
        if file.parts[0] == "..":  # a program: its first line names the interpreter
            interpreter = str(environment / "bin" / "python").encode()
            content = b"#!" + interpreter + b"\n" + content.partition(b"\n")[2]
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(source, target)
