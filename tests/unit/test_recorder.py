"""Queue, thread, fork and the end of a process."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from rlvr_probe import guard
from rlvr_probe.model import names, schema
from rlvr_probe.probe.journal.writer import build_header
from rlvr_probe.probe.recorder import OFF, STAGES, Recorder, bookkeeping, pause
from rlvr_probe.probe.recorder import recorder as recorder_module
from rlvr_probe.recording import read_run
from tests.jobs import wait_for

Make = Callable[..., Recorder]


def lines(folder: Path) -> dict[str, list[Any]]:
    """Parsed lines of every journal in a run folder, by process and segment."""
    return {
        path.name: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    }


def rows(folder: Path, kind: str | None = None) -> list[list[Any]]:
    """Control rows of one kind, or data rows."""
    found = [row for body in lines(folder).values() for row in body[1:]]
    if kind is None:
        return [row for row in found if isinstance(row[0], int)]
    return [row for row in found if row[0] == kind]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what the recorder does by itself; what it is just writing may not be readable."""

    def holds() -> bool:
        try:
            return condition()
        except (AssertionError, OSError, ValueError):
            return False

    wait_for(holds, every_s=0.005)


def begun(recorder: Recorder, *what: Any) -> int:
    """Id of a span that begins now."""
    span = recorder.next_id()
    recorder.begin(span, *what)
    return span


def test_nothing_is_written_before_the_first_row(record: Make) -> None:
    recorder = record()
    recorder.define(names.STEP, ("step",))
    assert not recorder.folder.exists()
    recorder.close("exit")
    assert not recorder.folder.exists()


def test_every_row_is_written_in_order_with_its_definition(record: Make) -> None:
    recorder = record()
    definition = recorder.define(names.REWARDS, ("values",))
    for i in range(2_500):
        recorder.event_row(definition, 0, ([i],))
    recorder.close("exit")
    body = next(iter(lines(recorder.folder).values()))
    assert body[0]["journal"] == "rlvr-probe"
    assert set(body[0]) == set(schema.HEADER_KEYS)
    assert [row[3][0] for row in rows(recorder.folder)] == list(range(2_500))
    defined = {row[1]: row[2:] for row in rows(recorder.folder, "def")}
    assert defined[definition] == ["event", "rewards", ["values"]]
    assert rows(recorder.folder, "end")[0][2] == "exit"
    assert (recorder.folder / ".gitignore").read_text() == "*\n"


def test_what_is_recorded_is_written_at_once_when_nothing_is_open_any_more(record: Make) -> None:
    recorder = record(flush_s=60)
    definition = recorder.define(names.STEP, ("step",))
    outer = begun(recorder, names.STEP, definition, monotonic_ns(), 0)
    wait_for(lambda: any(recorder.folder.glob("*.jsonl")))
    inner = begun(recorder, names.STEP, definition, monotonic_ns(), outer)
    recorder.end(inner, definition, monotonic_ns(), None, [1])
    assert len(recorder.rows) == 1
    recorder.end(outer, definition, monotonic_ns(), None, [1])
    wait_for(lambda: len(rows(recorder.folder)) == 2)


def test_a_signal_handler_may_end_what_is_open_while_the_thread_is_woken(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pause, "HURRY_NS", 0)
    recorder = record(flush_s=60)
    definition = recorder.define(names.STEP, ("step",))

    def one(*_: object) -> None:
        span = begun(recorder, names.STEP, definition, monotonic_ns(), 0)
        recorder.end(span, definition, monotonic_ns(), None, [1])

    before = signal.signal(signal.SIGVTALRM, one)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0002, 0.0002)
        for _ in range(20_000):
            one()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    recorder.close("exit")


