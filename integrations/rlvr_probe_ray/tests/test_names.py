"""Every function the adapter hooks exists, release by release; found in source, nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlvr_probe_ray import RayAdapter

from rlvr_probe.lookup import Sources
from tests import wheels

pytestmark = pytest.mark.timeout(2000)

PINS = wheels.pinned("ray-releases.txt", "ray")
[RUN] = wheels.pinned("verl.txt", "ray")
WHEEL = ("--python-version", "3.11", "--platform", "manylinux2014_x86_64")
CALLS = {
    # Files that call what is hooked, and how: by these names, so that a wrapper sees them.
    "ray/_private/worker.py": (
        *("mode=", "job_config=job_config", "    connect(\n"),
        *("        time.sleep(0.5)\n    disconnect(_exiting_interpreter)",),
    ),
    "ray/client_builder.py": ("client_connect.connect(", "job_config=self._job_config"),
    "ray/remote_function.py": ("serialized_runtime_env_info=", "self._remote("),
    "ray/actor.py": ("actor_cls._remote(args=args, kwargs=kwargs, **updated_options)",),
}
READ = {
    # What the adapter reads on Ray's objects.
    "ray/_private/worker.py": ("def runtime_env(self)", "def current_cluster_and_job(self)"),
    "ray/job_config.py": ("def set_runtime_env(", "self._client_job ="),
    "ray/actor.py": (
        "self._ray_actor_id =",
        "self._ray_is_cross_language =",
        "self._ray_actor_creation_function_descriptor =",
    ),
    "ray/_private/utils.py": ("def get_runtime_env_info(",),
}


def folder(version: str) -> Path:
    if version == RUN:
        pins = (wheels.REQUIREMENTS / "verl.txt").read_text()
        return wheels.installed("verl-dependencies", pins)
    return wheels.unpacked(f"ray-{version}", PINS[version], only=".py", platform=WHEEL)


@pytest.mark.conformance
@pytest.mark.parametrize(
    "version", [*(pytest.param(pin, marks=pytest.mark.full) for pin in PINS), RUN]
)
def test_every_name_exists_with_its_parameters(version: str) -> None:
    sources = Sources([folder(version)])
    points = RayAdapter().expected(version)
    assert len(points) == 7
    assert [reason for point in points if (reason := sources.check(point))] == []
    for wanted in (CALLS, READ):
        for file, texts in wanted.items():
            source = (folder(version) / file).read_text(encoding="utf-8")
            assert [text for text in texts if text not in source] == [], file
