"""What is hooked in each release of verl."""

from __future__ import annotations

import pytest
from rlvr_probe_verl import VerlAdapter


@pytest.mark.parametrize("version", ["0.4.1", "0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1"])
def test_a_release_hooks_each_function_once(version: str) -> None:
    targets = [point.target for point in VerlAdapter().hook_points(version)]
    assert len(set(targets)) == len(targets) >= 6
