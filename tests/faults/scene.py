"""One process per fault: a user's program around the toy trainer, with one function of ours faulty.

``python -P scene.py FOLDER`` reads cases from standard input, one JSON list ``[number, function,
kind]`` per line, forks a child for each, and writes a JSON line about each to standard output:

* ``status``: as of ``os.waitpid``; None if it had to be killed for hanging;
* ``seen``: all that the user's program saw, to be compared with a run without the probe;
* ``fired``, ``reached``: how often the fault struck; which functions were called, without a fault;
* ``modules``: modules of the core that were loaded by then;
* ``faults``: what the guard had counted when the process ended;
* ``stderr``: what was written there.

Its recordings lie in ``FOLDER/<number>``. The function ``-`` is none; the kind ``bare`` is no
probe. What is called only once another function has failed is written ``ONE after OTHER``.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import copy
import functools
import gc
import importlib
import json
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
import types
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).with_name("framework"))]

from tests.faults.enumeration import ROOT, core_modules  # noqa: E402
from tests.faults.injection import Injector  # noqa: E402

BOOT_LINE = (ROOT / "boot" / "rlvr_probe_boot.pth").read_text()
HANG_S = 60
SMALL_B = 3000
INJECTOR = Injector(core_modules())
LOADED_BY_A_RUN = ("asyncio", "cloudpickle", "multiprocessing.popen_fork", "signal", "toyrl")


def torch_on_two_gpus() -> Any:
    """Stands in for torch with CUDA, which is missing here: what the probe asks it and no more."""
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        max_memory_allocated=lambda place: (1, 1 << 30)[place],
        get_device_properties=lambda place: types.SimpleNamespace(uuid=str(uuid.UUID(int=place))),
    )
    return types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(cuda="12.8"))


def tracing() -> Any:
    """Stands in for OpenTelemetry, with a span of the application that is always active."""
    context = types.SimpleNamespace(
        is_valid=True, trace_id=1, span_id=2, trace_flags=types.SimpleNamespace(sampled=True)
    )
    span = types.SimpleNamespace(get_span_context=lambda: context)
    return types.SimpleNamespace(get_current_span=lambda: span)


class Program:
    """What a user wrote, with a probe or without."""

    def __init__(self, probe: bool) -> None:
        self.probe = probe
        self.seen: list[Any] = []

    def run(self) -> None:
        """Everything that a process may do with a probe in it."""
        if self.probe:
            exec(BOOT_LINE)  # as `site` does
        toyrl = importlib.import_module("toyrl")
        sys.modules["torch"] = torch_on_two_gpus()
        sys.modules["opentelemetry.trace"] = tracing()
        if self.probe:
            self.attached()
        self.train(toyrl)
        if self.probe:
            self.attached()
        self.by_hand()
        self.alarm(toyrl)
        self.children(toyrl)
        self.copies(toyrl)
        if self.probe:
            self.detached()
        self.train(toyrl)
        if self.probe:
            self.again()
        late = importlib.import_module("toyrl_late")
        self.train(toyrl)
        self.seen.append(late.late())
        self.small_files(toyrl)
        self.by_hand()
        if self.probe:
            self.too_slow(toyrl)
        self.train(toyrl)

    def attached(self) -> None:
        """By hand as well, and a look at what that gave."""
        import rlvr_probe

        attachment = rlvr_probe.attach()
        for look in (str, repr):
            look(attachment)
        getattr(attachment, "refused"), dir(rlvr_probe)  # noqa: B009 - only looked at

    def detached(self) -> None:
        """Until the next attach."""
        import rlvr_probe

        rlvr_probe.detach()

    def again(self) -> None:
        """Attached by hand, as one of the ranks that torchrun started on several nodes."""
        import rlvr_probe

        os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="1", TORCHELASTIC_RUN_ID="ours")
        del os.environ["RLVR_PROBE_RUN_ID"]
        out = Path("recordings").absolute()
        given = rlvr_probe.Config(out=out, run_id="again", frameworks=("toyrl",))
        with contextlib.suppress(rlvr_probe_error()):  # asked for by name, it may say no
            rlvr_probe.attach(config=given).detach()

    def small_files(self, toyrl: Any) -> None:
        """The operator allows small files only, for a while."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_B, hard))
        self.train(toyrl)
        if self.probe:
            wait(ended_early)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def too_slow(self, toyrl: Any) -> None:
        """From here on it is too slow, step by step down to nothing."""
        from rlvr_probe import span
        from rlvr_probe.probe.hooks import calls
        from rlvr_probe.probe.recorder import bookkeeping

        bookkeeping.WINDOW_NS = 1
        recorder = calls._recorder
        if recorder is not None:
            recorder._books._own_share = -1.0
        with span("stays open"):
            wait(lambda: recorder is None or not recorder.level)

    def train(self, toyrl: Any, steps: int = 3) -> None:
        """A training, and what can be seen of it."""
        judge = toyrl.Judge()
        rewards = [judge, toyrl.LateJudge(), functools.partial(toyrl.even, scale=0.5), toyrl.even]
        trainer = toyrl.Trainer.build(rewards, steps)
        self.seen.append(trainer.train())
        first = trainer.rewards[0]
        first.weight = 4.0
        del first.weight
        self.seen.append([first.calls, first.weight, first == judge, hash(first), trainer.step])
        self.seen.append([first.__class__.__name__, isinstance(first, toyrl.Judge)])
        self.seen.append(copy.copy(first).calls)

    def by_hand(self) -> None:
        """Stages of the user's own code."""
        if self.probe:
            from rlvr_probe import span
        else:
            span = Nothing  # type: ignore[assignment,misc]

        @span("decorated", text="text")
        def add(a: int, b: int) -> int:
            return a + b

        @span("rows")
        def rows() -> Iterator[int]:
            yield from (1, 2)

        @span("later")
        async def later(value: int) -> int:
            return value

        @span("stream")
        async def stream() -> AsyncIterator[int]:
            yield 5

        async def inside() -> list[int]:
            async with span("inside"):
                return [await later(3), *[i async for i in stream()]]

        with span("outer", number=1, flag=True), span("inner"):
            self.seen.append([add(1, b=2), list(rows()), asyncio.run(inside())])
        try:
            with span("fails"):
                raise KeyError("the user's own")
        except KeyError as error:
            self.seen.append([str(error), repr(error.__context__)])

    def alarm(self, toyrl: Any) -> None:
        """An alarm of the user, wherever it goes off."""

        class TooSlow(Exception): ...

        def handler(number: int, frame: object) -> None:
            raise TooSlow

        before = signal.signal(signal.SIGALRM, handler)
        try:
            toyrl.slow()
            signal.raise_signal(signal.SIGALRM)
        except TooSlow:
            self.seen.append("too slow")
        signal.signal(signal.SIGALRM, before)

    def children(self, toyrl: Any) -> None:
        """A bare fork, and one of multiprocessing."""
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                self.child(toyrl)
                status = 0
            finally:
                if status:
                    sys.excepthook(*sys.exc_info())
                os._exit(status)
        self.seen.append(os.waitpid(pid, 0)[1])
        process = multiprocessing.get_context("fork").Process(target=self.child, args=(toyrl,))
        process.start()
        process.join()
        self.seen.append(process.exitcode)

    def child(self, toyrl: Any) -> None:
        """What a child does; what it sees must be what its parent saw."""
        before = list(self.seen)
        self.seen.clear()
        self.train(toyrl)
        assert self.seen == before[: len(self.seen)]
        self.seen[:] = before
        time.sleep(0.05)  # for the flush thread: nothing says that this process ends

    def copies(self, toyrl: Any) -> None:
        """A hooked method by value, as Ray sends it."""
        import cloudpickle

        cloudpickle.register_pickle_by_value(toyrl)
        step = cloudpickle.loads(cloudpickle.dumps(toyrl.Trainer.one_step))
        cloudpickle.unregister_pickle_by_value(toyrl)
        trainer = toyrl.Trainer([toyrl.even])
        trainer.step = 2
        step(trainer)
        self.seen.append(trainer.losses)


