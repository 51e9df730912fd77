"""Hooking functions of a framework: wrapping them, putting wrappers in place, undoing it."""

from rlvr_probe.probe.hooks.adapter_probe import HookProbe
from rlvr_probe.probe.hooks.calls import Hook, activate, recorder
from rlvr_probe.probe.hooks.monkeypatches import Patches
from rlvr_probe.probe.hooks.wrapping import wrap

__all__ = ["Hook", "HookProbe", "Patches", "activate", "recorder", "wrap"]
