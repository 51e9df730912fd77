"""``attach()`` and ``detach()``: turning the probe on and off in this process."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType

from rlvr_probe import guard
from rlvr_probe.adapter import HookPoint
from rlvr_probe.config import OWNER, Config, place_note
from rlvr_probe.exceptions import ConfigError, NotAttachable
from rlvr_probe.probe import hooks, identity, launcher_notices, otel_environ
from rlvr_probe.probe.hooks import HookProbe, Patches
from rlvr_probe.probe.import_hooks import when_imported
from rlvr_probe.probe.recorder import Recorder
from rlvr_probe.registry import Framework, discover

__all__ = ["Attachment", "arm", "attach", "detach"]

_log = logging.getLogger("rlvr_probe")

_lock = threading.RLock()
_current: Attachment | None = None
_attaching = False

# Recorders that may still set OWNER, and what it was before the first of them: one that is being
# closed while the next is attached must not pass for somebody else's.
_recording = 0
_owner: str | None = None


class Attachment:
    """What ``attach()`` did. Print it, or look at :attr:`frameworks`.

    Attributes:
        enabled: False if ``RLVR_PROBE_DISABLED`` (or an argument) turned everything off.
        run: Run id.
        frameworks: State of every integration by name; it changes as modules are imported.
    """

    # Of one that an error of the probe kept from being made.
    enabled = False
    run = ""
    frameworks: Mapping[str, Framework] = MappingProxyType({})
    _recorder: Recorder | None = None

    def __init__(self, config: Config, run: str) -> None:
        self.enabled = not config.disabled
        self.run = run
        self._patches = Patches()
        self._disarm: list[Callable[[], None]] = []
        self._environ: dict[str, str | None] = {}
        recorder = Recorder(config, run)
        self._recorder = recorder
        self._probe = HookProbe(recorder, self._patches)

    @property
    @guard.fail_open("attach.folder", Path())
    def folder(self) -> Path:
        """Where this run is recorded. It appears with the first recorded event."""
        return Path() if self._recorder is None else self._recorder.folder

    @property
    @guard.fail_open("attach.refused")
    def refused(self) -> str | None:
        """Why nothing can be written to :attr:`folder` (an errno name), or None."""
        return None if self._recorder is None else self._recorder.refused

    @guard.fail_open("attach.detach")
    def detach(self) -> None:
        """Same as :func:`rlvr_probe.detach` if this is the attachment in effect."""
        _detach(self)

    @guard.fail_open("attach.text", "rlvr-probe")
    def __str__(self) -> str:
        if self._recorder is None:
            return "rlvr-probe: not attached, because of an error of its own"
        if not self.enabled:
            return "rlvr-probe: disabled"
        states = "; ".join(str(framework) for framework in self.frameworks.values())
        return f"rlvr-probe: run {self.run}; {states or 'no integration is installed'}"

    @guard.fail_open("attach.text", "<Attachment>")
    def __repr__(self) -> str:
        return f"<Attachment {self}>"

    # ---------------------------------------------------------------- wiring

    def _hook(self, environ: dict[str, str]) -> None:
        global _recording, _owner
        for name, value in environ.items():
            self._environ[name] = os.environ.get(name)
            os.environ[name] = value
        if not _recording:
            _owner = os.environ.get(OWNER)
        _recording += 1
        self._environ[OWNER] = _owner
        # Room for the key that the first row will put there, on any thread.
        os.environ.setdefault(OWNER, "")
        hooks.activate(self._recorder, self._probe)
        for framework in self.frameworks.values():
            if launcher_notices.NOTICES in os.environ:
                # Its name is that of its package.
                self._disarm.append(when_imported(framework.name, partial(_notify, framework)))
            for point in framework.points:
                module, _, qualname = point.target.partition(":")
                action = partial(self._set, framework, point, qualname)
                self._disarm.append(when_imported(module, action))

    def _set(
        self, framework: Framework, point: HookPoint, qualname: str, module: ModuleType
    ) -> None:
        with _lock:
            if self._patches.function(module, qualname, point):
                framework.hook_points += 1
                framework.state = "attached"
            elif not point.optional:
                framework.reason = f"{point.target} does not exist in {framework.version}"
                if not framework.hook_points:
                    framework.state = "failed"
                    _notify(framework)

    @guard.fail_open("attach.unhook")
    def _unhook(self) -> None:
        for disarm in self._disarm:
            disarm()
        self._patches.undo()
        for name, value in self._environ.items():
            _put(name, value)
        hooks.activate(None)

    @guard.fail_open("attach.disown")
    def _disown(self) -> None:
        """Take back our process key: a call that was under way may have set it once more."""
        global _recording
        _recording -= 1
        if self._recorder is not None and os.environ.get(OWNER) == self._recorder.process:
            _put(OWNER, _owner)


def _notify(framework: Framework, _: object = None) -> None:
    """Notify a launcher that a framework was imported, or why it is not hooked."""
    version = f" {framework.version}" if framework.version else ""
    if framework.state == "failed":
        launcher_notices.notify(
            "failed", f"{framework.name}{version} cannot be hooked: {framework.reason}"
        )
    else:
        launcher_notices.notify("imported", f"{framework.name}{version}")


@guard.fail_open("attach.environ")
def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


_NOT_ATTACHED = object.__new__(Attachment)


@guard.fail_open("attach", _NOT_ATTACHED, contract=(ConfigError, NotAttachable))
def attach(
    *,
    out: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    frameworks: Sequence[str] | None = None,
    source: str | None = None,
    config: Config | None = None,
) -> Attachment:
    """Record this process and its children. One line, before or after the framework is imported.

    Calling it again changes nothing and returns the attachment in effect.

    Args:
        out: Folder of recordings; default ``RLVR_PROBE_OUT``, then ``./rlvr-probe-runs``.
        run_id: Name of the run, the same on every rank; derived from the launcher if not given.
        frameworks: Names of integrations; default every installed one. A name that cannot be hooked
            here raises instead of being skipped.
        source: Column of the data that says where a prompt is from; not recorded without it.
        config: All settings at once, instead of the arguments above and the environment.

    Returns:
        What was attached, with which version and how many hook points, or why not. An error of the
        probe itself is counted and logged, and does not stop a run: nothing is attached
        then.

    Raises:
        NotAttachable: A framework in ``frameworks`` is not installed or cannot be hooked.
        ConfigError: An argument or ``RLVR_PROBE_*`` variable cannot be used.
    """
    if config is None:
        config = Config.from_environ(out=out, run_id=run_id, frameworks=frameworks, source=source)
    elif not isinstance(config, Config):
        raise ConfigError(f"argument config is of {type(config)}, expected a Config")
    else:
        config, frameworks = config.checked(os.environ), config.frameworks
    asked = () if frameworks is None else config.frameworks or ()
    with _lock:
        before = _current
        attachment = _attach(config) if before is None else before
    if attachment.enabled:
        known = attachment.frameworks
        for name in asked:
            framework = known[name] if name in known else discover([name])[name]
            if framework.state in ("absent", "failed") or name not in known:
                if before is None:
                    attachment.detach()
                why = framework.reason or "an earlier attach() left it out; detach() first"
                raise NotAttachable(f"{name} cannot be attached: {why}")
    return attachment


@guard.fail_open("attach.arm")
def arm(config: Config) -> None:
    """What the start-up hook calls when a framework is about to be imported. Never raises."""
    with _lock:
        if _current is None and not _attaching:
            _attach(config)


def _attach(config: Config) -> Attachment:
    global _attaching
    # Looking for a framework asks the start-up hook's finder, which would arm again.
    _attaching = True
    try:
        return _attach_once(config)
    finally:
        _attaching = False


def _attach_once(config: Config) -> Attachment:
    global _current
    run = identity.run_id(config, os.environ)
    attachment = Attachment(config, run)
    if attachment.enabled:
        attachment.frameworks = discover(config.frameworks)
        _warn(config, attachment.frameworks)
        # Children that start Python anew are reached through the start-up hook, with this run's id.
        _current = attachment
        environ = replace(config, run_id=run).to_environ()
        _hand_over(environ)
        try:
            attachment._hook(environ)
            atexit.register(_at_exit)
            attachment._disarm.append(when_imported("multiprocessing.util", _after_mp_fork))
        except BaseException:
            _detach(attachment)
            raise
    return attachment


@guard.fail_open("attach.warn")
def _warn(config: Config, frameworks: Mapping[str, Framework]) -> None:
    """Say once in a job what a user may not expect of the settings.

    What an argument of attach() names and cannot be hooked, that raises.
    """
    if os.environ.get(OWNER) or identity.rank(os.environ):
        return
    texts = [place_note(config, os.environ)]
    if os.environ.get("RLVR_PROBE_FRAMEWORKS"):
        known = (frameworks[name] for name in config.frameworks or ())
        texts += [f"unrecorded: {outcome}" for outcome in known if outcome.state == "failed"]
    for text in texts:
        if text:
            _log.warning(str(text))


@guard.fail_open("attach.handover")
def _hand_over(environ: dict[str, str]) -> None:
    """Add what other nodes may know of where to send the run, if this process started the job."""
    if not os.environ.get(OWNER):
        environ.update(otel_environ.handed_over(os.environ))


@guard.fail_open("attach.detach")
def detach() -> None:
    """Stop recording and restore everything: functions, environment, threads. Idempotent."""
    _detach()


@guard.fail_open("attach.detach")
def _detach(only: Attachment | None = None) -> None:
    """Detach ``only``, or whatever is in effect."""
    global _current
    with _lock:
        attachment = _current
        if attachment is None or only not in (None, attachment):
            return
        # All of it before another thread may attach: what is process-wide would be undone to it.
        _current = None
        atexit.unregister(_at_exit)
        attachment._unhook()
    # Not under the lock, which imports of a framework wait for: a dead disk may hold this up.
    if attachment._recorder is not None:
        attachment._recorder.close("detach")
    with _lock:
        attachment._disown()


@guard.fail_open("attach.at_exit")
def _at_exit() -> None:
    if _current is not None and _current._recorder is not None:
        _current._recorder.close("exit")


@guard.fail_open("attach.after_fork")
def _after_fork() -> None:
    """In a forked child: what a thread that is not here was about to do is not done any more."""
    global _lock, _attaching
    if _lock.acquire(blocking=False):
        _lock.release()
    else:
        _lock = threading.RLock()
        _attaching = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _after_mp_fork(module: ModuleType) -> None:
    """Flush a multiprocessing fork child at its end: it leaves through os._exit, without atexit."""
    module.register_after_fork(_current, _flush_at_end)


@guard.fail_open("attach.after_fork")
def _flush_at_end(_: object) -> None:
    # Registered in the child: multiprocessing clears what was registered before its fork.
    sys.modules["multiprocessing.util"].Finalize(None, _at_exit, exitpriority=100)
