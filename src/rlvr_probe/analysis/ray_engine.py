"""Characterizes on a Ray cluster: its tasks decode journals, and ask the questions of the report.

The process that starts it joins what was decoded, with all CPUs of its node, and makes the ledger.
Each task then asks one part of the questions of the same tables: results are those of one machine.
A task that dies with its process or node is done again by Ray.
"""

# Ray is where it is asked for: no environment of ours has it.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
import signal
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, Final

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlvr_probe.analysis.characterization import PARTS, Answered, Engine, Part, answer
from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model import schema
from rlvr_probe.recording.bulk import path_of
from rlvr_probe.recording.files import Segment
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.journal_files import JournalFiles, decode
from rlvr_probe.recording.store import FineStore, PackedRows, no_collection
from rlvr_probe.recording.tables import Tables
from rlvr_probe.recording.tables.shipped import adopt, open_shipped, ship

__all__ = ["on_ray"]

_PACKAGES: Final = ("rlvr-probe", "duckdb")
"""What nodes need, in the versions that are here: rows and tables pass from one to another."""

_TASKS: Final = 4
"""Tasks that decode, for each CPU: small ones fill in where a large one takes long."""

_NICE: Final = 19
"""Tasks take what a job on the same nodes leaves."""

_PIECE_B: Final = 64 << 20
_PATIENCE_S: Final = 30.0
"""How long nothing happens before it is said what is waited for, s."""

_FAILURES: Final = (RayError, ConnectionError, RuntimeError, ValueError)
"""What Ray raises where a cluster cannot be reached."""

Say = Callable[[str], object]
"""Called with a sentence for the user."""


@contextmanager
def on_ray(address: str | None, say: Say, *, made: bool) -> Iterator[Engine]:
    """A cluster that does the work, until the context is left; what still runs there is ended then.

    Args:
        address: ``ray://host:port`` of a cluster; None: the one that ``RAY_ADDRESS`` or this
            machine has, or else a new one on this machine, for as long as it is needed.
        say: Gets a sentence where the cluster has nothing free for long.
        made: Whether tables get what was made for an answer, as if that were made here.

    Raises:
        ProbeError: There is no such cluster, or a node of it lacks a package.
    """
    # Of a cluster that is started here: it sends nothing to its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (*_FAILURES, ImportError) as error:  # Ray Client has dependencies of its own
        where = "a cluster on this machine" if address is None else address
        raise ProbeError(f"Ray does not reach {where}: {_line(error)}") from None
    finally:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, before)
    cluster = _Cluster(say, made)
    try:
        cluster.check()
        yield Engine(cluster.decode, cluster.answer_parts, cluster.threads)
    finally:
        cluster.cancel()
        ray.shutdown()


class _Cluster:
    """Has work done by tasks of the cluster that this process is connected to.

    Attributes:
        cpus: Of the cluster.
        threads: CPUs that the cluster has on the node of this process; None if it is on none.
    """

    def __init__(self, say: Say, made: bool) -> None:
        self._say, self._made = say, made
        self._running = set[ray.ObjectRef]()
        self._nodes = [
            node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")
        ]
        self.cpus = max(1, int(sum(node["Resources"]["CPU"] for node in self._nodes)))
        self._node = "" if ray.util.client.ray.is_connected() else _node()
        own = [node for node in self._nodes if node["NodeID"] == self._node]
        self.threads = max(1, int(own[0]["Resources"]["CPU"])) if own else None

    def check(self) -> None:
        """See that every node has what tasks need.

        Raises:
            ProbeError: One has not.
        """
        if not self._nodes:
            raise ProbeError("the Ray cluster has no node with a CPU; expected one at least")
        installed = ray.remote(num_cpus=0)(version)
        for package in _PACKAGES:
            asked = [
                (node, installed.options(scheduling_strategy=_on(node)).remote(package))
                for node in self._nodes
            ]
            for node, reference in asked:
                try:
                    found = f"version {self._get(reference)}"
                except PackageNotFoundError:
                    found = "none"
                if found != f"version {version(package)}":
                    raise ProbeError(
                        f"{package} on node {node['NodeManagerAddress']} of the Ray cluster: found"
                        f" {found}, expected version {version(package)}; install it on every node"
                    )
        started = ray.remote(num_cpus=1)(_node).remote()
        if not ray.wait([started], timeout=_PATIENCE_S)[0]:
            self._say("waiting for a CPU: the Ray cluster has none free")
        self._get(started)

    def decode(
        self, journals: Iterable[JournalFiles], fine: FineStore | None
    ) -> Iterator[tuple[JournalFiles, Journal, int]]:
        """As :data:`~rlvr_probe.recording.journal_files.Decode`; what a spool has is decoded here.

        Raises:
            ProbeError: A node does not see the files, or tasks fail.
        """
        own, apart = list[JournalFiles](), list[JournalFiles]()
        for files in journals:
            if fine is None or any(part.moved is not None for part in files.parts):
                own.append(files)
            else:
                parts = [replace(part, path=part.path.absolute()) for part in files.parts]
                apart.append(replace(files, parts=parts))
        groups = _groups(apart, _TASKS * self.cpus)
        references = deque(self._start(_decode, group) for group in groups)
        yield from decode(own, fine)
        for group in groups:
            found, packed = self._get(references.popleft())
            first = fine.unpack(packed) if fine else 0
            for files, (journal, seen) in zip(group, found, strict=True):
                journal.renumber_keys(first)
                yield files, journal, seen

    def answer_parts(self, tables: Tables, slots: int | None) -> Iterator[Answered]:
        """As :data:`~rlvr_probe.analysis.characterization.AnswerParts`.

        Raises:
            ProbeError: Tasks fail.
        """
        with tempfile.TemporaryDirectory(prefix="rlvr-probe-ray-") as folder:
            path = Path(folder) / "tables.duckdb"
            ship(tables, path)
            # Also for nodes that join later.
            pieces = [ray.put(piece) for piece in _pieces(path)]
            shipped = _Shipped(self._node, str(path), pieces, (tables.source, tables.notes))
            references = [self._start(_answer, shipped, part, slots, self._made) for part in PARTS]
            for place, reference in enumerate(references):
                answered, others = self._get(reference)
                if others:
                    back = Path(folder) / f"{place}.duckdb"
                    back.write_bytes(others)
                    adopt(tables, back)
                yield answered

    def cancel(self) -> None:
        """End what still runs."""
        for reference in self._running:
            with suppress(*_FAILURES):
                ray.cancel(reference, force=True)

    def _start(self, task: Callable[..., Any], *arguments: Any) -> ray.ObjectRef:
        reference = ray.remote(num_cpus=1, max_retries=3)(task).remote(*arguments)
        self._running.add(reference)
        return reference

    def _get(self, reference: ray.ObjectRef) -> Any:
        """The result of a task, which the cluster then forgets.

        Raises:
            ProbeError: It failed, also when it was done again.
        """
        try:
            found = ray.get(reference)
        except RayTaskError as error:
            if isinstance(error.cause, (ProbeError, PackageNotFoundError)):
                raise error.cause from None
            raise ProbeError(f"a task on Ray failed: {_line(error.cause or error)}") from None
        except RayError as error:
            raise ProbeError(f"a task on Ray failed: {_line(error)}") from None
        self._running.discard(reference)
        return found


