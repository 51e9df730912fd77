"""What is loaded in a user's training, and nowhere offline.

Nothing that reads a recording imports from here: the files are all that the two halves share. What
both need lies beside this package, and so does what others know by its name: the contracts of
plugins, :mod:`rlvr_probe._boot` of the ``.pth`` file, :mod:`rlvr_probe.guard` of plugins' tests and
:mod:`rlvr_probe.registry` of the reference.
"""
