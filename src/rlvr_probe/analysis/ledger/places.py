"""Which GPUs a run has, who works on them, and whose stages say what they do.

A device that a process surely works on is a GPU. Where devices are not known, what a cluster gave
its processes are the GPUs, which several of them may share; else a rank is one, under the same name
in every attempt.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.ledger.engines import find_engines
from rlvr_probe.analysis.ledger.gpu_search import Places, Search, insert
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["find_places"]

_SQL: Final = statements(__name__)


def _find(search: Search) -> Places:
    """Search for all of it."""
    found = search.found
    callers = search.numbers(_SQL["callers"])
    steppers = search.numbers(_SQL["steppers"])
    for process in sorted(steppers & search.processes.keys()):
        attempt = search.processes[process].attempt
        into = found.controllers if process in callers else found.ranks
        into.setdefault(attempt, []).append(process)
    attempts = sorted({*found.controllers, *found.ranks})
    for attempt in attempts:
        _ranks(search, attempt)
    _called(search)
    _missing(search)
    find_engines(search, attempts)
    return found


def _ranks(search: Search, attempt: int) -> None:
    """Ranks that do everything themselves."""
    for process in search.found.ranks.get(attempt, ()):
        rank = search.processes[process].rank
        search.put(process, f"rank {process if rank is None else rank}", rank)


def _called(search: Search) -> None:
    """Ranks of groups that a controller calls."""
    for process, rank in search.ask(_SQL["called"]):
        if process in search.processes:
            role = search.processes[process].role
            search.put(process, f"{role} {rank}", rank)


def _missing(search: Search) -> None:
    """Ranks that the run had and that recorded nothing."""
    found = search.found
    for attempt, processes in found.ranks.items():
        known = {search.processes[process].rank for process in processes}
        size = max((search.processes[process].world_size or 0 for process in processes), default=0)
        for rank in sorted(set(range(min(size, 1 << 20))) - known):
            gpu = search.gpu(f"rank {rank}", attempt)
            gpu.rank = rank
            found.first.setdefault((gpu.index, attempt), (None, rank))
    if not found.controllers:
        return
    [[size]] = search.ask(_SQL["accelerators"])
    for number in range(len(found.gpus), min(size or 0, 1 << 20)):
        search.gpu(f"accelerator {number}", min(found.controllers))


def find_places(tables: Tables) -> Places:
    """The GPUs of a recording, put into tables too.

    Makes ``gpu``, ``gpu_process`` (who works on which), ``gpu_rank`` (the first of them, and its
    rank, by attempt), ``gpu_teller`` (whose stages say what a GPU does, until when) and
    ``engine_gpu``.
    """
    found = _find(Search(tables))
    insert(
        tables, "gpu",
        "gpu INTEGER, key VARCHAR, device INTEGER, process INTEGER, rank BIGINT, host VARCHAR,"
        " boot VARCHAR, part VARCHAR",
        [
            (gpu.index, gpu.key, gpu.device, gpu.process, gpu.rank, gpu.host, gpu.boot, gpu.part)
            for gpu in found.gpus
        ],
    )  # fmt: skip
    insert(
        tables,
        "gpu_process",
        "gpu INTEGER, process INTEGER",
        [(gpu.index, process) for gpu in found.gpus for process in gpu.processes],
    )
    insert(
        tables,
        "gpu_rank",
        "gpu INTEGER, attempt INTEGER, process INTEGER, rank BIGINT",
        [(*at, *told) for at, told in found.first.items()],
    )
    insert(tables, "engine_owner", "attempt INTEGER, engine BIGINT, process INTEGER", found.owners)
    insert(tables, "engine_gpu", "attempt INTEGER, engine BIGINT, gpu INTEGER", found.engines)
    _tellers(tables, found)
    return found


def _tellers(tables: Tables, found: Places) -> None:
    [[beside]] = tables.sql.execute(_SQL["asynchronous"]).fetchall()
    attempts = dict(tables.sql.execute(_SQL["attempts"]).fetchall())
    served = {(attempt, gpu) for attempt, _, gpu in found.engines}
    rows = set[tuple[int, int, bool]]()
    for gpu in found.gpus:
        alone = gpu.part == "rollout" and beside
        here = {attempts[process] for process in gpu.processes}
        here |= {attempt for attempt, index in served if index == gpu.index}
        if not here and gpu.key.startswith("accelerator"):
            here = set(found.controllers)
        if not gpu.processes and gpu.part == "train" and gpu.key.startswith("rank"):
            here = set()
        for attempt in here:
            own = [process for process in found.ranks.get(attempt, ()) if process in gpu.processes]
            rows |= {(gpu.index, process, True) for process in own}
            if not own and not alone:
                others = found.controllers.get(attempt) or found.ranks.get(attempt, ())[:1]
                rows |= {(gpu.index, process, False) for process in others}
    insert(tables, "ledger_told", "gpu INTEGER, process INTEGER, own BOOLEAN", sorted(rows))
    tables.sql.execute(_SQL["tellers"])
