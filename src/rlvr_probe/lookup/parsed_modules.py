"""Modules as their source has them: which names they bind, and to what."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

__all__ = ["Binding", "Import", "Module", "Modules", "Scope", "Unreadable"]


@dataclass(frozen=True, slots=True)
class Import:
    """A name bound by an import statement.

    Attributes:
        module: Absolute name of the module.
        name: What is taken from it; None for the module itself.
    """

    module: str
    name: str | None


Binding: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr | Import


class Scope:
    """Names bound by the statements of a module or a class.

    Attributes:
        names: Bindings by name, those that count first: of two statements the later one; of a
            ``try`` its body before its handlers; of an ``if`` its body before its ``else``, which
            is what a package that loads lazily keeps under ``if TYPE_CHECKING``.
        stars: Modules whose public names are bound as well, the later ones first.
    """

    def __init__(self, body: Sequence[ast.stmt], package: str) -> None:
        """Read ``body``, whose relative imports are relative to ``package``."""
        self.names: dict[str, list[Binding]] = {}
        self.stars: list[str] = []
        self._package = package
        self._read(body)

    def _read(self, body: Sequence[ast.stmt]) -> None:
        for statement in reversed(body):
            self._statement(statement)

    def _bind(self, name: str, binding: Binding) -> None:
        self.names.setdefault(name, []).append(binding)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._bind(node.name, node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._bind(target.id, node.value)
        elif isinstance(node, ast.AnnAssign):
            if isinstance(node.target, ast.Name) and node.value is not None:
                self._bind(node.target.id, node.value)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                self._bind(alias.asname or name, Import(name, None))
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node)
        else:
            # Whatever holds statements: if, try, with, for, while.
            for part in ("body", "orelse", "handlers", "finalbody"):
                for inner in _blocks(getattr(node, part, ())):
                    self._read(inner)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            above = self._package.split(".")
            above = above[: len(above) - node.level + 1]
            module = ".".join([*above, module] if module else above)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                self._bind(alias.asname or alias.name, Import(module, alias.name))


def _blocks(part: Sequence[ast.AST]) -> Iterable[Sequence[ast.stmt]]:
    statements = [node for node in part if isinstance(node, ast.stmt)]
    handlers = [node.body for node in part if isinstance(node, ast.ExceptHandler)]
    return [statements, *handlers]


@dataclass(frozen=True, slots=True)
class Module:
    """A module that was parsed.

    Attributes:
        name: Dotted name.
        package: What its relative imports are relative to.
        file: Its source.
        scope: Its names.
    """

    name: str
    package: str
    file: Path
    scope: Scope


class Unreadable(Exception):
    """A module that is there and cannot be read as source; the message says why."""


class Modules:
    """Modules found in folders as Python finds them on ``sys.path``, parsed once each."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        """Nothing is read yet.

        Args:
            folders: Where packages lie, the first one wins.
        """
        self._folders = tuple(Path(folder) for folder in folders)
        self._modules: dict[str, Module | None] = {}

    def get(self, name: str) -> Module | None:
        """The module of this name, None if there is none.

        A folder without ``__init__.py`` is a package without names.

        Raises:
            Unreadable: Its file cannot be read or parsed, or there is a compiled one only.
        """
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        folders = self._folders
        file: Path | None = None
        parts = name.split(".")
        for index, part in enumerate(parts):
            file, folders = _locate(part, folders)
            if not folders and (file is None or index < len(parts) - 1):
                return None
        package = name if folders else name.rpartition(".")[0]
        if file is None:
            return Module(name, package, folders[0], Scope((), package))
        if file.suffix != ".py":
            raise Unreadable(f"module {name} has no source here, only {file.name}")
        return Module(name, package, file, Scope(_parse(file, name).body, package))


def _locate(name: str, folders: Sequence[Path]) -> tuple[Path | None, tuple[Path, ...]]:
    """File of the module ``name`` in the first of ``folders`` that has it, and where its own lie.

    Without a file it is a namespace package; without both it does not exist.
    """
    spaces = []
    for folder in folders:
        package = folder / name
        if (package / "__init__.py").is_file():
            return package / "__init__.py", (package,)
        if (folder / f"{name}.py").is_file():
            return folder / f"{name}.py", ()
        for pattern in (f"{name}.*.so", f"{name}.so", f"{name}.pyd", f"{name}.pyc"):
            for compiled in folder.glob(pattern):
                return compiled, ()
        if package.is_dir():
            spaces.append(package)
    return None, tuple(spaces)


def _parse(file: Path, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # What Python has to say about the escapes in somebody else's strings.
            warnings.simplefilter("ignore")
            return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"module {name} cannot be read ({type(error).__name__})") from None
