"""Frameworks: what is installed, and which hook points its source has."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from rlvr_probe.adapter import HookPoint
from rlvr_probe.lookup import Sources
from rlvr_probe.registry import Framework, discover, inside

__all__ = ["FrameworkFinding", "Point", "examine_frameworks"]


@dataclass(frozen=True, slots=True)
class Point:
    """A hook point, looked up.

    Attributes:
        target: What the integration hooks.
        optional: A release may lack it.
        where: Source file, as below ``sys.path``, and line; None if it was not found.
        problem: Why it does not resolve, None if it does or need not.
    """

    target: str
    optional: bool
    where: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class FrameworkFinding:
    """An integration and its framework.

    Attributes:
        name: Name of the integration.
        state: ``ready``; ``incomplete``: hook points do not resolve; ``absent``: not installed;
            ``failed``: see ``problem``.
        wanted: Whether the settings leave it in.
        version: Installed version, None if it is not installed.
        tested: Releases the integration is tested with.
        tested_version: Whether ``version`` is one of them.
        points: Every hook point for this version.
        problem: What ``attach()`` would miss, and what to do.
    """

    name: str
    state: Literal["ready", "incomplete", "absent", "failed"]
    wanted: bool = True
    version: str | None = None
    tested: str | None = None
    tested_version: bool | None = None
    points: tuple[Point, ...] = ()
    problem: str | None = None


def examine_frameworks(wanted: Sequence[str] | None) -> Iterator[FrameworkFinding]:
    """Every installed integration, and those in ``wanted`` that are not; None wants all.

    No framework is imported; integrations are, as ``attach()`` does.
    """
    known = discover()
    asked = discover([name for name in wanted or () if name not in known])
    for name, framework in {**known, **asked}.items():
        finding = _examine(framework)
        if wanted is not None and name not in wanted:
            finding = replace(finding, wanted=False, problem=None)
        elif wanted is not None and finding.state == "absent":
            problem = f"{name} is asked for and not installed in this Python"
            finding = replace(finding, problem=problem)
        yield finding


def _examine(framework: Framework) -> FrameworkFinding:
    name, version, adapter = framework.name, framework.version, framework.adapter
    if framework.state == "absent":
        return FrameworkFinding(name, "absent")
    if adapter is None or version is None:
        problem = f"{name} cannot be attached: {framework.reason}"
        return FrameworkFinding(name, "failed", version=version, problem=problem)
    tested = adapter.tested
    try:
        points = tuple(_look_up(adapter.expected(version)))
    except Exception as error:  # noqa: BLE001 - a broken plugin is a state of its framework
        problem = f"the integration of {name} does not say what it hooks ({type(error).__name__})"
        return FrameworkFinding(name, "failed", version=version, tested=tested, problem=problem)
    missing = sum(point.problem is not None for point in points)
    gap = None
    if missing:
        gap = (
            f"{missing} of {len(points)} hook points of {name} {version} do not resolve (listed "
            f"below), and what they record would be missing; install {adapter.distribution}"
            f"{tested}, or a newer rlvr-probe"
        )
    return FrameworkFinding(
        name,
        "incomplete" if missing else "ready",
        True,
        version,
        tested,
        inside(version, tested),
        points,
        gap,
    )


def _look_up(points: Sequence[HookPoint]) -> Iterator[Point]:
    folders = _folders({point.target.partition(":")[0].partition(".")[0] for point in points})
    sources = Sources(folders)
    for point in points:
        found = sources.find(point.target)
        where = None if found is None else f"{_short(found.file, folders)}:{found.line}"
        yield Point(point.target, point.optional, where, sources.check(point))


def _folders(packages: Iterable[str]) -> list[str]:
    """Where packages lie: ``sys.path``, and what editable installs add to it by finders."""
    folders = [folder for folder in sys.path if folder]
    for package in sorted(packages):
        try:
            spec = find_spec(package)
        except (ImportError, ValueError):
            continue
        for folder in spec.submodule_search_locations or () if spec is not None else ():
            above = os.path.dirname(folder)
            if os.path.basename(folder) == package and above not in folders:
                folders.append(above)
    return folders


def _short(file: Path, folders: Sequence[str]) -> str:
    """``file`` below the folder of packages it lies in, which says nothing of the machine."""
    above = [folder for folder in folders if file.is_relative_to(folder)]
    return str(file.relative_to(max(above, key=len))) if above else file.name
