"""What is hooked in each release of OpenRLHF."""

from __future__ import annotations

import pytest
from rlvr_probe_openrlhf import OpenRLHFAdapter
from rlvr_probe_openrlhf.tests.releases import RELEASES


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_hooks_each_function_once(version: str) -> None:
    targets = [point.target for point in OpenRLHFAdapter().expected(version)]
    assert len(set(targets)) == len(targets) >= 20
