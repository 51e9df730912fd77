"""Spans of the application's own OpenTelemetry: told where there are any, and nothing is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlvr_probe
from rlvr_probe import guard
from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.probe.recorder import Recorder, loaded_libraries
from rlvr_probe.recording import read_run
from tests.journals import JournalFile, Training


@pytest.fixture
def sdk() -> Any:
    """That of OpenTelemetry, which the environment of the oldest dependencies lacks."""
    return pytest.importorskip("opentelemetry.sdk.trace")


def marked(tmp_path: Path, play: Callable[[], None]) -> tuple[Trace, dict[str, tuple[str, str]]]:
    """The trace of a program that marks stages, and what was around each, by its label."""
    rlvr_probe.attach(out=tmp_path / "runs", run_id="run", frameworks=())
    play()
    rlvr_probe.detach()
    found = read_run(tmp_path / "runs" / "run")
    labels = {(one.process, one.id): str(one.attributes["label"]) for one in found.user_spans}
    return found, {labels[key]: ids for key, ids in found.application_spans.items()}


def ids_of(span: Any) -> tuple[str, str]:
    context = span.get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def test_the_innermost_span_around_ours_is_told_with_the_outermost_of_ours(
    tmp_path: Path, sdk: Any
) -> None:
    tracer = sdk.TracerProvider(shutdown_on_exit=False).get_tracer("application")
    told = dict[str, tuple[str, str]]()

    def play() -> None:
        with rlvr_probe.span("alone"):
            pass
        with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner") as span:
            told["inside"] = ids_of(span)
            with rlvr_probe.span("inside"), rlvr_probe.span("deeper"):
                pass
        with rlvr_probe.span("around"), tracer.start_as_current_span("later"):
            pass

    found, application_spans = marked(tmp_path, play)
    assert len(found.user_spans) == 4
    assert application_spans == told


def test_a_span_that_the_application_does_not_keep_is_not_told(tmp_path: Path, sdk: Any) -> None:
    sampler = sdk.sampling.ALWAYS_OFF
    provider = sdk.TracerProvider(sampler=sampler, shutdown_on_exit=False)
    tracer = provider.get_tracer("application")

    def play() -> None:
        with tracer.start_as_current_span("dropped"), rlvr_probe.span("inside"):
            pass

    assert marked(tmp_path, play)[1] == {}


@pytest.mark.parametrize("loaded", [None, SimpleNamespace()])
def test_a_program_without_opentelemetry_tells_nothing_and_loads_nothing(
    loaded: object, record: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    if loaded is None:
        monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    else:  # half imported
        monkeypatch.setitem(sys.modules, "opentelemetry.trace", loaded)
    recorder = record()
    loaded_libraries.record_application_span(recorder, 1)
    assert not recorder.rows
    assert ("opentelemetry.trace" in sys.modules) is (loaded is not None)


def test_an_application_whose_tracing_fails_is_counted_and_goes_on(
    record: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("no context")

    loaded = SimpleNamespace(get_current_span=broken)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", loaded)
    guard.set_strict(False)
    recorder = record()
    loaded_libraries.record_application_span(recorder, 1)
    assert not recorder.rows
    assert [fault[0] for fault in guard.faults()] == ["recorder.application"]


@pytest.mark.parametrize(
    ("trace_id", "span_id"),
    [
        ("0" * 32, "1" * 16),
        ("1" * 32, "0" * 16),
        ("A" * 32, "1" * 16),
        ("1" * 31, "1" * 16),
        (7, "1" * 16),
        ("../../etc/passwd" * 2, "1" * 16),
    ],
)
def test_what_is_no_id_is_no_link(trace_id: object, span_id: object, tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    training.step(1)
    journal.event(names.APPLICATION_SPAN, 2.0, parent=1, trace=trace_id, span=span_id)
    journal.close()
    found = read_run(tmp_path / "run")
    assert found.application_spans == {}
    assert found.lost == {"bad_row": 1}
