"""Users' own stages."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import cloudpickle
import pytest

import rlvr_probe
from rlvr_probe.probe import hooks
from rlvr_probe.probe.recorder import Recorder
from tests.unit.test_recorder import rows


@pytest.fixture
def recorder(record: Callable[..., Recorder]) -> Iterator[Recorder]:
    made = record()
    hooks.activate(made)
    yield made
    hooks.activate(None)


def recorded(recorder: Recorder) -> list[tuple[Any, ...]]:
    """(span, parent, error, *values) in the order in which they ended."""
    recorder.close("exit")
    return [tuple(row[3:]) for row in rows(recorder.folder)]


def test_with_async_with_and_decorator_record_label_and_attributes(recorder: Recorder) -> None:
    @rlvr_probe.span("decorated", kind="sync")
    def plain(x: int) -> int:
        return x + 1

    @rlvr_probe.span("decorated", kind="async")
    async def waits(x: int) -> int:
        async with rlvr_probe.span("inside"):
            return x + 1

    @rlvr_probe.span("decorated", kind="generator")
    def yields() -> Iterator[int]:
        yield 1

    with rlvr_probe.span("outer", prompts=3, ratio=0.5, flag=True, nothing=None):
        assert plain(1) == 2
        assert asyncio.run(waits(1)) == 2
        assert list(yields()) == [1]
    spans = recorded(recorder)
    outer = spans[-1]
    assert outer[1:] == (0, None, "outer", 3, 0.5, True, None)
    assert [span[3:] for span in spans[:-1]] == [
        ("decorated", "sync"),
        ("inside",),
        ("decorated", "async"),
        ("decorated", "generator"),
    ]
    assert [span[1] for span in spans[:-1]] == [outer[0], spans[2][0], outer[0], outer[0]]


def test_an_exception_passes_and_leaves_its_type_only(recorder: Recorder) -> None:
    @rlvr_probe.span("decorated", k=1)
    def fails() -> None:
        raise LookupError("secret")

    with pytest.raises(LookupError, match="secret"), rlvr_probe.span("outer"):
        fails()
    assert [span[2:] for span in recorded(recorder)] == [
        ("LookupError", "decorated", 1),
        ("LookupError", "outer"),
    ]


def test_one_object_serves_many_threads_and_tasks(recorder: Recorder) -> None:
    shared = rlvr_probe.span("shared")
    ready = threading.Barrier(8)

    def work() -> None:
        for _ in range(50):
            with shared:
                pass
        ready.wait()
        with shared:
            ready.wait()

    async def task(i: int) -> None:
        async with shared:
            await asyncio.sleep(0.001 * (i % 5))

    async def tasks() -> None:
        await asyncio.gather(*(task(i) for i in range(64)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(tasks())
    spans = recorded(recorder)
    assert len(spans) == 8 * 51 + 64
    assert {span[1] for span in spans} == {0}
    assert len({span[0] for span in spans}) == len(spans)
    assert not recorder.open
    assert not shared._open


def test_a_suspended_generator_does_not_keep_the_stage_around_it_open(recorder: Recorder) -> None:
    def suspended() -> Generator[int, None, None]:
        with rlvr_probe.span("inner"):
            yield 1

    generator = suspended()
    with rlvr_probe.span("outer"):
        next(generator)
    with rlvr_probe.span("after"):
        generator.close()
        with rlvr_probe.span("last"):
            pass
    spans = {span[3]: span for span in recorded(recorder)}
    assert set(spans) == {"outer", "inner", "after", "last"}
    assert spans["inner"][1] == spans["outer"][0]
    assert (spans["after"][1], spans["last"][1]) == (0, spans["after"][0])
    assert not recorder.open


def test_a_stage_may_end_in_another_thread(recorder: Recorder) -> None:
    handed = rlvr_probe.span("handed")
    contextvars.copy_context().run(handed.__enter__)

    def end() -> None:
        with rlvr_probe.span("of the thread"):
            handed.__exit__(None, None, None)
            with rlvr_probe.span("inside"):
                pass

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    spans = {span[3]: span for span in recorded(recorder)}
    assert set(spans) == {"handed", "of the thread", "inside"}
    assert spans["inside"][1] == spans["of the thread"][0]


def test_a_decorator_without_a_name_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"@span\('name'\)"):
        rlvr_probe.span(len)  # type: ignore[arg-type]


def test_other_values_are_left_out(recorder: Recorder) -> None:
    with rlvr_probe.span("x", tensor=object()):  # type: ignore[arg-type]
        pass
    assert recorded(recorder)[0][3:] == ("x", None)


def test_without_attach_it_does_nothing() -> None:
    @rlvr_probe.span("x")
    def work() -> int:
        return 1

    with rlvr_probe.span("y"):
        assert work() == 1


def test_a_decorated_function_travels_to_another_process(recorder: Recorder) -> None:
    @rlvr_probe.span("x", k=2)
    def work(n: int) -> int:
        return n

    assert cloudpickle.loads(cloudpickle.dumps(work))(7) == 7
    assert [span[3:] for span in recorded(recorder)] == [("x", 2)]
