"""Writes recordings of a job of many processes with one controller, as verl makes them through Ray.

A driver; a controller, which trains; ranks, which do what it calls; workers, which each generate
a part of a batch, with turns, tools and verification. :class:`Books` holds what really happened, by
the start of every span, which is unique in the whole run; it shares nothing with the reader.

    python -m tests.actors FOLDER --steps 100 --prompts 64
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr_probe.model import names
from tests.synthetic import BOOT, SECOND, STEP_NS, Process

__all__ = ["SECOND", "Books", "Job", "Lived"]

MILLISECOND = 1_000_000
OTHER_BOOT = "00000000-0000-4000-8000-000000000002"


@dataclass
class Lived:
    """One trajectory as it was.

    Attributes:
        place: Mode, step and ordinal of its batch, and its row.
        prompt: What names its prompt.
        process: Key of the process that generated it.
        turns, tools: Starts of its turns and tool calls, ns.
        verified: Start of its verification, ns, and the reward.
    """

    place: tuple[str, int, int, int]
    prompt: str
    prompt_tokens: int
    response_tokens: int
    engine: int
    policy: tuple[int, int]
    process: str
    start_ns: int = 0
    loss_runs: tuple[int, ...] = ()
    turns: list[int] = field(default_factory=list)
    tools: list[int] = field(default_factory=list)
    verified: tuple[int, float] = (0, 0.0)
    kept: bool = True
    used: bool = True


@dataclass
class Books:
    """What happened in a job.

    Attributes:
        trajectories: By place.
        calls: Calls of worker groups: by start of the caller's span, ns, its step, and the process
            and start of every rank's.
        begun, boots: Start, ns, and boot id of each process by its key.
        rows: Rows written, definitions left out.
    """

    trajectories: dict[tuple[str, int, int, int], Lived] = field(default_factory=dict)
    calls: dict[int, tuple[int, list[tuple[str, int]]]] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    boots: dict[str, str] = field(default_factory=dict)
    rows: int = 0


@dataclass
class Job:
    """A job; :meth:`write` writes its recording.

    Attributes:
        steps, prompts, group_size: Of the training; each step generates ``prompts`` groups.
        ranks, workers: Processes of the two kinds.
        v1: Workers generate ahead, keys are those of V1, groups are ragged and filtered.
        restarted_rank, restarted_worker: Step before which the last one of them begins anew.
        restarted_manager: Step before which the controller counts its generations anew.
        alike: Every trajectory has the same lengths.
        other_machine: The workers and the last rank run on another machine, whose clock is ahead by
            this, ns.
        number: Its processes have numbers from here, in no order.
        begin_ns: When it begins.
        booked: Whether the books have trajectories; a million of them take a gigabyte.
        turns: Most turns of a trajectory; of more than one, tools are called between them.
        resumed: Trainer steps that were done when it began.
        end: Whether it ended in an orderly way.
        killed: Whether all but the driver were killed when it had, as Ray does, so that their
            journals are not closed.
    """

    folder: Path
    steps: int = 4
    prompts: int = 6
    group_size: int = 4
    ranks: int = 2
    workers: int = 3
    v1: bool = False
    uids: bool = True
    restarted_rank: int | None = None
    restarted_worker: int | None = None
    restarted_manager: int | None = None
    alike: bool = False
    other_machine: int | None = None
    number: int = 0
    begin_ns: int = 0
    turns: int = 3
    resumed: int = 0
    end: bool = True
    killed: bool = False
    booked: bool = True
    seed: int = 0
    books: Books = field(default_factory=Books)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._ticks = 0
        count = max(64, self.ranks + self.workers + 8)
        self._numbers = list(range(self.number, self.number + count))
        self._draw.shuffle(self._numbers)
        self._processes: list[Process] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._generations = 0
        self._driver = self._process("driver", 0)
        self._controller = self._process("TaskRunner", SECOND)
        self._ranks = [self._rank(rank, 2 * SECOND) for rank in range(self.ranks)]
        self._rank_counts: list[dict[tuple[str, str], int]] = [{} for _ in range(self.ranks)]
        self._workers = [self._worker(2 * SECOND) for _ in range(self.workers)]
        self._worker_counts = [0] * self.workers

    def _process(self, role: str, start_ns: int, *, other: bool = False, **header: Any) -> Process:
        number = self._numbers[len(self.books.begun)]
        header = {"job": f"job-{number}", **header}
        if self.books.begun:
            header["owner"] = self._driver.key
        ahead = self.other_machine if other else None
        if ahead is not None:
            header |= {"boot": OTHER_BOOT, "host": "node-2"}
        process = Process(
            self.folder,
            number,
            header=header,
            start_ns=self.begin_ns + start_ns,
            clock_ns=ahead or 0,
        )
        self._processes.append(process)
        self.books.begun[process.key] = self.begin_ns + start_ns
        self.books.boots[process.key] = BOOT if ahead is None else OTHER_BOOT
        actor = {} if role == "driver" else {"actor": f"actor-{number}"}
        process.event(names.PROCESS, self.begin_ns + start_ns + 1, role=role, **actor)
        if actor:
            starter = self._driver if role == "TaskRunner" else self._controller
            starter.event(names.STARTED, self.begin_ns + start_ns, role=role, **actor)
        return process

    def _rank(self, rank: int, start_ns: int) -> Process:
        # Ranks of several jobs may have one parent, and with it one job key.
        header = {"rank": rank, "local_rank": rank, "world_size": self.ranks, "job": "raylet"}
        return self._process(
            "WorkerDict", start_ns, other=rank == self.ranks - 1 and self.ranks > 1, **header
        )

    def _worker(self, start_ns: int) -> Process:
        return self._process("AgentLoopWorker", start_ns, other=True)

    def _at(self, start_ns: int) -> int:
        """A moment at or soon after ``start_ns`` that is no other's."""
        self._ticks += 1
        return start_ns + self._ticks

    def write(self) -> Books:
        """Write the recording and say what happened."""
        controller = self._controller
        controller.event(
            names.SESSION, self.begin_ns + 9 * SECOND, session=0, framework="verl",
            framework_version="0.9.1", algorithm="grpo", resumed_step=self.resumed, rank=0,
            world_size=1, accelerators=self.ranks, rollout_tp=1, engine="vllm",
            group_size=self.group_size, max_prompt_tokens=512, max_response_tokens=4096,
            steps_per_generation=1, iterations=1, accumulation=1, reward_functions=["math"],
        )  # fmt: skip
        self._call(self.begin_ns + 8 * SECOND, 0, 0, "init_model", waits=True)
        for step in range(self.resumed + 1, self.resumed + self.steps + 1):
            self._step(step)
            for process in self._processes:
                self.books.rows += process.flush()
        end = self.begin_ns + (self.steps + 2) * STEP_NS
        if self.end:
            controller.event(names.SESSION_END, end, session=0, step=self.resumed + self.steps)
        for process in self._processes:
            if self.end and not (self.killed and process is not self._driver):
                self.books.rows += process.close(end)
            else:
                self.books.rows += process.flush() if self.end else 0
                process.writer.close()
        return self.books

    def _step(self, step: int) -> None:
        begin = self.begin_ns + (step - self.resumed) * STEP_NS
        self._restart(step, begin)
        process = self._controller
        whole, rollout = process.next_span(), process.next_span()
        where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
        tenth = STEP_NS // 10
        start, end = self._at(begin), begin + 4 * tenth
        self._generate(step, "train", rollout, start, end)
        process.span(names.ROLLOUT, start, end + tenth // 4, whole, rollout, **where)
        for name, method, at, waits in (
            (names.OLD_LOGPROB, "compute_log_prob", 5, True),
            (names.UPDATE_ACTOR, "update_actor", 6, True),
            (names.WEIGHT_SYNC, "update_weights", 8, False),
        ):
            stage = process.next_span()
            self._call(begin + at * tenth, step, stage, method, waits=waits)
            process.span(name, begin + at * tenth, begin + (at + 1) * tenth, whole, stage, **where)
        process.span(names.STEP, begin, begin + 9 * tenth, 0, whole, session=0, step=step)
        if step % 2 == 0 and not self.v1:
            evaluation = process.next_span()
            start, end = begin + 9 * tenth, begin + 9 * tenth + tenth // 2
            self._generate(step, "eval", evaluation, start, end)
            process.span(
                names.EVAL, start, end + tenth // 8, 0, evaluation, **{**where, "mode": "eval"}
            )

    def _restart(self, step: int, begin: int) -> None:
        """Let an actor begin anew, which then counts anew."""
        if step == self.restarted_rank:
            self._ranks[-1] = self._rank(self.ranks - 1, begin - SECOND - self.begin_ns)
            self._rank_counts[-1] = {}
        if step == self.restarted_worker:
            self._workers[-1] = self._worker(begin - SECOND - self.begin_ns)
            self._worker_counts[-1] = 0
        if step == self.restarted_manager:
            self._generations = 0

    def _call(self, begin: int, step: int, parent: int, method: str, *, waits: bool) -> None:
        """One call of the worker group, on both sides."""
        group = "actor_rollout"
        call = self._counts.get((group, method), 0)
        self._counts[group, method] = call + 1
        start = self._at(begin)
        length = SECOND // 2 if waits else MILLISECOND
        self._controller.span(
            names.RPC, start, start + length, parent, 0, side="caller", group=group, method=method,
            call=call, ranks=self.ranks, samples=self.prompts * self.group_size, waits=int(waits),
        )  # fmt: skip
        starts = []
        for rank, _rank in enumerate(self._ranks):
            counts = self._rank_counts[rank]
            own = counts.get((group, method), 0)
            counts[group, method] = own + 1
            first = self._at(start + 2 * MILLISECOND)
            starts.append((_rank.key, first))
            _rank.span(
                names.RPC, first, first + SECOND // 4, 0, 0, side="worker", group=group,
                method=method, call=own, rank=rank, ranks=self.ranks,
            )  # fmt: skip
        self.books.calls[start] = (step, starts)

    def _generate(self, step: int, mode: str, batch: int, begin: int, end: int) -> None:
        """One generation by all workers, and what the controller says of it."""
        sizes = [self.group_size] * self.prompts
        if self.v1:
            sizes = [self._draw.randint(1, self.group_size) for _ in sizes]
        prompts = [f"{self._draw.getrandbits(64):016x}" for _ in sizes]
        groups = [group for group, size in enumerate(sizes) for _ in range(size)]
        total = len(groups)
        per_worker = -(-total // self.workers)
        generation, self._generations = self._generations, self._generations + 1
        made, keys = [], []
        lengths = [50 if self.alike else self._draw.randrange(20, 200) for _ in sizes]
        for row, group in enumerate(groups):
            worker, place = divmod(row, per_worker)
            uid = prompts[group] if self.uids and mode == "train" else "-"
            process = Lived(
                (mode, step, 0, row), prompts[group], lengths[group], 0,
                engine=(row * 7 + step) % 5, policy=(max(0, step - 1 - row % 2), step - 1),
                process=self._workers[worker].key,
            )  # fmt: skip
            if self.v1:
                keys.append(f"{prompts[group]}_{row - groups.index(group)}_0")
                key = keys[-1]
            else:
                keys.append(f"{uid}/{generation}/{worker}/{place}")
                key = f"{uid}/{self._worker_counts[worker]}/{worker}/{place}"
            self._live(self._workers[worker], process, key, begin, end)
            made.append(process)
            if self.booked:
                self.books.trajectories[process.place] = process
        self._worker_counts = [count + 1 for count in self._worker_counts]
        self._tell(step, mode, batch, end, made, keys, groups, prompts)

    def _live(self, process: Process, item: Lived, key: str, begin: int, end: int) -> None:
        """One trajectory in its worker."""
        span = process.next_span()
        if self.v1:
            begin -= STEP_NS // 2
        room = (end - begin) // 2
        start = at = self._at(begin + self._draw.randrange(room))
        item.start_ns = start
        length = (end - MILLISECOND - start) // (2 * self.turns + 2)
        count = self.turns if self.alike else self._draw.randint(1, self.turns)
        runs: list[int] = []
        sent = item.prompt_tokens
        for turn in range(count):
            made = 30 if self.alike else self._draw.randrange(1, 60)
            at = self._at(at)
            item.turns.append(at)
            process.span(
                names.TURN, at, at + length // 2, span, 0, batch=span, samples=1, turn=turn,
                prompt_tokens=sent, response_tokens=made,
                cached_tokens=sent if turn else None,
            )  # fmt: skip
            runs.append(made)
            sent += made
            if turn + 1 < count:
                told = 9 if self.alike else self._draw.randrange(1, 20)
                tool = self._at(at + length // 2)
                item.tools.append(tool)
                process.span(
                    names.TOOL_CALL, tool, tool + length // 4, span, 0, batch=span, turn=turn,
                    tool="search", status="ok",
                )  # fmt: skip
                runs.append(told)
                sent += told
            at += length
        item.response_tokens, item.loss_runs = sum(runs), tuple(runs)
        first = self._at(at)
        item.verified = (first, self._draw.random())
        process.span(
            names.VERIFY, first, first + length // 4, span, 0, batch=span, function="math",
            value=item.verified[1],
        )  # fmt: skip
        process.span(
            names.TRAJECTORY, start, first + length // 2, 0, span, key=key, engine=item.engine,
            policy_version_min=item.policy[0], policy_version_max=item.policy[1],
            prompt_tokens=item.prompt_tokens, response_tokens=item.response_tokens,
            loss_runs=runs, truncated=0,
        )  # fmt: skip

    def _tell(
        self,
        step: int,
        mode: str,
        batch: int,
        end: int,
        made: list[Lived],
        keys: list[str],
        groups: list[int],
        prompts: list[str],
    ) -> None:
        columns: dict[str, Any] = {
            "prompt_tokens": [item.prompt_tokens for item in made],
            "response_tokens": [item.response_tokens for item in made],
            "keys": keys,
            "prompts": prompts,
        }
        if self.v1:
            columns["groups"] = groups
        process = self._controller
        at = self._at(end)
        where = {"session": 0, "step": step}
        gone = prompts[: len(prompts) // 3] if self.v1 else []
        cut = sum(lived.prompt in gone for lived in made)
        if gone:  # told at once, before the trainer takes what is left
            rows = {name: column[:cut] for name, column in columns.items()} | {"prompts": gone}
            process.event(
                names.TRAJECTORIES, at - 2, 0, **where, mode=mode, ordinal=0, offset=0, total=cut,
                grows=1, group_size=self.group_size, **rows,
            )  # fmt: skip
            process.event(names.SELECTED, at - 1, 0, **where, discarded=gone, reason="filter")
            rest = prompts[len(gone) :]
            columns = {name: column[cut:] for name, column in columns.items()} | {"prompts": rest}
        process.event(
            names.TRAJECTORIES, at, batch, **where, mode=mode, batch=batch, ordinal=0, offset=cut,
            total=len(made), group_size=self.group_size, **columns,
        )  # fmt: skip
        if not self.v1:
            return
        used = prompts[len(gone) :]
        for lived in made:
            lived.kept = lived.used = lived.prompt in used
        process.event(names.SELECTED, at, 0, **where, used=used)


def main() -> None:
    """Write one recording and print how much it holds."""
    parser = argparse.ArgumentParser(description="write a recording of a job of many processes")
    parser.add_argument("folder", type=Path)
    sizes: tuple[tuple[str, Callable[[str], int], int], ...] = (
        ("steps", int, 10), ("prompts", int, 64), ("group-size", int, 8), ("ranks", int, 2),
        ("workers", int, 8), ("turns", int, 3),
    )  # fmt: skip
    for name, kind, default in sizes:
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--v1", action="store_true")
    books = Job(**vars(parser.parse_args()), booked=False).write()
    print(f"{books.rows} rows of {len(books.begun)} processes")


if __name__ == "__main__":
    main()
