"""Turns a Trace into a Workload: what the run generated, verified and trained, each step once."""

from rlvr_probe.workload.build import build_workload

__all__ = ["build_workload"]
