"""What the integration does where vLLM is not as expected: it records less, and fails nothing.

Stand-ins for two classes of vLLM, so that any value can be put into them; the real ones are hooked
in ``test_conformance.py``.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_vllm import VllmAdapter
from rlvr_probe_vllm import requests as hooks

import rlvr_probe
from rlvr_probe import guard
from rlvr_probe.adapter import HookPoint
from rlvr_probe.config import Config
from rlvr_probe.model.requests import Request
from rlvr_probe.recording import read_run


class OutputProcessor:
    """Takes requests, and says of each that it ended."""

    def __init__(self) -> None:
        self.request_states: dict[Any, Any] = {}

    def add_request(self, request: Any, prompt: Any = None) -> str:
        self.request_states[request.request_id] = request
        return "added"

    def _update_stats_from_finished(self, req_state: Any, finish_reason: Any, stats: Any) -> str:
        self.request_states.pop(req_state.request_id)
        return "finished"

    def abort_requests(self, request_ids: Any) -> list[Any]:
        gone = list(request_ids)
        return [self.request_states.pop(request, None) for request in gone]


class Scheduler:
    """Takes requests, schedules all of them at once, and frees what it is told to."""

    def __init__(self) -> None:
        self.requests: dict[Any, Any] = {}

    def add_request(self, request: Any) -> str:
        self.requests[request.request_id] = request
        return "added"

    def schedule(self) -> Any:
        new = [SimpleNamespace(req_id=name, num_computed_tokens=4) for name in self.requests]
        return SimpleNamespace(scheduled_new_reqs=new)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> str:
        return "updated"

    def _free_request(self, request: Any) -> str:
        self.requests.pop(request.request_id)
        return "freed"


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    """What fails in a test is raised there, unless the test says otherwise."""
    guard.reset()
    guard.set_strict(True)
    yield
    guard.set_strict(False)
    rlvr_probe.detach()
    guard.reset()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins under the names of the real ones, made anew: hooks stay on a class."""
    package = ModuleType("vllm")
    package.__spec__ = ModuleSpec("vllm", None)  # or it would not count as installed
    monkeypatch.setitem(sys.modules, "vllm", package)
    for name, kind in (
        ("vllm.v1.engine.output_processor", OutputProcessor),
        ("vllm.v1.core.sched.scheduler", Scheduler),
    ):
        module = ModuleType(name)
        setattr(module, kind.__name__, type(kind.__name__, (), dict(vars(kind))))
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def requests(tmp_path: Path, engine: None) -> Any:
    """Attached; called, it detaches and gives what was recorded."""
    rlvr_probe.attach(
        config=Config.from_environ({}, out=tmp_path, run_id="run", free_b=0, own_share=1)
    )

    def read() -> list[Request]:
        rlvr_probe.detach()
        if not (tmp_path / "run").exists():
            return []
        trace = read_run(tmp_path / "run")
        assert trace.lost == {}
        return [request for attempt in trace.attempts for request in attempt.requests]

    return read


def processor() -> Any:
    return sys.modules["vllm.v1.engine.output_processor"].OutputProcessor()


def scheduler() -> Any:
    return sys.modules["vllm.v1.core.sched.scheduler"].Scheduler()


KNOWN = ("prompt_tokens", "response_tokens", "cached_tokens", "queue_s", "prefill_s", "decode_s")


def figures(request: Request) -> list[Any]:
    return [getattr(request, name) for name in (*KNOWN, "preemptions", "finish")]


def test_what_is_not_there_is_absent_and_not_0(requests: Any) -> None:
    asked, served, request = processor(), scheduler(), SimpleNamespace(request_id="a")
    assert (asked.add_request(request), served.add_request(request)) == ("added", "added")
    assert served._free_request(request) == "freed"
    assert asked._update_stats_from_finished(request, None, None) == "finished"
    [entry] = requests()
    assert figures(entry) == [None] * 8


STATE: dict[str, Any] = {
    "prompt_len": 12,
    "is_prefilling": False,
    "num_cached_tokens": 8,
    "detokenizer": SimpleNamespace(num_output_tokens=lambda: 5),
}
TIMES = {"queued_ts": 1.0, "scheduled_ts": 2.0, "first_token_ts": 4.0, "last_token_ts": 8.0}


def finish(state: dict[str, Any], reason: Any = "stop") -> Any:
    request = SimpleNamespace(request_id="a", **state)
    asked = processor()
    asked.add_request(request)
    assert asked._update_stats_from_finished(request, reason, None) == "finished"


def test_what_is_there_is_recorded(requests: Any) -> None:
    stats = SimpleNamespace(**TIMES, num_preemptions=2)
    finish({**STATE, "stats": stats})
    [request] = requests()
    assert figures(request) == [12, 5, 8, 1.0, 2.0, 4.0, 2, "stop"]


@pytest.mark.parametrize(
    ("name", "value", "lost"),
    [
        ("prompt_len", "12", {"prompt_tokens"}),
        ("prompt_len", True, {"prompt_tokens"}),
        ("is_prefilling", True, {"cached_tokens"}),
        ("num_cached_tokens", 1.5, {"cached_tokens"}),
        ("detokenizer", None, {"response_tokens"}),
        ("detokenizer", SimpleNamespace(num_output_tokens=lambda: "5"), {"response_tokens"}),
        ("queued_ts", 0.0, {"queue_s"}),
        ("scheduled_ts", math.nan, {"queue_s", "prefill_s"}),
        ("first_token_ts", 1.5, {"prefill_s"}),
        ("last_token_ts", math.inf, {"decode_s"}),
        ("last_token_ts", None, {"decode_s"}),
        ("num_preemptions", -0.5, {"preemptions"}),
    ],
)
def test_a_value_that_cannot_be_is_absent_and_the_others_are_there(
    requests: Any, name: str, value: Any, lost: set[str]
) -> None:
    times: dict[str, Any] = {**TIMES, "num_preemptions": 2}
    state = {**STATE, "stats": SimpleNamespace(**times)}
    if name in times:
        state["stats"] = SimpleNamespace(**{**times, name: value})
    else:
        state[name] = value
    finish(state)
    [request] = requests()
    absent = {name for name in (*KNOWN, "preemptions") if getattr(request, name) is None}
    assert absent == lost


