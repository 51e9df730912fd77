"""Every name the adapter hooks exists, release by release; found in source, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlvr_probe_verl import VerlAdapter
from rlvr_probe_verl.stages import STAGES
from rlvr_probe_verl.tests.releases import LIST, RELEASES, unpacked

from rlvr_probe.lookup import Sources
from rlvr_probe.releases import release
from tests import wheels
from tests.lookups import Lookups, ends, names
from tests.wheels import numbers

pytestmark = pytest.mark.timeout(2000)

TIMERS = {
    "step", "gen", "gen_max", "reward", "old_log_prob", "ref", "values", "adv", "update_critic",
    "update_actor", "update_weights", "testing", "save_checkpoint", "dump_rollout_generations",
    "start_profile", "stop_profile",
}  # fmt: skip
"""What the trainers of all releases time."""

[LOADER] = wheels.pinned(LIST, "torchdata").values()
"""The data loader of every release."""

ELSEWHERE = (
    # 0.5 moved the timers, and left an older one of NVTX behind that nothing imports.
    "verl.utils.debug.nvtx_profile:marked_timer",
    # It is handed on from where it was.
    "verl.utils.debug.performance:simple_timer",
    # Below 0.7 the class of the worker is Ray's, from then on this method is there to be hooked.
    "verl.utils.rollout_trace:rollout_trace_attr",
    "verl.experimental.agent_loop.agent_loop:AgentLoopWorker._run_agent_loop",
    # That of 0.7 keeps its servers in the order in which they are given.
    "verl.experimental.agent_loop.agent_loop:AsyncLLMServerManager.__init__",
    # Below 0.6 the reward manager is recorded, which calls them.
    "verl.trainer.ppo.reward:get_custom_reward_fn",
    "verl.utils.reward_score:default_compute_score",
)
"""Not hooked in every release that has them."""


def asked(version: str) -> list[object]:
    """All that the answer depends on, but the code that looks it up."""
    adapter = VerlAdapter()
    hooked, others = adapter.hook_points(version), of_others(version)
    pins = [RELEASES[version], *wheels.pinned(LIST, "transferqueue").values(), LOADER]
    return [pins, names(adapter.expected(version)), names(hooked), sorted(others), sorted(STAGES)]


def of_others(version: str) -> set[str]:
    """What is hooked in other releases only."""
    held = {point.target for point in VerlAdapter().hook_points(version)}
    return {
        dated.point.target for dated in VerlAdapter.imported if not dated.holds(release(version))
    } - held


def missing(version: str) -> Iterator[str]:
    """What is not as it should be in a release."""
    sources = Sources([unpacked(version), wheels.unpacked("torchdata", LOADER)])
    points = VerlAdapter().expected(version)
    assert len(points) >= 10
    yield from (reason for point in points if (reason := sources.check(point)))
    for point in VerlAdapter().hook_points(version):
        if point.optional and sources.find(point.target) is None:
            yield f"{point.target} may be absent, and is"
    left = set(ELSEWHERE) if version != "0.4.1" else set(ELSEWHERE[2:])
    for target in sorted(of_others(version) - left):
        if sources.find(target):
            yield f"{target} is not hooked"
    yield from timed_otherwise(version)


def timed_otherwise(version: str) -> Iterator[str]:
    """What trainers time, against what is known."""
    trainers = [unpacked(version) / "verl/trainer/ppo/ray_trainer.py"]
    if numbers(version) >= (0, 9):
        trainers += (unpacked(version) / "verl/trainer/ppo/v1").glob("trainer_[bsc]*.py")
    timed = {name for file in trainers for name in timers(file)}
    switching = {"switch_to_trainer", "switch_to_rollout", "switch_wait"}
    yield from (f"{name} is timed" for name in sorted(timed - TIMERS - switching))
    always = {"step", "gen", "adv", "update_actor"}
    yield from (f"{name} is not timed" for name in sorted(always - timed))


def timers(file: Path) -> list[str]:
    """What is timed in a file; a name that is made at run time is that of a role's."""
    calls = [
        node.args[0]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "marked_timer"
    ]
    return [str(call.value) for call in calls if isinstance(call, ast.Constant)]


LOOKUPS = Lookups(__file__, asked, missing)


@pytest.mark.conformance
@pytest.mark.parametrize("version", ends([*RELEASES]))
def test_every_name_exists_with_its_parameters(version: str) -> None:
    assert LOOKUPS.look_up(version) == []


@pytest.mark.conformance
def test_so_it_is_in_every_release_between() -> None:
    assert LOOKUPS.look_up_new(RELEASES) == {}


def test_the_stages_are_among_what_trainers_time() -> None:
    assert STAGES.keys() - {"sync_rollout_weights", "verify"} <= TIMERS


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_hooks_each_function_as_often_as_it_is_meant_to(version: str) -> None:
    points = VerlAdapter().hook_points(version)
    assert len(set(points)) == len(points)


def test_the_tested_range_is_that_of_the_list() -> None:
    low, high = (part.strip("<>=") for part in VerlAdapter.tested.split(","))
    first, *_, last = RELEASES
    assert low == first
    assert numbers(last)[:2] < numbers(high)
    assert numbers(high)[1] == numbers(last)[1] + 1
