"""Draws mutants: small changes of product code, each on a line that tests run."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.lines import Lines

__all__ = ["AREAS", "Mutant", "changes", "draw"]

AREAS: Final = (
    "src/rlvr_probe/probe/hooks",
    "src/rlvr_probe/probe/recorder",
    "src/rlvr_probe/probe/journal",
    "src/rlvr_probe/recording",
    "src/rlvr_probe/analysis",
    "src/rlvr_probe",
    "exporters",
    "integrations",
)
"""Each has the same number of mutants; a file belongs to the first that it lies in."""

_COMPARED: Final = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_CALCULATED: Final = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of one place.

    Attributes:
        path: The file, from the root of a checkout.
        line: Number of its first line.
        before: What stands there.
        after: What is put there.
        start: Where it starts in the file, in bytes.
        tests: Old tests that run the line.
    """

    path: str
    line: int
    before: str
    after: str
    start: int
    tests: frozenset[str]

    def text(self, source: bytes) -> bytes:
        """The file with the change."""
        end = self.start + len(self.before.encode())
        return source[: self.start] + self.after.encode() + source[end:]

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line}: {before[:60]} -> {after[:60]}"


def draw(root: Path, lines: Lines, paths: Sequence[str], seed: int, count: int) -> list[Mutant]:
    """Mutants of ``paths``, spread over the areas, no two on one line.

    Raises:
        ValueError: An area has too few lines that tests run.
    """
    chance = random.Random(seed)
    places: dict[str, list[tuple[str, int]]] = {area: [] for area in AREAS}
    for path in sorted(paths):
        area = next(area for area in AREAS if path.startswith(f"{area}/"))
        places[area] += [(path, line) for line, tests in sorted(lines[path].items()) if tests]
    for found in places.values():
        chance.shuffle(found)
    mutants: list[Mutant] = []
    while len(mutants) < count:
        area = AREAS[len(mutants) % len(AREAS)]
        if not places[area]:
            raise ValueError(f"{area}: no line is left of those that tests run")
        path, line = places[area].pop()
        possible = list(_mutants(root, path, line, lines[path][line]))
        mutants += [chance.choice(possible)] if possible else []
    return mutants


def _mutants(root: Path, path: str, line: int, tests: frozenset[str]) -> Iterator[Mutant]:
    source = (root / path).read_bytes()
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    for node, changed in changes(ast.parse(source)):
        if node.lineno == line and node.end_lineno is not None and node.end_col_offset is not None:
            start = starts[line - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            after = ast.unparse(changed)
            if isinstance(node, ast.expr) and not isinstance(changed, ast.Constant):
                after = f"({after})"
            yield Mutant(path, line, source[start:end].decode(), after, start, tests)


def changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Nodes within functions, and what each may become."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = function.body[ast.get_docstring(function, clean=False) is not None :]
            for statement in body:
                for node in _nodes(statement):
                    yield from ((node, changed) for changed in _changed(node))


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """A node and those in it, without annotations, nested functions, and texts put together."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.JoinedStr)):
        return
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node
    for name, value in ast.iter_fields(node):
        if name != "annotation":
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _nodes(child)


def _changed(node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [op], right) if type(op) in _COMPARED:
            yield ast.Compare(left, [_COMPARED[type(op)]()], right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, op, right) if type(op) in _CALCULATED:
            yield ast.BinOp(left, _CALCULATED[type(op)](), right)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(str(value)) if value:
            yield ast.Constant(f"not {value}")
        case ast.Return(value) if value is not None and not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.Assign([ast.Name() | ast.Attribute()], value) if not _is_none(value):
            yield ast.Assign(node.targets, ast.Constant(None), lineno=node.lineno)
        case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case _:
            pass


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
