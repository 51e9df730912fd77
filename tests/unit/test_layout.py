"""A plugin is one folder and one entry-point line, and knows the core by its contracts only.

What import-linter cannot say about folders it has not been told of. Nothing here names a plugin.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path

import grimp
import pytest

from rlvr_probe.steering import Replay

ROOT = Path(__file__).parents[2]
GROUPS = {"integrations": "rlvr_probe.integrations", "exporters": "rlvr_probe.exporters"}
CONTRACTS = (
    "rlvr_probe.adapter",
    "rlvr_probe.reading",
    "rlvr_probe.releases",
    "rlvr_probe.exporter",
    "rlvr_probe.model",
    "rlvr_probe.exceptions",
)
SHIPPED = ("__init__.py", "py.typed")
BESIDE = {
    "integrations": ("adapter.py", "README.md", "recipe/run.sh", "tests/test_conformance.py"),
    "exporters": ("exporter.py", "README.md", "tests"),
}
STEERING = "rlvr_probe.steering"
# What `import rlvr_probe` may load besides the standard library; msgspec takes typing_extensions
# where it is installed. No GPU library is among it.
CORE_IMPORTS = {"msgspec", "rlvr_probe", "typing_extensions", "wrapt"}


def plugin_folders(kind: str) -> set[str]:
    return {path.parent.name for path in (ROOT / kind).glob("*/__init__.py")}


def entry_points(kind: str) -> dict[str, metadata.EntryPoint]:
    """The entry points of our own distribution; another one may add plugins of its own."""
    found = metadata.distribution("rlvr-probe").entry_points.select(group=GROUPS[kind])
    return {entry_point.name: entry_point for entry_point in found}


PLUGINS = [(kind, name) for kind in GROUPS for name in sorted(plugin_folders(kind))]
every_plugin = pytest.mark.parametrize(("kind", "plugin"), PLUGINS)


@cache
def import_graph() -> grimp.ImportGraph:
    graph = grimp.build_graph("rlvr_probe", *(name for _, name in PLUGINS), cache_dir=None)
    for _, plugin in PLUGINS:
        for folder in ("tests", "recipe"):
            for module in {m for m in graph.modules if within(m, f"{plugin}.{folder}")}:
                graph.remove_module(module)
    return graph


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def imported_by(package: str) -> set[tuple[str, str]]:
    """Pairs of (module of ``package``, module outside of it that it imports)."""
    graph = import_graph()
    return {
        (module, target)
        for module in graph.modules
        if within(module, package)
        for target in graph.find_modules_directly_imported_by(module)
        if not within(target, package)
    }


def loaded_by(statement: str) -> set[str]:
    """Top-level names outside the standard library that ``statement`` loads in a fresh process."""
    script = f"""
import json, sys
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    # -I: the working directory holds folders whose names must not be found.
    run = [sys.executable, "-I", "-c", script]
    names = json.loads(subprocess.run(run, capture_output=True, check=True, text=True).stdout)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


@pytest.mark.parametrize("kind", GROUPS)
def test_every_plugin_folder_has_its_entry_point_and_every_entry_point_its_folder(
    kind: str,
) -> None:
    expected = {name.removeprefix("rlvr_probe_"): name for name in plugin_folders(kind)}
    found = {name: point.module for name, point in entry_points(kind).items()}
    assert {name: found.get(name) for name in expected} == expected
    assert set(found.values()) == set(expected.values())


@pytest.mark.parametrize("kind", GROUPS)
def test_every_entry_point_loads(kind: str) -> None:
    for entry_point in entry_points(kind).values():
        assert callable(entry_point.load())


@every_plugin
def test_a_plugin_folder_holds_what_a_reader_looks_for(kind: str, plugin: str) -> None:
    folder = ROOT / kind / plugin
    assert [name for name in (*SHIPPED, *BESIDE[kind]) if not (folder / name).exists()] == []


@every_plugin
def test_a_plugin_imports_contracts_only_and_no_other_plugin(kind: str, plugin: str) -> None:
    wrong = {
        (module, target)
        for module, target in imported_by(plugin)
        if not any(within(target, contract) for contract in CONTRACTS)
        if not (within(target, STEERING) and module in steering_modules(plugin))
    }
    assert wrong == set()


def steering_modules(plugin: str) -> set[str]:
    """``replay.py`` of a plugin, and what only that imports."""
    graph, replay = import_graph(), f"{plugin}.replay"
    if replay not in graph.modules:
        return set()
    return {replay, *graph.find_upstream_modules(replay)} - {
        plugin,
        *graph.find_upstream_modules(plugin),
    }


@pytest.mark.parametrize(
    "entrance", ["rlvr_probe", "rlvr_probe._boot", "rlvr_probe.probe.attach", "rlvr_probe.cli.run"]
)
def test_what_records_cannot_reach_what_steers(entrance: str) -> None:
    graph = import_graph()
    # Entry points are no imports: what an integration is entered by is looked at, too.
    reached = {entrance, *graph.find_upstream_modules(entrance)}
    for _, plugin in PLUGINS:
        reached |= {plugin, *graph.find_upstream_modules(plugin)}
    assert {module for module in reached if within(module, STEERING)} == set()


