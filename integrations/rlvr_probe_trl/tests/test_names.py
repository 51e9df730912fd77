"""Every name the adapter hooks exists, release by release; found in source, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from rlvr_probe_trl import TrlAdapter
from rlvr_probe_trl.adapter import METHODS
from rlvr_probe_trl.tests.releases import RELEASES, transformers4, unpacked
from rlvr_probe_trl.tools import TOOL_LOOP

from rlvr_probe.adapter import HookPoint
from rlvr_probe.lookup import Sources
from tests import wheels
from tests.lookups import Lookups, ends, names
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


def declared() -> list[HookPoint]:
    """Methods of trainers, of whatever release."""
    return [*(dated.point for dated in METHODS), TOOL_LOOP]


def wrong(version: str, sources: Sources) -> list[str]:
    checked = [sources.check(point) for point in TrlAdapter().expected(version)]
    assert len(checked) >= 12
    return [reason for reason in checked if reason is not None]


def asked(version: str) -> list[object]:
    """All that the answer depends on, but the code that looks it up."""
    expected = names(TrlAdapter().expected(version))
    concurrent = (wheels.REQUIREMENTS / "transformers4.txt").read_text()
    installed = metadata.version("transformers")
    return [RELEASES[version], concurrent, installed, expected, names(declared())]


def missing(version: str) -> Iterator[str]:
    """What is not as it should be in a release of TRL, with the transformers that it runs with."""
    sources = Sources([unpacked(version), transformers4(), site_packages()])
    yield from wrong(version, sources)
    if numbers(version) >= (0, 29):
        yield from wrong(version, Sources([unpacked(version), site_packages()]))
    for point in TrlAdapter().expected(version):
        if point.optional and sources.find(point.target) is None:
            yield f"{point.target} may be absent, and is"
    for name, since in TRAINERS.items():
        if numbers(version) < numbers(since):
            if sources.find(f"{trainer_of(name)}._generate_and_score_completions"):
                yield f"{name} is there already"
        else:
            yield from of_other_releases(version, sources, trainer_of(name))
        yield from returned_otherwise(version, sources, name)


def of_other_releases(version: str, sources: Sources, trainer: str) -> Iterator[str]:
    """What is there, and hooked in other releases only."""
    expected = {point.target for point in TrlAdapter().expected(version)}
    others = {f"{trainer}.{point.target}" for point in declared()} - expected
    yield from (f"{target} is not hooked" for target in sorted(others) if sources.find(target))


def returned_otherwise(version: str, sources: Sources, name: str) -> Iterator[str]:
    """What a generation returns where lists of ids are read."""
    if numbers(version) < (0, 24):
        if sources.find(f"{trainer_of(name)}._generate"):
            yield f"_generate of {name} is there already"
        return
    whole = {first_two(result) for result in returned(sources, name, "_generate")}
    if whole != {("prompt_ids", "completion_ids")}:
        yield f"_generate of {name} returns {whole}"
    expected: set[tuple[str, ...]]
    if numbers(version) < (0, 29, 1):
        expected = {("prompt_ids", "completion_ids")}
    else:
        expected = {("completion_ids",), ("completion_ids", "logprobs")}
    turns = {first_two(result) for result in returned(sources, name, "_generate_single_turn")}
    if not turns or not turns <= expected:
        yield f"_generate_single_turn of {name} returns {turns}"


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


LOOKUPS = Lookups(__file__, asked, missing)


@pytest.mark.conformance
@pytest.mark.parametrize("version", ends([*RELEASES]))
def test_every_name_exists_with_its_parameters(version: str) -> None:
    assert LOOKUPS.look_up(version) == []


@pytest.mark.conformance
def test_so_it_is_in_every_release_between() -> None:
    assert LOOKUPS.look_up_new(RELEASES) == {}


def test_every_name_exists_in_the_release_that_is_installed() -> None:
    assert wrong(NEWEST, Sources([site_packages()])) == []
    assert list(RELEASES)[-1] == NEWEST


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
