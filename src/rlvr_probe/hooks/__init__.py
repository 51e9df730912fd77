"""Hooking functions of a framework: wrapping them, putting wrappers in place, undoing it."""

from rlvr_probe.hooks.calls import Hook, activate, recorder
from rlvr_probe.hooks.patches import Patches
from rlvr_probe.hooks.probe import HookProbe
from rlvr_probe.hooks.wrapping import wrap

__all__ = ["Hook", "HookProbe", "Patches", "activate", "recorder", "wrap"]
