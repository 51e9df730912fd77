"""Every name the adapter hooks exists, release by release; found in source, nothing is run."""

from __future__ import annotations

import ast

import pytest
from rlvr_probe_openrlhf import OpenRLHFAdapter
from rlvr_probe_openrlhf.points import DATED, OTHERS
from rlvr_probe_openrlhf.rpc import SEEN
from rlvr_probe_openrlhf.tests.releases import RELEASES, unpacked

from rlvr_probe.adapter import HookPoint
from rlvr_probe.lookup import Sources
from rlvr_probe.releases import release

pytestmark = pytest.mark.timeout(2000)


@pytest.fixture(scope="module", params=RELEASES)
def version(request: pytest.FixtureRequest) -> str:
    """Tests of one release follow each other, and its source is parsed once."""
    return str(request.param)


@pytest.fixture(scope="module")
def sources(version: str) -> Sources:
    return Sources([unpacked(version)])


def points(version: str) -> list[HookPoint]:
    return [one for one in OpenRLHFAdapter().expected(version) if one not in OTHERS]


@pytest.mark.conformance
def test_every_name_exists_with_its_parameters(version: str, sources: Sources) -> None:
    assert len(points(version)) >= 20
    assert [reason for point in points(version) if (reason := sources.check(point))] == []


@pytest.mark.conformance
def test_what_belongs_to_other_releases_is_not_there(version: str, sources: Sources) -> None:
    others = [dated.point.target for dated in DATED if not dated.holds(release(version))]
    # Since 0.9.9 the generator has a module of its own, and the other one imports nothing of it.
    assert [one for one in others if sources.find(one)] == []


def tree(version: str, path: str) -> ast.Module:
    return ast.parse((unpacked(version) / "openrlhf" / path).read_text(encoding="utf-8"))


def function(version: str, path: str, name: str) -> ast.AST:
    [found] = [
        node
        for node in ast.walk(tree(version, path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ]
    return found


@pytest.mark.conformance
def test_answers_are_taken_one_by_one_in_a_variable_of_the_loop(version: str) -> None:
    """What tells the task of an answer, and so the trajectory of a row, is this variable."""
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


@pytest.mark.conformance
def test_samples_of_a_prompt_begin_in_the_order_of_their_answer(version: str) -> None:
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


@pytest.mark.conformance
def test_the_last_parameter_of_a_sync_is_told_last(version: str) -> None:
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


@pytest.mark.conformance
def test_methods_whose_execution_is_seen_are_called_by_these_names(version: str) -> None:
    trainer = ast.unparse(tree(version, "trainer/ppo_trainer.py"))
    maker = ast.unparse(tree(version, "trainer/ppo_utils/experience_maker.py"))
    assert [name for name in SEEN if f"method_name='{name}'" not in trainer + maker] == []


def test_the_tested_range_is_that_of_the_list() -> None:
    low, high = (part.strip("<>=") for part in OpenRLHFAdapter.tested.split(","))
    first, *_, last = RELEASES
    assert low == first
    assert release(last)[:2] < release(high)
    assert release(high)[1] == release(last)[1] + 1
