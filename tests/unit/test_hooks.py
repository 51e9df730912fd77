"""Wrapping changes nothing a caller can see, and records what happened."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import copy
import functools
import gc
import inspect
import pickle
import signal
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import wrapt

from rlvr_probe import guard
from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model import names
from rlvr_probe.probe import hooks
from rlvr_probe.probe.hooks import Hook, HookProbe, Patches, wrap
from rlvr_probe.probe.hooks.wrapping import find_hook
from rlvr_probe.probe.recorder import CURRENT, OFF, STAGES, Recorder

Make = Callable[..., Recorder]


class Sink(Recorder):
    """A recorder whose rows stay where a test can look at them."""

    def append(self, row: tuple[Any, ...]) -> None:
        self.rows.append(row)

    def _start(self) -> None: ...


@pytest.fixture
def sink(record: Make) -> Iterator[Sink]:
    recorder = record()
    recorder.__class__ = Sink
    hooks.activate(recorder, HookProbe(recorder, Patches()))
    yield recorder  # type: ignore[misc]
    hooks.activate(None)


def _size(call: Call) -> tuple[Any, ...]:
    return (len(call.result),)


POINT = HookPoint("t", names.ROLLOUT, ("samples",), read=_size)
BARE = HookPoint("t", names.ROLLOUT)


def spans(sink: Sink) -> list[tuple[Any, ...]]:
    """(error, *values) of every recorded span."""
    return [row[5:] for row in sink.rows]


def test_a_function_keeps_result_signature_name_and_attributes(sink: Sink) -> None:
    def sample(prompts: list[str], *, n: int = 2) -> list[str]:
        """Doc."""
        return prompts * n

    sample.tag = 7  # type: ignore[attr-defined]
    wrapped = wrap(sample, Hook(POINT))
    assert wrapped(["a"], n=3) == ["a"] * 3
    assert inspect.signature(wrapped) == inspect.signature(sample)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.tag) == ("sample", "Doc.", 7)
    assert spans(sink) == [(None, 3)]


def test_the_very_exception_reaches_the_caller(sink: Sink) -> None:
    error = KeyError("secret prompt")

    def fails() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        wrap(fails, Hook(POINT))()
    assert caught.value is error
    assert error.__context__ is None
    assert error.__cause__ is None
    assert spans(sink) == [("KeyError",)]


def test_an_exception_does_not_keep_arguments_alive(sink: Sink) -> None:
    class Tensor: ...

    def fails(tensor: Tensor) -> None:
        raise ValueError

    wrapped = wrap(fails, Hook(BARE))
    tensor = Tensor()
    gone = weakref.ref(tensor)
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            wrapped(tensor)
        del tensor
        assert gone() is None, "a reference cycle holds the arguments"
    finally:
        gc.enable()


def test_a_coroutine_function_stays_one(sink: Sink) -> None:
    async def score(rows: list[int]) -> list[int]:
        await asyncio.sleep(0.02)
        return rows

    wrapped = wrap(score, Hook(POINT))
    assert inspect.iscoroutinefunction(wrapped)
    assert asyncio.run(wrapped([1, 2])) == [1, 2]
    assert spans(sink) == [(None, 2)]
    assert sink.rows[0][2] >= 20_000_000


def test_many_coroutines_at_once_never_mix(sink: Sink) -> None:
    inner = wrap(_double, Hook(HookPoint("inner", names.TURN, ("samples",), read=_result)))

    async def outer(i: int) -> int:
        await asyncio.sleep(0.001 * (i % 7))
        value: int = await inner(i)
        await asyncio.sleep(0)
        return value

    wrapped = wrap(outer, Hook(HookPoint("outer", names.ROLLOUT, ("samples",), read=_result)))

    async def everything() -> list[int]:
        return await asyncio.gather(*(wrapped(i) for i in range(256)))

    assert asyncio.run(everything()) == [2 * i for i in range(256)]
    rows = {row[3]: row for row in sink.rows}
    children = [row for row in sink.rows if row[4]]
    assert len(children) == 256
    assert all(rows[row[4]][6] == row[6] for row in children)
    assert not sink.open


def bridged(function: Any) -> Any:
    """As verl has it: a coroutine for coroutines, found by their frame; others wait."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        caller = inspect.currentframe()
        assert caller is not None
        assert caller.f_back is not None
        result = function(*args)
        if caller.f_back.f_code.co_flags & inspect.CO_COROUTINE:
            return result
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, result).result()

    return wrapper


