"""What a sidecar does all day: read the devices, look who still writes, compact, leave."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rlvr_probe import guard
from rlvr_probe.config import Config
from rlvr_probe.devices.host import HostBackend
from rlvr_probe.devices.sampler import Sampler
from rlvr_probe.probe.election import BURST
from rlvr_probe.probe.identity import NODE_DIGITS
from rlvr_probe.sidecar.compactor import Compactor
from rlvr_probe.sidecar.journal import SidecarJournal
from rlvr_probe.sidecar.live import ASKED_S, Children
from rlvr_probe.sidecar.reader_supervisor import ReaderSupervisor
from rlvr_probe.sidecar.segments import (
    LEAST_B,
    compress,
    delete_unfinished,
    is_finished,
    is_open_for_writing,
)
from rlvr_probe.sidecar.spool_child import Spool
from rlvr_probe.sidecar.startup import Lock
from rlvr_probe.sidecar.upload_child import UploadChild
from rlvr_probe.sidecar.writers import Finished, Writers
from rlvr_probe.spool import read_target

__all__ = ["Sidecar"]

_S: Final = 1_000_000_000
_LOOK_NS: Final = _S
_WRITE_NS: Final = _S // 5
_TOTALS_NS: Final = 10 * _S
_GRACE_NS: Final = 2 * _S
"""How long no process may write until it leaves; a header may take a moment to appear."""

_SETTLED_NS: Final = 10 * _S
_KEPT_NS: Final = 2 * _S
"""How long an original stays beside its compressed file."""

_PAUSE_NS: Final = 60 * _S
"""No compressing for so long after the disk had no room for it."""

_LIVE_S: Final = 10.0
"""What handing over the end of a run to its destinations may take, s."""

_SPARED_NS: Final = 600 * _S
"""How long devices are left alone by a sidecar before which many came to a bad end in a row."""

_NEVER: Final = 1 << 63
_HURRY_S: Final = 3.0
"""What copying the spool may take for a sidecar that has to leave, s."""

_LEAST_NS: Final = 2_000_000
_ROOM_NS: Final = 50_000_000
"""Time to the next reading that has to be left for a slice of compressing."""


class Sidecar:
    """The sidecar of one run on this node. One thread; whatever fails is counted and goes on."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        lock: Lock,
        signals: Collection[signal.Signals],
        *,
        last_s: float,
        move_s: float = 0.0,
        spool: Path | None = None,
        every_node: bool = False,
        beat: Callable[[], object] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            folder: Run folder.
            config: Settings of the processes of the run.
            lock: Held by this process.
            signals: What makes it leave; blocked in the thread that runs it, and waited for.
            last_s: How long it may go on compressing when there is nothing else to do, s.
            move_s: How long it may go on moving the spool then, and uploading, each, s.
            spool: Where the processes of this node write, if that is not the run folder.
            every_node: Compress what is finished of other nodes, too.
            beat: Called about once a second as long as nothing hangs.
        """
        place = folder if spool is None else spool
        self._folder = place
        self._lock = lock
        self._signals = signals
        self._beat = beat
        self._last_s = last_s
        self._move_s = move_s
        self._hz = config.gpu_hz
        self._spares = config.gpu_hz > 0 and lock.in_vain > BURST
        self._live = config.live
        self._log = SidecarJournal(place, config, spooled=spool is not None)
        self._writers = Writers(place, self._log.process, every_node=every_node)
        self._sampler: Sampler | None = None
        self._readers: ReaderSupervisor | None = None
        self._children = Children(folder, self._log.fault)
        target = None if spool is None else read_target(spool)
        self._spool: Spool | None = None
        if spool is not None and target is not None:
            self._spool = Spool(spool, target, self._log.fault)
        self._upload: UploadChild | None = None
        if config.upload is not None:
            prefix = "p" if every_node else f"p{self._log.process[:NODE_DIGITS]}"
            self._upload = UploadChild(folder, config.upload, prefix, self._log.fault)
        self._rows: list[Sequence[Any]] = []
        self._begun = False
        self._settled = False
        now = self._start_ns = time.monotonic_ns()
        self._devices_ns = now + (_SPARED_NS if self._spares else 0) if self._hz else _NEVER
        self._looked_ns = self._told_ns = 0
        self._written_ns = self._seen_ns = now
        self._rest_ns = 0
        self._compactor = Compactor(self._log.fault)
        self._work: Iterator[None] | None = None
        self._working: Path | None = None
        self._waiting: deque[Finished] = deque()
        self._known: set[Path] = set()
        self._redundant: deque[tuple[int, Path]] = deque()

    def run(self) -> str:
        """Work until no process writes to the run any more; why it left, in a word."""
        self._clean()
        reason: str | None = None
        while reason is None:
            now = time.monotonic_ns()
            if now - self._looked_ns >= _LOOK_NS:
                self._looked_ns = now
                self._look(now)
            self._read(now)
            self._hear(now)
            self._write(now)
            reason = self._why_leave(now) or self._rest()
        self._finish(reason)
        return reason

    @guard.fail_open("sidecar.clean")
    def _clean(self) -> None:
        delete_unfinished(self._folder)

    @guard.fail_open("sidecar.look")
    def _look(self, now_ns: int) -> None:
        if self._beat is not None:
            self._beat()
        for path, certain in self._writers.look():
            if path not in self._known:
                self._known.add(path)
                self._waiting.append((path, certain))
        if self._writers.alive:
            self._seen_ns = now_ns
            if not self._begun:
                self._begun = True
                self._begin()
        if self._begun and now_ns >= self._devices_ns:
            self._devices_ns, self._start_ns = _NEVER, now_ns
            self._begin_devices()
        # One that spares the devices has not shown yet that it can do all that it is there for.
        began = self._begun and self._devices_ns == _NEVER
        if not self._settled and began and now_ns - self._start_ns >= _SETTLED_NS:
            self._settled = True
            self._lock.settle()
        self._delete_redundant(now_ns)
        self._look_after(now_ns)
        self._look_after_spool(now_ns)
        self._look_after_upload(now_ns)

    @guard.fail_open("sidecar.live")
    def _look_after(self, now_ns: int) -> None:
        self._children.look(now_ns)

    @guard.fail_open("sidecar.spool")
    def _look_after_spool(self, now_ns: int) -> None:
        if self._spool is not None:
            self._spool.look(now_ns)

    @guard.fail_open("sidecar.upload")
    def _look_after_upload(self, now_ns: int) -> None:
        if self._upload is not None and self._begun:
            self._upload.look(now_ns)

    @guard.fail_open("sidecar.upload")
    def _end_upload(self, reason: str) -> None:
        if self._upload is None:
            return
        beat = (lambda: None) if self._beat is None else self._beat
        if reason != "exit" or not self._begun:
            self._upload.stop()
        else:
            self._upload.finish(self._move_s, beat)

    @guard.fail_open("sidecar.spool", False)
    def _end_spool(self, reason: str) -> bool:
        """Whether there was something to move, and all of it is where it belongs."""
        if self._spool is None:
            return False
        over = reason == "exit"
        beat = (lambda: None) if self._beat is None else self._beat
        return self._spool.finish(self._move_s if over else _HURRY_S, beat, over=over)

    def _begin(self) -> None:
        self._log.begin(self._writers.run)
        if self._spares:
            self._log.fault("sidecar.devices", "Spared")
        if self._live:
            self._begin_live()

    def _begin_devices(self) -> None:
        told = self._hz, self._log.define, self._log.mono_ns
        self._sampler = Sampler([HostBackend()], *told)
        self._readers = ReaderSupervisor(*told, self._log.fault)

    @guard.fail_open("sidecar.live")
    def _begin_live(self) -> None:
        self._children.begin(os.environ)

    @guard.fail_open("sidecar.read")
    def _read(self, now_ns: int) -> None:
        if self._sampler is not None and now_ns >= self._sampler.next_ns:
            self._rows += self._sampler.tick(now_ns)

    @guard.fail_open("sidecar.devices")
    def _hear(self, now_ns: int) -> None:
        if self._readers is not None and now_ns >= self._readers.next_ns:
            self._rows += self._readers.look(now_ns)

    @guard.fail_open("sidecar.write")
    def _write(self, now_ns: int) -> None:
        if now_ns - self._written_ns >= _WRITE_NS:
            self._written_ns = now_ns
            rows, self._rows = self._rows, []
            self._log.write(rows)
        if now_ns - self._told_ns >= _TOTALS_NS:
            self._told_ns = now_ns
            self._log.write_totals()

    @guard.fail_open("sidecar.leave")
    def _why_leave(self, now_ns: int) -> str | None:
        if now_ns - self._seen_ns >= _GRACE_NS:
            return "exit"
        if self._looked_ns == now_ns and not self._lock.is_held():
            return "lock"
        return None

    @guard.fail_open("sidecar.rest")
    def _rest(self) -> str | None:
        """Compact for a moment, or sleep until there is something to do."""
        now = time.monotonic_ns()
        due = [self._looked_ns + _LOOK_NS]
        if self._sampler is not None:
            due.append(self._sampler.next_ns)
        if self._readers is not None:
            due.append(self._readers.next_ns)
        if self._rows:
            due.append(self._written_ns + _WRITE_NS)
        left = min(due) - now
        busy = left >= _ROOM_NS and now >= self._rest_ns and self._compress_a_slice(now)
        # Even where everything is late or fails at once, others get to run.
        wait_s = 0 if busy else max(_LEAST_NS, left) / _S
        found = signal.sigtimedwait(self._signals, wait_s)
        # Python makes something up if it was stopped meanwhile, and goes on when this is over.
        return "signal" if found is not None and found.si_signo in self._signals else None

    @guard.fail_open("sidecar.compress", True)
    def _compress_a_slice(self, now_ns: int) -> bool:
        """Whether there was anything to do; after an error there was."""
        if self._work is None:
            if not self._waiting:
                return False
            path, certain = self._waiting.popleft()
            if path.stat().st_size >= LEAST_B and (certain or not is_open_for_writing(path)):
                self._work, self._working = self._pack(path), path
            return True
        try:
            next(self._work)
        except StopIteration:
            self._work = None
            # Of a spool, who moves it deletes what it was, too.
            if self._working is not None and self._spool is None:
                self._redundant.append((now_ns + _KEPT_NS, self._working))
        except OSError:
            self._work = None
            self._rest_ns = now_ns + _PAUSE_NS
            raise
        return True

    def _pack(self, path: Path) -> Iterator[None]:
        """Compact a segment, or compress it where that cannot be done or is of no use."""
        own = path.name.startswith(f"p{self._log.process}.")
        if own or not (yield from self._compactor.compact(path)):
            yield from compress(path)

    @guard.fail_open("sidecar.delete")
    def _delete_redundant(self, now_ns: int) -> None:
        while self._redundant and self._redundant[0][0] <= now_ns:
            _, path = self._redundant.popleft()
            if is_finished(path):
                path.unlink(missing_ok=True)  # another container's sidecar was faster

    @guard.fail_open("sidecar.live")
    def _end_live(self, reason: str) -> None:
        if reason == "exit":
            self._children.end()
        self._children.stop(_LIVE_S if reason == "exit" else 0)

    @guard.fail_open("sidecar.live")
    def _be_asked(self) -> None:
        """Stay with what is asked for what a run said last, unless the run goes on."""

        def nobody_came(wait_s: float) -> bool:
            if self._beat is not None:
                self._beat()
            self._writers.look()
            return not self._writers.alive and signal.sigtimedwait(self._signals, wait_s) is None

        self._children.leave(ASKED_S, nobody_came)

    @guard.fail_open("sidecar.finish")
    def _finish(self, reason: str) -> None:
        begin = time.monotonic_ns()
        self._write(begin + _WRITE_NS)
        if self._sampler is not None:
            self._sampler.close()
        if self._readers is not None:
            self._readers.close()
        self._end_live(reason)
        if self._begun:
            self._log.end(reason)
        if reason == "exit":
            self._look(begin)
            while (now := time.monotonic_ns()) - begin < self._last_s * _S and now >= self._rest_ns:
                if not self._compress_a_slice(now):
                    break
            self._delete_redundant(time.monotonic_ns() + _KEPT_NS)
        self._compactor.close()
        if self._end_spool(reason) or self._begun:
            self._lock.settle()
        self._end_upload(reason)
        self._be_asked()
