"""The sidecar: one process per node and run beside the training, and none of its children.

It reads the counters of the node's devices into a journal of its own and compresses what other
processes have finished writing. It leaves when no process of its node writes to the run any more.
"""
