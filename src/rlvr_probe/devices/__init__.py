"""What the devices of a node tell: GPUs through the library of their vendor, and the host itself.

Runs in the sidecar and in ``doctor`` only, never inside training.
"""

from rlvr_probe.devices.backend import Backend, Device, Fault, Reading
from rlvr_probe.devices.found import Failed, load, survey
from rlvr_probe.devices.sampler import Sampler

__all__ = ["Backend", "Device", "Failed", "Fault", "Reading", "Sampler", "load", "survey"]