def test_a_function_that_only_coroutines_await_looks_to_each_as_before(sink: Sink) -> None:
    async def score(rows: list[int]) -> list[int]:
        await asyncio.sleep(0.02)
        return rows

    wrapped = wrap(bridged(score), Hook(POINT))

    async def awaiting() -> Any:
        return await wrapped([1, 2])

    async def waiting() -> Any:
        def ask() -> Any:
            return wrapped([1, 2, 3])

        return ask()

    assert not inspect.iscoroutinefunction(wrapped)
    assert wrapped([1]) == [1]
    assert asyncio.run(awaiting()) == [1, 2]
    assert asyncio.run(waiting()) == [1, 2, 3]
    assert spans(sink) == [(None, 1), (None, 2), (None, 3)]
    assert all(row[2] >= 20_000_000 for row in sink.rows)
    assert CURRENT.get() == 0
    assert not sink.open
    assert find_hook(wrapped) is not None


def test_a_function_that_waits_for_its_coroutine_whoever_calls_is_left_alone_by_one(
    sink: Sink,
) -> None:
    async def score() -> list[int]:
        return [1]

    @functools.wraps(score)
    def waits() -> Any:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, score()).result()

    wrapped = wrap(waits, Hook(POINT))

    async def calling() -> Any:
        return wrapped()

    assert wrapped() == asyncio.run(calling()) == [1]
    assert spans(sink) == [(None, 1)]


def test_an_error_of_a_function_that_only_coroutines_await_reaches_them(sink: Sink) -> None:
    async def fail() -> list[int]:
        raise KeyError("gone")

    wrapped = wrap(bridged(fail), Hook(POINT))

    async def awaiting() -> Any:
        return await wrapped()

    with pytest.raises(KeyError):
        asyncio.run(awaiting())
    with pytest.raises(KeyError):
        wrapped()
    assert [row[5] for row in sink.rows] == ["KeyError", "KeyError"]


async def _double(i: int) -> int:
    await asyncio.sleep(0.001 * (i % 3))
    return 2 * i


def _result(call: Call) -> tuple[Any, ...]:
    return (call.result,)


def test_a_generator_stays_lazy_and_is_timed_to_its_end(sink: Sink) -> None:
    ran = []

    def stream(n: int) -> Iterator[int]:
        ran.append(n)
        yield from range(n)

    wrapped = wrap(stream, Hook(BARE))
    assert inspect.isgeneratorfunction(wrapped)
    iterator = wrapped(3)
    assert ran == []
    assert not sink.rows
    assert next(iterator) == 0
    assert CURRENT.get() == 0, "the consumer does not run inside the generator's span"
    assert list(iterator) == [1, 2]
    assert spans(sink) == [(None,)]


def test_a_generator_passes_send_throw_close_and_return_value(sink: Sink) -> None:
    def echo() -> Any:
        got = None
        while True:
            try:
                got = yield got
            except KeyError:
                return "returned"

    generator = wrap(echo, Hook(BARE))()
    next(generator)
    assert generator.send(5) == 5
    with pytest.raises(StopIteration) as stop:
        generator.throw(KeyError())
    assert stop.value.value == "returned"
    second = wrap(echo, Hook(BARE))()
    next(second)
    second.close()
    third = wrap(echo, Hook(BARE))()
    next(third)
    del third
    gc.collect()
    assert spans(sink) == [(None,)] * 3
    assert not sink.open


def test_an_async_generator_keeps_its_protocol(sink: Sink) -> None:
    async def stream() -> Any:
        got = None
        for _ in range(4):
            try:
                got = yield got
            except KeyError:
                got = "caught"

    wrapped = wrap(stream, Hook(BARE))
    assert inspect.isasyncgenfunction(wrapped)

    async def drive() -> list[Any]:
        generator = wrapped()
        seen = [await generator.__anext__(), await generator.asend(7)]
        seen.append(await generator.athrow(KeyError()))
        await generator.aclose()
        whole = [item async for item in wrapped()]
        return [*seen, len(whole)]

    assert asyncio.run(drive()) == [None, 7, "caught", 4]
    assert spans(sink) == [(None,)] * 2


