"""A toy trainer with every kind of callable that a framework may have. Knows nothing of a probe."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

Rows = list[list[int]]


class Judge:
    """A reward that is an object."""

    weight = 2.0

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, rows: Rows) -> list[float]:
        self.calls += 1
        return [self.weight * len(row) for row in rows]

    def __eq__(self, other: object) -> bool:
        return other is self

    def __hash__(self) -> int:
        return 7


class LateJudge(Judge):
    """The same, awaited."""

    async def __call__(self, rows: Rows) -> list[float]:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().__call__(rows)


def even(rows: Rows, scale: float = 1.0) -> list[float | None]:
    """A reward that is a function; it has none for an empty row."""
    return [scale * (len(row) % 2) if row else None for row in rows]


def slow() -> None:
    """Takes longer than its caller's alarm."""


def start(*, env: dict[str, str] | None = None) -> bool:
    """Starts a child that inherits ``env``; says whether the caller's own is in it."""
    return "theirs" in (env or {})


def marked(weight: int) -> Callable[[Any], Any]:
    """As a framework marks what others may call."""

    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def method(*args: Any) -> Any:
            return function(*args)

        method.weight = weight  # type: ignore[attr-defined]
        return method

    return decorator


def bridge(function: Any) -> Any:
    """A method that gives a coroutine to a coroutine, known by its frame, and waits elsewhere."""

    @functools.wraps(function)
    def method(*args: Any) -> Any:
        given = function(*args)
        awaits = sys._getframe(1).f_code.co_flags & inspect.CO_COROUTINE
        return given if awaits else asyncio.run(given)

    return method


class Traced:
    """Somebody's instrumentation: a method that is no function, though it looks like one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["function"], name)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return functools.partial(self.function, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Base:
    """What a user's trainer derives from."""

    step = 0

    def generate(self) -> Rows:
        """Lengths differ from step to step; one row is empty."""
        return [[self.step] * ((3 * self.step + i) % 5) for i in range(4)]

    def stream(self, count: int) -> Iterator[int]:
        yield from range(count)
        return

    async def later(self, count: int) -> AsyncIterator[int]:
        for i in range(count):
            yield i

    async def score(self, rows: Rows) -> int:
        await asyncio.sleep(0)
        return sum(map(len, rows))

    @bridge
    async def longest(self, rows: Rows) -> int:
        await asyncio.sleep(0)
        return max(map(len, rows))

    @contextlib.contextmanager
    def timer(self, name: str) -> Iterator[str]:
        yield name

    @contextlib.asynccontextmanager
    async def engine(self) -> AsyncIterator[int]:
        yield self.step

    @staticmethod
    def pad(rows: Rows) -> int:
        return max(map(len, rows))

    @classmethod
    def build(cls, *args: Any) -> Base:
        return cls(*args)

    @Traced
    def shifted(self, value: int) -> int:
        return value + self.step

    @Traced
    async def shifted_later(self, value: int) -> int:
        return value - self.step

    def inherited(self) -> int:
        return self.step


class Trainer(Base):
    """Samples, verifies, updates; all of it by its step number, so that every run is the same."""

    def __init__(self, rewards: list[Any], steps: int = 3) -> None:
        self.rewards, self.steps = rewards, steps
        self.callbacks: list[Callable[[int], object]] = []
        self.losses: list[Any] = []

    def generate(self) -> Rows:
        return [*super().generate(), [1]]

    def train(self) -> list[Any]:
        for step in range(1, self.steps + 1):
            self.step = step
            for callback in self.callbacks:
                callback(self.step)
            self.one_step()
        return self.losses

    def one_step(self) -> None:
        with self.timer("rollout") as name:
            rows = self.generate()
        self.losses.append([name, rows, self.pad(rows), self.inherited(), self.shifted(1)])
        self.losses.append(self.longest(rows))
        self.losses.append([self.evaluate(reward, rows) for reward in self.rewards])
        self.losses.append(list(self.stream(3)))
        method = marked(self.step)(even)
        self.losses.append([start(env={"theirs": "1"}), method(rows), method.weight])
        self.losses.append(asyncio.run(self.asynchronous(rows)))

    def evaluate(self, reward: Any, rows: Rows) -> Any:
        given = reward(rows)
        return asyncio.run(given) if asyncio.iscoroutine(given) else given

    async def asynchronous(self, rows: Rows) -> list[Any]:
        async with self.engine() as step:
            score, again = await self.score(rows), await self.shifted_later(3)
            longest = await self.longest(rows)
            return [step, score, again, longest, [i async for i in self.later(2)]]