def test_every_replay_has_its_entry_point_and_every_entry_point_its_replay() -> None:
    points = metadata.distribution("rlvr-probe").entry_points.select(group="rlvr_probe.replays")
    modules = import_graph().modules
    expected = {
        name.removeprefix("rlvr_probe_"): f"{name}.replay"
        for name in plugin_folders("integrations")
        if f"{name}.replay" in modules
    }
    assert {point.name: point.module for point in points} == expected
    assert all(isinstance(point.load()(), Replay) for point in points)


def test_the_core_imports_no_plugin() -> None:
    assert imported_by("rlvr_probe") == set()


@every_plugin
def test_the_core_does_not_spell_the_name_of_a_plugin(kind: str, plugin: str) -> None:
    sources = (ROOT / "src").rglob("*.py")
    assert [path.name for path in sources if plugin in path.read_text(encoding="utf-8")] == []


@every_plugin
def test_importing_a_plugin_loads_nothing_but_the_core(kind: str, plugin: str) -> None:
    assert loaded_by(f"import {plugin}") - CORE_IMPORTS == {plugin}


def test_using_the_package_loads_no_more_than_its_hot_path_needs() -> None:
    assert loaded_by("import rlvr_probe; rlvr_probe.attach") - CORE_IMPORTS == set()


def test_the_package_itself_loads_nothing() -> None:
    # The start-up hook imports it in every Python process below a launcher.
    code = "import sys; old = set(sys.modules); import rlvr_probe; print(*set(sys.modules) - old)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rlvr_probe"]


def test_an_armed_process_that_imports_no_framework_loads_the_hook_only() -> None:
    code = "import sys; print(*sorted(name for name in sys.modules if 'rlvr_probe' in name))"
    environ = {**os.environ, "RLVR_PROBE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.split() == ["rlvr_probe", "rlvr_probe._boot"]


def test_the_exported_names_are_these() -> None:
    import rlvr_probe

    assert rlvr_probe.__all__ == [
        *("Attachment", "Config", "Relation", "Run", "attach", "detach", "open_run", "span")
    ]
    assert all(getattr(rlvr_probe, name) is not None for name in rlvr_probe.__all__)
    assert set(rlvr_probe.__all__) <= set(dir(rlvr_probe))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rlvr_probe.nothing


def test_the_start_up_hook_is_installed_beside_the_packages() -> None:
    files = metadata.distribution("rlvr-probe").files or ()
    installed = [Path(str(file.locate())) for file in files if file.name == "rlvr_probe_boot.pth"]
    source = ROOT / "boot" / "rlvr_probe_boot.pth"
    assert [path.read_bytes() for path in installed] == [source.read_bytes()]


@pytest.mark.parametrize("environment", [{}, {"RLVR_PROBE": "1"}])
def test_the_start_up_hook_is_silent_where_the_package_is_gone(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    hook = (ROOT / "boot" / "rlvr_probe_boot.pth").read_bytes()
    (tmp_path / "rlvr_probe_boot.pth").write_bytes(hook)
    script = (
        f"import site, sys; site.addsitedir({str(tmp_path)!r}); print('rlvr_probe' in sys.modules)"
    )
    # -S: without this environment's own site-packages, where the package is.
    run = [sys.executable, "-S", "-c", script]
    ended = subprocess.run(run, capture_output=True, check=True, env=environment, text=True)
    assert (ended.stdout, ended.stderr) == ("False\n", "")


def build(target: str, directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    [built] = directory.iterdir()
    return built


def test_the_wheel_holds_the_packages_and_the_start_up_hook_and_nothing_else(
    tmp_path: Path,
) -> None:
    packages = [ROOT / "src" / "rlvr_probe", *(ROOT / kind / name for kind, name in PLUGINS)]
    expected = {
        path.relative_to(package.parent).as_posix()
        for package in packages
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".md", ".pyc")
        if path.relative_to(package).parts[0] not in ("tests", "recipe")
    }
    with zipfile.ZipFile(build("wheel", tmp_path)) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == expected | {"rlvr_probe_boot.pth"}


def test_the_source_distribution_holds_what_its_wheel_is_built_from(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as sdist:
        held = {name.split("/", 1)[1] for name in sdist.getnames()}
    wanted = {"pyproject.toml", "boot/rlvr_probe_boot.pth", "src/rlvr_probe/py.typed"}
    assert wanted | {f"{kind}/{name}/__init__.py" for kind, name in PLUGINS} <= held


def test_no_shipped_module_is_longer_than_400_lines() -> None:
    """A longer one does two things."""
    shipped = [
        path
        for folder in ("src", "integrations", "exporters")
        for path in (ROOT / folder).rglob("*.py")
        if not {"tests", "recipe"} & set(path.relative_to(ROOT).parts)
    ]
    assert len(shipped) > 100
    long = [path for path in shipped if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    assert long == []