@pytest.mark.parametrize("reason", [None, "tired", 0, object()])
def test_an_end_of_no_known_name_is_unknown(requests: Any, reason: Any) -> None:
    finish(STATE, reason)
    assert [request.finish for request in requests()] == [None]


@pytest.mark.parametrize("given", [("a", "b"), ["b", "a", "x"], {"a", "b"}])
def test_requests_that_are_given_up_are_recorded(requests: Any, given: Any) -> None:
    asked = processor()
    for name in "ab":
        asked.add_request(SimpleNamespace(request_id=name, **STATE))
    assert len(asked.abort_requests(given)) == len(given)
    assert [request.finish for request in requests()] == ["abort", "abort"]


def test_ids_that_can_be_read_only_once_are_left_to_vllm(requests: Any) -> None:
    asked = processor()
    asked.add_request(SimpleNamespace(request_id="a", **STATE))
    assert len(asked.abort_requests(request for request in "a")) == 1
    assert requests() == []


def test_an_id_is_in_no_recording(requests: Any, tmp_path: Path) -> None:
    request = SimpleNamespace(request_id="canary-of-a-user", external_req_id="canary-too", **STATE)
    asked = processor()
    asked.add_request(request)
    asked._update_stats_from_finished(request, "stop", None)
    assert len(requests()) == 1
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert b"told_by" in b"".join(files)
    assert b"canary" not in b"".join(files)


def test_a_request_that_was_there_before_the_probe_is_no_request_of_its(
    engine: None, tmp_path: Path
) -> None:
    asked, served, request = processor(), scheduler(), SimpleNamespace(request_id="a", **STATE)
    asked.add_request(request)
    served.add_request(request)
    rlvr_probe.attach(config=Config.from_environ({}, out=tmp_path, run_id="run", free_b=0))
    assert served._free_request(request) == "freed"
    assert asked._update_stats_from_finished(request, "stop", None) == "finished"
    rlvr_probe.detach()
    assert not (tmp_path / "run").exists()


def test_requests_whose_end_nobody_sees_take_no_more_room_than_those_that_live(
    requests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_KEPT", 10)
    held = list[int]()
    keep = hooks.keep_to

    def watch(remembered: Any, living: Any) -> None:
        keep(remembered, living)
        held.append(len(remembered))

    monkeypatch.setattr(hooks, "keep_to", watch)
    asked, served = processor(), scheduler()
    for number in range(200):
        request = SimpleNamespace(request_id=str(number), **STATE)
        for side, living in ((asked, "request_states"), (served, "requests")):
            side.add_request(request)
            getattr(side, living).clear()
    assert max(held) <= 11
    assert requests() == []


def failing(name: str) -> Any:
    def fail(*_: Any) -> Any:
        raise RuntimeError(name)

    return fail


POINTS = VllmAdapter().hook_points("0")
WAYS = [
    (at, part)
    for (at, point), part in itertools.product(enumerate(POINTS), ("before", "after", "when"))
    if getattr(point, part) is not None
]


@pytest.mark.parametrize(("at", "part"), WAYS)
def test_an_error_of_ours_anywhere_does_not_reach_the_engine(
    engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, part: str
) -> None:
    guard.set_strict(False)
    points: list[HookPoint] = list(POINTS)
    fields = {name: getattr(points[at], name) for name in HookPoint.__dataclass_fields__}
    points[at] = HookPoint(**{**fields, part: failing(part)})
    monkeypatch.setattr(VllmAdapter, "hook_points", lambda *_: points)
    rlvr_probe.attach(config=Config.from_environ({}, out=tmp_path, run_id="run", free_b=0))
    asked, served = processor(), scheduler()
    entry, other = (SimpleNamespace(request_id=name, **STATE) for name in "ab")
    assert [asked.add_request(request) for request in (entry, other)] == ["added"] * 2
    assert served.add_request(entry) == "added"
    assert len(served.schedule().scheduled_new_reqs) == 1
    assert served.update_from_output(None, None) == "updated"
    assert served._free_request(entry) == "freed"
    assert asked._update_stats_from_finished(entry, "stop", None) == "finished"
    assert asked.abort_requests(["b"]) == [other]
    faults = guard.faults()
    rlvr_probe.detach()
    assert {kind for _, kind in faults} == {"RuntimeError"}
    assert sum(faults.values()) in (1, 2)


def test_an_object_that_raises_when_it_is_looked_at_costs_its_record_only(
    engine: None, tmp_path: Path
) -> None:
    guard.set_strict(False)
    rlvr_probe.attach(config=Config.from_environ({}, out=tmp_path, run_id="run", free_b=0))

    class Hostile:
        request_id = "a"

        def __getattr__(self, name: str) -> Any:
            raise OSError(name)

    asked, request = processor(), Hostile()
    assert asked.add_request(request) == "added"
    assert asked._update_stats_from_finished(request, "stop", None) == "finished"
    faults = guard.faults()
    rlvr_probe.detach()
    assert list(faults.values()) == [1]
    assert {kind for _, kind in faults} == {"OSError"}
