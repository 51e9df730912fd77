"""Every name the adapter hooks exists, release by release; found in source, nothing is run."""

from __future__ import annotations

import ast
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from rlvr_probe_trl import TrlAdapter
from rlvr_probe_trl.points import declared
from rlvr_probe_trl.tests.releases import RELEASES, transformers4, unpacked

from rlvr_probe.adapter import HookPoint
from rlvr_probe.lookup import Sources
from tests.wheels import numbers

for package in ("trl", "transformers"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

pytestmark = pytest.mark.timeout(2000)

NEWEST = metadata.version("trl")
TRAINERS = {"grpo": "0.17", "rloo": "0.22"}


def site_packages() -> Path:
    # Not find_spec of a submodule, which would import the package above it.
    package = find_spec("transformers")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parents[1]


@pytest.fixture(scope="module", params=RELEASES)
def version(request: pytest.FixtureRequest) -> str:
    """Tests of one release follow each other, and its source is parsed once."""
    return str(request.param)


@pytest.fixture(scope="module")
def sources(version: str) -> Sources:
    """A release of TRL, with the transformers that all of them run with."""
    return Sources([unpacked(version), transformers4(), site_packages()])


def wrong(version: str, sources: Sources) -> list[str]:
    checked = [sources.check(point) for point in TrlAdapter().expected(version)]
    assert len(checked) >= 12
    return [reason for reason in checked if reason is not None]


def test_every_name_exists_in_the_release_that_is_installed() -> None:
    assert wrong(NEWEST, Sources([site_packages()])) == []
    assert list(RELEASES)[-1] == NEWEST


@pytest.mark.conformance
def test_every_name_exists_with_its_parameters(version: str, sources: Sources) -> None:
    assert wrong(version, sources) == []
    if numbers(version) >= (0, 29):
        assert wrong(version, Sources([unpacked(version), site_packages()])) == []


@pytest.mark.conformance
def test_what_may_be_absent_is_there_as_well(version: str, sources: Sources) -> None:
    optional = [point.target for point in TrlAdapter().expected(version) if point.optional]
    assert [target for target in optional if sources.find(target) is None] == []


@pytest.mark.conformance
def test_what_belongs_to_other_releases_is_not_there(version: str, sources: Sources) -> None:
    expected = {point.target for point in TrlAdapter().expected(version)}
    for name, since in TRAINERS.items():
        trainer = trainer_of(name)
        others = {f"{trainer}.{point.target}" for point in declared()} - expected
        if numbers(version) >= numbers(since):
            assert [target for target in others if sources.find(target)] == []
        else:
            assert sources.find(f"{trainer}._generate_and_score_completions") is None


@pytest.mark.conformance
@pytest.mark.parametrize("name", TRAINERS)
def test_generation_returns_lists_of_ids_where_they_are_read(
    version: str, sources: Sources, name: str
) -> None:
    if numbers(version) < (0, 24):
        assert sources.find(f"{trainer_of(name)}._generate") is None
        return
    assert {first_two(result) for result in returned(sources, name, "_generate")} == {
        ("prompt_ids", "completion_ids")
    }
    expected: set[tuple[str, ...]]
    if numbers(version) < (0, 29, 1):
        expected = {("prompt_ids", "completion_ids")}
    else:
        expected = {("completion_ids",), ("completion_ids", "logprobs")}
    turns = {first_two(result) for result in returned(sources, name, "_generate_single_turn")}
    assert turns
    assert turns <= expected


def trainer_of(name: str) -> str:
    return f"trl.trainer.{name}_trainer:{name.upper()}Trainer"


def returned(sources: Sources, name: str, method: str) -> list[ast.expr | None]:
    place = sources.find(f"{trainer_of(name)}.{method}")
    assert place is not None
    tree = ast.parse(place.file.read_text(encoding="utf-8"))
    [function] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno == place.line
    ]
    return [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]


def first_two(result: ast.expr | None) -> tuple[str, ...]:
    items = result.elts[:2] if isinstance(result, ast.Tuple) else [result]
    return tuple(item.id for item in items if isinstance(item, ast.Name))


def test_a_name_that_is_not_there_is_found_out() -> None:
    point = HookPoint("trl.trainer.grpo_trainer:GRPOTrainer._generate", parameters=("text",))
    sources = Sources([site_packages()])
    assert "expected are (text) first" in (sources.check(point) or "")
    assert sources.check(HookPoint("trl.trainer.grpo_trainer:gone")) is not None


def test_the_tested_range_is_that_of_the_list() -> None:
    low, high = (part.strip("<>=") for part in TrlAdapter.tested.split(","))
    assert low == ".".join(next(iter(RELEASES)).split(".")[:2])
    assert numbers(NEWEST)[:2] < numbers(high)
    assert numbers(high)[1] == numbers(NEWEST)[1] + 1
