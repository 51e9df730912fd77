"""Which devices a process says it works on, and what becomes of it in a trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr_probe import guard
from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.probe.recorder import Recorder
from rlvr_probe.probe.recorder.loaded_libraries import DevicesUsed
from rlvr_probe.recording import read_run
from tests.journals import JournalFile

UUIDS = ["11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-aaaaaaaaaaaa"]


class Rows:
    """Takes what is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def define(self, name: Name, attributes: object) -> int:
        assert (name, attributes) == (names.DEVICES_USED, ("uuids", "how"))
        return 0

    def event_row(self, definition: int, parent: int, values: object) -> None:
        self.told.append(values)


def torch(*peaks: int, running: bool = True, cuda: str | None = "12.8", **more: Any) -> Any:
    """Stands in for torch with one GPU per peak of memory held, which is missing here."""
    functions = {
        "is_initialized": lambda: running,
        "device_count": lambda: len(peaks),
        "max_memory_allocated": lambda place: peaks[place],
        "get_device_properties": lambda place: SimpleNamespace(uuid=UUIDS[place]),
    }
    return SimpleNamespace(
        cuda=SimpleNamespace(**functions | more), version=SimpleNamespace(cuda=cuda)
    )


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", torch(running=False))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """What a process tells at the ends of its first spans."""

    def look(times: int = 4, **environ: str) -> list[Any]:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        devices, rows = DevicesUsed(), Rows()
        for _ in range(times):
            if devices.wanted:
                devices.look(rows)
        return rows.told

    return look


def test_a_process_tells_the_gpu_that_torch_uses_once(
    told: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(5))
    assert told() == [([f"GPU-{UUIDS[0]}"], "torch")]


def test_of_several_gpus_it_tells_those_with_its_memory(
    told: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(1 << 20, 1 << 30))
    assert told() == [([f"GPU-{UUIDS[1]}"], "torch")]
    monkeypatch.setitem(sys.modules, "torch", torch(1 << 29, 1 << 30))
    assert told() == [([f"GPU-{uuid}" for uuid in UUIDS], "torch")]


def test_before_it_holds_much_memory_it_tells_nothing_and_asks_ever_less_often(
    told: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def peak(place: int) -> int:
        asked.append(place)
        return 1 << 20 if place == 0 else 0

    monkeypatch.setitem(sys.modules, "torch", torch(0, 0, max_memory_allocated=peak))
    assert told(100) == []
    assert asked == [0, 1] * 7


def test_an_allocator_without_books_leaves_the_current_device(
    told: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def peak(place: int) -> int:
        raise RuntimeError("no stats")

    changed = torch(0, 0, max_memory_allocated=peak, current_device=lambda: 1)
    monkeypatch.setitem(sys.modules, "torch", changed)
    assert told() == [([f"GPU-{UUIDS[1]}"], "torch")]


def test_a_part_of_a_gpu_is_told_by_its_own_name(
    told: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(5))
    assert told(CUDA_VISIBLE_DEVICES=f"MIG-{UUIDS[1]}") == [([f"MIG-{UUIDS[1]}"], "torch")]


def test_an_older_torch_without_names_falls_back_on_the_environment(
    told: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = torch(0, 1 << 30, get_device_properties=lambda place: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", nameless)
    assert told() == []
    assert told(CUDA_VISIBLE_DEVICES="GPU-aa,GPU-bb") == [(["GPU-bb"], "torch")]


def test_what_is_no_gpu_of_nvidia_has_no_name(
    told: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(5, cuda=None))
    assert told() == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1234,GPU-5678"}, ["GPU-1234", "GPU-5678"]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-GPU-1234/1/0"}, ["MIG-GPU-1234/1/0"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0, 1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, None),
        ({"CUDA_VISIBLE_DEVICES": "a secret of the user"}, None),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1234,a secret"}, None),
    ],
)
def test_without_cuda_it_tells_what_it_may_use_if_that_names_devices(
    told: Callable[..., list[Any]], environ: dict[str, str], expected: list[str] | None
) -> None:
    assert told(**environ) == ([] if expected is None else [(expected, "visible")])


def test_cuda_that_starts_later_says_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices, rows = DevicesUsed(), Rows()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-66")
    devices.look(rows)
    monkeypatch.setitem(sys.modules, "torch", torch(5))
    devices.look(rows)
    assert [how for _, how in rows.told] == ["visible", "torch"]
    assert not devices.wanted


@pytest.mark.conformance
def test_looking_neither_imports_torch_nor_starts_cuda() -> None:
    if not list(metadata.distributions(name="torch")):
        pytest.skip("torch is not installed")
    script = """
