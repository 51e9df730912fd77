"""What only a real GPU can tell: ``python -m tests.bench.gpu_real [--out gpu.json]``.

Takes about four minutes, most of it the slowdown of a training loop, which needs torch with CUDA;
``--minutes`` sets how long that may take, 0 leaves it out. Run it as root once: what a process
without privileges gets is then measured too. Other work on the GPU spoils every figure.

The figures belong into ``docs/explanation/gpu-counters.md``, with the device and the driver.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr_probe.devices import survey
from rlvr_probe.devices.gpm import METRICS, Windows
from rlvr_probe.devices.nvidia import NvidiaBackend
from tests.bench.sampling import sampling

__all__ = ["main"]

RATES = (0, 1, 5, 9)
NOBODY = 65534
SIZE = 2048


def devices() -> dict[str, Any]:
    """Every device with what it cannot tell, as this user."""
    backend = NvidiaBackend()
    found = survey(backend)
    why = backend.why
    backend.close()
    capabilities = [
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff")
    ]
    return {
        "user": os.geteuid(),
        "capabilities": capabilities[0] if capabilities else None,
        "why": why,
        "devices": [
            {
                "model": one.model,
                "driver": one.driver,
                "part": one.parent is not None,
                "memory_limit_b": one.memory_limit_b,
                "absent": dict(one.absent),
            }
            for one in found
        ],
    }


def latencies(nvml: Any, handle: Any, calls: int) -> dict[str, dict[str, float] | str]:
    """Microseconds of each call that the sampler makes, and of some that it does not."""
    fields = [83, 186, 197, 198, (138, 0xFFFFFFFF), (139, 0xFFFFFFFF)]
    events = nvml.nvmlEventSetCreate()
    every: dict[str, Callable[[], object]] = {
        "fields, six": lambda: nvml.nvmlDeviceGetFieldValues(handle, fields),
        "field, energy": lambda: nvml.nvmlDeviceGetFieldValues(handle, [83]),
        "field, power": lambda: nvml.nvmlDeviceGetFieldValues(handle, [186]),
        "fields, PCIe": lambda: nvml.nvmlDeviceGetFieldValues(handle, [197, 198]),
        "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2),
        "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle),
        "clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, 1),
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, 0),
        "throttle reasons": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        "throttle time": lambda: nvml.nvmlDeviceGetViolationStatus(handle, 0),
        "ECC": lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
        "events, 1 ms": lambda: nvml.nvmlEventSetWait_v2(events, 1),
        "power usage (not used)": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        "energy call (not used)": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
    }
    found: dict[str, dict[str, float] | str] = {
        name: _latency(nvml, call, calls) for name, call in every.items()
    }
    nvml.nvmlEventSetFree(events)
    try:
        sample = nvml.nvmlGpmSampleAlloc()
    except nvml.NVMLError as error:
        return {**found, "GPM sample": str(error.value)}
    found["GPM sample"] = _latency(nvml, lambda: nvml.nvmlGpmSampleGet(handle, sample), calls)
    nvml.nvmlGpmSampleFree(sample)
    return found


def _latency(nvml: Any, call: Callable[[], object], calls: int) -> dict[str, float] | str:
    spent = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        try:
            call()
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                return f"NVML error {error.value}"
        spent.append((time.perf_counter_ns() - start) / 1000)
    spent.sort()
    return {
        "median_us": statistics.median(spent),
        "p99_us": spent[int(len(spent) * 0.99)],
        "max_us": spent[-1],
    }


def counters(nvml: Any, handle: Any, seconds: float) -> dict[str, Any]:
    """How the counters move: step of the energy, types and units of fields."""

    def field(number: int) -> Any:
        [value] = nvml.nvmlDeviceGetFieldValues(handle, [number])
        return None if value.nvmlReturn else value

    changes: dict[int, list[float]] = {83: [], 186: []}
    last: dict[int, int] = {}
    power: list[float] = []
    begin = time.monotonic_ns()
    start = field(83)
    while time.monotonic_ns() - begin < seconds * 1e9:
        for number, times in changes.items():
            value = field(number)
            if value is None:
                continue
            if number == 186:
                power.append(value.value.uiVal / 1000)
            if last.get(number, value.value.ullVal) != value.value.ullVal:
                times.append(time.monotonic_ns() / 1e6)
            last[number] = value.value.ullVal
    end, passed = field(83), (time.monotonic_ns() - begin) / 1e9
    steps = {
        number: [after - before for before, after in itertools.pairwise(times)]
        for number, times in changes.items()
    }
    held = nvml.nvmlDeviceGetViolationStatus(handle, 0).violationTime
    policy = field(74)
    return {
        "energy_step_ms": _spread(steps[83]),
        "power_step_ms": _spread(steps[186]),
        "energy_j": None if start is None else (end.value.ullVal - start.value.ullVal) / 1000,
        "power_times_time_j": statistics.fmean(power) * passed if power else None,
        "types": {
            number: None if (value := field(number)) is None else value.valueType
            for number in (74, 83, 138, 186, 197)
        },
        "pcie_tx": None if (value := field(197)) is None else value.value.ullVal,
        # Equal, or in a fixed ratio: says the unit of the field.
        "held_ns_by_call": held,
        "held_by_field": None if policy is None else policy.value.ullVal,
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def windows(nvml: Any, handle: Any, seconds: float) -> dict[str, Any]:
    """Share of windows with a value, by how many are asked for per second."""
    found: dict[str, Any] = {}
    for hz in (5, 9, 10, 20):
        try:
            made = Windows(
                nvml, lambda sample: nvml.nvmlGpmSampleGet(handle, sample), shortest_ns=1
            )
            told = dict.fromkeys(METRICS, 0)
            count = 0
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                made.sample(time.monotonic_ns)
                one = made.read()
                count += 1
                for name, value in (one[1] if one else {}).items():
                    told[name] += isinstance(value, float)
                time.sleep(1 / hz)
            made.close()
        except nvml.NVMLError as error:
            return {"error": error.value}
        found[str(hz)] = {name: number / max(count - 1, 1) for name, number in told.items()}
    return found


def slowdown(minutes: float) -> dict[str, Any]:
    """Time per step of a torch loop, sampled at each rate, by that of the same loop unsampled.

    One loop runs throughout; the rates take turns in random order, a sampler process at a time.
    """
    blocks: dict[int, list[float]] = {hz: [] for hz in RATES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps"
        with _process("--loop", str(path)):
            deadline = time.monotonic() + 120
            while not path.exists() or path.stat().st_size < 8000:
                if time.monotonic() > deadline:
                    raise SystemExit("the training loop did not start")
                time.sleep(0.1)
            end = time.monotonic() + minutes * 60
            while time.monotonic() < end or not blocks[RATES[-1]]:
                for hz in random.sample(RATES, len(RATES)):
                    blocks[hz].append(_block(path, hz))
    baseline = blocks[0]
    ratios = {
        hz: [one / without for one, without in zip(blocks[hz], baseline, strict=True)]
        for hz in RATES[1:]
    }
    return {
        "blocks": len(baseline),
        "step_ms": statistics.median(baseline),
        "ratio": {hz: _interval(found) for hz, found in ratios.items()},
    }


def _block(path: Path, hz: int, seconds: float = 5.0) -> float:
    """Mean time per step, ms."""
    if hz == 0:
        return _steps(path, seconds)
    with _process("--sample", str(hz)):
        time.sleep(2)
        return _steps(path, seconds)


def _steps(path: Path, seconds: float) -> float:
    before = path.stat().st_size
    time.sleep(seconds)
    data = path.read_bytes()[before - before % 8 :]
    times = [
        int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - len(data) % 8, 8)
    ]
    return (times[-1] - times[0]) / (len(times) - 1) / 1e6


def _interval(ratios: Sequence[float]) -> dict[str, float]:
    means = sorted(statistics.fmean(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    return {"mean": statistics.fmean(ratios), "low": means[50], "high": means[1949]}


@contextmanager
def _process(*arguments: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.gpu_real", *arguments])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def loop(path: Path | None) -> None:
    """Train for ever; each step appends its end, ns, to ``path``."""
    import torch

    layers = [torch.nn.Linear(SIZE, SIZE, dtype=torch.bfloat16, device="cuda") for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data = torch.randn(4096, SIZE, dtype=torch.bfloat16, device="cuda")
    with open(os.devnull if path is None else path, "wb", buffering=0) as out:
        while True:
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
            out.write(time.monotonic_ns().to_bytes(8, "little"))


def _has_cuda() -> bool:
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def measure(minutes: float, seconds: float, calls: int) -> dict[str, Any]:
    """Everything, of the first GPU."""
    import pynvml

    found: dict[str, Any] = {"as_this_user": devices()}
    if os.geteuid() == 0:
        script = (
            f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
            "import json; from tests.bench.gpu_real import devices; print(json.dumps(devices()))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        answer = done.stdout if done.returncode == 0 else "null"
        found["as_nobody"] = json.loads(answer)
        if done.returncode:
            found["as_nobody_failed"] = done.stderr[-300:]
    if not found["as_this_user"]["devices"]:
        return found
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found["latency_idle"] = latencies(pynvml, handle, calls)
    cuda = _has_cuda()
    if cuda:
        with _process("--loop", os.devnull):
            time.sleep(15)
            found["latency_busy"] = latencies(pynvml, handle, calls)
            found["counters_busy"] = counters(pynvml, handle, seconds)
            found["windows_busy"] = windows(pynvml, handle, seconds)
    else:
        found["counters_idle"] = counters(pynvml, handle, seconds)
        found["windows_idle"] = windows(pynvml, handle, seconds)
    found["sampling"] = {hz: sampling(hz, seconds) for hz in RATES[1:]}
    if minutes and cuda:
        found["slowdown"] = slowdown(minutes)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the figures there too")
    parser.add_argument("--minutes", type=float, default=3.0, help="for the slowdown; 0: without")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each of the others")
    parser.add_argument("--calls", type=int, default=300, help="of each kind")
    parser.add_argument("--loop", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sample", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.loop is not None:
        loop(given.loop)
    if given.sample is not None:
        sampling(given.sample, 1e9)
    text = json.dumps(measure(given.minutes, given.seconds, given.calls), indent=1)
    if given.out is not None:
        given.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
