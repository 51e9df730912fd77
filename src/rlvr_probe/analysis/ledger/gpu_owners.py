"""Which GPUs a run has, who works on them, and whose stages say what they do.

A device that a process surely works on is a GPU. Where devices are not known, what a cluster gave
its processes are the GPUs, which several of them may share; else a rank is one, under the same name
in every attempt.

A rollout engine has the GPUs of its own process, by its devices or by what its cluster gave it;
else what the cluster gave processes other than ranks, if it is as much as engines need; else those
of the ranks, if there are as many as engines need and nothing is generated beside the training;
else those that showed activity and that no recorded process works on; else GPUs of its own, of
which nothing else is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import astuple
from typing import Final

from rlvr_probe.analysis.ledger.gpu_search import Gpu, Places, Search
from rlvr_probe.analysis.statements import insert, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["find_places"]

_SQL: Final = statements(__name__)

_SERVER: Final = -1
"""Number of an engine that has none: a server."""


def _find(search: Search) -> Places:
    """Find ranks that do everything themselves, those that a controller calls, and engines."""
    found = search.found
    callers = search.numbers(_SQL["callers"])
    steppers = search.numbers(_SQL["steppers"])
    for process in sorted(steppers & search.processes.keys()):
        into = found.controllers if process in callers else found.ranks
        into.setdefault(search.processes[process].attempt, []).append(process)
    attempts = sorted({*found.controllers, *found.ranks})
    for process in (each for attempt in attempts for each in found.ranks.get(attempt, ())):
        rank = search.processes[process].rank
        search.put(process, f"rank {process if rank is None else rank}", rank)
    for process, rank in search.ask(_SQL["called"]):
        if process in search.processes:
            search.put(process, f"{search.processes[process].role} {rank}", rank)
    _missing(search)
    _find_engines(search, attempts)
    return found


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
    columns = "gpu INTEGER, key VARCHAR, device INTEGER, process INTEGER, rank BIGINT"
    columns += ", host VARCHAR, boot VARCHAR, part VARCHAR"
    insert(tables, "gpu", columns, [astuple(gpu)[:-1] for gpu in found.gpus])
    works = [(gpu.index, process) for gpu in found.gpus for process in gpu.processes]
    insert(tables, "gpu_process", "gpu INTEGER, process INTEGER", works)
    first = [(*place, *rank) for place, rank in found.first.items()]
    insert(tables, "gpu_rank", "gpu INTEGER, attempt INTEGER, process INTEGER, rank BIGINT", first)
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


def _find_engines(search: Search, attempts: Iterable[int]) -> None:
    """Find GPUs of the rollout engines of these attempts; those of ranks are found already."""
    numbers = defaultdict[int, list[int]](list)
    for attempt, number in search.ask(_SQL["numbered"]):
        numbers[attempt].append(number)
    # The process that recorded the first turn of the engine as a request. The first of the attempt:
    # a later attempt has processes of its own.
    if search.ask(_SQL["requested"]) == [(True,)]:
        search.found.owners += search.ask(_SQL["owners"])
    owners = {(attempt, engine): process for attempt, engine, process in search.found.owners}
    training = search.numbers(_SQL["workers"])
    training |= {process for ranks in search.found.ranks.values() for process in ranks}
    for attempt in attempts:
        left = list[int]()
        for number in numbers[attempt]:
            process = owners.get((attempt, number))
            if process is not None and (process in search.works or process in search.given):
                _serve(search, attempt, number, search.put(process, "", None), training)
            else:
                left.append(number)
        if not numbers[attempt] and _serves(search, attempt):
            left.append(_SERVER)
        if left:
            _place(search, attempt, left, training)


def _serves(search: Search, attempt: int) -> bool:
    """Whether an engine without a number decoded: a server, or for processes that have no GPU."""
    if search.ask(_SQL["server"]) == [(True,)]:
        return True
    owned = sorted({process for gpu in search.found.gpus for process in gpu.processes})
    return search.ask(_SQL["serves"], attempt=attempt, owned=owned) == [(True,)]


def _place(search: Search, attempt: int, engines: Sequence[int], training: Set[int]) -> None:
    """Find GPUs for engines of which no device is known."""
    [[size, beside]] = search.ask(_SQL["size"])
    taken = {gpu.device for gpu in search.found.gpus}
    free = [row for row in search.ask(_SQL["free"]) if row[0] not in taken]
    held = _largest(search, attempt)
    each = size or max(1, len(held) // len(engines))
    notes = search.found.notes
    owned = {process for gpu in search.found.gpus for process in gpu.processes}
    # As the workers of an engine.
    workers = [
        process
        for process in search.given
        if process not in owned and search.processes[process].attempt == attempt
    ]
    given = {name for process in workers for name in search.given[process]}
    if given and len(given) == len(engines) * each:
        found = {gpu.index: gpu for process in workers for gpu in search.put(process, "", None)}
        gpus = [*found.values()]
        notes.append(
            f"{len(given)} GPUs were given to processes other than ranks: they are taken to be"
            " those of the rollout engines, in the order of the processes"
        )
    elif engines != [_SERVER] and len(held) == len(engines) * each and not beside:
        gpus = held
        notes.append(
            "no device of a rollout engine was recorded: they are taken to be on the GPUs of"
            " the ranks, as many as they need"
        )
    elif free and len(free) % len(engines) == 0:
        each = len(free) // len(engines)
        gpus = [search.gpu(f"device {device}", attempt) for device, _, _ in free]
        for gpu, (device, host, boot) in zip(gpus, free, strict=True):
            gpu.device, gpu.host, gpu.boot = device, host, boot
        notes.append(
            f"{len(free)} GPUs that no recorded process works on showed activity: they are"
            " taken to be those of the rollout engine"
        )
    elif engines == [_SERVER]:
        notes.append("no device of the rollout engine was recorded: its GPUs are not in the ledger")
        return
    else:
        gpus = [
            search.gpu(f"engine {number} part {part}", attempt)
            for number in engines
            for part in range(each)
        ]
        notes.append(
            f"no device of {len(engines)} rollout engines was recorded: each is taken to have"
            f" {each} of its own"
        )
    for at, number in enumerate(engines):
        _serve(search, attempt, number, gpus[at * each : (at + 1) * each], training)


def _largest(search: Search, attempt: int) -> list[Gpu]:
    """GPUs of the largest group of ranks of an attempt, by rank; or of ranks that are missing."""
    groups = dict[str, list[Gpu]]()
    for gpu in search.found.gpus:
        here = [
            process for process in gpu.processes if search.processes[process].attempt == attempt
        ]
        if here:
            groups.setdefault(search.processes[here[0]].role, []).append(gpu)
        elif not gpu.processes and gpu.part == "train":
            groups.setdefault("", []).append(gpu)
    held = max(groups.values(), key=len, default=[])
    return sorted(held, key=lambda gpu: (gpu.rank is None, gpu.rank or 0, gpu.index))


def _serve(
    search: Search, attempt: int, engine: int, gpus: Iterable[Gpu], training: Set[int]
) -> None:
    for gpu in gpus:
        named = not gpu.key.startswith(("device", "engine", "given"))
        trains = named or not training.isdisjoint(gpu.processes)
        gpu.part = "both" if trains else "rollout"
        search.found.engines.append((attempt, engine, gpu.index))