def test_a_context_manager_function_spans_its_body(sink: Sink) -> None:
    @contextlib.contextmanager
    def timer(name: str) -> Iterator[str]:
        """Doc."""
        yield name

    wrapped = wrap(timer, Hook(BARE))
    assert type(wrapped("x")) is type(timer("x"))
    with wrapped("gen") as name:
        assert name == "gen"
        assert CURRENT.get() != 0
    assert CURRENT.get() == 0
    with pytest.raises(StopIteration), wrapped("x"):
        raise StopIteration
    assert [row[0] is None for row in spans(sink)] == [True, False]

    @wrapped("decorator")
    def decorated() -> int:
        return 1

    assert decorated() == 1


def test_an_async_context_manager_function_spans_its_body(sink: Sink) -> None:
    @contextlib.asynccontextmanager
    async def timer() -> AsyncIterator[int]:
        yield 3

    async def use() -> int:
        async with wrap(timer, Hook(BARE))() as value:
            return value

    assert asyncio.run(use()) == 3
    assert spans(sink) == [(None,)]


class Verifier:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, xs: list[int]) -> list[int]:
        self.calls += 1
        return xs


class AsyncVerifier:
    async def __call__(self, xs: list[int]) -> list[int]:
        return xs


def test_a_callable_object_keeps_its_state_type_and_kind(sink: Sink) -> None:
    original = Verifier()
    wrapped = wrap(original, Hook(POINT))
    assert wrapped([1]) == [1]
    assert wrapped.calls == original.calls == 1
    wrapped.calls = 9
    assert original.calls == 9
    assert isinstance(wrapped, Verifier)
    waiting = wrap(AsyncVerifier(), Hook(POINT))
    assert inspect.iscoroutinefunction(waiting.__call__)
    assert asyncio.run(waiting([1, 2])) == [1, 2]
    assert isinstance(pickle.loads(pickle.dumps(wrapped)), Verifier)
    partial = wrap(functools.partial(sorted, reverse=True), Hook(POINT))
    assert partial([1, 2]) == [2, 1]
    assert spans(sink) == [(None, 1), (None, 2), (None, 2)]


def test_a_class_pickled_by_value_keeps_its_hook(sink: Sink) -> None:
    module = types.ModuleType("__generated__")
    exec("class Worker:\n    def work(self, xs):\n        return xs\n", vars(module))
    module.Worker.work = wrap(module.Worker.work, Hook(POINT))
    module.Worker.__module__ = "__main__"
    copy = cloudpickle.loads(cloudpickle.dumps(module.Worker))
    assert copy().work([1, 2, 3]) == [1, 2, 3]
    assert spans(sink) == [(None, 3)]


KINDS = """
import asyncio, contextlib, functools, inspect, sys
async def whole(x):
    return x
@functools.wraps(whole)
def either(x):
    there = sys._getframe(1).f_code.co_flags & inspect.CO_COROUTINE
    return whole(x) if there else asyncio.run(whole(x))
class Worker:
    def work(self, xs):
        return xs
    async def later(self, xs):
        return xs
    def each(self, xs):
        yield from xs
    async def stream(self, xs):
        for x in xs:
            yield x
    @contextlib.contextmanager
    def held(self):
        yield 5
    def __call__(self, xs):
        return xs
"""

ELSEWHERE = """
import asyncio, importlib.util, pickle, sys
sys.path.insert(0, sys.argv[1])
assert importlib.util.find_spec("rlvr_probe") is None
Worker, either = pickle.load(sys.stdin.buffer)
async def streamed():
    return [x async for x in Worker().stream([4])]
async def waited():
    return await either(5)
with Worker().held() as held:
    print(Worker().work([1]), asyncio.run(Worker().later([2])), list(Worker().each([3])),
          asyncio.run(streamed()), held, Worker.tool([6]), asyncio.run(waited()), either(7))
"""


