"""Finds the functions of a framework in its source, without importing a line of it.

What ``rlvr-probe doctor`` and the checks of whole series of releases look hook points up with.
"""

from rlvr_probe.lookup.hook_targets import Found, Sources

__all__ = ["Found", "Sources"]
