"""From the target of a hook point to the function in source that it names."""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rlvr_probe.adapter import HookPoint
from rlvr_probe.lookup.parsed_modules import Binding, Import, Module, Modules, Scope, Unreadable

__all__ = ["Found", "Sources"]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_PROPERTIES = frozenset({"property", "cached_property", "setter", "getter", "deleter"})


@dataclass(frozen=True, slots=True)
class Found:
    """A function in source.

    Attributes:
        file: Where it is defined; of an inherited method where its base is.
        line: Line of its ``def``, or of the assignment that makes it.
        parameters: Names of what it takes by position, without self and cls; None if the source
            does not say, as for a function that another one returns.
        takes_args: Whether it has ``*args``.
        takes_kwargs: Whether it has ``**kwargs``.
    """

    file: Path
    line: int
    parameters: tuple[str, ...] | None
    takes_args: bool
    takes_kwargs: bool


@dataclass(frozen=True, slots=True)
class _Defined:
    """A function or class (or what makes one at run time), and the module it stands in."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr
    module: Module


_Value: TypeAlias = _Defined | Module


class _Missing(Exception):
    """Why a target was not found.

    Attributes:
        certain: Whether it does not exist; not so where something could not be read.
    """

    def __init__(self, reason: str, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain


class Sources:
    """Source of installed or unpacked packages. Modules are parsed when needed, once each.

    Names are followed through imports, re-exports, assignments and base classes. Bases are searched
    depth first, left to right. What is only decided at run time (``setattr``, the metaclass, a
    class that a function returns) is not seen.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        """Nothing is read yet.

        Args:
            folders: Where packages lie, as in ``sys.path``: site-packages, or an unpacked wheel.
        """
        self._modules = Modules(folders)
        self._scopes: dict[ast.ClassDef, Scope] = {}
        self._unread: dict[str, None] = {}

    def find(self, target: str) -> Found | None:
        """The function that ``target`` names (as in :class:`~rlvr_probe.adapter.HookPoint`).

        None if it is not found; :meth:`check` says why.
        """
        try:
            return self._find(target)
        except _Missing:
            return None

    def check(self, point: HookPoint) -> str | None:
        """What is wrong with a hook point in these sources, None if nothing is.

        It must be there, unless it is optional, and its first parameters must have the names in
        ``point.parameters``. Parameters that the source does not name (``*args``, a function that
        is made at run time) are not held against it.
        """
        try:
            found = self._find(point.target)
        except _Missing as missing:
            return None if point.optional and missing.certain else str(missing)
        expected, have = point.parameters, found.parameters
        if have is None or have[: len(expected)] == expected:
            return None
        if found.takes_args and have == expected[: len(have)]:
            return None
        return (
            f"{point.target} takes ({', '.join(have)}), expected are ({', '.join(expected)}) first"
        )

    def _find(self, target: str) -> Found:
        self._unread = {}
        name, _, qualname = target.partition(":")
        if not name or not qualname:
            raise _Missing(f"{target} names no function; expected package.module:name")
        module = self._module(name)
        if module is None:
            raise self._missing(f"there is no {'readable ' if self._unread else ''}module {name}")
        value: _Value | None = module
        owner: ast.ClassDef | None = None
        where = f"module {name}"
        for part in qualname.split("."):
            owner = _class_of(value)
            value = self._attribute(value, part, frozenset())
            if value is None:
                raise self._missing(f"{where} has no {part}")
            where = f"{name}:{part}" if owner is None else f"{where}.{part}"
        if not isinstance(value, _Defined) or isinstance(value.node, ast.ClassDef):
            raise _Missing(f"{target} is not a function")
        return _found(value, owner is not None, target)

    def _missing(self, reason: str) -> _Missing:
        if not self._unread:
            return _Missing(reason)
        return _Missing(f"{reason}: {'; '.join(self._unread)}", certain=False)

    def _module(self, name: str) -> Module | None:
        try:
            return self._modules.get(name)
        except Unreadable as error:
            self._note(str(error))
            return None

    def _note(self, text: str) -> None:
        self._unread[text] = None

    def _attribute(self, value: _Value | None, name: str, seen: frozenset[object]) -> _Value | None:
        """``value.name``; ``seen`` is what is being looked up already, for names in a circle."""
        if isinstance(value, Module):
            return self._in_module(value, name, seen)
        if value is not None and isinstance(value.node, ast.ClassDef):
            return self._in_class(value.node, value.module, name, seen)
        if value is not None and not isinstance(value.node, _FUNCTIONS):
            self._note(f"what {ast.unparse(value.node)} gives is only known at run time")
        return None

    def _in_module(self, module: Module, name: str, seen: frozenset[object]) -> _Value | None:
        key = (module.name, name)
        if key in seen:
            return None
        seen |= {key}
        for binding in module.scope.names.get(name, ()):
            # A class may have the name of the base that it replaces.
            value = None if binding in seen else self._value(binding, module, None, seen)
            if value is not None:
                return value
        if not name.startswith("_"):
            for star in module.scope.stars:
                other = self._module(star)
                value = self._in_module(other, name, seen) if other else None
                if value is not None:
                    return value
        if module.package == module.name:
            return self._module(f"{module.name}.{name}")
        return None

    def _in_class(
        self, node: ast.ClassDef, module: Module, name: str, seen: frozenset[object]
    ) -> _Value | None:
        if node in seen:
            return None
        seen |= {node}
        scope = self._scope(node, module)
        for binding in scope.names.get(name, ()):
            value = self._value(binding, module, scope, seen)
            if value is not None:
                return value
        for base in node.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            value = self._value(expression, module, None, seen)
            if _class_of(value) is None:
                if _is_foreign(expression, module):
                    text = ast.unparse(expression)
                    self._note(f"{node.name} has a base {text} that is not found in source")
                continue
            value = self._attribute(value, name, seen)
            if value is not None:
                return value
        return None

    def _value(
        self, binding: Binding, module: Module, scope: Scope | None, seen: frozenset[object]
    ) -> _Value | None:
        """What ``binding`` stands for; names are looked up in ``scope``, then in ``module``."""
        if isinstance(binding, Import):
            other = self._module(binding.module)
            if binding.name is None or other is None:
                return other
            return self._in_module(other, binding.name, seen)
        if isinstance(binding, ast.Name):
            for local in scope.names.get(binding.id, ()) if scope else ():
                if local is not binding:
                    value = self._value(local, module, scope, seen | {binding})
                    if value is not None:
                        return value
            return self._in_module(module, binding.id, seen)
        if isinstance(binding, ast.Attribute):
            owner = self._value(binding.value, module, scope, seen)
            if isinstance(owner, _Defined) and _class_of(owner) is None:
                return _Defined(binding, module)
            return self._attribute(owner, binding.attr, seen)
        if isinstance(binding, (*_FUNCTIONS, ast.ClassDef, ast.Call)):
            return _Defined(binding, module)
        return None

    def _scope(self, node: ast.ClassDef, module: Module) -> Scope:
        if node not in self._scopes:
            self._scopes[node] = Scope(node.body, module.package)
        return self._scopes[node]


