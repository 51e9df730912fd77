"""What the devices of a node tell: GPUs through the library of their vendor, and the host itself.

Runs in the sidecar and in ``doctor`` only, never inside training.
"""