class Nothing(contextlib.AbstractContextManager[None]):
    """``rlvr_probe.span`` where there is no probe."""

    def __init__(self, name: str, **attributes: Any) -> None: ...

    def __call__(self, function: Any) -> Any:
        return function

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


PATIENCE_S = 10.0
BROKEN_S = 0.5
"""How long something is waited for; and once a fault has struck, so that it may never be."""


def wait(done: Callable[[], bool]) -> None:
    """Until it is, but not for long."""
    deadline = time.monotonic() + PATIENCE_S
    known = False
    while not done() and time.monotonic() < deadline:
        if INJECTOR.broken and not known:
            known = True
            deadline = time.monotonic() + BROKEN_S
        time.sleep(0.005)


def ended_early() -> bool:
    """Whether a segment of a journal ended before its time; records more, so that one will."""
    from rlvr_probe import span

    with span("more"):
        pass
    parts = Path("recordings").rglob("*.jsonl")
    return any(
        part.stat().st_size <= SMALL_B
        and part.with_suffix("").with_suffix(f".{int(part.suffixes[0][1:]) + 1:04}.jsonl").exists()
        for part in parts
    )


def rlvr_probe_error() -> type[Exception]:
    from rlvr_probe.exceptions import NotAttachable

    return NotAttachable