def test_a_full_queue_drops_and_counts(record: Make) -> None:
    recorder = record(queue_rows=10)
    recorder._start_lock.acquire()  # nothing drains while the rows come
    definition = recorder.define(names.REWARDS, ("values",))
    recorder._thread = threading.current_thread()
    for i in range(25):
        recorder.event_row(definition, 0, (i,))
    recorder._thread = None
    recorder._start_lock.release()
    recorder.append((definition, 0, 0, 99))
    assert recorder.lost == {"queue_full": 16}
    recorder._start()
    recorder.close("exit")
    assert len(rows(recorder.folder)) == 10
    assert rows(recorder.folder, "lost")[-1][2:] == ["queue_full", 16]


def test_a_segment_that_is_full_is_followed_by_the_next(record: Make) -> None:
    recorder = record(segment_b=4096)
    definition = recorder.define(names.REWARDS, ("values",))
    for i in range(300):
        recorder.event_row(definition, 0, ("x" * 60, i))
        if i % 50 == 0:
            recorder.flush()
    recorder.close("exit")
    files = lines(recorder.folder)
    assert len(files) >= 3
    assert [body[0]["segment"] for body in files.values()] == list(range(len(files)))
    assert all([row[0] for row in body[1:3]] == ["sum", "def"] for body in files.values())
    assert [row[-1] for row in rows(recorder.folder)] == list(range(300))


