"""Contract of a destination: one folder under ``exporters/`` and one entry-point line.

A :class:`WorkloadExporter` turns a :class:`~rlvr_probe.model.workload.Workload` into files
(``rlvr-probe convert``) and judges such files (``rlvr-probe validate``). If it is a
:class:`WorkloadReader` too, such files can be looked at without a recording.

A :class:`TraceExporter` hands a :class:`~rlvr_probe.model.trace.Trace` to tools that show one
(``rlvr-probe export``), and a :class:`LiveExporter` does so while the run goes on. It imports only
this module, the model and the exceptions, and runs offline: it raises early and says what to do.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlvr_probe.access import barrier, user_name, whose
from rlvr_probe.config import access_of
from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.model.workload import ReadWorkload, Workload

__all__ = [
    "LiveExporter",
    "LiveSession",
    "Problem",
    "TraceExporter",
    "WorkloadExporter",
    "WorkloadReader",
    "Written",
    "check_place",
    "open_new",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One way in which a workload directory breaks its format.

    Attributes:
        file: Name relative to the directory.
        line: From 1; None if it concerns the file as a whole.
        field: Dotted path of the field; None if it concerns the line as a whole.
        found: What is there, shortened.
        expected: What the format wants.
        warning: True if the format allows it but a consumer should know.
    """

    file: str
    line: int | None
    field: str | None
    found: str
    expected: str
    warning: bool = False

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        field = "" if self.field is None else f" {self.field}"
        return f"{place}:{field} found {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class Written:
    """What a conversion wrote: counts for the closing line of the command."""

    steps: int
    groups: int
    trajectories: int
    files: int
    notes: tuple[str, ...] = ()


@runtime_checkable
class WorkloadExporter(Protocol):
    """A workload format.

    Attributes:
        name: What ``--to`` selects, for example ``polytrace``.
        flavors: What ``--flavor`` selects, where the format can say a workload in several ways;
            else empty.
    """

    name: str
    flavors: Sequence[str]

    def write(
        self, workload: Workload, directory: Path, *, keep_names: bool, flavor: str | None = None
    ) -> Written:
        """Write ``workload`` into ``directory``, which exists and is empty.

        The caller makes the directory appear atomically under its final name afterwards.

        Args:
            workload: Complete steps of one run.
            directory: Absolute; nothing outside it is touched.
            keep_names: Keep names of reward functions, tools, models and data sources; by default
                they become aliases (``reward_0``), so that the result can be shared.
            flavor: One of the attribute ``flavors``; None for the one that fits what was recorded.

        Raises:
            WorkloadError: The format cannot say this workload.
        """
        ...

    def recognizes(self, directory: Path) -> bool:
        """Whether ``directory`` looks like this format, cheaply, from its file names."""
        ...

    def validate(
        self,
        directory: Path,
        *,
        steps: Sequence[int] | None = None,
        response_cap: int | None = None,
    ) -> Sequence[Problem]:
        """Every problem found in ``directory``, in file and line order; empty if it is sound.

        Args:
            directory: Read as a stream; nothing in it is trusted.
            steps: Judge these workload steps only, and expect each to be there.
            response_cap: Longest response allowed, tokens; by default what the directory says.

        Raises:
            ValidationError: It cannot be read at all.
        """
        ...


@runtime_checkable
class WorkloadReader(Protocol):
    """A workload format that can be read, from any writer.

    Attributes:
        name: What messages call it, for example ``polytrace``.
    """

    name: str

    def recognizes(self, directory: Path) -> bool:
        """Whether ``directory`` looks like this format, cheaply, from its file names."""
        ...

    def read(self, directory: Path) -> ReadWorkload:
        """Everything in ``directory`` that says what was generated and how long it took.

        What the files do not say is absent, and its notes say so; a value that stands for an
        unknown one is unknown.

        Args:
            directory: Nothing in it is trusted.

        Raises:
            ValidationError: It cannot be read, or a record breaks the format.
        """
        ...