@dataclass(frozen=True, slots=True)
class _Shipped:
    """Tables for tasks.

    Attributes:
        node: Where they were made; empty if that is outside of the cluster.
        path: Their file there.
        pieces: Its bytes, for other nodes.
        like: Source and notes.
    """

    node: str
    path: str
    pieces: Sequence[ray.ObjectRef]
    like: tuple[str, tuple[str, ...]]


def _decode(group: Sequence[JournalFiles]) -> tuple[list[tuple[Journal, int]], PackedRows]:
    """A task: what processes recorded, and their fine rows."""
    os.nice(_NICE)
    for files in group:
        _look(files)
    with no_collection(), FineStore(1, whole=True, signals=False, hold=False) as store:
        found = [(journal, seen) for _, journal, seen in decode(group, store)]
        return found, store.pack()


def _look(files: JournalFiles) -> None:
    """See that this node has the files: of what is not there, rows would count as lost.

    Raises:
        ProbeError: It has not all, or cannot read one.
    """
    for part in files.parts:
        if not _is_whole(part):
            node = ray.util.get_node_ip_address()
            raise ProbeError(
                f"node {node} of the Ray cluster does not see all of {part.path}; expected a folder"
                " that all nodes share and may read"
            )


def _is_whole(part: Segment) -> bool:
    """Whether a file can be read as far as it was listed, or what a sidecar has made of it."""
    with suppress(OSError):
        return part.path.stat().st_size >= part.size_b and os.access(part.path, os.R_OK)
    plain = part.path.with_name(schema.segment_name(part.process, part.number))
    return any(os.access(f"{plain}{suffix}", os.R_OK) for suffix in ("", *schema.PACKED_SUFFIXES))


def _answer(shipped: _Shipped, part: Part, slots: int | None, made: bool) -> tuple[Answered, bytes]:
    """A task: what one part says, and the tables that were made for it where these are wanted."""
    os.nice(_NICE)
    with open_shipped(_path(shipped), shipped.like) as tables:
        answered = answer(tables, part, slots)
        if not made:
            return answered, b""
        with tempfile.TemporaryDirectory(prefix="rlvr-probe-ray-") as folder:
            path = Path(folder) / "made.duckdb"
            ship(tables, path, made=True)
            return answered, path.read_bytes()


_held = dict[str, IO[bytes]]()
"""Of a process that runs tasks: files without a name, which are gone when it ends."""


def _path(shipped: _Shipped) -> str:
    """Where this process has the tables: where they were made, or a copy."""
    if shipped.node == _node():
        return shipped.path
    if shipped.path not in _held:
        file = tempfile.TemporaryFile(prefix="rlvr-probe-ray-")  # noqa: SIM115 - held
        for piece in shipped.pieces:
            file.write(ray.get(piece))
        file.flush()
        _held[shipped.path] = file
    return path_of(_held[shipped.path])


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_B):
            yield piece


def _groups(journals: Sequence[JournalFiles], most: int) -> list[list[JournalFiles]]:
    """Journals in about equal parts by bytes, the largest first."""
    groups = [list[JournalFiles]() for _ in range(min(most, len(journals)))]
    sizes = [0] * len(groups)
    for files in sorted(journals, key=lambda files: -files.size_b):
        place = sizes.index(min(sizes))
        groups[place].append(files)
        sizes[place] += files.size_b
    return groups


def _on(node: dict[str, Any]) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)


def _node() -> str:
    return str(ray.get_runtime_context().get_node_id())


def _line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1].strip()}" if lines else type(error).__name__
