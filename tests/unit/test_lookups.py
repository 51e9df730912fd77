"""Look-ups in releases: which are made, and which were made before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_probe.adapter import HookPoint
from tests.lookups import Lookups, ends, names

Make = Callable[..., Lookups]
OLD, MIDDLE, NEW = RELEASES = ("1.0", "1.1", "2.0")


@pytest.fixture
def looked() -> list[str]:
    """Releases that were looked into."""
    return []


@pytest.fixture
def make(tmp_path: Path, looked: list[str]) -> Make:
    (tmp_path / "test_names.py").write_text("assert True\n")

    def lookups(*points: HookPoint, absent: str = "") -> Lookups:
        def missing(release: str) -> list[str]:
            looked.append(release)
            return ["it is not there"] if release == absent else []

        return Lookups(
            str(tmp_path / "test_names.py"), lambda release: [release, *names(points)], missing
        )

    return lookups


def test_what_was_found_is_not_looked_up_again(make: Make, looked: list[str]) -> None:
    assert make().look_up_new(RELEASES) == {}
    assert make().look_up_new(RELEASES) == {}
    assert looked == [*RELEASES]


def test_what_is_missing_is_told_each_time(make: Make, looked: list[str]) -> None:
    for _ in range(2):
        found = make(absent=MIDDLE).look_up_new(RELEASES)
        assert found == {MIDDLE: ["it is not there"]}
    assert looked == [*RELEASES, MIDDLE]


def test_a_release_that_is_asked_for_is_looked_into(make: Make, looked: list[str]) -> None:
    assert make().look_up(NEW) == make().look_up(NEW) == []
    assert make().look_up_new(RELEASES) == {}
    assert looked == [NEW, NEW, OLD, MIDDLE]


@pytest.mark.parametrize(
    "point",
    [
        HookPoint("module:another", optional=False),
        HookPoint("module:name", optional=True),
        HookPoint("module:name", parameters=("text",)),
    ],
)
def test_another_hook_point_is_another_question(
    make: Make, looked: list[str], point: HookPoint
) -> None:
    make(HookPoint("module:name")).look_up_new(RELEASES)
    make(point).look_up_new(RELEASES)
    assert looked == [*RELEASES] * 2


def test_so_is_another_look_up(make: Make, looked: list[str], tmp_path: Path) -> None:
    make().look_up_new(RELEASES)
    (tmp_path / "test_names.py").write_text("assert 1\n")
    make().look_up_new(RELEASES)
    assert looked == [*RELEASES] * 2


def test_the_first_and_the_last_release_are_for_continuous_integration() -> None:
    told = [(one if isinstance(one, str) else (*one.values, *one.marks)) for one in ends(RELEASES)]
    assert told == [OLD, (MIDDLE, pytest.mark.full), NEW]