@runtime_checkable
class TraceExporter(Protocol):
    """A destination for what a run did: a file that a viewer opens, or a service.

    Attributes:
        name: What ``--to`` selects, for example ``otlp``.
    """

    name: str

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of this destination to those of ``rlvr-probe export``.

        The command has ``RUN`` and ``--to`` itself.
        """
        ...

    def export(self, trace: Trace, folder: Path, args: Namespace) -> Iterable[str]:
        """Hand over ``trace``.

        Args:
            trace: One run. It may be going on: what was handed over before is not repeated where
                the destination recognizes it.
            folder: The run folder. The only thing an exporter may keep in it is how far it came.
            args: Parsed arguments, those of :meth:`add_arguments` among them.

        Returns:
            Lines to print, each as soon as there is something to say.

        Raises:
            ProbeError: It could not be done; what was done is not done again by a repetition.
        """
        ...


class LiveSession(Protocol):
    """One run on its way to a destination while it goes on.

    It lives in a process of its own beside the training, so it may wait for its destination. If
    that process is started anew, a new session gets the run from its start again.
    """

    @property
    def faults(self) -> Mapping[str, int]:
        """What went wrong so far beside what was raised, by a word: how often, or how much.

        Words are of lower-case letters and ``_``. The recording says so.
        """
        ...

    def steps(self, window: Trace, steps: Sequence[Step], until_ns: int) -> None:
        """Hand over steps that are over.

        Args:
            window: What is known of the run around them. Earlier and later steps in it may lack
                parts, and a process may have another index than in the call before; attempts have
                the numbers that they have in the whole run. Of the devices, what was read shortly
                before the last call and since.
            steps: Those of ``window`` that are over and were not handed over before, in the order
                of training; perhaps none, so that readings of devices need not wait for a step.
            until_ns: Readings of devices before this time are all there; ns on the clock of the
                run.

        Raises:
            ProbeError: The destination did not take them; the same steps come again a little later,
                in a window that may be larger.
        """
        ...

    def end(self, trace: Trace) -> None:
        """Hand over what is left, when the run is over.

        Not called if the run is so large that to read it once more would take too long: then
        ``rlvr-probe export`` does that.

        Args:
            trace: The whole run, as a :class:`TraceExporter` gets it.

        Raises:
            ProbeError: The destination did not take it.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Let go of the destination.

        One that is asked, rather than sent to, first waits until it was asked for what came last.

        Args:
            timeout_s: The process ends after this time in any case, s; 0 if not everything was
                handed over.
        """
        ...


@runtime_checkable
class LiveExporter(Protocol):
    """A destination that a run is handed to while it goes on.

    Its class may name the variables ``RLVR_PROBE_*`` that it reads in an attribute ``variables``:
    then ``rlvr-probe doctor`` takes none of them for a mistake.

    Attributes:
        name: Its entry point.
    """

    name: str

    def wanted(self, environ: Mapping[str, str]) -> bool:
        """Whether this environment asks for it, cheaply: no connection, no heavy import.

        Args:
            environ: Of the process that started the sidecar.
        """
        ...

    def open(self, folder: Path, environ: Mapping[str, str]) -> LiveSession:
        """Start with the run in ``folder``; nothing is sent yet.

        Args:
            folder: The run folder. The only thing an exporter may keep in it is how far it came.
            environ: As for :meth:`wanted`.

        Raises:
            ProbeError: The environment asks for something impossible.
        """
        ...


def check_place(target: Path) -> None:
    """Refuse a place to write to that lies in a folder that the user may not look into.

    Raises:
        ProbeError: It does; says whose the folder is.
    """
    closed = barrier(target)
    if closed is None:
        return
    owner, user = closed.stat().st_uid, os.geteuid()
    said = f"no permission to write {target}: {closed} {whose(closed)}"
    if owner == user:
        raise ProbeError(f"{said}; chmod u+rwx gives it back to you")
    raise ProbeError(f"{said}, and you are {user_name(user)}; expected a folder that is yours")


def open_new(path: Path) -> int:
    """Make a file that was not there, and open it for writing.

    The user alone may read it, or the group as well, as a recording: ``RLVR_PROBE_GROUP_READABLE``.

    Returns:
        The descriptor; the caller closes it.

    Raises:
        OSError: It is there already, or the file system refuses.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return access_of(os.environ).open(path, flags)