import sys
from rlvr_probe.probe.recorder.loaded_libraries import DevicesUsed
class Rows:
    def define(self, *_): return 0
    def event_row(self, *_): raise SystemExit("told something")
DevicesUsed().look(Rows())
assert "torch" not in sys.modules
import torch
DevicesUsed().look(Rows())
assert not torch.cuda.is_initialized()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_error_of_torch_costs_neither_the_span_nor_the_run(
    record: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.set_strict(False)
    monkeypatch.setitem(sys.modules, "torch", torch(5, device_count=lambda: 1 // 0))
    recorder = record()
    definition = recorder.define(names.STEP, ())
    span = recorder.next_id()
    recorder.begin(span, names.STEP, definition, recorder.mono_ns, 0)
    recorder.end(span, definition, recorder.mono_ns + 5, None, ())
    recorder.close("exit")
    [process] = read_run(recorder.folder).processes
    assert process.faults == {"recorder.devices: ZeroDivisionError": 1}
    assert process.devices is None


def test_the_end_of_a_coarse_span_tells_it_and_that_of_a_finer_one_does_not(
    record: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(5))
    recorder = record()

    def ended(name: Name) -> list[Any]:
        definition = recorder.define(name, ())
        span = recorder.next_id()
        recorder.begin(span, name, definition, recorder.mono_ns, 0)
        recorder.end(span, definition, recorder.mono_ns + 5, None, ())
        recorder.flush()
        return [process.devices for process in read_run(recorder.folder).processes]

    assert ended(names.TURN) == [None]
    assert ended(names.STEP) == [(f"GPU-{UUIDS[0]}",)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["GPU-aaaa-1"], ("GPU-aaaa-1",)),
        (["GPU-b"], ("GPU-bbbb",)),
        (["GPU-aaaa"], None),
        (["2", "0"], ("GPU-bbbb", "GPU-aaaa-1")),
        (["3"], None),
        (["GPU-unheard-of"], None),
        ([f"GPU-{UUIDS[0]}"], (f"GPU-{UUIDS[0]}",)),
        ([], ()),
    ],
)
def test_a_trace_completes_names_and_numbers_by_what_the_node_has(
    tmp_path: Path, given: list[str], expected: tuple[str, ...] | None
) -> None:
    sidecar = JournalFile(tmp_path, 9)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    for number, (uuid, parent) in enumerate(
        [("GPU-aaaa-1", None), ("MIG-cc", "GPU-aaaa-1"), ("GPU-aaaa-2", None), ("GPU-bbbb", None)]
    ):
        values: dict[str, Any] = {} if parent is None else {"parent": parent}
        sidecar.event(names.DEVICE, 0, device=number, uuid=uuid, kind="gpu", **values)
    sidecar.event(names.DEVICE, 0, device=4, uuid="host-1", kind="host")
    sidecar.close()
    trainer = JournalFile(tmp_path, 1)
    trainer.event(names.DEVICES_USED, 1, uuids=given, how="visible")
    trainer.span(names.STEP, 0, 1, step=1)
    trainer.close()
    [process] = read_run(tmp_path).processes
    assert process.devices == expected
    assert process.devices_how == "visible"
