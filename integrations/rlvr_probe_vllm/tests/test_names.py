"""Every name the integration uses exists, release by release; found in source, nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlvr_probe_vllm import VllmAdapter
from rlvr_probe_vllm.tests.releases import RELEASES, looked_up

from rlvr_probe.lookup import Sources
from rlvr_probe.registry import inside
from tests.wheels import numbers

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

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


@pytest.fixture(scope="module", params=RELEASES)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param).replace(".post", ".")


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, version: str) -> Path:
    [release] = [one for one in RELEASES if one.replace(".post", ".") == version]
    return looked_up(release)


def members_of(file: Path, name: str) -> set[str]:
    """Attributes of a class: fields, methods, and what its methods give ``self``."""
    [found] = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    return set(_members(found))


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


def test_every_hooked_function_exists_with_its_parameters(version: str, folder: Path) -> None:
    adapter = VllmAdapter()
    sources = Sources([folder])
    points = adapter.expected(version)
    assert inside(version, adapter.tested)
    assert [reason for point in points if (reason := sources.check(point))] == []
    assert len(points) == 7


def test_every_attribute_that_is_read_exists_since_its_release(version: str, folder: Path) -> None:
    for file, name, wanted, since in READ:
        if numbers(since) <= numbers(version):
            assert set(wanted) - members_of(folder / "vllm" / file, name) == set(), name


def test_ends_of_requests_have_the_names_that_are_recorded(folder: Path) -> None:
    from rlvr_probe.model.names import FINISHES

    source = (folder / "vllm/v1/engine/__init__.py").read_text(encoding="utf-8")
    [told] = re.findall(r"FINISH_REASON_STRINGS = \(([^)]*)\)", source)
    assert set(ast.literal_eval(f"({told})")) <= set(FINISHES)


def test_a_plugin_that_logs_statistics_would_turn_them_on(version: str, folder: Path) -> None:
    """Why there is none: it would change a run that nobody records, and fail one that it may not.

    vLLM loads every plugin of the group, which is known from the metadata of what is installed.
    """
    group = (folder / "vllm/plugins/__init__.py").read_text(encoding="utf-8")
    assert ("vllm.stat_logger_plugins" in group) == (numbers(version) >= (0, 12))
    if numbers(version) < (0, 12):
        return
    engine = (folder / "vllm/v1/engine/async_llm.py").read_text(encoding="utf-8")
    assert "load_stat_logger_plugin_factories()" in engine
    assert re.search(r"self\.log_stats = log_stats or ", engine)
    # An offline engine has no such plugins at all.
    offline = (folder / "vllm/v1/engine/llm_engine.py").read_text(encoding="utf-8")
    assert "stat_logger_plugin" not in offline
