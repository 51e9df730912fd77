"""Damages recordings at random and judges what is still read from them.

What is drawn follows from a seed alone: a failure names it, and :func:`judge` shows it again.
"""

from __future__ import annotations

import io
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_probe_polytrace import PolyTraceExporter

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.report import render
from rlvr_probe.workload import build_workload
from tests.journals import JournalFile, Training
from tests.summarized import summary_of

__all__ = ["failures", "recording"]

Files = dict[str, bytes]
Mutation = Callable[[random.Random, bytes], bytes]
SPLICES = (b"", b"\n", b"[", b"]", b"{", b'"', b",", b"-", b"null", b"1e9", b"99999999999999999999",
           b"[[[[", b"\x00", b"\xff", b'"end"', b"[0,", b"\\ud800", b'["sum",1,1]\n')  # fmt: skip


def _gpu(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def recording(folder: Path, *, resumed: bool) -> Files:
    """Two ranks, evaluation, two segments, open spans; with ``resumed`` a killed first attempt.

    And a sidecar; no two readings of a device are alike.
    """
    sidecar = JournalFile(folder, 9, chunk=7)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    for device in (0, 1):
        sidecar.event(names.DEVICE, 0, device=device, uuid=_gpu(device), kind="gpu", hz=5.0)
        for tick in range(30):
            values = {"power_w": 300 + tick, "energy_j": 7 * tick}
            sidecar.event(
                names.DEVICE_SAMPLE, tick / 5, device=device, window_s=0.2, **values, sm_active=tick
            )
            if tick % 5 == 0:
                sidecar.event(names.DEVICE_STATE, tick / 5, device=device, utilization=tick)
    sidecar.event(names.DEVICE_FAULT, 3, device=1, what="xid", code=79)
    sidecar.close()
    for attempt in range(1 + resumed):
        for rank in (0, 1):
            journal = JournalFile(
                folder,
                1 + rank + 2 * attempt,
                start_s=50.0 * attempt,
                header={"job": f"{attempt}"},
                chunk=7,
            )
            training = Training(journal, rank=rank, ranks=2, per_rank=4)
            training.begin(resumed_step=attempt)
            journal.event(names.DEVICES_USED, 1.0, uuids=[_gpu(rank)], how="torch")
            training.step(1 + attempt)
            journal.rotate()
            training.evaluate(1 + attempt)
            training.step(2 + attempt)
            training.step(3 + attempt, finish=False)
            journal.row("lost", 10, "queue_full", 2)
            journal.row("own", 10, 12345)
            ended = attempt == 1
            journal.close(end=ended)
            # Whether a process that ended had a table at all, nobody could say.
            slots = () if ended else ((training.journal.spans + 1, 3.0, "step", ""),)
            journal.open_table(*slots, beat_s=5.0, step=3, ended=ended)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _span(draw: random.Random, data: bytes) -> tuple[int, int]:
    begin = draw.randrange(len(data) + 1)
    return begin, min(len(data), begin + draw.choice((1, 1, 2, 8, 60, 4000)))


def _overwrite(draw: random.Random, data: bytes) -> bytes:
    begin, end = _span(draw, data)
    return data[:begin] + draw.randbytes(end - begin) + data[end:]


def _zero(draw: random.Random, data: bytes) -> bytes:
    begin, end = _span(draw, data)
    # A slot of the table that is zero from end to end is a free slot.
    end = min(end, begin + 100)
    return data[:begin] + bytes(end - begin) + data[end:]


def _flip_bit(draw: random.Random, data: bytes) -> bytes:
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


def _change_digit(draw: random.Random, data: bytes) -> bytes:
    """The mutation that leaves sound JSON with another number in it."""
    places = [found.start() for found in re.finditer(rb"[0-9]", data)]
    place = draw.choice(places or [0])
    return data[:place] + b"%d" % draw.randrange(10) + data[place + 1 :]


def _truncate(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _delete(draw: random.Random, data: bytes) -> bytes:
    begin, end = _span(draw, data)
    return data[:begin] + data[end:]


def _repeat(draw: random.Random, data: bytes) -> bytes:
    begin, end = _span(draw, data)
    return data[:end] + data[begin:]


def _splice(draw: random.Random, data: bytes) -> bytes:
    begin, end = _span(draw, data)
    return data[:begin] + draw.choice(SPLICES) + data[draw.choice((begin, end)) :]


def _garbage(draw: random.Random, data: bytes) -> bytes:
    """Bytes that are never JSON, as a failing disk gives them."""
    begin = draw.randrange(len(data))
    length = draw.choice((1, 4, 64, 1500))
    bad = bytes(draw.randrange(0xF8, 0x100) for _ in range(length))
    return data[:begin] + bad + data[begin + draw.choice((0, length)) :]


def _lines(draw: random.Random, data: bytes) -> bytes:
    """Lines, or whole chunks with their sum, that are swapped, repeated, deleted or cut off."""
    keep = rb"(?<=\n)" if draw.randrange(2) else rb'(?<=\n)(?<!\[)(?!\["sum")'
    parts = re.split(keep, data)
    if draw.randrange(2):
        # Each begins where the line of a sum before it ends; what follows the last sum is no chunk.
        ends = [found.end() for found in re.finditer(rb'^\["sum".*\n', data, re.MULTILINE)]
        parts = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)] or parts
    one, other = draw.randrange(len(parts)), draw.randrange(len(parts))
    kind = draw.randrange(4)
    if kind == 0:
        parts[one], parts[other] = parts[other], parts[one]
    elif kind == 1:
        parts.insert(other, parts[one])
    elif kind == 2:
        del parts[one]
    else:
        del parts[one:]
    return b"".join(parts)


