"""Everything that is examined, and the verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rlvr_probe.config import DISABLED, Config
from rlvr_probe.doctor.devices import DeviceFinding, Gpu, ask_devices
from rlvr_probe.doctor.environment import (
    ExporterFinding,
    Installation,
    Settings,
    examine_exporters,
    examine_installation,
    examine_settings,
    tilde,
)
from rlvr_probe.doctor.frameworks import FrameworkFinding, examine_frameworks
from rlvr_probe.doctor.startup import Startup, ask_startup
from rlvr_probe.doctor.storage import Storage, examine_spool, examine_storage, is_short, unrecorded
from rlvr_probe.probe.election import lock_path

__all__ = ["SCHEMA_VERSION", "Examination", "examine"]

SCHEMA_VERSION = 1
_PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found.

    Attributes:
        problems: Why ``attach()`` would miss something, each with what to do.
        notes: What differs from what is expected and costs no record.
        installation: Python, rlvr-probe and what it depends on.
        frameworks: Every integration that is installed.
        exporters: Every exporter that is installed.
        startup: The start-up hook, which reaches child processes.
        storage: The folder of recordings; None if no setting names one.
        settings: ``RLVR_PROBE_*``.
        gpu: The GPU library.
        devices: Every device that would be read.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    installation: Installation
    frameworks: tuple[FrameworkFinding, ...]
    exporters: tuple[ExporterFinding, ...]
    startup: Startup
    storage: Storage | None
    settings: Settings
    gpu: Gpu
    devices: tuple[DeviceFinding, ...]

    def to_json(self) -> dict[str, Any]:
        """The documented shape of ``rlvr-probe doctor --json``."""
        return {"schema_version": SCHEMA_VERSION, "complete": not self.problems, **asdict(self)}


def examine(
    environ: Mapping[str, str] | None = None,
    out: str | None = None,
    patience_s: float = _PATIENCE_S,
) -> Examination:
    """Examine this Python.

    Args:
        environ: Environment that a run would have; default that of this process.
        out: Folder of recordings, as for ``rlvr-probe run --out``.
        patience_s: How long child processes and the file system may take to answer, seconds.
    """
    environ = os.environ if environ is None else environ
    deadline = time.monotonic() + patience_s
    settings, config = examine_settings(environ, out)
    # Asked first, answered while the rest is looked at.
    startup, devices = ask_startup(environ), ask_devices(environ)
    wanted = None if config is None else config.frameworks
    frameworks = tuple(examine_frameworks(wanted))
    exporters = tuple(examine_exporters())
    storage = None
    if config is not None:
        run, folder = config.run_id, config.out
        folder = folder if run is None else config.access.find(folder / run)
        storage = examine_storage(folder, patience_s, config.free_b)
        storage = examine_spool(storage, folder, config)
    installation = examine_installation()
    # Both had the whole time to answer in; the last moment is for reading what they said.
    startup_found = startup(max(deadline - time.monotonic(), 1.0))
    gpu, found = devices(max(deadline - time.monotonic(), 1.0))
    examination = Examination(
        (),
        (),
        installation,
        frameworks,
        exporters,
        startup_found,
        storage,
        settings,
        gpu,
        found,
    )
    return replace(
        examination,
        problems=tuple(_problems(examination, wanted)),
        notes=tuple(_notes(examination, config)),
    )


def _problems(examination: Examination, wanted: tuple[str, ...] | None) -> Iterator[str]:
    settings, storage = examination.settings, examination.storage
    frameworks = examination.frameworks
    if settings.disabled:
        yield f"{DISABLED} is set: nothing is recorded; unset it"
    if settings.error:
        yield f"invalid settings: {settings.error}"
    for dependency in examination.installation.dependencies:
        if dependency.met is False and not dependency.extras:
            version, required = dependency.version or "(none)", dependency.required or "any"
            yield (
                f"{dependency.name} {version} is installed, {required} is needed;"
                " install rlvr-probe again"
            )
    yield from (framework.problem for framework in frameworks if framework.problem)
    if wanted is None and not any(framework.version for framework in frameworks):
        names = ", ".join(framework.name for framework in frameworks) or "none is known"
        yield (
            f"no supported framework ({names}) is installed in this Python, so there is nothing to "
            "hook; run this with the Python that trains"
        )
    if not examination.startup.works:
        yield f"child processes would not be recorded: {examination.startup.reason}"
    if storage is not None and not storage.writable:
        yield f"nothing can be recorded in {storage.path}: {storage.reason}"
    elif storage is not None:
        for path, free_b, floor_b in storage.rooms:
            if missed := unrecorded(free_b, floor_b):
                yield (
                    f"{missed} would not be recorded in {path}:"
                    f" {free_b >> 20:,} MiB are free, {floor_b >> 20:,} MiB have to stay free; make"
                    " room, name another folder, or lower RLVR_PROBE_FREE_B"
                )


def _notes(examination: Examination, config: Config | None) -> Iterator[str]:
    storage = examination.storage
    for framework in examination.frameworks:
        if framework.wanted and framework.tested_version is False:
            yield (
                f"{framework.name} {framework.version} is not among the releases this rlvr-probe "
                f"is tested with ({framework.tested}); a real run has not been checked there"
            )
    for exporter in examination.exporters:
        if exporter.reason is not None:
            yield (
                f"exporter {exporter.name} ({exporter.source}) cannot be loaded"
                f" ({exporter.reason}), and all commands do without it; install that package"
                " again, or uninstall it"
            )
    if storage is not None and config is not None and config.run_id is not None:
        meant = tilde(config.out / config.run_id)
        if storage.path != meant:
            yield (
                f"{meant} belongs to another user, is a link, or is open to everyone: the run would"
                f" be recorded in {storage.path}"
            )
    for path, free_b, floor_b in () if storage is None or config is None else storage.rooms:
        if config is not None and is_short(free_b, floor_b, config.budget_b):
            room_b = free_b - floor_b
            yield (
                f"{path} has room for {room_b >> 20:,} MiB beside the {floor_b >> 20:,} MiB that"
                f" have to stay free, less than a run may take ({config.budget_b >> 20:,} MiB,"
                " RLVR_PROBE_BUDGET_B): a long one would stop recording turns and tool calls; make"
                " room, or name another folder"
            )
    for name in examination.settings.unknown_variables:
        yield f"{name} is not a setting; it is ignored"
    if storage is not None and storage.writable and storage.open_table is False:
        yield (
            f"{storage.path} is on {storage.file_system}: no open-span table there, so of a "
            "process that hangs or is killed the open spans are not known"
            + (f"; {storage.no_spool}" if storage.no_spool else "")
        )
    elif storage is not None and storage.no_spool:
        yield f"{storage.no_spool}: processes of this node write to {storage.path} themselves"
    if config is not None and config.sidecar:
        try:
            lock_path(config.out)
        except OSError as error:
            yield (
                f"{error}: no process would read the devices of this node; make one of them "
                "writable, or set RLVR_PROBE_SIDECAR=0"
            )
