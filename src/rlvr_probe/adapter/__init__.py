"""Contract of a framework: one folder under ``integrations/`` and one entry-point line.

An adapter declares hook points for a version of its framework and how to read values there. The
core finds the functions, wraps them, guards every line the adapter runs, and undoes all of it.

The modules beside ``rlvr_probe.adapter.contract`` are a kit: what adapters have in common.

Rules for the functions an adapter passes (``before``, ``read``, ``after``):

* module-level functions that capture nothing, since a wrapped class may be pickled by value;
* no tensor that lives on an accelerator is read (it would synchronise); sizes and Python lists are;
* no text, token id, exception message or path is returned, only counts, names and times;
* an exception in them is caught, counted and recorded; the user's call is never affected, but by
  ``HookPoint.arguments``, which is there to hand the probe on to a child and for nothing else;
* what they return has the type that is declared here, ``read`` a plain tuple of as many values as
  attributes: anything else is absent, and counted as ``Misfit``.
"""

from rlvr_probe.adapter.contract import Adapter, Call, HookPoint, Probe

__all__ = ["Adapter", "Call", "HookPoint", "Probe"]
