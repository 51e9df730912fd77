"""Every function of ours that runs inside a user's process, found in the source.

That is the start-up hook, ``rlvr_probe.probe`` with what it imports, and the folders of
integrations. The launcher, the reports and the exporters run in processes of their own, where an
error is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KIT", "ROOT", "Function", "adapter_modules", "core_modules", "functions_of", "inject"]

ROOT = Path(__file__).parents[2]
KIT = "rlvr_probe.adapter"
"""Beside the contract: what integrations share, and nothing else runs."""

_ONLINE = (
    "_boot", "access", "adapter/__init__", "adapter/contract", "config", "exceptions",
    "filesystem", "guard", "model/__init__", "model/counters", "model/names", "model/schema",
    "model/process_names", "probe", "probe/hooks",
    "probe/journal", "probe/recorder", "reading", "registry", "releases", "spool",
)  # fmt: skip

_Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Function:
    """One function of the source.

    Attributes:
        name: ``module:qualified.name``, as Python spells it.
        module: Dotted name of its module.
        generator: Whether its value is what its body yields.
    """

    name: str
    module: str
    generator: bool


def core_modules() -> dict[str, Path]:
    """Modules of the core that run inside a user's process."""
    source = ROOT / "src" / "rlvr_probe"
    found = {"rlvr_probe": source / "__init__.py"}
    for entry in _ONLINE:
        path = source / entry
        for file in sorted(path.glob("*.py")) if path.is_dir() else (path.with_suffix(".py"),):
            dotted = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
            found[dotted.removesuffix(".__init__")] = file
    return found


def adapter_modules() -> dict[str, Path]:
    """Modules of every integration, without its tests and its recipe, and of the kit."""
    kit = ROOT / "src" / "rlvr_probe" / "adapter"
    return {
        ".".join((package, *([] if file.stem == "__init__" else [file.stem]))): file
        for package, folder in (
            *((folder.name, folder) for folder in sorted((ROOT / "integrations").iterdir())),
            (KIT, kit),
        )
        for file in sorted(folder.glob("*.py"))
        if folder != kit or file.stem not in ("__init__", "contract")
    }


def functions_of(modules: dict[str, Path]) -> dict[str, Function]:
    """Every function, method, nested function and lambda, by name."""
    found: dict[str, Function] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_bytes(), str(path))
        for node, name in _walk(tree, module):
            # Two of one name, for one platform each or lambdas side by side, fail together.
            found[name] = Function(name, module, _yields(node))
    return found


def inject(tree: ast.Module, module: str) -> ast.Module:
    """The module with ``__rlvr_fault__(name)`` as the first statement of every function.

    What a function returns goes through ``__rlvr_garbage__(name, value)``. Both are looked up among
    the builtins when the function runs.
    """
    for node, name in list(_walk(tree, module)):
        if isinstance(node, ast.Lambda):
            both = ast.Tuple([_call("__rlvr_fault__", name), node.body], ast.Load())
            last = ast.Subscript(both, ast.Constant(1), ast.Load())
            node.body = _call("__rlvr_garbage__", name, last)
            continue
        asynchronous_generator = isinstance(node, ast.AsyncFunctionDef) and _yields(node)
        if not asynchronous_generator:  # which returns nothing by the rules of the language
            for statement in _own(node):
                if isinstance(statement, ast.Return):
                    value = statement.value or ast.Constant(None)
                    statement.value = _call("__rlvr_garbage__", name, value)
            if not _yields(node):
                node.body.append(ast.Return(_call("__rlvr_garbage__", name, ast.Constant(None))))
        node.body.insert(0, ast.Expr(_call("__rlvr_fault__", name)))
    return ast.fix_missing_locations(tree)


def _call(function: str, name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), [ast.Constant(name), *arguments], [])


def _walk(tree: ast.Module, module: str) -> Iterator[tuple[_Node, str]]:
    """Functions that have a body, with their names; declarations of protocols have none."""
    waiting: list[tuple[ast.AST, str]] = [(node, "") for node in ast.iter_child_nodes(tree)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.ClassDef):
            if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                continue
            inside = f"{inside}{node.name}."
        elif isinstance(node, _FUNCTIONS):
            own = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            yield node, f"{module}:{inside}{own}"
            inside = f"{inside}{own}.<locals>."
        waiting.extend((child, inside) for child in ast.iter_child_nodes(node))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function's own body, without those of functions inside."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        child = waiting.pop()
        yield child
        if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(child))


def _yields(node: ast.AST) -> bool:
    return any(isinstance(child, (ast.Yield, ast.YieldFrom)) for child in _own(node))
