"""Takes the probe into every process of a Ray job, and says which actors it did not reach."""

from rlvr_probe_ray.adapter import RayAdapter

__all__ = ["RayAdapter"]
