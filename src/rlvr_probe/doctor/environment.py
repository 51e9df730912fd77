"""What a run would find installed and set: Python, rlvr-probe, exporters, Ray, settings."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import rlvr_probe
from rlvr_probe.config import ARM, DISABLED, OWNER, Config
from rlvr_probe.exceptions import ConfigError
from rlvr_probe.exporter import LiveExporter, TraceExporter, WorkloadExporter, WorkloadReader
from rlvr_probe.probe.launcher_notices import NOTICES
from rlvr_probe.probe.otel_environ import HANDED_OVER
from rlvr_probe.registry import EXPORTERS, inside, installed_version, load_all
from rlvr_probe.sidecar.live import variables

__all__ = [
    "Dependency",
    "ExporterFinding",
    "Installation",
    "Settings",
    "examine_exporters",
    "examine_installation",
    "examine_settings",
    "tilde",
]

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*\(?([^;()]*)\)?(?:;.*extra\s*==\s*['\"]([^'\"]+))?")
_CONTRACTS: Final = (WorkloadExporter, WorkloadReader, TraceExporter, LiveExporter)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A package that rlvr-probe declares.

    Attributes:
        name: Distribution.
        required: Version specifier, "" for any.
        extras: The extras that need it, empty for the core.
        version: Installed version, None if it is not installed.
        met: Whether that meets the specifier; None if it is not installed and only an extra's.
    """

    name: str
    required: str
    extras: tuple[str, ...]
    version: str | None
    met: bool | None


@dataclass(frozen=True, slots=True)
class Installation:
    """Versions.

    Attributes:
        rlvr_probe: Version of rlvr-probe, None if its metadata cannot be read.
        location: Folder it is loaded from.
        python: Version and implementation.
        executable: The Python that was examined.
        platform: Operating system and machine.
        dependencies: What rlvr-probe declares.
        ray: Version of Ray, None if it is not installed.
    """

    rlvr_probe: str | None
    location: str
    python: str
    executable: str
    platform: str
    dependencies: tuple[Dependency, ...]
    ray: str | None


def examine_installation() -> Installation:
    """Versions, from metadata."""
    return Installation(
        installed_version("rlvr-probe"),
        tilde(rlvr_probe.__path__[0]),
        f"{platform.python_version()} ({platform.python_implementation()})",
        tilde(sys.executable or "unknown"),
        platform.platform(),
        tuple(_dependencies()),
        installed_version("ray"),
    )


def _dependencies() -> Iterator[Dependency]:
    try:
        declared = metadata.requires("rlvr-probe") or []
    except (metadata.PackageNotFoundError, OSError, TypeError, ValueError):
        return
    extras: dict[tuple[str, str], list[str]] = {}
    for line in declared:
        found = _REQUIREMENT.match(line)
        if found is not None and found[1] != "rlvr-probe":
            needed_by = extras.setdefault((found[1], found[2].strip()), [])
            needed_by.extend([found[3]] if found[3] else [])
    for (name, required), needed_by in extras.items():
        version = installed_version(name)
        met = None if version is None and needed_by else version is not None
        if version is not None and required:
            met = inside(version, required)
        yield Dependency(name, required, tuple(needed_by), version, met)


@dataclass(frozen=True, slots=True)
class ExporterFinding:
    """An exporter.

    Attributes:
        name: Of its entry point.
        source: What that names, and the package that it is of.
        reason: Why it cannot be used, None if it can.
    """

    name: str
    source: str
    reason: str | None


def examine_exporters() -> Iterator[ExporterFinding]:
    """Every exporter, our own and third parties' alike."""
    for plugin in load_all(EXPORTERS):
        reason = None
        if plugin.error is not None:
            # Its message may hold a path.
            missing = getattr(plugin.error, "name", None) or ""
            reason = f"{type(plugin.error).__name__} {missing}".strip()
        elif not isinstance(plugin.made, _CONTRACTS):
            reason = "implements no contract of rlvr_probe.exporter"
        yield ExporterFinding(plugin.name, plugin.source, reason)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings as ``attach()`` would read them.

    Attributes:
        disabled: An operator switched recording off.
        error: Why a setting cannot be used, or None.
        values: Value of every setting; empty after an error.
        variables: ``RLVR_PROBE_*`` variables that are set and known, with their values.
        unknown_variables: Names of those that no setting has.
    """

    disabled: bool
    error: str | None
    values: dict[str, Any]
    variables: dict[str, str]
    unknown_variables: tuple[str, ...]


def examine_settings(environ: Mapping[str, str], out: str | None) -> tuple[Settings, Config | None]:
    """Settings from ``environ`` and the argument ``out``, and as a whole if they can be used.

    Those that ``RLVR_PROBE_DISABLED`` keeps from being looked at are looked at here.
    """
    settings_of = {f"{ARM}_{field.name.upper()}" for field in fields(Config)}
    known = {ARM, DISABLED, NOTICES, OWNER} | settings_of | variables() | HANDED_OVER
    ours = {name for name in environ if name == ARM or name.startswith(f"{ARM}_")}
    config, error = None, None
    try:
        switched_on = {name: value for name, value in environ.items() if name != DISABLED}
        config = Config.from_environ(switched_on, out=out)
    except ConfigError as unusable:
        error = str(unusable)
    settings = Settings(
        Config.from_environ({DISABLED: environ.get(DISABLED, "")}, out="/").disabled,
        error,
        {}
        if config is None
        else {field.name: _plain(getattr(config, field.name)) for field in fields(config)},
        {name: tilde(environ[name]) for name in sorted(ours & known)},
        tuple(sorted(ours - known)),
    )
    return settings, config


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return tilde(value)
    return list(value) if isinstance(value, tuple) else value


def tilde(path: str | os.PathLike[str]) -> str:
    """``path`` with ``~`` for the home folder, safe to print: reports end up in public."""
    text = os.fspath(path)
    home = os.environ.get("HOME", "").rstrip("/")
    if home and (text == home or text.startswith(home + "/")):
        text = "~" + text[len(home) :]
    return "".join(c if c.isprintable() else "?" for c in text)
