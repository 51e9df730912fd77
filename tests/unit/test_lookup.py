"""Functions are found in source as Python would find them, and nothing of it is imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_probe.adapter import HookPoint
from rlvr_probe.lookup import Sources
from rlvr_probe.registry import discover

LAZY = """
import sys
from typing import TYPE_CHECKING
_import_structure = {"train": ["Base"]}
if TYPE_CHECKING:
    from .train import Base
else:
    sys.modules[__name__] = make_lazy(_import_structure)
"""

Write = Callable[..., Sources]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes modules, named by dotted name; one that others lie in becomes a package."""

    def put(**modules: str) -> Sources:
        names = {name.replace("__", "."): text for name, text in modules.items()}
        for name, text in names.items():
            path = tmp_path / name.replace(".", "/")
            if any(other.startswith(f"{name}.") for other in names):
                path = path / "__init__"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".py").write_text(text, encoding="utf-8")
        return Sources([tmp_path])

    return put


def parameters(sources: Sources, target: str) -> tuple[str, ...] | None:
    found = sources.find(target)
    assert found is not None, sources.check(HookPoint(target))
    return found.parameters


def test_a_function_and_a_method_are_found_with_file_line_and_parameters(
    write: Write, tmp_path: Path
) -> None:
    sources = write(
        fw="",
        fw__train="def run(a, /, b, *c, d=1, **e): pass\nclass T:\n  def step(self, x): pass\n",
    )
    function, method = sources.find("fw.train:run"), sources.find("fw.train:T.step")
    assert function is not None
    assert method is not None
    assert function.parameters == ("a", "b")
    assert (function.takes_args, function.takes_kwargs) == (True, True)
    assert (method.parameters, method.takes_args, method.takes_kwargs) == (("x",), False, False)
    assert (method.file, method.line) == (tmp_path / "fw" / "train.py", 3)


def test_an_inherited_method_is_found_through_a_package_that_loads_lazily(
    write: Write, tmp_path: Path
) -> None:
    sources = write(
        hf=LAZY,
        hf__train="class Base:\n  def step(self, batch): pass\n",
        rl="from .mid import Mid",
        rl__mid="import hf\nclass Mid(hf.Base): pass\n",
        rl__trainer="from . import Mid as Parent\nclass Trainer(Parent[int]): pass\n",
    )
    found = sources.find("rl.trainer:Trainer.step")
    assert found is not None
    assert (found.file, found.parameters) == (tmp_path / "hf" / "train.py", ("batch",))


def test_the_nearest_definition_counts(write: Write) -> None:
    sources = write(
        m="class A:\n  def f(self, a): pass\n"
        "class B(A):\n  def f(self, b): pass\n  def f(self, c): pass\n"
        "class C(B): pass\n"
    )
    assert parameters(sources, "m:C.f") == ("c",)


def test_a_class_may_replace_the_base_of_its_own_name(write: Write) -> None:
    sources = write(
        old="class T:\n  def f(self, a): pass\n", m="from old import T\nclass T(T): pass\n"
    )
    assert parameters(sources, "m:T.f") == ("a",)


def test_assignments_count(write: Write) -> None:
    sources = write(
        m="def one(self, a): pass\nother = one\nthird = lambda x, y: x\n"
        "class A:\n  step = one\n  def f(self, q): pass\n  g = f\n  made = wrap(f)\nB = A\n"
    )
    assert parameters(sources, "m:A.step") == ("a",)
    assert parameters(sources, "m:B.g") == ("q",)
    assert parameters(sources, "m:other") == ("self", "a")
    assert parameters(sources, "m:third") == ("x", "y")
    assert parameters(sources, "m:A.made") is None


def test_decorated_functions_count_and_a_static_one_has_no_self(write: Write) -> None:
    sources = write(
        m="import lib\nclass A:\n"
        "  @lib.profiled('x')\n  def f(self, a): pass\n"
        "  @staticmethod\n  def g(a): pass\n"
        "  @classmethod\n  def h(cls, a): pass\n"
        "  async def i(self, a): pass\n"
        "  class Inner:\n    def j(self, a): pass\n"
    )
    for name in ("f", "g", "h", "i", "Inner.j"):
        assert parameters(sources, f"m:A.{name}") == ("a",)


def test_of_an_optional_import_and_its_stand_in_the_one_that_exists_counts(write: Write) -> None:
    text = "try:\n  from {} import f\nexcept ImportError:\n  def f(stand_in): pass\n"
    sources = write(
        real="def f(real): pass", here=text.format("real"), gone=text.format("no_such_package")
    )
    assert parameters(sources, "here:f") == ("real",)
    assert parameters(sources, "gone:f") == ("stand_in",)


def test_names_of_a_star_import_and_of_submodules_are_followed(write: Write) -> None:
    sources = write(
        p="from .inner import *", p__inner="def f(a): pass", p__other="def g(b): pass", m="import p"
    )
    assert parameters(sources, "p:f") == ("a",)
    assert parameters(sources, "m:p.other.g") == ("b",)