def test_a_span_open_for_a_second_is_journaled_as_open_once(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_NS", 20_000_000)
    recorder = record()
    definition = recorder.define(names.TURN, ())
    span = begun(recorder, names.TURN, definition, monotonic_ns(), 0)
    recorder.event_row(recorder.define(names.REWARDS, ()), 0, ())
    wait_until(lambda: [row[3] for row in rows(recorder.folder, "open")] == [span])
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_NS", 0)  # from here on, every flush looks
    for _ in range(3):
        recorder.flush()
    recorder.end(span, definition, monotonic_ns(), None, ())
    recorder.close("exit")
    assert [row[3] for row in rows(recorder.folder, "open")] == [span]


class Number(float):
    """Like numpy.float64, a subclass of float."""


def slots(folder: Path) -> dict[int, tuple[str, str, int]]:
    """span -> (name, detail, step) of every slot in use."""
    found = {}
    for path in folder.glob("*.open"):
        data = path.read_bytes()
        for slot in range(1, schema.OPEN_SLOTS + 1):
            block = data[slot * schema.OPEN_SLOT_BYTES :][: schema.OPEN_SLOT.size]
            if any(block[:8]) or any(block[-4:]):
                values = schema.unpack_block(schema.OPEN_SLOT, block, 0)
                assert values is not None
                span, _, _, _, step, name, detail = values
                text = (field.rstrip(b"\0").decode() for field in (name, detail))
                found[span] = (*text, step)
    return found


def test_coarse_spans_are_in_the_open_table_while_they_are_open(record: Make) -> None:
    recorder = record()
    definition = recorder.define(names.REWARD_FN, ())
    first = begun(recorder, names.REWARD_FN, definition, 1, 0, "math_verify", 3)
    second = begun(recorder, names.STEP, definition, 2, first)
    assert slots(recorder.folder) == {
        first: ("reward_fn", "math_verify", 3),
        second: ("step", "", -1),
    }
    recorder.end(first, definition, 5, None, ())
    assert slots(recorder.folder) == {second: ("step", "", -1)}


def test_more_open_spans_than_slots_are_counted_not_lost(record: Make) -> None:
    recorder = record()
    definition = recorder.define(names.REWARD_FN, ())
    spans = [begun(recorder, names.REWARD_FN, definition, 1, 0) for _ in range(100)]
    assert len(slots(recorder.folder)) == schema.OPEN_SLOTS
    for span in spans:
        recorder.end(span, definition, 2, None, ())
    assert not slots(recorder.folder)
    recorder.close("exit")
    table = next(recorder.folder.glob("*.open")).read_bytes()
    values = schema.unpack_block(schema.OPEN_HEADER, table, 0)
    assert values is not None
    magic, process, beat, overflow, count, ended, _, written = values
    [path] = recorder.folder.glob("*.jsonl")
    assert written == len([row for row in path.read_bytes().splitlines() if row[:6] != b'["sum"'])
    assert (magic, process.decode()) == (schema.OPEN_MAGIC, recorder.process)
    assert (overflow, count, ended) == (36, schema.OPEN_SLOTS, 1)
    assert beat > 0


def test_a_deleted_open_table_is_made_again_with_what_is_open(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_NS", 10_000_000)
    recorder = record()
    definition = recorder.define(names.STEP, ())
    span = begun(recorder, names.STEP, definition, monotonic_ns(), 0, "", 7)
    # Moved first: what is made again while files are deleted would be deleted as well.
    shutil.rmtree(recorder.folder.rename(recorder.folder.with_name("deleted")))
    wait_until(lambda: slots(recorder.folder) == {span: ("step", "", 7)})
    # The file is there a moment before it is written to.
    threading.Event().wait(0.1)
    recorder.end(span, definition, monotonic_ns(), None, ())
    assert not slots(recorder.folder)


def test_a_value_that_json_cannot_say_is_absent_and_counted(record: Make) -> None:
    recorder = record()
    definition = recorder.define(names.REWARDS, ("values",))
    for value in (1, object(), Number(2.5), "\ud800", 3, float("nan")):
        recorder.event_row(definition, 0, (value,))
    recorder.close("exit")
    assert [row[3] for row in rows(recorder.folder)] == [1, None, 2.5, 3, None]
    assert {tuple(row[2:]) for row in rows(recorder.folder, "lost")} == {
        ("unencodable", 1),
        ("unencodable_value", 1),
    }


def test_a_loss_is_reported_once_there_is_room_again(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_NS", 1_000_000)
    full = threading.Event()
    real = os.write

    def write(fd: int, data: Any) -> int:
        if full.is_set():
            raise OSError(errno.ENOSPC, "full")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    recorder = record()
    definition = recorder.define(names.REWARDS, ("values",))
    recorder.event_row(definition, 0, (1,))
    wait_until(lambda: len(rows(recorder.folder)) == 1)
    full.set()
    for i in range(7):
        recorder.event_row(definition, 0, (i,))
    recorder.flush()
    full.clear()
    wait_until(lambda: [row[2:] for row in rows(recorder.folder, "lost")] == [["disk_full", 7]])
    recorder.close("exit")
    assert [row[3] for row in rows(recorder.folder)] == [1]


def test_faults_are_written_without_their_message(record: Make) -> None:
    recorder = record()
    guard.note("place", ValueError("secret"))
    recorder.event_row(recorder.define(names.REWARDS, ()), 0, ())
    recorder.close("exit")
    assert rows(recorder.folder, "fault")[-1][2:] == ["place", "ValueError", 1]
    assert "secret" not in str(lines(recorder.folder))


def test_too_much_own_time_records_less_then_nothing(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "WINDOW_NS", 10_000_000)
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_NS", 1_000_000)
    recorder = record()
    definition = recorder.define(names.REWARDS, ())
    begun(recorder, names.STEP, recorder.define(names.STEP, ()), monotonic_ns(), 0, "", 3)

    def is_off() -> bool:
        recorder.event_row(definition, 0, ())
        recorder.own_ns += 50_000_000
        return recorder.level == OFF

    wait_for(is_off)
    wait_until(lambda: not recorder.open)
    wait_until(lambda: not slots(recorder.folder))
    recorder.close("exit")
    assert [row[2] for row in rows(recorder.folder, "level")] == ["stages", "off"]


def test_a_forked_child_writes_a_file_of_its_own_and_leaves_the_parents_alone(record: Make) -> None:
    from rlvr_probe.probe import hooks

    recorder = record()
    hooks.activate(recorder)
    definition = recorder.define(names.STEP, ("step",))
    parent_span = begun(recorder, names.STEP, definition, monotonic_ns(), 0, "", 1)
    recorder.event_row(definition, 0, ("parent",))
    parent = recorder.process
    pid = os.fork()
    if pid == 0:
        try:
            assert recorder.process != parent
            recorder.end(parent_span, definition, monotonic_ns(), None, ())  # not the child's
            recorder.event_row(definition, 0, ("child",))
            recorder.close("exit")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert list(slots(recorder.folder)) == [parent_span]
    recorder.end(parent_span, definition, monotonic_ns(), None, (1,))
    recorder.close("exit")
    files = lines(recorder.folder)
    assert len(files) == 2
    owners = {body[0]["process"]: body[0]["owner"] for body in files.values()}
    assert owners[parent] is None
    assert set(owners.values()) == {None, parent}
    texts = {name: [row[3] for row in body if len(row) == 4 and isinstance(row[0], int)]
             for name, body in files.items()}  # fmt: skip
    assert texts[f"p{parent}.0000.jsonl"] == ["parent"]
    assert sorted(texts.values()) == [["child"], ["parent"]]


def test_a_loss_is_known_even_if_the_disk_is_full_to_the_end(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record()
    definition = recorder.define(names.USER, ("label",))
    recorder.span_row(definition, 0, 1, 0, ("x",))
    recorder.flush()

    def write(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", write)
    for _ in range(1_000):
        recorder.span_row(definition, 0, 1, 0, ("x",))
    recorder.close("exit")
    trace = read_run(recorder.folder)
    [process] = trace.processes
    assert process.lost == trace.lost == {"unreported": 1_000}


def test_a_signal_handler_may_record_while_recording_starts(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record()
    definition = recorder.define(names.REWARDS, ("values",))
    real = build_header

    def interrupted(**known: Any) -> Any:
        recorder.event_row(definition, 0, ("handler",))
        return real(**known)

    monkeypatch.setattr(recorder_module, "build_header", interrupted)
    recorder.event_row(definition, 0, ("first",))
    recorder.close("exit")
    assert [row[3] for row in rows(recorder.folder)] == ["first", "handler"]


def test_a_disk_that_hangs_at_the_first_write_does_not_keep_the_process(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record()
    over = threading.Event()
    written = list[int]()
    real = os.write

    def write(fd: int, data: Any) -> int:
        over.wait(60)
        written.append(fd)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    recorder.event_row(recorder.define(names.REWARDS, ()), 0, ())
    recorder.close("exit", timeout_s=0.3)
    assert written == []
    over.set()


def test_a_forked_child_says_that_it_records_less(record: Make) -> None:
    recorder = record()
    recorder.level = STAGES
    recorder.after_fork()
    recorder.event_row(recorder.define(names.REWARDS, ()), 0, ())
    recorder.close("exit")
    assert rows(recorder.folder, "level")[0][2:] == ["stages", "inherited"]


def test_what_a_thread_that_hangs_elsewhere_leaves_is_counted(
    record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record()
    definition = recorder.define(names.REWARDS, ())
    hangs, over = threading.Event(), threading.Event()

    def look(_: object) -> None:
        hangs.set()
        over.wait(60)

    monkeypatch.setattr(recorder._keeper, "look", look)
    recorder.event_row(definition, 0, ())
    assert hangs.wait(60)
    for _ in range(3):
        recorder.event_row(definition, 0, ())
    recorder.close("exit", timeout_s=0.1)
    over.set()
    thread = recorder._thread
    assert thread is not None
    thread.join()
    assert len(rows(recorder.folder)) == 1
    assert read_run(recorder.folder).lost["unreported"] == 3


def test_close_does_not_wait_for_a_disk_that_hangs(record: Make) -> None:
    recorder = record()
    recorder.event_row(recorder.define(names.REWARDS, ()), 0, ())
    with recorder._drain_lock:  # else it would wait for this test, which waits for it
        recorder.close("exit", timeout_s=0.2)
