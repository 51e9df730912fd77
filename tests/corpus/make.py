"""Make the recordings of the corpus anew, on a machine that is not to be known by them.

    .venv/bin/python -m tests.corpus.make [--to FOLDER] [NAME...]

Each training runs in namespaces of its own, with another host name, boot id, kernel release, user,
home and folder and without a network, so that its recording is kept as it was written. Its books
are too, but for one thing: titles of processes have the path of this checkout, which is replaced.
What still tells of a machine is an error, and nothing is written. Linux, with user namespaces.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import platform
import py_compile
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.corpus.identifying import BOOT, CHECKOUT, HOST, RELEASE, told
from tests.corpus.recordings import CORPUS, RECORDED, members, packed

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path("/srv")
"""Another file system lies here while a training runs."""

_UNSHARE = ("unshare", "--user", "--map-root-user", "--uts", "--net", "--pid", "--mount")
_APART = (*_UNSHARE, "--fork", "--mount-proc", "--kill-child")
_VARIABLES = {
    "HOME": str(PLACE / "home"),
    "LANG": "C.UTF-8",
    "LOGNAME": HOST,
    "PATH": os.defpath,
    "USER": HOST,
}
_SET_FLAGS, _UP = 0x8914, 0x41


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.make", allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECORDED)}")
    parser.add_argument("--to", type=Path, default=CORPUS, metavar="FOLDER")
    parser.add_argument("--inside", choices=("space", "training"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.names) - set(RECORDED):
        parser.error(f"there is no recording {', '.join(sorted(unknown))}")
    return chosen


def again(inside: str, name: str, to: Path) -> list[str]:
    """The command of this program one stage further inside."""
    command = [sys.executable, "-m", "tests.corpus.make", "--inside", inside]
    return [*command, "--to", str(to.resolve()), name]


def make(name: str, to: Path) -> None:
    """Make one, from outside."""
    RECORDED[name].prepare()
    with tempfile.TemporaryDirectory(dir=to, prefix="unchecked-") as unchecked:
        made = Path(unchecked, f"{name}.tar.gz")
        command = again("space", name, made.parent)
        if subprocess.run([*_APART, *command], cwd=ROOT, env=_VARIABLES, check=False).returncode:
            raise SystemExit(f"{name} could not be made")
        found = {one for member, content in members(made) for one in told(member, content)}
        if found:
            raise SystemExit("\n".join((f"{name} tells where it was made:", *sorted(found))))
        print(f"{name}: {made.stat().st_size:,} bytes")
        made.replace(to / made.name)


def enter(name: str, to: Path) -> int:
    """Make the space that a training sees, run it there, and wait for all that it left behind."""
    socket.sethostname(HOST)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    mount("-t", "tmpfs", "tmpfs", str(PLACE))
    (PLACE / "home").mkdir()
    (PLACE / "run").mkdir()
    cover(Path("/proc/sys/kernel/random/boot_id"), f"{BOOT}\n")
    cover(Path("/etc/hosts"), f"127.0.0.1 localhost {HOST}\n")
    rename_the_kernel()
    child = subprocess.Popen(again("training", name, to), cwd=ROOT)
    while True:  # this is the first process here: what loses its parent is left to it
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def cover(path: Path, text: str) -> None:
    """Have a file of the machine read ``text``."""
    file = PLACE / path.name
    file.write_text(text)
    mount("--bind", str(file), str(path))


def rename_the_kernel() -> None:
    """Have every Python that starts here say another kernel release: namespaces do not cover it."""
    source = Path(platform.__file__)
    bytecode = Path(importlib.util.cache_from_source(str(source)))
    if not bytecode.exists():
        raise SystemExit(f"there is no {bytecode} to be covered: compile it first")
    text, compiled = PLACE / "platform.py", PLACE / "platform.pyc"
    text.write_text(f"{source.read_text()}\n\ndef release():\n    return {RELEASE!r}\n")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(
        str(text), str(compiled), str(source), doraise=True, invalidation_mode=unchecked
    )
    mount("--bind", str(compiled), str(bytecode))


def record(name: str, to: Path) -> None:
    """Run the training and keep what it left."""
    left = RECORDED[name].run(PLACE / "run")
    titles = left / "processes.json"
    if titles.exists():
        titles.write_text(titles.read_text().replace(str(ROOT), CHECKOUT))
    (to / f"{name}.tar.gz").write_bytes(packed(left))


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is asked for, or all."""
    chosen = options(arguments)
    if chosen.inside == "space":
        return enter(chosen.names[0], chosen.to)
    if chosen.inside == "training":
        record(chosen.names[0], chosen.to)
        return 0
    if shutil.which("unshare") is None:
        raise SystemExit("user namespaces are needed here, and unshare of util-linux")
    possible = subprocess.run([*_APART, "true"], capture_output=True, text=True, check=False)
    if possible.returncode:
        raise SystemExit(f"user namespaces are needed here: {possible.stderr.strip()}")
    if PLACE in (ROOT, *ROOT.parents):
        raise SystemExit(f"a checkout outside of {PLACE} is needed, which is covered meanwhile")
    for name in chosen.names or RECORDED:
        make(name, chosen.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
