"""Every name the adapter hooks exists, release by release; found in source, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from rlvr_probe_openrlhf import OpenRLHFAdapter
from rlvr_probe_openrlhf.adapter import OTHERS
from rlvr_probe_openrlhf.rpc import SEEN
from rlvr_probe_openrlhf.tests.releases import RELEASES, unpacked

from rlvr_probe.adapter import HookPoint
from rlvr_probe.lookup import Sources
from rlvr_probe.releases import release
from tests.lookups import Lookups, ends, names

pytestmark = pytest.mark.timeout(2000)


def points(version: str) -> list[HookPoint]:
    return [point for point in OpenRLHFAdapter().expected(version) if point not in OTHERS]


def of_others(version: str) -> list[str]:
    """What is hooked in other releases only."""
    return [
        dated.point.target
        for dated in OpenRLHFAdapter.imported
        if not dated.holds(release(version))
    ]


def asked(version: str) -> list[object]:
    """All that the answer depends on, but the code that looks it up."""
    return [RELEASES[version], names(points(version)), of_others(version), sorted(SEEN)]


def missing(version: str) -> Iterator[str]:
    """What is not as it should be in a release."""
    sources = Sources([unpacked(version)])
    assert len(points(version)) >= 20
    yield from (reason for point in points(version) if (reason := sources.check(point)))
    # Since 0.9.9 the generator has a module of its own, and the other one imports nothing of it.
    yield from (f"{target} is not hooked" for target in of_others(version) if sources.find(target))
    for check in (answers, samples, parameters, methods):
        try:
            check(version)
        except (AssertionError, ValueError) as error:
            yield f"{check.__doc__} It is not so: {error!r}"


def tree(version: str, path: str) -> ast.Module:
    return ast.parse((unpacked(version) / "openrlhf" / path).read_text(encoding="utf-8"))


def function(version: str, path: str, name: str) -> ast.AST:
    [result] = [
        node
        for node in ast.walk(tree(version, path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ]
    return result


def answers(version: str) -> None:
    """Answers are taken one by one, in a variable that tells the task, and so the trajectory."""
    generator = "trainer/ppo_utils/samples_generator.py"
    if not (unpacked(version) / "openrlhf" / generator).exists():
        generator = "trainer/ppo_utils/experience_maker.py"
    loops = [
        node
        for node in ast.walk(function(version, generator, "_generate_vllm"))
        if isinstance(node, ast.For) and ast.unparse(node.target) == "ref"
    ]
    assert len(loops) == 1
    assert ast.unparse(loops[0].iter) == "ready_refs"
    written = ast.unparse(loops[0])
    assert "ray.get(ref)" in written
    assert "self._process_response_into_experience(response, **generate_kwargs)" in written
    # What a filter passed is known there when prompts are sent in place of what it did not.
    passed, _, replaced = written.partition("accepted_experiences.extend(experiences)")
    assert "self._dispatch_prompts_to_vllm(" in replaced
    assert "accepted_experiences" not in passed


def samples(version: str) -> None:
    """Samples of a prompt begin in the order of their answer."""
    engine = "trainer/ray/vllm_engine.py"
    [gathered] = [
        ast.unparse(node)
        for node in ast.walk(function(version, engine, "generate_responses"))
        if isinstance(node, ast.Return)
    ]
    assert gathered == "return await asyncio.gather(*tasks)"
    made = ast.unparse(function(version, engine, "generate_responses"))
    assert "self.executor.execute(" in made
    assert "llm_engine=self" in made


def parameters(version: str) -> None:
    """The last parameter of a sync is told last."""
    actor = ast.unparse(tree(version, "trainer/ray/ppo_actor.py"))
    assert actor.count("empty_cache=count == num_params") == 2
    engine = tree(version, "trainer/ray/vllm_engine.py")
    calls = [
        ast.unparse(node)
        for node in ast.walk(engine)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.llm.collective_rpc"
    ]
    moves = [call for call in calls if "update_weight" in call]
    assert len(moves) == 2
    assert all(call.endswith("empty_cache))") for call in moves)


def methods(version: str) -> None:
    """Methods whose execution is seen are called by these names."""
    trainer = ast.unparse(tree(version, "trainer/ppo_trainer.py"))
    maker = ast.unparse(tree(version, "trainer/ppo_utils/experience_maker.py"))
    assert [name for name in SEEN if f"method_name='{name}'" not in trainer + maker] == []


LOOKUPS = Lookups(__file__, asked, missing)


@pytest.mark.conformance
@pytest.mark.parametrize("version", ends([*RELEASES]))
def test_every_name_exists_with_its_parameters(version: str) -> None:
    assert LOOKUPS.look_up(version) == []


@pytest.mark.conformance
def test_so_it_is_in_every_release_between() -> None:
    assert LOOKUPS.look_up_new(RELEASES) == {}


def test_the_tested_range_is_that_of_the_list() -> None:
    low, high = (part.strip("<>=") for part in OpenRLHFAdapter.tested.split(","))
    first, *_, last = RELEASES
    assert low == first
    assert release(last)[:2] < release(high)
    assert release(high)[1] == release(last)[1] + 1