def _class_of(value: _Value | None) -> ast.ClassDef | None:
    node = value.node if isinstance(value, _Defined) else None
    return node if isinstance(node, ast.ClassDef) else None


def _is_foreign(base: ast.expr, module: Module) -> bool:
    """Whether a base that was not found may hold methods of interest: none of Python's own does."""
    while isinstance(base, ast.Attribute):
        base = base.value
    if not isinstance(base, ast.Name):
        return True
    bindings = module.scope.names.get(base.id)
    if bindings is None:
        return not hasattr(builtins, base.id)
    return not any(
        isinstance(binding, Import) and binding.module.split(".")[0] in sys.stdlib_module_names
        for binding in bindings
    )


def _found(value: _Defined, in_class: bool, target: str) -> Found:
    node, file = value.node, value.module.file
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return Found(file, node.lineno, None, False, False)
    decorators = set() if isinstance(node, ast.Lambda) else set(_names(node.decorator_list))
    if decorators & _PROPERTIES:
        raise _Missing(f"{target} is a property, no function")
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    if in_class and "staticmethod" not in decorators:
        del names[:1]
    return Found(
        file, node.lineno, tuple(names), node.args.vararg is not None, node.args.kwarg is not None
    )


def _names(decorators: Sequence[ast.expr]) -> Iterator[str]:
    for decorator in decorators:
        if isinstance(decorator, ast.Attribute):
            yield decorator.attr
        elif isinstance(decorator, ast.Name):
            yield decorator.id
