"""What ``rlvr-probe doctor`` says, in which order: the verdict, why, then everything looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rlvr_probe.doctor.devices import DeviceFinding
from rlvr_probe.doctor.environment import Dependency
from rlvr_probe.doctor.examine import Examination
from rlvr_probe.doctor.frameworks import FrameworkFinding
from rlvr_probe.doctor.storage import Storage, is_short, unrecorded
from rlvr_probe.report.blocks import Line, Style

__all__ = ["lay_out"]

_STYLES: dict[str, Style] = {"ok": "plain", "no": "alarm", "note": "plain", "none": "quiet"}
_MARKS = {"ok": "✓", "no": "✗", "note": "!", "none": "·"}
_PLAIN_MARKS = {"ok": "ok", "no": "NO", "note": " !", "none": " -"}
_GIB = 1 << 30


def lay_out(found: Examination, *, width: int = 100, marks: bool = True) -> list[Line]:
    """The report on an examination, line by line.

    Args:
        found: From :func:`~rlvr_probe.doctor.examine`.
        width: Columns.
        marks: Use ``✓`` and ``✗``, where the output has them.
    """
    page = _Page(width, _MARKS if marks else _PLAIN_MARKS)
    version = found.installation.rlvr_probe or "(version unknown)"
    verdict = (
        "INCOMPLETE: something will not be recorded"
        if found.problems
        else "OK: everything will be recorded" + _but(found)
    )
    page.line(f"rlvr-probe {version}: {verdict}", "title")
    for problem in found.problems:
        page.item("no", "", problem)
    for note in found.notes:
        page.item("note", "", note)
    page.heading("Frameworks")
    page.items(map(_framework, found.frameworks))
    page.heading("Checks")
    page.items(_checks(found))
    for framework in found.frameworks:
        _hook_points(page, framework)
    return page.lines


def _but(found: Examination) -> str:
    """What a run that starts well may come to miss."""
    budget_b = found.settings.values.get("budget_b")
    rooms = () if found.storage is None else found.storage.rooms
    short = isinstance(budget_b, int) and any(
        is_short(free_b, floor_b, budget_b) for _, free_b, floor_b in rooms
    )
    return ", but room is short for a long run" if short else ""


_Item = tuple[str, str, str]


class _Page:
    def __init__(self, width: int, marks: dict[str, str]) -> None:
        self.lines: list[Line] = []
        self._width, self._marks = max(width, 40), marks

    def line(self, text: str, style: Style = "plain") -> None:
        self.lines.extend(Line(part, style) for part in textwrap.wrap(text, self._width) or [""])

    def heading(self, text: str) -> None:
        self.line("")
        self.line(text, "title")

    def items(self, items: Iterator[_Item]) -> None:
        every = list(items)
        labels = max((len(label) for _, label, _ in every), default=0)
        for mark, label, text in every:
            self.item(mark, label.ljust(labels) + "  ", text)

    def item(self, mark: str, label: str, text: str) -> None:
        first = f"  {self._marks[mark]} {label}"
        parts = textwrap.wrap(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in parts or [first]:
            self.lines.append(Line(part, _STYLES[mark]))


def _framework(framework: FrameworkFinding) -> _Item:
    label = f"{framework.name} {framework.version}" if framework.version else framework.name
    if framework.state in ("absent", "failed"):
        text = "not installed" if framework.state == "absent" else "cannot be attached"
        return "no" if framework.problem else "none", label, text
    resolved = sum(point.problem is None for point in framework.points)
    tested = "" if framework.tested_version else "not "
    text = f"{resolved} of {len(framework.points)} hook points resolve"
    text += f"; {tested}in the tested {framework.tested}"
    if not framework.wanted:
        return "none", label, f"omitted by the settings; {text}"
    return "ok" if framework.state == "ready" else "no", label, text


def _checks(found: Examination) -> Iterator[_Item]:
    startup, settings, installation = found.startup, found.settings, found.installation
    if startup.works:
        yield "ok", "start-up hook", f"ran in a new Python; {startup.file or 'file unknown'}"
    else:
        yield "no", "start-up hook", startup.file or "not installed"
    yield _storage(found.storage)
    if settings.error or settings.disabled:
        yield "no", "settings", "invalid" if settings.error else "recording is switched off"
    else:
        given = ", ".join(f"{name}={value}" for name, value in settings.variables.items())
        yield "ok", "settings", given or "defaults; no RLVR_PROBE_* variable is set"
    core = [dependency for dependency in installation.dependencies if not dependency.extras]
    extra = [dependency for dependency in installation.dependencies if dependency.extras]
    unmet = any(dependency.met is False for dependency in core)
    yield "no" if unmet else "ok" if core else "none", "dependencies", _versions(core)
    yield "none", "extras", _versions(extra)
    loaded = [exporter.name for exporter in found.exporters if exporter.reason is None]
    broken = [exporter.name for exporter in found.exporters if exporter.reason is not None]
    text = ", ".join([*loaded, *(f"{name} cannot be loaded" for name in broken)])
    yield "note" if broken else "none", "exporters", text or "none"
    gpu = found.gpu
    if gpu.devices:
        parts = (f"driver {gpu.driver}, {_counted(gpu.devices)}", gpu.reason)
        yield "note" if gpu.reason else "ok", "GPU library", "; ".join(filter(None, parts))
    else:
        yield "none", "GPU library", gpu.reason or "no GPU"
    yield from _counters(found.devices)
    yield "none", "Ray", installation.ray or "not installed"
    yield "none", "Python", f"{installation.python}, {installation.executable}"
    yield "none", "platform", installation.platform
    yield "none", "rlvr-probe", installation.location


def _counted(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _counters(devices: Sequence[DeviceFinding]) -> Iterator[_Item]:
    """What is read of devices, those with the same counters on one line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for device in devices:
        by_reason: dict[str, list[str]] = {}
        for name, reason in device.absent.items():
            by_reason.setdefault(reason, []).append(name)
        without = tuple(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        alike.setdefault(without, []).append("the host" if device.kind == "host" else device.model)
    for without, names in alike.items():
        text = "all" if not without else "without " + "; ".join(without)
        yield "none" if without else "ok", "counters", f"{_counted(names)}: {text}"


def _versions(dependencies: Sequence[Dependency]) -> str:
    texts = [
        f"{dependency.name} {dependency.version or 'not installed'}" for dependency in dependencies
    ]
    return ", ".join(texts) or "unknown: the metadata of rlvr-probe cannot be read"


def _storage(storage: Storage | None) -> _Item:
    label = "recordings"
    if storage is None:
        return "no", label, "not examined: the settings are invalid"
    if not storage.writable:
        return "no", label, f"{storage.path}: cannot be written to"
    parts = [] if storage.exists else ["made when needed"]
    if storage.file_system is not None:
        parts.append(storage.file_system)
    if storage.free_b is not None:
        files = "" if storage.free_files is None else f" and {storage.free_files:,} files"
        parts.append(f"{storage.free_b / _GIB:,.1f} GiB{files} free")
    if storage.spool is not None:
        parts.append(f"by way of {storage.spool}")
    short = any(unrecorded(free_b, floor_b) for _, free_b, floor_b in storage.rooms)
    mark = "no" if short else "note" if storage.open_table is False else "ok"
    return mark, label, f"{storage.path}: {', '.join(parts)}"


def _hook_points(page: _Page, framework: FrameworkFinding) -> None:
    """Those that resolve by class, those that do not one by one."""
    if not framework.points:
        return
    page.heading(f"Hook points of {framework.name} {framework.version}")
    owners: dict[str, list[str]] = {}
    for point in framework.points:
        if point.problem is not None:
            page.item("no", "", point.problem)
        elif point.where is None:
            page.item("none", "", f"{point.target}: not in this release, optional")
        else:
            is_method = "." in point.target.partition(":")[2]
            owner, _, name = point.target.rpartition("." if is_method else ":")
            owners.setdefault(owner, []).append(name)
    for owner, names in owners.items():
        page.item("ok", "", f"{owner}: {', '.join(names)}")