def test_a_class_that_went_by_value_runs_where_there_is_no_probe(tmp_path: Path) -> None:
    """As an actor of Ray does on a node whose Python has no rlvr-probe."""
    module = types.ModuleType("__generated__")
    exec(KINDS, vars(module))
    worker = module.Worker
    for name in ("work", "later", "each", "stream", "held"):
        setattr(worker, name, wrap(getattr(worker, name), Hook(POINT)))
    worker.tool = wrap(worker(), Hook(POINT))
    worker.__module__ = "__main__"
    (tmp_path / "cloudpickle").symlink_to(Path(cloudpickle.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ELSEWHERE, str(tmp_path)],
        input=cloudpickle.dumps((worker, wrap(module.either, Hook(POINT)))),
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""
    assert done.stdout.split(b"\n")[0] == b"[1] [2] [3] [4] 5 [6] 5 7"


class Base:
    def __init__(self) -> None:
        self.log: list[str] = []

    def generate(self, xs: list[int]) -> list[int]:
        self.log.append("base")
        return xs

    @staticmethod
    def helper(xs: list[int]) -> list[int]:
        return xs

    @classmethod
    def build(cls, xs: list[int]) -> list[int]:
        return xs


class Mine(Base):
    def generate(self, xs: list[int]) -> list[int]:
        self.log.append("mine")
        return super().generate(xs)


def test_a_user_subclass_is_recorded_once_per_call(sink: Sink) -> None:
    patches = Patches()
    probe = HookProbe(sink, patches)
    point = HookPoint("generate", names.ROLLOUT, ("samples",), read=_size)
    plain, mine = Base(), Mine()
    for instance in (plain, mine, Mine(), Base()):
        assert probe.instrument(instance, [point, HookPoint("missing", names.ROLLOUT)]) == 1
    assert mine.generate([1, 2]) == [1, 2]
    assert mine.log == ["mine", "base"]
    assert plain.generate([1]) == [1]
    assert spans(sink) == [(None, 2), (None, 1)]
    patches.undo()
    assert find_hook(Base.generate) is None
    assert find_hook(Mine.generate) is None


def test_a_class_of_which_there_is_no_object_yet_is_hooked(sink: Sink) -> None:
    patches = Patches()
    point = HookPoint("generate", names.ROLLOUT, ("samples",), read=_size)
    assert HookProbe(sink, patches).instrument(Mine, [point]) == 1
    assert Mine().generate([1, 2]) == [1, 2]
    assert Base().generate([1]) == [1]
    assert spans(sink) == [(None, 2)]
    patches.undo()
    assert find_hook(Mine.generate) is None


def test_a_hooked_class_lives_no_longer_than_without_a_hook() -> None:
    class Held:
        pass

    def hooked(patches: Patches) -> weakref.ref[Held]:
        held = Held()

        class Local:
            def work(self) -> Held:
                return held

        assert patches.method(Local(), HookPoint("work"))
        assert find_hook(Local.work) is not None
        return weakref.ref(held)

    patches = Patches()
    gone = hooked(patches)
    gc.collect()
    assert gone() is None
    patches.undo()


def test_undo_restores_static_and_class_methods_and_inherited_ones() -> None:
    before = dict(vars(Base)), dict(vars(Mine))
    module = sys.modules[__name__]
    patches = Patches()
    assert patches.function(module, "Base.helper", POINT)
    assert patches.function(module, "Base.build", POINT)
    assert patches.function(module, "Mine.helper", POINT)
    assert not patches.function(module, "Base.nothing", POINT)
    assert not patches.function(module, "Nothing.at_all", POINT)
    assert Base().helper([1]) == Base.build([1]) == Mine.helper([1]) == [1]
    patches.undo()
    assert (dict(vars(Base)), dict(vars(Mine))) == before


def test_a_wrapper_somebody_else_wrapped_stays_and_is_inert(sink: Sink) -> None:
    patches = Patches()
    module: Any = types.ModuleType("m")
    module.f = lambda xs: xs
    patches.function(module, "f", POINT)
    ours = module.f
    module.f = theirs = lambda xs: ours(xs)
    patches.undo()
    assert module.f is theirs
    hooks.activate(None)
    assert module.f([1]) == [1]
    assert not sink.rows


def test_interleaved_generator_methods_are_all_recorded(sink: Sink) -> None:
    class Stream:
        def rows(self) -> Iterator[int]:
            yield from range(3)

        async def later(self) -> AsyncIterator[int]:
            for i in range(3):
                yield i

    probe = HookProbe(sink, Patches())
    one, other = Stream(), Stream()
    points = [HookPoint(name, names.ROLLOUT) for name in ("rows", "later")]
    assert [probe.instrument(stream, points) for stream in (one, other)] == [2, 2]
    for _ in range(5):
        first, second = one.rows(), other.rows()
        next(first), next(second)
        first.close(), second.close()  # type: ignore[attr-defined]

    async def broken_off() -> None:
        for _ in range(10):
            async for _ in one.later():
                break

    asyncio.run(broken_off())
    gc.collect()
    assert len(sink.rows) == 20


def test_a_generator_method_reached_through_super_is_recorded_once(sink: Sink) -> None:
    class Stream:
        def rows(self) -> Iterator[int]:
            yield from range(3)

        async def later(self) -> AsyncIterator[int]:
            for i in range(3):
                yield i

        @contextlib.contextmanager
        def timer(self) -> Iterator[None]:
            yield

    class Mine(Stream):
        def rows(self) -> Iterator[int]:
            yield from super().rows()

        async def later(self) -> AsyncIterator[int]:
            async for i in super().later():
                yield i

        @contextlib.contextmanager
        def timer(self) -> Iterator[None]:
            with super().timer():
                yield

    probe = HookProbe(sink, Patches())
    points = [HookPoint(name, names.ROLLOUT) for name in ("rows", "later", "timer")]
    for stream in (Stream(), Mine()):
        probe.instrument(stream, points)
    mine = Mine()

    async def consume() -> list[int]:
        return [i async for i in mine.later()]

    assert list(mine.rows()) == asyncio.run(consume()) == [0, 1, 2]
    with mine.timer():
        pass
    assert len(sink.rows) == 3


def test_a_context_manager_that_ends_in_another_thread_leaves_its_context_alone(
    sink: Sink,
) -> None:
    @contextlib.contextmanager
    def timer() -> Iterator[None]:
        yield

    handed = wrap(timer, Hook(BARE))()
    contextvars.copy_context().run(handed.__enter__)
    seen = []

    def end() -> None:
        CURRENT.set(77)
        handed.__exit__(None, None, None)
        seen.append(CURRENT.get())

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert seen == [77]
    assert len(sink.rows) == 1


def test_a_call_that_outlives_a_detach_ends_where_it_began(record: Make) -> None:
    first, second = record(), record()
    hooks.activate(first, HookProbe(first, Patches()))

    def switches() -> None:
        hooks.activate(second, HookProbe(second, Patches()))
        wrap(lambda: None, Hook(HookPoint("inner", names.TURN)))()

    wrap(switches, Hook(BARE))()
    hooks.activate(None)
    assert not first.open
    assert not second.open
    assert [len(one.rows) for one in (first, second)] != [0, 2]


def test_methods_under_other_instrumentation_keep_their_self(sink: Sink) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.n = 2

        def generate(self, x: list[int]) -> list[int]:
            return x * self.n

        async def later(self, x: list[int]) -> list[int]:
            return x * self.n

    @wrapt.decorator
    def traced(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    Trainer.generate = traced(Trainer.generate)  # type: ignore[method-assign]
    Trainer.later = traced(Trainer.later)  # type: ignore[method-assign]
    points = [HookPoint(n, names.ROLLOUT, ("samples",), read=_size) for n in ("generate", "later")]
    assert HookProbe(sink, Patches()).instrument(Trainer(), points) == 2
    assert Trainer().generate([1]) == [1, 1]
    assert inspect.iscoroutinefunction(Trainer.later)
    assert asyncio.run(Trainer().later([1])) == [1, 1]
    assert spans(sink) == [(None, 2)] * 2


def test_an_override_that_copies_attributes_of_a_hooked_method_is_hooked_itself(
    sink: Sink,
) -> None:
    probe = HookProbe(sink, Patches())
    point = HookPoint("generate", names.ROLLOUT, ("samples",), read=_size)
    probe.instrument(Base(), [point])

    class Copied(Base): ...

    @functools.wraps(Base.generate)
    def generate(self: Copied, xs: list[int]) -> list[int]:
        return [*xs, 1]

    setattr(Copied, "generate", generate)  # noqa: B010 - of another type than the one above
    probe.instrument(Copied(), [point])
    assert Copied().generate([1]) == [1, 1]
    assert spans(sink) == [(None, 2)]


class Odd:
    """Every question about it is an error."""

    def __repr__(self) -> str:
        raise LookupError

    __str__ = __len__ = __bool__ = __eq__ = __hash__ = __iter__ = __repr__  # type: ignore[assignment]
    __class__ = property(__repr__)


def test_an_answer_outside_of_its_contract_is_absent_and_counted(sink: Sink) -> None:
    guard.set_strict(False)
    numbers: list[object] = [1.5, -1, 1 << 70]
    others: list[object] = [[5], {5}, b"x", (), (1, 2), type("T", (tuple,), {})((1,)), Odd()]
    for odd in [None, "x", *numbers, *others]:
        guard.reset()
        sink.rows.clear()

        def answer(call: Call, odd: object = odd) -> Any:
            return odd

        point = HookPoint("t", names.ROLLOUT, ("samples",), answer, detail=answer, step=answer)
        assert wrap(lambda: 5, Hook(point))() == 5
        assert spans(sink) == [(None,)], "nothing of it may get into another column"
        assert not sink.open
        expected = 3 - (type(odd) is str) - (odd is None)  # text is a detail, None is no step
        [((where, kind), count)] = guard.faults().items()
        assert where.endswith("<locals>.answer")
        assert (kind, count) == ("Misfit", expected)


def test_a_cached_function_keeps_its_cache(sink: Sink) -> None:
    cached = wrap(functools.lru_cache(_size), Hook(BARE))
    cached.cache_clear()
    assert cached.cache_info().hits == 0


def test_an_alarm_inside_our_code_leaves_nothing_open(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.set_strict(False)

    class TooSlow(Exception): ...

    def handler(number: int, frame: object) -> None:
        raise TooSlow

    def before(call: Call) -> None:
        signal.raise_signal(signal.SIGALRM)

    old = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TooSlow):
            wrap(lambda: 1, Hook(HookPoint("t", names.ROLLOUT, before=before)))()
    finally:
        signal.signal(signal.SIGALRM, old)
    assert CURRENT.get() == 0
    assert not sink.open
    assert not sink.rows


def test_an_item_is_replaced_once_and_restored_by_identity(sink: Sink) -> None:
    patches = Patches()
    probe = HookProbe(sink, patches)
    first, second = Verifier(), Verifier()
    functions: list[Any] = [first, second]
    for _ in range(3):
        probe.replace(functions, 0, POINT)
    assert functions[0]([1, 2]) == [1, 2]
    assert spans(sink) == [(None, 2)]
    functions.reverse()
    patches.undo()
    assert functions == [second, first]
    assert functions[1] is first


def test_an_error_in_an_adapter_is_counted_and_nothing_else(sink: Sink) -> None:
    guard.set_strict(False)

    def broken(call: Call) -> Any:
        raise MemoryError

    point = HookPoint(
        "t", names.ROLLOUT, ("samples",), read=broken, before=broken, after=broken, detail=broken,
        step=broken,
    )  # fmt: skip
    wrapped = wrap(lambda: 5, Hook(point))
    assert [wrapped() for _ in range(3)] == [5, 5, 5]
    assert spans(sink) == [(None,)] * 3
    assert sum(guard.faults().values()) == 15
    never = wrap(lambda: 6, Hook(HookPoint("t", names.ROLLOUT, when=broken)))
    assert never() == 6
    assert len(sink.rows) == 3


def test_when_says_no_the_call_is_left_alone(sink: Sink) -> None:
    wrapped = wrap(lambda: 1, Hook(HookPoint("t", names.ROLLOUT, when=lambda call: False)))
    assert wrapped() == 1
    assert not sink.rows
    assert not sink.open


def test_levels_drop_fine_spans_first_then_all(sink: Sink) -> None:
    coarse = wrap(lambda: 1, Hook(HookPoint("t", names.ROLLOUT)))
    fine = wrap(lambda: 1, Hook(HookPoint("t", names.TURN)))
    sink.level = STAGES
    coarse(), fine()
    assert len(sink.rows) == 1
    sink.level = OFF
    coarse(), fine()
    assert len(sink.rows) == 1


def test_spans_begun_by_hand_nest_and_end_once(sink: Sink) -> None:
    probe = HookProbe(sink, Patches())
    step = probe.begin(names.STEP, step=3, activate=True)
    inner = probe.begin(names.ROLLOUT)
    assert probe.current() == step
    probe.end(inner, {"samples": 2})
    probe.end(step, {"session": 0, "step": 3})
    probe.end(step)
    probe.end(0)
    probe.end(12345)
    assert probe.current() == 0
    assert [(row[4], *row[5:]) for row in sink.rows] == [(step, None, 2), (0, None, 0, 3)]


def test_a_span_that_turned_out_to_be_nothing_is_dropped(sink: Sink) -> None:
    probe = HookProbe(sink, Patches())
    outer = probe.begin(names.STEP, step=3, activate=True)
    span = probe.begin(names.ROLLOUT, activate=True)
    probe.drop(span)
    probe.drop(span)
    probe.drop(0)
    assert probe.current() == outer
    assert span not in sink.open
    probe.end(span, {"samples": 2})
    probe.end(outer, {"session": 0, "step": 3})
    assert [row[5:] for row in sink.rows] == [(None, 0, 3)]


def test_a_guarded_plugin_function_never_raises_and_stops_with_the_probe(sink: Sink) -> None:
    guard.set_strict(False)
    calls = []

    def callback(x: int) -> None:
        calls.append(x)
        raise ValueError("secret")

    safe: Any = HookProbe(sink, Patches()).guarded(callback)
    assert safe(1) is None
    sink.level = OFF
    safe(2)
    assert calls == [1]
    assert list(guard.faults().values()) == [1]
    assert "secret" not in str(guard.faults())


def start(*args: int, env: dict[str, str] | None = None, **options: Any) -> tuple[Any, ...]:
    return args, env, options


async def start_later(*, env: dict[str, str] | None = None) -> dict[str, str] | None:
    return env


def _with_ours(call: Call) -> dict[str, Any]:
    return {"env": {**(call.kwargs.get("env") or {}), "ours": "1"}}


HANDS_ON = HookPoint("t", arguments=_with_ours)


def test_arguments_go_besides_the_callers_and_instead_of_those_of_the_same_name(
    sink: Sink,
) -> None:
    seen = []

    def after(call: Call) -> None:
        seen.append((call.args, dict(call.kwargs)))

    wrapped = wrap(start, Hook(HookPoint("t", arguments=_with_ours, after=after)))
    theirs = {"env": {"theirs": "2"}, "size": 3}
    assert wrapped(1, **theirs) == ((1,), {"theirs": "2", "ours": "1"}, {"size": 3})
    assert seen == [((1,), theirs)], "a call is seen as the caller made it"
    assert wrapped() == ((), {"ours": "1"}, {})
    later = wrap(start_later, Hook(HANDS_ON))
    assert inspect.iscoroutinefunction(later)
    assert asyncio.run(later()) == {"ours": "1"}


def test_arguments_are_the_callers_own_after_an_error(sink: Sink) -> None:
    guard.set_strict(False)

    def broken(call: Call) -> dict[str, Any]:
        raise LookupError

    wrapped = wrap(start, Hook(HookPoint("t", arguments=broken)))
    assert wrapped(1, size=3) == ((1,), None, {"size": 3})
    [((where, kind), count)] = guard.faults().items()
    assert where.endswith("<locals>.broken")
    assert (kind, count) == ("LookupError", 1)


@pytest.mark.parametrize("odd", [None, "env", [("env", 1)], {1: 2}, {"unknown": 3}, {"value": 4}])
def test_arguments_that_the_function_does_not_take_are_counted_and_left_out(
    sink: Sink, odd: object
) -> None:
    guard.set_strict(False)

    def double(value: int) -> int:
        return 2 * value

    def answer(call: Call) -> Any:
        return odd

    assert wrap(double, Hook(HookPoint("t", arguments=answer)))(5) == 10
    [((where, kind), count)] = guard.faults().items()
    assert where.endswith("<locals>.answer")
    assert (kind, count) == ("Misfit", 1)


def test_arguments_are_the_callers_own_when_nothing_is_recorded(sink: Sink) -> None:
    wrapped = wrap(start, Hook(HANDS_ON))
    sink.level = OFF
    assert wrapped() == ((), None, {})
    sink.level = STAGES
    assert wrapped() == ((), {"ours": "1"}, {})
    no = wrap(start, Hook(HookPoint("t", arguments=_with_ours, when=lambda call: False)))
    assert no() == ((), None, {})
    hooks.activate(None)
    assert wrapped() == ((), None, {})


def _leave_mode(call: Call) -> None:
    call.state = {"mode": call.args[0], "before": call.state}


def _mode_at_work(call: Call) -> tuple[Any, ...]:
    return (str(call.state),)


WORK = HookPoint("work", names.USER, ("label",), read=_mode_at_work)
DECORATES = HookPoint("decorator", returned=WORK)
FACTORY = HookPoint("factory", after=_leave_mode, returned=DECORATES)
MAGIC = "attrs_3141562937"


def register(mode: str) -> Callable[[Any], Any]:
    """As frameworks mark the methods of their workers."""

    def decorator(function: Any) -> Any:
        setattr(function, MAGIC, {"mode": mode})
        return function

    return decorator


def test_what_a_decorator_makes_is_hooked_and_keeps_kind_and_attributes(sink: Sink) -> None:
    hooked = wrap(register, Hook(FACTORY))

    class Worker:
        @hooked("one")
        def work(self, rows: list[int]) -> int:
            """Doc."""
            return len(rows)

        @hooked("many")
        async def later(self, rows: list[int]) -> int:
            return len(rows)

    worker = Worker()
    assert worker.work([1, 2]) == 2
    assert inspect.iscoroutinefunction(Worker.later)
    assert asyncio.run(worker.later([1])) == 1
    work: Any = Worker.work
    assert (work.__name__, work.__doc__, getattr(work, MAGIC)) == ("work", "Doc.", {"mode": "one"})
    assert list(inspect.signature(Worker.work).parameters) == ["self", "rows"]
    made = [
        {"made": {"made": {"mode": mode, "before": None}}}  # each call's state holds the one before
        for mode in ("one", "many")
    ]
    assert spans(sink) == [(None, str(one)) for one in made]


class Functor:
    def __call__(self, rows: list[int]) -> int:
        return len(rows)


def test_an_object_made_for_a_caller_is_hooked_and_stays_what_it_is(sink: Sink) -> None:
    made = []

    def generate(name: str) -> Any:
        made.append(type(name, (Functor,), {})())
        return made[-1]

    method = wrap(generate, Hook(HookPoint("factory", before=_leave_mode, returned=WORK)))("work")
    assert method([1, 2]) == 2
    assert type(method).__name__ != "function"
    assert method.__class__.__name__ == "work"
    assert isinstance(method, Functor)
    setattr(method, MAGIC, 3)
    assert getattr(made[0], MAGIC) == 3
    assert copy.copy(made[0]).__class__ is copy.copy(method).__class__
    assert spans(sink) == [(None, str({"made": {"mode": "work", "before": None}}))]


def test_what_is_made_is_the_frameworks_own_when_nothing_is_recorded(sink: Sink) -> None:
    hooked = wrap(register, Hook(FACTORY))
    recorded = hooked("one")(start)
    assert find_hook(recorded) is not None
    assert hooked("one")(recorded) is recorded, "not twice"
    sink.level = OFF
    decorator = hooked("one")
    assert find_hook(decorator) is None
    assert decorator(start) is start
    hooks.activate(None)
    rows = len(sink.rows)
    assert recorded(1) == ((1,), None, {})
    assert len(sink.rows) == rows


def test_what_is_made_and_pickled_by_value_keeps_its_hook(sink: Sink) -> None:
    module = types.ModuleType("__generated__")
    exec("def work(self, xs):\n    return xs\n", vars(module))
    module.work.__module__ = "__main__"
    work = wrap(register, Hook(FACTORY))("one")(module.work)
    there = cloudpickle.loads(cloudpickle.dumps(work))
    assert getattr(there, MAGIC) == {"mode": "one"}
    assert there(None, [1]) == [1]
    assert spans(sink) == [(None, str({"made": {"made": {"mode": "one", "before": None}}}))]
    again = cloudpickle.loads(cloudpickle.dumps(wrap(register, Hook(HANDS_ON))))
    found = find_hook(again)
    assert found is not None
    assert found[0].point == HANDS_ON


class Bound:
    """An object that a class would bind as a method."""

    def __get__(self, owner: object, kind: object = None) -> object:
        return self

    def __call__(self) -> int:
        return 1


def test_a_function_that_has_nothing_to_return_this_time_is_no_fault(sink: Sink) -> None:
    assert wrap(lambda: None, Hook(HookPoint("factory", returned=WORK)))() is None
    assert guard.faults() == {}


@pytest.mark.parametrize("odd", [3, Functor, Bound()])
def test_what_cannot_be_hooked_is_handed_out_as_it_is_and_counted(sink: Sink, odd: object) -> None:
    guard.set_strict(False)
    assert wrap(lambda: odd, Hook(HookPoint("factory", returned=WORK)))() is odd
    assert guard.faults() == {("factory", "Misfit"): 1}


def test_a_state_that_is_no_plain_data_is_not_handed_on(sink: Sink) -> None:
    guard.set_strict(False)

    def before(call: Call) -> None:
        call.state = {"lock": threading.Lock()}

    wrapped = wrap(lambda: start, Hook(HookPoint("a:b", before=before, returned=WORK)))
    assert wrapped()() == ((), None, {})
    assert spans(sink) == [(None, "{'made': None}")]
    assert guard.faults() == {("a:b", "Misfit"): 1}
