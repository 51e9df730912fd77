"""The settings in effect, and the variables they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rlvr_probe.config import ARM, DISABLED, OWNER, Config
from rlvr_probe.doctor.installation import tilde
from rlvr_probe.exceptions import ConfigError
from rlvr_probe.probe.launcher_notices import NOTICES
from rlvr_probe.probe.otel_environ import HANDED_OVER
from rlvr_probe.sidecar.live import variables

__all__ = ["Settings", "examine_settings"]


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