def test_a_package_may_lie_in_several_folders_without_an_init(tmp_path: Path) -> None:
    for folder, name in (("a", "one"), ("b", "two")):
        (tmp_path / folder / "space").mkdir(parents=True)
        (tmp_path / folder / "space" / f"{name}.py").write_text(f"def f({name}): pass")
    sources = Sources([tmp_path / "a", tmp_path / "b"])
    assert parameters(sources, "space.one:f") == ("one",)
    assert parameters(sources, "space.two:f") == ("two",)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("fw.gone:f", "there is no module fw.gone"),
        ("gone:f", "there is no module gone"),
        ("fw:gone", "module fw has no gone"),
        ("fw:T.gone", "fw:T has no gone"),
        ("fw:T.step.gone", "fw:T.step has no gone"),
        ("fw:T", "fw:T is not a function"),
        ("fw:size", "module fw has no size"),
        ("fw:T.shape", "fw:T.shape is a property, no function"),
        ("fw:loop", "module fw has no loop"),
        ("fw", "fw names no function; expected package.module:name"),
    ],
)
def test_what_is_not_there_is_named(write: Write, target: str, reason: str) -> None:
    sources = write(
        fw="from round import loop\nsize = 3\n"
        "class T(Exception):\n  def step(self): pass\n  @property\n  def shape(self): pass\n",
        round="from fw import loop",
    )
    assert sources.find(target) is None
    assert sources.check(HookPoint(target)) == reason
    assert sources.check(HookPoint(target, optional=True)) is None


@pytest.mark.parametrize("source", ["def f(:", "x = '\0'", "(" * 5000])
def test_a_module_that_cannot_be_parsed_is_a_reason_also_for_an_optional_point(
    write: Write, source: str
) -> None:
    sources = write(fw=source)
    for optional in (False, True):
        problem = sources.check(HookPoint("fw:f", optional=optional))
        assert problem is not None
        assert problem.startswith("there is no readable module fw: module fw cannot be read (")


def test_a_compiled_module_and_a_base_out_of_sight_are_reasons(
    write: Write, tmp_path: Path
) -> None:
    sources = write(fw="from fast import Base\nclass T(Base): pass")
    (tmp_path / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    assert sources.check(HookPoint("fw:T.f", optional=True)) == (
        "fw:T has no f: module fast has no source here, only "
        "fast.cpython-311-x86_64-linux-gnu.so; T has a base Base that is not found in source"
    )


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ((), None),
        (("model",), None),
        (("model", "batch"), None),
        (("batch",), "fw:f takes (model, batch), expected are (batch) first"),
        (
            ("model", "batch", "n"),
            "fw:f takes (model, batch), expected are (model, batch, n) first",
        ),
    ],
)
def test_the_first_parameters_must_have_the_expected_names(
    write: Write, expected: tuple[str, ...], problem: str | None
) -> None:
    sources = write(fw="def f(model, batch): pass")
    for optional in (False, True):
        point = HookPoint("fw:f", parameters=expected, optional=optional)
        assert sources.check(point) == problem


def test_parameters_that_the_source_does_not_name_are_not_held_against_it(write: Write) -> None:
    sources = write(fw="def f(a, *args): pass\ng = make(f)")
    assert sources.check(HookPoint("fw:f", parameters=("a", "b"))) is None
    assert sources.check(HookPoint("fw:g", parameters=("a", "b"))) is None
    assert sources.check(HookPoint("fw:f", parameters=("x", "b"))) is not None


def test_a_module_is_parsed_once_and_only_when_it_is_needed(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, parsed = ast.parse, []

    def counting(source: bytes) -> ast.Module:
        parsed.append(source)
        return parse(source)

    monkeypatch.setattr(ast, "parse", counting)
    sources = write(
        fw="import heavy\nfrom base import B\nclass T(B):\n  def f(self): pass\n",
        base="class B:\n  def g(self): pass\n",
        heavy="",
    )
    for _ in range(3):
        assert sources.find("fw:T.f") is not None
    assert len(parsed) == 1
    assert sources.find("fw:T.g") is not None
    assert len(parsed) == 2


def test_looking_up_imports_nothing(write: Write, tmp_path: Path) -> None:
    write(fw="raise SystemExit('imported')\ndef f(): pass")
    script = (
        "import sys\nfrom rlvr_probe.lookup import Sources\n"
        f"print(Sources([{str(tmp_path)!r}, *sys.path]).find('fw:f') is not None)"
    )
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, capture_output=True, check=True, text=True).stdout == "True\n"


def test_every_hook_point_of_an_installed_framework_is_found() -> None:
    found = [framework for framework in discover().values() if framework.version]
    if not found:
        pytest.skip("no framework is installed")
    for framework in found:
        assert framework.adapter is not None
        assert framework.version is not None
        points = framework.adapter.expected(framework.version)
        assert len(points) >= len(framework.points) > 0
        sources = Sources(sys.path)
        assert [text for point in points if (text := sources.check(point))] == []
        assert [point.target for point in points if sources.find(point.target) is None] == []
