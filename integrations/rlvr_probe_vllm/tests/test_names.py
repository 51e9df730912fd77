"""Every name the integration uses exists, release by release; found in source, nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlvr_probe_vllm import VllmAdapter
from rlvr_probe_vllm.tests.releases import LIST, RELEASES, looked_up

from rlvr_probe.lookup import Sources
from rlvr_probe.model.names import FINISHES
from rlvr_probe.registry import inside
from tests.lookups import Lookups, ends, names
from tests.wheels import numbers

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

PROCESSOR, SCHEDULER = "v1/engine/output_processor.py", "v1/core/sched/scheduler.py"
READ = (
    # File, class, what is read on its instances, and the release that has it first.
    (PROCESSOR, "OutputProcessor", ("request_states",), "0.8"),
    (PROCESSOR, "OutputProcessor", ("external_req_ids",), "0.14"),
    (
        PROCESSOR,
        "RequestState",
        ("request_id", "parent_req", "prompt_len", "stats", "detokenizer", "is_prefilling"),
        "0.8",
    ),
    (PROCESSOR, "RequestState", ("num_cached_tokens",), "0.10.1"),
    (PROCESSOR, "RequestState", ("external_req_id",), "0.14"),
    ("v1/engine/detokenizer.py", "IncrementalDetokenizer", ("num_output_tokens",), "0.17"),
    (
        "v1/metrics/stats.py",
        "RequestStateStats",
        ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"),
        "0.8",
    ),
    ("v1/metrics/stats.py", "RequestStateStats", ("num_preemptions",), "0.30"),
    (SCHEDULER, "Scheduler", ("requests",), "0.8"),
    ("v1/core/sched/output.py", "SchedulerOutput", ("scheduled_new_reqs",), "0.8"),
    ("v1/core/sched/output.py", "NewRequestData", ("req_id", "num_computed_tokens"), "0.8"),
    (
        "v1/request.py",
        "Request",
        ("request_id", "num_prompt_tokens", "num_output_tokens", "get_finished_reason"),
        "0.8",
    ),
    ("v1/request.py", "Request", ("num_preemptions",), "0.11.1"),
)


def as_told(release: str) -> str:
    """A version as the package says it: without the words of its wheel."""
    return release.replace(".post", ".")


def members_of(file: Path, name: str) -> set[str]:
    """Attributes of a class: fields, methods, and what its methods give ``self``."""
    [result] = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    return set(_members(result))


def _members(found: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(found):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Attribute):
                yield target.attr
            elif isinstance(target, ast.Name) and node in found.body:
                yield target.id


def asked(release: str) -> list[object]:
    """All that the answer depends on, but the code that looks it up."""
    adapter = VllmAdapter()
    return [LIST[release], adapter.tested, names(adapter.expected(as_told(release))), [*FINISHES]]


def missing(release: str) -> Iterator[str]:
    """What is not as it should be in a release."""
    version, folder = as_told(release), looked_up(release)
    adapter, sources = VllmAdapter(), Sources([folder])
    points = adapter.expected(version)
    assert len(points) == 7
    assert inside(version, adapter.tested)
    yield from (reason for point in points if (reason := sources.check(point)))
    for file, name, wanted, since in READ:
        if numbers(since) <= numbers(version):
            absent = set(wanted) - members_of(folder / "vllm" / file, name)
            yield from (f"{name}.{entry} is not there" for entry in sorted(absent))
    source = (folder / "vllm/v1/engine/__init__.py").read_text(encoding="utf-8")
    [recorded] = re.findall(r"FINISH_REASON_STRINGS = \(([^)]*)\)", source)
    unknown = set(ast.literal_eval(f"({recorded})")) - set(FINISHES)
    yield from (f"a request may end as {name}" for name in sorted(unknown))
    yield from plugins_that_turn_nothing_on(version, folder)


def plugins_that_turn_nothing_on(version: str, folder: Path) -> Iterator[str]:
    """What speaks against having no plugin that logs statistics, which would turn them on.

    It would change a run that nobody records, and fail one that it may not. vLLM loads every plugin
    of the group, which is known from the metadata of what is installed.
    """
    group = (folder / "vllm/plugins/__init__.py").read_text(encoding="utf-8")
    if ("vllm.stat_logger_plugins" in group) != (numbers(version) >= (0, 12)):
        yield "the group of plugins is there, or not"
    if numbers(version) < (0, 12):
        return
    engine = (folder / "vllm/v1/engine/async_llm.py").read_text(encoding="utf-8")
    if "load_stat_logger_plugin_factories()" not in engine:
        yield "an engine loads no such plugins"
    if not re.search(r"self\.log_stats = log_stats or ", engine):
        yield "a plugin does not turn statistics on"
    offline = (folder / "vllm/v1/engine/llm_engine.py").read_text(encoding="utf-8")
    if "stat_logger_plugin" in offline:
        yield "an offline engine has such plugins, too"


LOOKUPS = Lookups(__file__, asked, missing)


@pytest.mark.parametrize("version", ends(RELEASES))
def test_every_name_exists_with_its_parameters(version: str) -> None:
    assert LOOKUPS.look_up(version) == []


def test_so_it_is_in_every_release_between() -> None:
    assert LOOKUPS.look_up_new(RELEASES) == {}
