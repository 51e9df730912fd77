"""Mutants are valid Python, differ from what stands there, and are drawn as the seed says."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mutants.draw import AREAS, changes, draw
from tests.mutants.lines import is_product
from tests.mutants.trial import mutated, ordered

SOURCE = '''\
"""Text, not code."""

LIMIT = 3


def larger(number: int, text: str = "é") -> bool:
    """Not this."""
    name: "str" = f"{number + 1}"
    if number > LIMIT and not text:
        return number - 1 == 2
    print(name)
    return text in ("a", "b")
'''


def test_nodes_within_functions_change_and_nothing_else() -> None:
    found = [
        (ast.unparse(node), ast.unparse(changed)) for node, changed in changes(ast.parse(SOURCE))
    ]
    assert found == [
        ("number > LIMIT and (not text)", "number > LIMIT or not text"),
        ("number > LIMIT", "number >= LIMIT"),
        ("not text", "text"),
        ("return number - 1 == 2", "return None"),
        ("number - 1 == 2", "number - 1 != 2"),
        ("number - 1", "number + 1"),
        ("1", "2"),
        ("2", "3"),
        ("print(name)", "pass"),
        ("return text in ('a', 'b')", "return None"),
        ("text in ('a', 'b')", "text not in ('a', 'b')"),
        ("'a'", "'not a'"),
        ("'b'", "'not b'"),
    ]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for area in AREAS:
        (tmp_path / area).mkdir(parents=True, exist_ok=True)
        (tmp_path / area / "code.py").write_text(SOURCE)
    return tmp_path


def test_mutants_are_spread_and_the_same_for_a_seed(checkout: Path) -> None:
    paths = [f"{area}/code.py" for area in AREAS]
    lines = {path: {line: frozenset({"test"}) for line in (6, 9, 10, 11)} for path in paths}
    found = draw(checkout, lines, paths, seed=7, count=16)
    assert found == draw(checkout, lines, paths, seed=7, count=16)
    assert found != draw(checkout, lines, paths, seed=8, count=16)
    assert [mutant.path for mutant in found] == paths * 2
    assert len({(mutant.path, mutant.line) for mutant in found}) == 16
    for mutant in found:
        changed = mutant.text(SOURCE.encode())
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))
    with pytest.raises(ValueError, match="no line is left"):
        draw(checkout, lines, paths, seed=7, count=100)


def test_a_checkout_is_as_it_was_after_a_trial(checkout: Path) -> None:
    path = f"{AREAS[0]}/code.py"
    lines = {path: {11: frozenset({"test"})} for path in [f"{area}/code.py" for area in AREAS]}
    [mutant] = draw(checkout, lines, [path], seed=1, count=1)
    with suppress(KeyboardInterrupt), mutated(checkout, mutant):
        assert "    pass\n    return" in (checkout / path).read_text()
        raise KeyboardInterrupt
    assert (checkout / path).read_text() == SOURCE


def test_tests_that_run_little_else_come_first() -> None:
    lines = {"a.py": {1: frozenset({"wide", "narrow", "other"}), 2: frozenset({"wide"})}}
    assert ordered({"wide", "narrow"}, lines) == ["narrow", "wide"]


@pytest.mark.parametrize(
    ("path", "product"),
    [
        ("src/rlvr_probe/guard.py", True),
        ("integrations/rlvr_probe_trl/adapter.py", True),
        ("integrations/rlvr_probe_trl/tests/runs.py", False),
        ("integrations/rlvr_probe_trl/recipe/train.py", False),
        ("tests/toy.py", False),
    ],
)
def test_tests_are_no_product(path: str, product: bool) -> None:
    assert is_product(Path(path)) == product
