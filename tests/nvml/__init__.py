"""A scripted NVML: the real ``pynvml`` reads a timeline, on a machine without a GPU.

``nvml.c`` is built into a ``libnvidia-ml.so.1`` where there is a C compiler; where there is none,
the test is skipped. It stands for the driver alone: everything above it is the real thing.

A row of the script is ``<time, ms> <device> <key> <value>``. A value holds from its time on. A
device is ``0``, ``1``, ...; a part of one (MIG) is ``0:0``, ``0:1``, ...; ``sys`` is the system::

    0    sys now_ms 1000        virtual clock; without it: wall time since the first nvmlInit
    0    sys since_ms 5e6       wall time since the monotonic clock said so, for several processes
    0    sys count 2            two GPUs; default 1, at most 16
    0    sys refresh_ms 100     counters and GPM samples move every 100 ms, as real ones do
    0    0   power_mw 100000    power (field 186); its integral is the energy (field 83)
    2000 0   power_mw 600000
    0    0   gpm.2 40           GPM metric 2, percent; a metric without a row is not supported
    0    1   gpm 0              no GPM on GPU 1
    0    0   fir.197 1e6        field 197 grows by 1e6 per second; fir.202.3: of link 3, not 0
    0    0   fi.138 77          field 138 is 77; any other field is not supported
    0    0   ft.197 1           type of a field: 0 double, 1 32 bits, 3 64 bits (default)
    0    0   held.0 0.5         share of time held down by the power cap (policy 0)
    0    0   mem_used 4e10      mem_total, util, memutil, temp, sm_clk, reasons, ecc,
                                pcie_gen (default 5), pcie_width (16)
    0    0   mig 2              two parts
    5000 0   xid 79             the driver reports XID 79
    0    0   err.DeviceGetClockInfo 3       what this call returns; ``err.`` plus the C name
    0    0   fe.186 4                       what field 186 returns; 0 takes an earlier row back
    0    0   lost 15                        what every call for GPU 0 returns
    0    0   delay_us.DeviceGetClockInfo 200000
    0    0   hang 1                         every call for GPU 0 returns once this is 0
    0    sys hang.DeviceGetCount_v2 1       the same of one call
    0    sys spins 1            what hangs takes a core, and never returns

Where the variable ``NVML_SCRIPT_ONCE`` is set the script is read once, for measurements.

UUIDs are ``GPU-00000000-0000-4000-8000-<index, 12 hex digits>``.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["Nvml", "gpu_uuid", "library", "mig_uuid", "scripted"]

_FLAGS = ("-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")
_VARIABLE = "NVML_SCRIPT"


def gpu_uuid(index: int) -> str:
    """Of GPU ``index`` of a script."""
    return f"GPU-00000000-0000-4000-8000-{index:012x}"


def mig_uuid(index: int, part: int) -> str:
    """Of a part of GPU ``index`` of a script."""
    return f"MIG-00000000-0000-4000-8000-{index:06x}{part:06x}"


@functools.cache
def library() -> Path:
    """The library, built once per test process; skips the test where there is no compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler here to build the scripted NVML with")
    folder = Path(tempfile.mkdtemp(prefix="rlvr-probe-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml.c")
    subprocess.run([compiler, *_FLAGS, "-o", built, source, "-lm", "-lpthread"], check=True)
    return built


class Nvml:
    """One script, and the clock of it.

    Attributes:
        now_ns: What :meth:`clock` says, ns; the script follows.
    """

    def __init__(self, folder: Path, *rows: str, virtual: bool = True) -> None:
        """Play ``rows`` from ``folder / 'nvml.txt'``.

        Args:
            folder: For the script.
            rows: Of the script.
            virtual: Time stands still but for :meth:`advance`; else it is real.
        """
        self.library = library()
        self.path = folder / "nvml.txt"
        self.now_ns = 0
        self._virtual = virtual
        self._rows: tuple[str, ...] = ()
        self.play(*rows)

    def play(self, *rows: str) -> None:
        """The script is ``rows`` from here on."""
        self._rows = rows
        self._write()

    def add(self, *rows: str) -> None:
        """``rows`` too."""
        self.play(*self._rows, *rows)

    def advance(self, seconds: float) -> None:
        """Let the virtual clock go on."""
        assert self._virtual
        self.now_ns += round(seconds * 1e9)
        self._write()

    def clock(self) -> int:
        """For whoever wants a clock of ns: the virtual one."""
        assert self._virtual
        return self.now_ns

    @property
    def hangs(self) -> Path:
        """A file that is there once a call hangs; a test may delete it when none does any more."""
        return self.path.with_name(f"{self.path.name}.hangs")

    @property
    def calls(self) -> int:
        """Calls made of this process's copy so far."""
        loaded = ctypes.CDLL(str(self.library))
        return int(ctypes.c_ulonglong.in_dll(loaded, "calls_made").value)

    def environ(self) -> dict[str, str]:
        """What a process that is to find this NVML needs in its environment."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), _VARIABLE: str(self.path)}

    def _write(self) -> None:
        rows = [*self._rows]
        if self._virtual:
            rows.append(f"0 sys now_ms {self.now_ns / 1e6:.6f}")
        draft = self.path.with_suffix(".new")
        draft.write_text("\n".join(rows) + "\n", encoding="utf-8")
        draft.replace(self.path)


@contextmanager
def scripted(folder: Path, *rows: str, virtual: bool = True) -> Iterator[Nvml]:
    """``pynvml`` of this process reads ``rows``, as :class:`Nvml` has them."""
    import pynvml

    nvml = Nvml(folder, *rows, virtual=virtual)
    before = os.environ.get(_VARIABLE), pynvml.nvmlLib
    os.environ[_VARIABLE] = str(nvml.path)  # the getenv of C sees it
    pynvml.nvmlLib = ctypes.CDLL(str(nvml.library))
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield nvml
    finally:
        while pynvml.nvmlLib.nvmlShutdown() == 0:  # the next script begins at its own time 0
            pass
        pynvml.nvmlLib = before[1]
        pynvml._nvmlGetFunctionPointer_cache.clear()
        del os.environ[_VARIABLE]
        if before[0] is not None:
            os.environ[_VARIABLE] = before[0]
