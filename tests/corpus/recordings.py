"""Recordings of real trainings that are kept beside the tests: which, and how one is opened.

Each is one archive with what the training was recorded as and the books that it kept itself, so
that what is read of it is judged without running a framework. `make.py` makes them.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe_openrlhf.tests import environments as of_openrlhf
from rlvr_probe_openrlhf.tests import runs as openrlhf
from rlvr_probe_trl.tests import runs as trl
from rlvr_probe_trl.tests import train_tools
from rlvr_probe_verl.tests import environments as of_verl
from rlvr_probe_verl.tests import runs as verl

from tests.watched import wait_for_the_end_of_its_sidecar

__all__ = [
    "AGENT",
    "CORPUS",
    "OPENRLHF",
    "RECORDED",
    "TOOLS",
    "TRL",
    "VERL",
    "Recorded",
    "archive",
    "folder_of",
    "members",
    "packed",
    "unpacked",
]

CORPUS = Path(__file__).parent

TRL = trl.SCENARIOS["many"]
TOOLS = "--attach before --kind tools --steps 2 --eval-every 2"
VERL = verl.Scenario("0.9.1", "v1", how="launcher", ranks=2, tools=3, watched=True)
OPENRLHF = openrlhf.Scenario("0.11.2", ranks=2, engines=2)
AGENT = openrlhf.Scenario("0.11.2", how="attach", agent=True, engines=2)

_KEPT = ("recordings/*/*", "books/*.json", "books/*.jsonl", "processes.json", "received.json")
"""What is kept of the folder of a training."""


@dataclass(frozen=True)
class Recorded:
    """One recording of the corpus.

    Attributes:
        framework: Whose training it is.
        version: Of the framework.
        run: Runs the training in an empty folder; returns the folder with what is kept.
        prepare: Downloads what that needs.
    """

    framework: str
    version: str
    run: Callable[[Path], Path]
    prepare: Callable[[], object] = lambda: None


def _trl(root: Path) -> Path:
    return trl.Runner(root).finished(TRL).folder


def _tools(root: Path) -> Path:
    trl.run_script(Path(train_tools.__file__), root, TOOLS)
    wait_for_the_end_of_its_sidecar(folder_of(root))
    return root


def _verl(root: Path) -> Path:
    return verl.Runner(root).finished(VERL).folder


def _openrlhf(root: Path) -> Path:
    return openrlhf.Runner(root).finished(OPENRLHF).folder


def _agent(root: Path) -> Path:
    return openrlhf.Runner(root).finished(AGENT).folder


RECORDED = {
    "trl": Recorded("trl", "1.16.0", _trl),
    "trl-tools": Recorded("trl", "1.16.0", _tools),
    "verl": Recorded("verl", VERL.verl, _verl, lambda: of_verl.python(VERL.verl)),
    "openrlhf": Recorded(
        "openrlhf", OPENRLHF.openrlhf, _openrlhf, lambda: of_openrlhf.python(OPENRLHF.openrlhf)
    ),
    "openrlhf-agent": Recorded(
        "openrlhf", AGENT.openrlhf, _agent, lambda: of_openrlhf.python(AGENT.openrlhf)
    ),
}
"""By name of the archive."""


def archive(name: str) -> Path:
    """The file that a recording is kept in."""
    return CORPUS / f"{name}.tar.gz"


def packed(folder: Path) -> bytes:
    """What is kept of the folder of a training; the same bytes for the same files."""
    packing = io.BytesIO()
    with tarfile.open(fileobj=packing, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted({path for pattern in _KEPT for path in folder.glob(pattern)}):
            content = path.read_bytes()
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(packing.getvalue(), mtime=0)


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file in an archive."""
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None, "an archive holds files alone"
            yield member.name, file.read()


def unpacked(name: str, folder: Path) -> Path:
    """``folder``, with what a training left of the recording ``name``."""
    for member, content in members(archive(name)):
        path = folder / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def folder_of(training: Path) -> Path:
    """The folder of the one run that a training recorded."""
    [found] = [path for path in (training / "recordings").iterdir() if path.is_dir()]
    return found
