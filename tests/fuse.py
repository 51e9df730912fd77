"""A file system in memory, served over ``/dev/fuse`` by a process that can be stopped.

``mounted(folder)`` mounts one; a SIGSTOP to the process is a file server that hangs. As little of
the protocol (include/uapi/linux/fuse.h, 7.31) as a recording needs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["mounted"]

KIND = "fuse.slow"
_ROOT = 1
_MAX_WRITE_B = 128 * 1024
_BLOCK_B = 4096
_BLOCKS = 1 << 20
_DETACH = 2

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_ENTRY = struct.Struct("<4Q2I")
_RANGE = struct.Struct("<QQI")
_SET = struct.Struct("<II6Q4I")


@dataclass
class _Node:
    mode: int
    data: bytearray = field(default_factory=bytearray)
    names: dict[bytes, int] = field(default_factory=dict)
    links: int = 1
    time_ns: int = field(default_factory=time.time_ns)


class _Server:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._nodes = {_ROOT: _Node(stat.S_IFDIR | 0o755)}
        self._calls: dict[int, Callable[[int, bytes], bytes]] = {
            1: self._lookup, 3: self._getattr, 4: self._setattr, 9: self._mkdir, 10: self._unlink,
            11: self._unlink, 12: lambda node, data: self._rename(node, data, 8),
            14: self._open, 15: self._read, 16: self._write, 17: self._statfs,
            18: self._done, 20: self._done, 25: self._done, 26: self._init, 27: self._open,
            28: self._readdir, 29: self._done, 30: self._done, 34: self._done, 35: self._create,
            45: lambda node, data: self._rename(node, data, 16),
        }  # fmt: skip

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, _MAX_WRITE_B + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return  # unmounted
            _, code, unique, node, *_ = _IN.unpack_from(request)
            if code in (2, 36, 42):  # nobody waits for an answer
                continue
            answer, failed = b"", 0
            try:
                answer = self._calls[code](node, request[_IN.size :])
            except KeyError:
                failed = errno.ENOSYS
            except OSError as error:
                failed = error.errno or errno.EIO
            os.write(self._fd, _OUT.pack(_OUT.size + len(answer), -failed, unique) + answer)

    def _attr(self, number: int) -> bytes:
        node = self._nodes[number]
        seconds, rest = divmod(node.time_ns, 10**9)
        size = len(node.data)
        return _ATTR.pack(
            number, size, -(-size // 512), seconds, seconds, seconds, rest, rest, rest,
            node.mode, node.links, os.getuid(), os.getgid(), 0, _BLOCK_B, 0,
        )  # fmt: skip

    def _entry(self, number: int) -> bytes:
        return _ENTRY.pack(number, 0, 0, 0, 0, 0) + self._attr(number)

    def _find(self, node: int, name: bytes) -> int:
        try:
            return self._nodes[node].names[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "") from None

    def _make(self, node: int, name: bytes, mode: int) -> int:
        number = len(self._nodes) + _ROOT
        self._nodes[number] = _Node(mode)
        self._nodes[node].names[name] = number
        return number

    def _init(self, node: int, data: bytes) -> bytes:
        _, _, ahead, _ = struct.unpack_from("<4I", data)
        head = struct.pack("<4I2H2I", 7, 31, ahead, 0, 8, 6, _MAX_WRITE_B, 1)
        return head + bytes(64 - len(head))

    def _lookup(self, node: int, data: bytes) -> bytes:
        return self._entry(self._find(node, data.rstrip(b"\0")))

    def _getattr(self, node: int, data: bytes) -> bytes:
        return bytes(16) + self._attr(node)

    def _setattr(self, node: int, data: bytes) -> bytes:
        valid, _, _, size, _, _, mtime, _, _, rest, _, mode = _SET.unpack_from(data)
        one = self._nodes[node]
        if valid & 1:
            one.mode = stat.S_IFMT(one.mode) | stat.S_IMODE(mode)
        if valid & 8:
            del one.data[size:]
            one.data += bytes(size - len(one.data))
        if valid & 32 and not valid & 256:
            one.time_ns = mtime * 10**9 + rest
        return self._getattr(node, b"")

    def _mkdir(self, node: int, data: bytes) -> bytes:
        [mode] = struct.unpack_from("<I", data)
        number = self._make(node, data[8:].rstrip(b"\0"), stat.S_IFDIR | stat.S_IMODE(mode))
        return self._entry(number)

    def _unlink(self, node: int, data: bytes) -> bytes:
        name = data.rstrip(b"\0")
        number = self._find(node, name)
        if self._nodes[number].names:
            raise OSError(errno.ENOTEMPTY, "")
        self._nodes[number].links = 0
        del self._nodes[node].names[name]
        return b""

    def _rename(self, node: int, data: bytes, begin: int) -> bytes:
        [other] = struct.unpack_from("<Q", data)
        old, new, *_ = data[begin:].split(b"\0")
        number = self._find(node, old)
        del self._nodes[node].names[old]
        self._nodes[other].names[new] = number
        return b""

    def _open(self, node: int, data: bytes) -> bytes:
        return bytes(16)

    def _create(self, node: int, data: bytes) -> bytes:
        _, mode = struct.unpack_from("<II", data)
        number = self._make(node, data[16:].rstrip(b"\0"), stat.S_IFREG | stat.S_IMODE(mode))
        return self._entry(number) + bytes(16)

    def _read(self, node: int, data: bytes) -> bytes:
        _, begin, size = _RANGE.unpack_from(data)
        return bytes(self._nodes[node].data[begin : begin + size])

    def _write(self, node: int, data: bytes) -> bytes:
        _, begin, size = _RANGE.unpack_from(data)
        one = self._nodes[node]
        one.data += bytes(max(0, begin - len(one.data)))
        one.data[begin : begin + size] = data[40 : 40 + size]
        one.time_ns = time.time_ns()
        return struct.pack("<II", size, 0)

    def _statfs(self, node: int, data: bytes) -> bytes:
        sizes = (_BLOCKS, _BLOCKS, _BLOCKS, _BLOCKS, _BLOCKS, _BLOCK_B, 255, _BLOCK_B, 0)
        return struct.pack("<5Q4I", *sizes) + bytes(24)

    def _readdir(self, node: int, data: bytes) -> bytes:
        _, begin, size = _RANGE.unpack_from(data)
        found = b""
        for at, (name, number) in enumerate(self._nodes[node].names.items(), 1):
            if at <= begin:
                continue
            kind = stat.S_IFMT(self._nodes[number].mode) >> 12
            one = struct.pack("<QQII", number, at, len(name), kind) + name
            one += bytes(-len(one) % 8)
            if len(found) + len(one) > size:
                break
            found += one
        return found

    def _done(self, node: int, data: bytes) -> bytes:
        return b""


@contextmanager
def mounted(folder: Path) -> Iterator[int]:
    """Mount one at a folder; the pid of who serves it.

    Raises:
        OSError: It cannot be mounted here.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"slow", os.fsencode(folder), KIND.encode(), 0, options.encode()):
        os.close(fd)
        raise OSError(ctypes.get_errno(), "it cannot be mounted")
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "tests.fuse"],
        {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, 3)],
    )
    os.close(fd)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)  # who still waits for it gets an error
        os.waitpid(pid, 0)
        libc.umount2(os.fsencode(folder), _DETACH)


if __name__ == "__main__":
    _Server(3).serve()
