"""The flight recorder of RL post-training.

::

    import rlvr_probe

    rlvr_probe.attach()

records rollout generation, reward verification and trainer steps of unmodified frameworks, at a
cost too small to notice. The command ``rlvr-probe`` reads a recording, and :func:`open_run` opens
its tables.
"""

# Type checkers take it for true. `typing` would cost more than all the rest here.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from rlvr_probe.analysis.open_run import Relation, Run, open_run
    from rlvr_probe.config import Config
    from rlvr_probe.probe.attach import Attachment, attach, detach
    from rlvr_probe.probe.user_span import span

__all__ = [
    "Attachment",
    "Config",
    "Relation",
    "Run",
    "attach",
    "detach",
    "open_run",
    "span",
]

_HOMES = {
    "Attachment": "probe.attach",
    "Config": "config",
    "Relation": "analysis.open_run",
    "Run": "analysis.open_run",
    "attach": "probe.attach",
    "detach": "probe.attach",
    "open_run": "analysis.open_run",
    "span": "probe.user_span",
}


def __getattr__(name: str) -> object:
    # Loaded at first use: the start-up hook imports this package in every Python process below a
    # launcher, compilers and helpers included, where the rest would cost 80 ms each time.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