def warm_up() -> None:
    """Import what a run needs once for all; none of our functions has been called for a run."""
    import rlvr_probe_toyrl  # type: ignore[import-not-found]
    import wrapt

    import rlvr_probe.probe.attach
    import rlvr_probe.probe.user_span

    del rlvr_probe.probe.attach, rlvr_probe_toyrl, wrapt
    for name in LOADED_BY_A_RUN:
        importlib.import_module(name)
    sys.modules.pop("toyrl")
    importlib.import_module("rlvr_probe._boot")
    sys.modules.pop("rlvr_probe._boot")
    # What is installed is looked for in every folder: only in ours here, for speed.
    sys.path[:] = [one for one in sys.path if not one.endswith("site-packages")]
    gc.collect()
    gc.freeze()


def play(folder: Path, number: int, function: str, kind: str) -> dict[str, Any]:
    """Fork a child that runs the program; say what became of it."""
    here = folder / str(number)
    here.mkdir()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        INJECTOR.log = writing
        child(here, function, kind)
    os.close(writing)
    os.set_blocking(reading, False)
    log = bytearray()
    killed = False
    deadline = time.monotonic() + HANG_S
    while not (waited := os.waitpid(pid, os.WNOHANG))[0]:
        log += received(reading)
        if time.monotonic() > deadline and not killed:
            os.kill(pid, signal.SIGKILL)
            killed = True
        time.sleep(0.005)
    said = here / "said.json"
    log += received(reading)
    os.close(reading)
    struck = [line.split(" ", 1) for line in log.decode().splitlines()]
    return {
        "number": number,
        "function": function,
        "kind": kind,
        "status": None if killed else waited[1],
        "stderr": (here / "stderr").read_text(errors="replace"),
        "fired": len(struck),
        "reached": sorted({name for _, name in struck}),
        **(json.loads(said.read_text()) if said.exists() else {}),
    }


def received(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


def child(here: Path, function: str, kind: str) -> None:
    """The user's process; never returns."""
    fd = os.open(here / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(fd, 2)
    os.dup2(2, 1)
    sys.stdin.close()
    os.chdir(here)
    bare = INJECTOR.broken = kind == "bare"
    for name in [name for name in os.environ if name.startswith(("RLVR_PROBE", "OTEL_"))]:
        del os.environ[name]  # of tests before this one; an owner would make it no first process
    os.environ.update(
        RLVR_PROBE="" if bare else "1",
        RLVR_PROBE_RUN_ID="run",
        RLVR_PROBE_OUT=str(here / "recordings"),
        RLVR_PROBE_FRAMEWORKS="toyrl,toyrl_late",
        RLVR_PROBE_FLUSH_S="0.01",
        RLVR_PROBE_SEGMENT_B="4096",
        RLVR_PROBE_SIDECAR="1",
        WORLD_SIZE="2",
    )
    sys.executable = "/bin/true"  # in place of a sidecar
    program = Program(probe=not bare)
    me = os.getpid()

    # Registered first, so that it runs last.
    def say() -> None:
        if os.getpid() == me:
            said = {
                "seen": program.seen,
                "modules": sorted(name for name in sys.modules if is_ours(name)),
                "faults": [[*key, count] for key, count in counted().items()],
            }
            (here / "said.json").write_text(json.dumps(said, default=repr))

    atexit.register(say)
    first, _, INJECTOR.first = function.partition(" after ")
    INJECTOR.name = None if first == "-" else first
    INJECTOR.kind = kind
    program.run()
    sys.exit(0)


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "rlvr_probe"


def counted() -> dict[Any, int]:
    from rlvr_probe import guard

    return dict(guard._counts)


def main() -> None:
    folder = Path(sys.argv[1])
    toy = Path(__file__).with_name("framework")
    INJECTOR.install()
    logging.captureWarnings(False)
    sys.path.insert(0, str(folder / "site"))
    warm_up()
    from rlvr_probe.probe import election
    from rlvr_probe.probe.recorder import bookkeeping

    bookkeeping.OPEN_AFTER_NS = 10_000_000
    election.LOOK_NS = 1_000_000
    election.JITTER_NS = 0
    election.PLACES = (str(folder),)
    sys.modules.pop("rlvr_probe._boot", None)
    del toy
    for line in sys.stdin:
        number, function, kind = json.loads(line)
        print(json.dumps(play(folder, number, function, kind)), flush=True)


if __name__ == "__main__":
    main()
