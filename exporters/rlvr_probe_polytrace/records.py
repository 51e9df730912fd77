"""Every record of the format, once: keys, types, limits and the order in which they are written.

Reading converts a JSON object into one of these and names the path of what does not fit; writing
turns one into a JSON object, in the order of its fields. Keys of others are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

__all__ = [
    "MAX_COUNT",
    "SCHEMA_VERSION",
    "Caps",
    "Extension",
    "FileEntry",
    "FilterRecord",
    "LaunchEntry",
    "Manifest",
    "PackedRecord",
    "Replay",
    "RewardRecord",
    "Share",
    "StepEntry",
    "StepTotals",
    "SuiteConfig",
    "SuiteWorkload",
    "ToolCallRecord",
    "Totals",
    "TrajectoryExtension",
    "TrajectoryRecord",
    "TurnRecord",
    "Versioned",
]

SCHEMA_VERSION = 1
"""Version of the manifest and of the ``x_rlvr`` object; a reader refuses a higher one."""

MAX_COUNT = 2**31 - 1
"""Largest token count or index that a reader can be trusted with."""

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Length = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Total = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]
Version = Annotated[int, Meta(ge=1, le=SCHEMA_VERSION)]
Numbers = list[float | None]


class Extension(Struct, kw_only=True, omit_defaults=True):
    """``x_rlvr`` of a prompt: what PolyTrace has no word for. Lists have one entry per sample."""

    v: Version
    prompt_uid: str | None = None
    policy_version: int | list[int | None] | None = None
    policy_version_min: list[Count | None] | None = None
    policy_version_max: list[Count | None] | None = None
    trainer_step: int | None = None
    engine_id: list[Count | None] | None = None
    rank: list[Count | None] | None = None
    start_s: Numbers | None = None
    end_s: Numbers | None = None
    finish_reason: list[str | None] | None = None
    cached_tokens: list[Count | None] | None = None
    loss_tokens: list[Count | None] | None = None
    kept: bool | None = None
    used: bool | None = None
    reward: Numbers | None = None
    verifier: str | None = None
    rewards: dict[str, Numbers] | None = None
    verify_s: Numbers | dict[str, Numbers] | None = None
    not_finite: dict[str, int] | None = None
    source: str | None = None


class TrajectoryExtension(Struct, kw_only=True, omit_defaults=True):
    """``x_rlvr`` of a trajectory: the same of one sample, of its turns and of its tool calls."""

    v: Version
    prompt_uid: str | None = None
    policy_version: int | None = None
    policy_version_min: Count | None = None
    policy_version_max: Count | None = None
    trainer_step: int | None = None
    engine_id: Count | None = None
    start_s: float | None = None
    end_s: float | None = None
    cached_tokens: Total | None = None
    turn_start_s: Numbers | None = None
    tool_start_s: Numbers | None = None
    tool_status: list[str | None] | None = None
    kept: bool | None = None
    used: bool | None = None
    reward: float | None = None
    verifier: str | None = None
    rewards: dict[str, float | None] | None = None
    verify_s: float | dict[str, float | None] | None = None
    not_finite: dict[str, int] | None = None
    source: str | None = None
    batch_data_id: Count | None = None
    rollout_offset: Count | None = None
    dp_rank: Count | None = None
    rank: Count | None = None


class PackedRecord(Struct, kw_only=True):
    """A line of ``packed_lengths_step_N.jsonl``: one prompt."""

    step: Count
    rank: Count
    tp_rank: Count
    dp_rank: Count
    local_index: Count
    input: Length
    output: Annotated[list[Length], Meta(min_length=1)]
    n_sampling: Length
    validate: bool
    x_rlvr: Extension | UnsetType = UNSET

    @property
    def extension(self) -> Extension:
        """``x_rlvr``; one that says nothing where it is missing."""
        return Extension(v=SCHEMA_VERSION) if isinstance(self.x_rlvr, UnsetType) else self.x_rlvr


class RewardRecord(Struct, kw_only=True):
    """A line of ``reward_timings_step_N.jsonl``: one data-parallel rank."""

    step: Count
    rank: Count
    tp_rank: Count
    dp_rank: Count
    batch_size: Length
    reward_time_s: Seconds
    response_sum: Total
    response_mean: Seconds
    response_max: Length
    validate: bool


class FilterRecord(Struct, kw_only=True):
    """A line of ``dapo_filter_indices.jsonl``: one batch."""

    workload_step: Count
    trainer_step: Length
    gen_batch_index: Length
    prompt_count: Length
    n_sampling: Length
    train_batch_size: Length
    num_prompt_in_batch_before: Count
    kept_prompt_count: Count
    used_prompt_count: Count
    kept_prompt_indices: list[Count]
    used_prompt_indices: list[Count]


class TurnRecord(Struct, kw_only=True):
    """A turn of a trajectory."""

    turn: Count
    generation_prompt_len: Length
    prompt_tokens: Length
    cached_tokens: Count
    max_new_tokens: Length
    completion_tokens: Length
    generated_text_token_len: Count
    assistant_append_len: Count
    assistant_loss_len: Count
    total_len_after: Length
    finish_reason: Text
    tool_call_count: Count
    engine_latency_s: Seconds


class ToolCallRecord(Struct, kw_only=True):
    """A tool call of a trajectory."""

    turn: Count
    tool_name: Text
    query_count: Count
    latency_s: Seconds
    response_token_len: Count
    append_len: Count
    loss_len: Count
    status: Text
    total_results: Count


class TrajectoryRecord(Struct, kw_only=True):
    """A line of ``multiturn_workload_step_N.jsonl``: one trajectory.

    The loss mask is a list of runs: 0 or 1, and the tokens that have it.
    """

    step: Count
    prompt_len: Length
    max_response_len: Length
    max_model_len: Length
    turns: list[TurnRecord]
    tool_calls: list[ToolCallRecord]
    finish_reason: Text
    final_total_len: Length
    final_response_len: Length
    final_response_attention_len: Count
    final_response_loss_len: Count
    response_loss_mask_rle: list[tuple[Annotated[int, Meta(ge=0, le=1)], Length]]
    turn_count: Count
    tool_call_count: Count
    validate: bool
    prompt_group_id: Count
    sample_id: Count
    x_rlvr: TrajectoryExtension | UnsetType = UNSET

    @property
    def extension(self) -> TrajectoryExtension:
        """``x_rlvr``; one that says nothing where it is missing."""
        given = self.x_rlvr
        return TrajectoryExtension(v=SCHEMA_VERSION) if isinstance(given, UnsetType) else given


class SuiteWorkload(Struct, kw_only=True):
    """``workload`` of a suite config."""

    type: str | UnsetType = UNSET
    expected_records_per_step: int | UnsetType = UNSET
    reward_timing_glob: str | UnsetType = UNSET
    filter_indices_file: str | UnsetType = UNSET


class SuiteConfig(Struct, kw_only=True):
    """``suite.yaml``: the config of a launch."""

    name: Text
    repo: Text
    repo_path: Text
    benchmark_script: Text
    workload_path: str | UnsetType = UNSET
    benchmark_log_path: Text
    step_groups: Annotated[str, Meta(pattern=r"^[0-9]{1,9}([,;][0-9]{1,9})*\Z")] = "0"
    repeat: int | UnsetType = UNSET
    env: dict[str, Any] | UnsetType = UNSET
    workload: SuiteWorkload | UnsetType = UNSET
    formal_log_path: str | UnsetType = UNSET

    @property
    def groups(self) -> list[list[int]]:
        """Workload steps of each benchmark group."""
        return [list(map(int, group.split(","))) for group in self.step_groups.split(";")]


class Versioned(Struct, kw_only=True):
    """What a manifest of any version starts with."""

    format: Text
    schema_version: Length


class Caps(Struct, kw_only=True):
    """Longest lengths allowed, tokens; None if unknown."""

    prompt_tokens: int | None = None
    response_tokens: Length | None


class Totals(Struct, kw_only=True):
    """Sums over all written batches; prompt tokens count once per trajectory."""

    batches: Total = 0
    trainer_steps: Total = 0
    groups: Total = 0
    trajectories: Total = 0
    prompt_tokens: Total = 0
    response_tokens: Total = 0


class StepEntry(Struct, kw_only=True):
    """Where a workload step comes from, and how many prompts it has."""

    session: Count
    trainer_step: Count
    ordinal: Count
    prompts: Length


class LaunchEntry(Struct, kw_only=True):
    """A launch of PolyTrace, in the manifest."""

    config: Text
    groups: Length
    prompts_per_batch: Length
    overrides: Sequence[str] = ()
    formal_log: str | None


class Replay(Struct, kw_only=True):
    """How the workload is replayed."""

    repo: str | None = None
    launches: list[LaunchEntry]
    not_replayed: Sequence[int] = ()
    gen_includes_reward: bool = False
    notes: Sequence[str] = ()


class FileEntry(Struct, kw_only=True):
    """What a file was when it was written."""

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    lines: Total
    bytes: Total


class Manifest(Versioned, kw_only=True):
    """``manifest.json``.

    ``steps`` holds a :class:`StepEntry` by number, ``files`` a :class:`FileEntry` by name: they are
    converted entry by entry, so that an error names the key.
    """

    probe: str | None = None
    flavor: Annotated[str, Meta(pattern=r"^(packed|multiturn)\Z")]
    response_tokens: str | None = None
    source: dict[str, str | None] = {}
    parallelism: dict[str, Any] = {}
    caps: Caps
    n: Length
    reuse: dict[str, int | None] = {}
    clock: str | None = None
    totals: Totals
    steps: dict[str, Any]
    iterations: list[Any]
    replay: Replay | None
    reward_functions: list[str] = []
    reward_timings: bool = False
    filter_indices: bool = False
    not_known: list[dict[str, Any]] = []
    left_out: Sequence[Any] = ()
    lost_records: int = 0
    notes: Sequence[str] = ()
    redaction: dict[str, Any] = {}
    files: dict[str, Any]


@dataclass(slots=True)
class Share:
    """What one data-parallel rank holds of one step.

    Attributes:
        prompts, samples: Counts.
        prompt_tokens: Summed, each prompt once.
        response_tokens: Summed, tokens.
        longest: Longest response, tokens.
    """

    prompts: int = 0
    samples: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    longest: int = 0

    def add(self, prompt: int, responses: Sequence[int]) -> None:
        """Count one prompt and its responses, tokens."""
        self.prompts += 1
        self.samples += len(responses)
        self.prompt_tokens += prompt
        self.response_tokens += sum(responses)
        self.longest = max(self.longest, *responses)


@dataclass(slots=True)
class StepTotals:
    """What one step file holds in sum: compared between files, and with the manifest.

    Attributes:
        step: Its number.
        n: Samples per prompt, of the first sound record; None if there was none.
        shares: By data-parallel rank; all on 0 where the format has none.
        ranks: Global rank by data-parallel rank.
        sound: Whether every record could be counted.
    """

    step: int
    n: int | None = None
    shares: dict[int, Share] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    sound: bool = True

    @property
    def prompts(self) -> int:
        """Prompts counted."""
        return sum(share.prompts for share in self.shares.values())
