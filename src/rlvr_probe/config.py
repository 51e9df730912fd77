"""Configuration: argument, then ``RLVR_PROBE_*`` variable, then default.

``RLVR_PROBE_DISABLED=1`` wins over everything. The variables are also how a launcher or a parent
process reaches its children: :meth:`Config.to_environ` is what they inherit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from rlvr_probe.access import Access
from rlvr_probe.exceptions import ConfigError

__all__ = [
    "ARM", "AUTO", "DISABLED", "OFF", "OWNER", "REPLAY", "Config", "access_of", "place_note",
]  # fmt: skip

ARM = "RLVR_PROBE"
"""Set to 1, makes the start-up hook attach in every Python process that inherits it."""

DISABLED = "RLVR_PROBE_DISABLED"
"""Set to 1, nothing is recorded; it wins over every other setting."""

REPLAY = "RLVR_PROBE_REPLAY"
"""Folder of the plan that ``rlvr-probe replay`` steers a run by; set by that command alone."""

OWNER = "RLVR_PROBE_OWNER"
"""Process key of the recording process that started this one."""

AUTO = "auto"
"""A spool where the run folder is on a network file system."""
OFF = "off"
"""No spool."""

_N = TypeVar("_N", int, float)

_NO_FRAMEWORK = "none"
"""What stands for an empty list of frameworks in a variable: an empty one is not given."""

_RAY_PACKAGES = "/runtime_resources/working_dir_files/"

_FALSE = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Config:
    """What to record and where.

    Attributes:
        out: Folder of recordings; a run is one folder in it. ``RLVR_PROBE_OUT``. Made absolute
            once, so that children with another working directory find it. The default is in the
            home folder where the working directory is in Ray's package cache, which Ray empties.
        run_id: Run id; derived if not given. ``RLVR_PROBE_RUN_ID``.
        frameworks: Names of the integrations to use; None means every one installed.
            ``RLVR_PROBE_FRAMEWORKS``, separated by commas.
        flush_s: Longest time a finished row waits before it is written, s. ``RLVR_PROBE_FLUSH_S``.
        queue_rows: Rows that may wait; more are dropped and counted. ``RLVR_PROBE_QUEUE_ROWS``.
        segment_b: Size at which a journal starts a new segment, bytes. ``RLVR_PROBE_SEGMENT_B``.
        budget_b: What the files of a run may take on one node, bytes. ``RLVR_PROBE_BUDGET_B``.
            Turns and tool calls stop at 80 % of it, lengths and rewards at all of it, stages never.
        free_b: What has to stay free where they lie, bytes; None means a tenth of the file system,
            but 10 GiB at most. ``RLVR_PROBE_FREE_B``. Turns and tool calls stop there, lengths and
            rewards at half of it, stages never; with more room all of them go on.
        own_share: Share of a process's time, 0..1, that the probe itself may take over 30 s before
            it records less. ``RLVR_PROBE_OWN_SHARE``.
        sidecar: Whether one process per node and run reads the counters of its GPUs meanwhile, and
            compacts what is finished. ``RLVR_PROBE_SIDECAR``.
        gpu_hz: How often it reads them, Hz, 0.2 to 9; 0 means not at all. ``RLVR_PROBE_GPU_HZ``.
        spool: Where processes write a run whose folder is on a network file system, until the
            sidecar moves it there: ``auto``, a folder on a local disk of each node, or ``off``. A
            folder is used wherever the run folder is. ``RLVR_PROBE_SPOOL``.
        upload: Lake in object storage, such as ``s3://bucket/name``, that the sidecar uploads the
            run to as it goes on; None: nowhere. ``RLVR_PROBE_UPLOAD``.
        live: Whether what is asked for in the environment (a collector of OpenTelemetry, by its
            own variables) receives the run from that process while it goes on.
            ``RLVR_PROBE_LIVE``.
        group_readable: Whether the group of the user may read a run, too: its folder is 0750 and
            its files are 0640, and not 0700 and 0600. ``RLVR_PROBE_GROUP_READABLE``.
        source: Column of the data that says where a prompt is from, for example ``data_source``;
            None means that this is not recorded. ``RLVR_PROBE_SOURCE``. What it has, 64 characters
            at most, is kept of each trajectory.
        disabled: Record nothing. ``RLVR_PROBE_DISABLED``.
    """

    out: Path = Path("rlvr-probe-runs")
    run_id: str | None = None
    frameworks: tuple[str, ...] | None = None
    flush_s: float = 0.1
    queue_rows: int = 131_072
    segment_b: int = 64 * 1024 * 1024
    budget_b: int = 5 * 1024**3
    free_b: int | None = None
    own_share: float = 0.01
    sidecar: bool = True
    gpu_hz: float = 5.0
    spool: str = AUTO
    upload: str | None = None
    live: bool = True
    group_readable: bool = False
    source: str | None = None
    disabled: bool = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None, **arguments: object) -> Config:
        """The configuration in effect: ``arguments`` that are not None, variables, defaults.

        Raises:
            ConfigError: A variable or argument cannot be used; the message names it.
        """
        environ = os.environ if environ is None else environ
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(arguments) - known)
        if unknown:
            raise ConfigError(
                f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}"
            )
        if _flag(environ.get(DISABLED)):
            # An operator's switch: no other setting is looked at, so none can be unusable.
            return cls(disabled=True)
        values: dict[str, object] = {}
        for name in known - {"disabled"}:
            text = environ.get(f"RLVR_PROBE_{name.upper()}")
            if arguments.get(name) is not None:
                values[name] = _convert(name, arguments[name], f"argument {name}")
            elif text:
                values[name] = _convert(name, text, f"RLVR_PROBE_{name.upper()}")
        config = cls(disabled=bool(arguments.get("disabled")), **values)  # type: ignore[arg-type]
        try:
            out = _lasting() if config.out == cls().out else config.out
            return replace(config, out=Path(os.path.abspath(out)))
        except OSError:
            raise ConfigError(
                f"the working directory is gone, so RLVR_PROBE_OUT={str(config.out)!r} names no "
                "folder; expected an absolute path"
            ) from None

    def checked(self, environ: Mapping[str, str]) -> Config:
        """This configuration as it is, unless an operator's ``RLVR_PROBE_DISABLED`` forbids it.

        Raises:
            ConfigError: A setting cannot be used.
        """
        switch = {DISABLED: environ.get(DISABLED, "")}
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        return Config.from_environ(switch, **settings)

    @property
    def access(self) -> Access:
        """Who may read what is recorded."""
        return Access(self.group_readable)

    def to_environ(self) -> dict[str, str]:
        """Variables that give a child process this configuration and arm its start-up hook."""
        environ = {ARM: "1"}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool":
                value = int(value)
            elif field.name == "frameworks" and value is not None:
                value = ",".join(value) or _NO_FRAMEWORK
            if field.name != "disabled" and value is not None:
                environ[f"RLVR_PROBE_{field.name.upper()}"] = str(value)
        return environ


def place_note(config: Config, environ: Mapping[str, str]) -> str:
    """What to say of where recordings go, to a user who may not expect it; mostly nothing.

    Args:
        config: Settings in effect.
        environ: Of the process that they were read in.
    """
    if _is_package(config.out):
        return f"{config.out} is in Ray's package cache, which Ray empties; set RLVR_PROBE_OUT"
    if environ.get("RLVR_PROBE_OUT") or not _is_moved(config.out):
        return ""
    return (
        f"recording to {config.out}: the working directory is in Ray's package cache, which Ray"
        " empties; RLVR_PROBE_OUT names another folder"
    )


def _lasting() -> Path:
    """The default folder of recordings: in the working directory, if that is there to stay."""
    default = Config().out
    home = os.path.expanduser("~")
    if _is_package(Path(os.getcwd())) and os.access(home, os.W_OK | os.X_OK):
        return home / default
    return default


def _is_moved(out: Path) -> bool:
    """Whether ``out`` is the default, and not in the working directory."""
    try:
        return _is_package(Path(os.getcwd())) and out == Path(os.path.abspath(_lasting()))
    except OSError:  # the working directory is gone
        return False


def _is_package(path: Path) -> bool:
    """Whether a path is below what Ray unpacks of a ``--working-dir`` on each node.

    It is ``session_*/runtime_resources/working_dir_files/_ray_pkg_*`` in whatever folder Ray has
    for temporary files; its own test of a working directory (test_worker_use_working_dir_path)
    names it so.
    """
    return _RAY_PACKAGES in f"{path}/"


def access_of(environ: Mapping[str, str]) -> Access:
    """Who may read what a command writes; no other setting is looked at."""
    return Access(_flag(environ.get("RLVR_PROBE_GROUP_READABLE")))


def _flag(text: str | None) -> bool:
    return text is not None and text.strip().lower() not in _FALSE


def _convert(name: str, value: object, source: str) -> object:
    try:
        if name == "out":
            folder = os.fsdecode(value)  # type: ignore[arg-type]
            if not folder:
                raise ValueError("expected a folder")
            return Path(_inheritable(folder)).expanduser()
        if name == "run_id":
            return _run_id(str(value))
        if name == "frameworks":
            return _frameworks(value)
        if name == "source":
            return _inheritable(str(value))
        if name == "upload":
            return _upload(str(value))
        if name == "flush_s":
            return _within(float, value, 0.001, 60.0)
        if name == "queue_rows":
            return _within(int, value, 1, 10_000_000)
        if name == "own_share":
            return _within(float, value, 0.0001, 1.0)
        if name in ("sidecar", "live", "group_readable"):
            return _flag(str(value))
        if name == "gpu_hz":
            return _rate(value)
        if name == "spool":
            return _spool(os.fsdecode(value))  # type: ignore[arg-type]
        if name == "budget_b":
            return _within(int, value, 1 << 20, 1 << 60)
        if name == "free_b":
            return _within(int, value, 0, 1 << 60)
        return _within(int, value, 4096, 1 << 40)
    except RecursionError:  # is a RuntimeError, and says nothing about the value
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{source} is {str(value)!r}: {error}") from None


def _frameworks(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        if not names:
            raise ValueError("expected names separated by commas")
        if names == (_NO_FRAMEWORK,):
            return ()
    else:
        names = tuple(str(name) for name in value)  # type: ignore[attr-defined]
    for name in names:
        if name in ("", _NO_FRAMEWORK) or name != name.strip() or "," in name:
            raise ValueError(f"{name!r} is not the name of an integration")
        _inheritable(name)
    return names


def _inheritable(text: str) -> str:
    """``text``, which an environment and the file system can hold."""
    if b"\0" in os.fsencode(text):
        raise ValueError("expected no null character")
    return text


def _within(kind: type[_N], value: object, low: _N, high: _N) -> _N:
    expected = f"expected {'a whole' if kind is int else 'a'} number from {low} to {high}"
    try:
        number = kind(str(value))
    except ValueError:
        raise ValueError(expected) from None
    if not low <= number <= high:
        raise ValueError(expected)
    return number


def _rate(value: object) -> float:
    """Hz, or 0 for never."""
    hz = _within(float, value, 0.0, 9.0)
    if 0 < hz < 0.2:
        raise ValueError("expected 0, or a number from 0.2 to 9.0")
    return hz


def _spool(text: str) -> str:
    """``auto``, ``off`` or an absolute path."""
    if text.strip().lower() == AUTO:
        return AUTO
    if not _flag(text):
        return OFF
    path = os.path.expanduser(_inheritable(text))
    if not os.path.isabs(path):
        raise ValueError(f"expected {AUTO!r}, {OFF!r} or an absolute path")
    return os.path.normpath(path)


def _upload(text: str) -> str:
    """A place in object storage."""
    if not all(_inheritable(text).partition("://")):
        raise ValueError("expected a place in object storage, for example s3://bucket/name")
    return text.rstrip("/")


def _run_id(text: str) -> str:
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    if not text or len(text) > 128 or text[0] == "." or not set(text) <= allowed:
        raise ValueError(
            "expected 1 to 128 letters, digits, '.', '_' or '-', not starting with '.'"
        )
    return text
