"""Which GPUs a rollout engine has.

Those of its own process, by its devices or by what its cluster gave it; else what the cluster gave
processes other than ranks, if it is as much as engines need; else those of the ranks, if there are
as many as engines need and nothing is generated beside the training; else those that showed
activity and that no recorded process works on; else GPUs of its own, of which nothing else is
known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Final

from rlvr_probe.analysis.ledger.gpu_search import Gpu, Search
from rlvr_probe.analysis.statements import statements

__all__ = ["find_engines"]

_SQL: Final = statements(__name__)

SERVER = -1
"""Number of an engine that has none: a server."""


def find_engines(search: Search, attempts: Iterable[int]) -> None:
    """Find GPUs of the rollout engines of these attempts; those of ranks are found already."""
    numbers = defaultdict[int, list[int]](list)
    for attempt, number in search.ask(_SQL["numbered"]):
        numbers[attempt].append(number)
    search.found.owners += _owners(search)
    owners = {(attempt, engine): process for attempt, engine, process in search.found.owners}
    training = _training(search)
    for attempt in attempts:
        left = list[int]()
        for number in numbers[attempt]:
            process = owners.get((attempt, number))
            if process is not None and search.has_place(process):
                _serve(search, attempt, number, search.put(process, "", None), training)
            else:
                left.append(number)
        if not numbers[attempt] and (_server(search) or _serves(search, attempt)):
            left.append(SERVER)
        if left:
            _place(search, attempt, left, training)


def _owners(search: Search) -> list[tuple[int, int, int]]:
    """Attempt, engine and the process that recorded the first turn of the engine as a request.

    The first of the attempt: a later attempt has processes of its own.
    """
    [[some]] = search.ask(_SQL["requested"])
    if not some:
        return []
    return search.ask(_SQL["owners"])


def _serves(search: Search, attempt: int) -> bool:
    """Whether an engine without a number decoded for processes that have no GPU."""
    owned = sorted({process for gpu in search.found.gpus for process in gpu.processes})
    [[some]] = search.ask(_SQL["serves"], attempt=attempt, owned=owned)
    return bool(some)


def _server(search: Search) -> bool:
    """Whether the engine is a server, on none of the GPUs of its clients."""
    [[server]] = search.ask(_SQL["server"])
    return bool(server)


def _place(search: Search, attempt: int, engines: Sequence[int], training: Set[int]) -> None:
    """Find GPUs for engines of which no device is known."""
    [[size, beside]] = search.ask(_SQL["size"])
    free = _free(search)
    held = _largest(search, attempt)
    each = size or max(1, len(held) // len(engines))
    notes = search.found.notes
    workers = _workers(search, attempt)
    given = {name for process in workers for name in search.given[process]}
    if given and len(given) == len(engines) * each:
        found = {gpu.index: gpu for process in workers for gpu in search.put(process, "", None)}
        gpus = [*found.values()]
        notes.append(
            f"{len(given)} GPUs were given to processes other than ranks: they are taken to be"
            " those of the rollout engines, in the order of the processes"
        )
    elif engines != [SERVER] and len(held) == len(engines) * each and not beside:
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
    elif engines == [SERVER]:
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


def _workers(search: Search, attempt: int) -> list[int]:
    """Processes of an attempt, other than ranks, that were given GPUs: workers of an engine."""
    owned = {process for gpu in search.found.gpus for process in gpu.processes}
    return [
        process
        for process in search.given
        if process not in owned and search.processes[process].attempt == attempt
    ]


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


def _free(search: Search) -> list[tuple[int, str, str]]:
    """Devices that showed activity and that no recorded process works on."""
    taken = {gpu.device for gpu in search.found.gpus}
    return [
        (device, host, boot)
        for device, host, boot in search.ask(_SQL["free"])
        if device not in taken
    ]


def _serve(
    search: Search, attempt: int, engine: int, gpus: Iterable[Gpu], training: Set[int]
) -> None:
    for gpu in gpus:
        named = not gpu.key.startswith(("device", "engine", "given"))
        trains = named or not training.isdisjoint(gpu.processes)
        gpu.part = "both" if trains else "rollout"
        search.found.engines.append((attempt, engine, gpu.index))


def _training(search: Search) -> set[int]:
    """Processes of ranks."""
    workers = search.numbers(_SQL["workers"])
    return workers | {process for some in search.found.ranks.values() for process in some}