MUTATIONS: tuple[Mutation, ...] = (
    _overwrite, _zero, _flip_bit, _change_digit, _change_digit, _truncate, _delete, _repeat,
    _splice, _garbage, _lines, _lines,
)  # fmt: skip


def damaged(files: Files, draw: random.Random) -> Files:
    """``files``, up to three of them mutated, or one deleted, or two of them mixed up."""
    found = dict(files)
    if draw.randrange(20) == 0:
        one, other = draw.choice(sorted(files)), draw.choice(sorted(files))
        kind = draw.randrange(3)
        if kind == 0:
            del found[one]
        elif kind == 1:
            found[one], found[other] = files[other], files[one]
        else:
            found[one] = files[other]
        return found
    for name in draw.choices(sorted(files), k=draw.choice((1, 1, 1, 2, 3))):
        found[name] = draw.choice(MUTATIONS)(draw, found[name]) or b"\n"
    return found


@dataclass
class Figures:
    """What a trace says, by what it is said about.

    Attributes:
        summary: Everything that ``show --json`` prints.
        said: That of it which tells of losses and doubts.
        facts: Lengths, rewards, spans and open spans, by process key and place;
            readings of devices.
    """

    summary: dict[str, Any]
    said: tuple[object, ...]
    facts: dict[object, object]

    @classmethod
    def of(cls, folder: Path, trace: Trace) -> Figures:
        """Take the figures of ``trace``, which is of the run in ``folder``."""
        keys = [process.key for process in trace.processes]
        facts: dict[object, object] = {}
        for attempt in trace.attempts:
            for step in attempt.steps:
                for span in step.spans:
                    facts[keys[span.process], "span", span.id] = (
                        span.name, span.seconds, span.error, sorted(span.attributes.items())
                    )  # fmt: skip
                for batch in (*step.batches, *step.evaluations):
                    for group in batch.groups():
                        for trajectory in group.trajectories:
                            place = (
                                step.session,
                                step.number,
                                batch.mode,
                                batch.ordinal,
                                trajectory.row,
                            )
                            facts[keys[trajectory.process], place] = (
                                trajectory.prompt_tokens,
                                trajectory.response_tokens,
                                trajectory.truncated,
                                trajectory.sample,
                                trajectory.policy_version,
                                batch.total,
                                batch.group_size,
                            )
                            for reward in trajectory.rewards:
                                given = (place, reward.function, reward.index)
                                facts[keys[trajectory.process], given] = (
                                    reward.value,
                                    reward.verify_s,
                                )
        for opened in trace.open_spans:
            facts[keys[opened.process], "open", opened.id] = (
                opened.name, opened.detail, opened.step, opened.thread
            )  # fmt: skip
        for process in trace.processes:
            if process.devices is not None:
                facts[process.key, "devices"] = process.devices
        for device in trace.devices:
            for counter in device.counters():
                for _, value in device.points(counter.name):
                    facts[device.uuid, counter.name, value] = True
            for fault in device.faults:
                facts[device.uuid, fault.what] = fault.code
        summary = summary_of(folder)
        render(summary, io.StringIO())
        # A sidecar has no table of open spans to tell that its journal is gone, or was cut.
        del summary["devices"]
        return cls(summary, (trace.lost, trace.notes), facts)


def read(folder: Path, out: Path, whole: Figures | None = None) -> Figures:
    """Read, report, build and export the run in ``folder``; figures of what could be read.

    Raises:
        ProbeError: It cannot be read.
    """
    trace = read_run(folder)
    figures = Figures.of(folder, trace)
    try:
        workload = build_workload(trace)
        # Of a trace that is as it was, the workload is as it was.
        if whole is None or whole.summary != figures.summary:
            out.mkdir()
            PolyTraceExporter().write(workload, out, keep_names=False)
    except ProbeError:
        pass
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return figures


def judge(whole: Figures, folder: Path, out: Path) -> str | None:
    """What is wrong with what is read from the damaged recording in ``folder``; None if nothing."""
    try:
        found = read(folder, out, whole)
    except ProbeError as error:
        return None if str(error) else "an error without a message"
    except Exception as error:
        return f"a traceback: {error!r}"
    invented = {key: value for key, value in found.facts.items() if whole.facts.get(key) != value}
    if invented:
        return f"invented: {list(invented.items())[:3]}"
    if found.said == whole.said and found.summary != whole.summary:
        differ = {key for key in whole.summary if whole.summary[key] != found.summary.get(key)}
        return f"different, and nothing said: {sorted(differ)}"
    return None


def failures(seeds: Iterable[int], *, resumed: bool) -> list[str]:
    """What is wrong with the recordings that these seeds damage."""
    wrong: list[str] = []
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        top = Path(name)
        files = recording(top / "whole", resumed=resumed)
        whole = read(top / "whole", top / "out")
        folder = top / "whole"
        for seed in seeds:
            draw = random.Random(seed)
            changed = damaged(files, draw)
            for path, data in files.items():
                if path not in changed:
                    os.unlink(folder / path)
                elif changed[path] is not data:
                    (folder / path).write_bytes(changed[path])
            problem = judge(whole, folder, top / "out")
            if problem is not None:
                wrong.append(f"seed {seed}, resumed={resumed}: {problem}")
            for path, data in files.items():
                if changed.get(path) is not data:
                    (folder / path).write_bytes(data)
    return wrong
