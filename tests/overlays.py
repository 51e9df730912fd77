"""Virtual environments in which a framework runs on a CPU, put together from folders.

One of a release is what a user has who installed the framework, its dependencies and rlvr-probe,
but another release costs a few megabytes: the torch of the environment that runs the tests, a
pinned set that its releases share, and the wheel of the release.
"""

from __future__ import annotations

import shutil
import sys
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath

from tests import wheels

__all__ = ["python"]

# Before the lines of rlvr-probe, which need what these folders hold: they are read by name.
_FOLDERS = "_folders.pth"


def python(name: str, folders: Sequence[Path], load: str) -> Path:
    """The interpreter of an environment with these folders, torch and this rlvr-probe.

    Args:
        name: Of the environment, with the version of the framework.
        folders: Where its packages are; earlier ones win.
        load: A line that every Python process of the environment runs as it starts.
    """
    listed = "".join(f"{folder}\n" for folder in folders)
    torch = _torch()
    description = f"{sys.version}\n{load}{listed}" + "".join(f"{path}\n" for path in torch)

    def fill(folder: Path, _: Path) -> None:
        venv.create(folder, symlinks=True)
        site_packages = _site_packages(folder)
        (site_packages / _FOLDERS).write_text(listed)
        (site_packages / "zz_device.pth").write_text(load)
        for path in torch:
            (site_packages / path.name).symlink_to(path)

    whole = f"{name}-environment"
    folder = wheels.made(whole, description, fill)
    with wheels.alone(whole):
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
