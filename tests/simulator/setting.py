"""What a simulated run is: its shape, sizes and costs, the faults in it, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulator.books import Books
from tests.simulator.draws import SECOND, Draws, Lengths, Purpose
from tests.simulator.engines import Run
from tests.simulator.faults import Effects, Fault

__all__ = ["SHAPES", "Costs", "Fate", "Scenario", "Setting", "deal"]

SHAPES = ("trl", "verl", "async")


@dataclass(frozen=True)
class Costs:
    """What things take without a fault.

    Attributes:
        logprob_s, update_s: Of one token on one rank, s.
        fixed_s: Of one stage on one rank beside its tokens, s.
        sync_s, checkpoint_s, advantage_s, data_s: Of one such stage, s.
        gap_s: Median of what lies between two stages, s.
        dispatch_s: Until the call of a worker group has reached a rank, and its result the caller.
        rate: Tokens per second of one sequence alone in an engine.
        half: Sequences in an engine at which each has half of that.
        slots: Sequences that an engine decodes at the same time.
        rank_sd, noise_sd: Standard deviation of the logarithm of what a stage takes: between ranks,
            for good; and from one stage to the next.
        probe_s: The probe's own time in one step.
    """

    logprob_s: float = 1.2e-4
    update_s: float = 4e-4
    fixed_s: float = 0.2
    sync_s: float = 2.0
    checkpoint_s: float = 8.0
    advantage_s: float = 0.1
    data_s: float = 0.05
    gap_s: float = 0.08
    dispatch_s: float = 0.01
    rate: float = 80.0
    half: float = 64.0
    slots: int = 64
    rank_sd: float = 0.005
    noise_sd: float = 0.01
    probe_s: float = 0.002


@dataclass(frozen=True)
class Scenario:
    """A run to be simulated.

    Attributes:
        shape: Whose recording it has: one of :data:`SHAPES`.
        ranks: GPUs that train; where rollout is colocated they also generate.
        rollout_gpus: GPUs of the rollout engine of an asynchronous run.
        tp: GPUs of one rollout engine, where it is colocated with a controller.
        prompts: Groups that a step trains on.
        generated: Groups that it generates at once where a filter follows; 0 is as many.
        workers: Agent loop workers (verl).
        reward_workers: Verifications of one reward function at the same time.
        tool_workers: Tool calls of one data source at the same time.
        sources: Data sources; each has its tool and its reward function, named after it.
        keep: Share of groups that pass the filter; 1 is a run without one.
        mask_truncated: Truncated trajectories are left out of the loss.
        eval_every, checkpoint_every: Steps between two of them; 0 is never.
        queue: Groups that fit into the queue of an asynchronous run.
        staleness: Trainer steps that a group may be old when it is taken.
        inflight: Groups that are generated at the same time in an asynchronous run.
        hz: How often a device is read; 0 is a run without a sidecar.
    """

    seed: int
    shape: str = "verl"
    steps: int = 30
    ranks: int = 8
    rollout_gpus: int = 4
    tp: int = 1
    gpus_per_node: int = 4
    prompts: int = 32
    generated: int = 0
    group_size: int = 8
    workers: int = 4
    reward_workers: int = 16
    tool_workers: int = 64
    sources: tuple[str, ...] = ("math", "code")
    keep: float = 1.0
    mask_truncated: bool = False
    eval_every: int = 0
    checkpoint_every: int = 0
    queue: int = 32
    staleness: int = 4
    inflight: int = 32
    hz: float = 0.5
    lengths: Lengths = field(default_factory=Lengths)
    costs: Costs = field(default_factory=Costs)
    faults: tuple[Fault, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs of the run."""
        return self.ranks + (self.rollout_gpus if self.shape == "async" else 0)

    @property
    def nodes(self) -> int:
        """Machines that they are in."""
        return -(-self.gpus // self.gpus_per_node)

    def node(self, gpu: int) -> int:
        """The machine of a GPU."""
        return gpu // self.gpus_per_node

    def per_worker(self, rows: int) -> int:
        """Trajectories of a batch that one agent loop worker has (verl)."""
        return -(-rows // self.workers)

    @property
    def rewarders(self) -> int:
        """Reward workers (verl): processes of which each does several verifications at a time."""
        return min(8, self.reward_workers)

    @property
    def functions(self) -> list[str]:
        """Names of the reward functions, by data source."""
        return [f"{source}_reward" for source in self.sources]

    @property
    def tools(self) -> list[str]:
        """Names of the tools, by data source."""
        return [f"{source}_tool" for source in self.sources]


class Setting:
    """One play of a scenario: with these faults, on these draws."""

    def __init__(self, scenario: Scenario, draws: Draws, faults: tuple[Fault, ...]) -> None:
        self.scenario = scenario
        self.draws = draws
        self.effects = Effects(faults)
        costs = scenario.costs
        self.speeds = draws.factors(Purpose.RANK, (), scenario.gpus, costs.rank_sd)

    def work_ns(self, step: int, place: int, seconds: list[float]) -> list[int]:
        """What each rank takes for a stage that takes it ``seconds`` without noise and faults."""
        draws, sd = self.draws, self.scenario.costs.noise_sd
        noise = draws.factors(Purpose.STAGE, (step, place), len(seconds), sd)
        work = self.effects.work
        return [
            round(SECOND * work(one * noise[gpu] * self.speeds[gpu], gpu, step))
            for gpu, one in enumerate(seconds)
        ]

    def sync_s(self, step: int) -> float:
        """What moving weights takes in a step."""
        factor = self.draws.factors(Purpose.SYNC, (step,), 1, 0.1)[0]
        return self.effects.sync(self.scenario.costs.sync_s * factor)


def deal(runs: Iterable[Run], ranks: int) -> list[int]:
    """Tokens of each rank: trajectories by length, dealt out there and back."""
    sizes = sorted(run.plan.prompt_tokens + run.plan.response_tokens for run in runs)
    tokens = [0] * ranks
    for place, size in enumerate(reversed(sizes)):
        lap, at = divmod(place, ranks)
        tokens[ranks - 1 - at if lap % 2 else at] += size
    return tokens


@dataclass
class Fate:
    """What came of one play.

    Attributes:
        begin, end: Of the training: all GPUs are accounted for between them, ns.
        trajectories, tokens: Generated for the training.
        slot_ns, capacity_ns: Integral over time of the sequences that were decoded, and of the
            slots there were, in rollout.
    """

    books: Books
    begin: int
    end: int
    trajectories: int = 0
    tokens: int = 0
    slot_ns: int = 0
    capacity_ns: int = 0

    @property
    def gpu_ns(self) -> int:
        """GPUs times wall time."""
        return self.books.gpus * (self.end - self.begin)
