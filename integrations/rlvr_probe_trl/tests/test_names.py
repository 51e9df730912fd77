"""Every name the adapter hooks exists in the TRL that is installed; found in source, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from rlvr_probe_trl import TrlAdapter
from rlvr_probe_trl.stages import METHODS

for package in ("trl", "transformers"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

STATIC = [point.target for point in TrlAdapter().hook_points(metadata.version("trl"))]
TRAINERS = ("trl/trainer/grpo_trainer.py:GRPOTrainer", "trl/trainer/rloo_trainer.py:RLOOTrainer")


def source(path: str) -> ast.Module:
    # Not find_spec of the submodule, which would import the package above it.
    package = find_spec(path.split("/")[0])
    assert package is not None
    assert package.origin is not None
    return ast.parse((Path(package.origin).parent.parent / path).read_text(encoding="utf-8"))


def methods(path: str, name: str) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(source(path)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (item for item in node.body if isinstance(item, ast.FunctionDef))


def method(where: str, name: str) -> ast.FunctionDef | None:
    path, _, owner = where.partition(":")
    return next((found for found in methods(path, owner) if found.name == name), None)


@pytest.mark.parametrize("target", STATIC)
def test_a_declared_hook_point_exists(target: str) -> None:
    module, _, qualname = target.partition(":")
    owner, _, name = qualname.partition(".")
    assert method(f"{module.replace('.', '/')}.py:{owner}", name) is not None


@pytest.mark.parametrize("where", TRAINERS)
@pytest.mark.parametrize("target", [point.target for point in METHODS])
def test_a_hooked_method_exists_in_the_trainer_or_its_base(target: str, where: str) -> None:
    assert method(where, target) or method("transformers/trainer.py:Trainer", target)


@pytest.mark.parametrize("where", TRAINERS)
def test_generation_returns_prompts_and_completions_first(where: str) -> None:
    generate = method(where, "_generate")
    assert generate is not None
    results = [node.value for node in ast.walk(generate) if isinstance(node, ast.Return)]
    for result in results:
        assert isinstance(result, ast.Tuple)
        first = [item.id for item in result.elts[:2] if isinstance(item, ast.Name)]
        assert first == ["prompt_ids", "completion_ids"]


@pytest.mark.parametrize("where", TRAINERS)
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_calculate_rewards", ["self", "inputs", "prompts"]),
        ("_generate_single_turn", ["self", "prompt_ids"]),
        ("_get_per_token_logps_and_entropies", ["self", "model"]),
    ],
)
def test_the_arguments_that_are_read_are_where_they_are_expected(
    where: str, name: str, parameters: list[str]
) -> None:
    found = method(where, name)
    assert found is not None
    assert [parameter.arg for parameter in found.args.args][: len(parameters)] == parameters


def test_the_installed_release_is_one_that_is_tested() -> None:
    low, high = (part.strip("<>=") for part in TrlAdapter.tested.split(","))
    installed = tuple(int(part) for part in metadata.version("trl").split(".")[:2])
    assert tuple(map(int, low.split("."))) <= installed < tuple(map(int, high.split(".")))
