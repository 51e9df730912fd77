"""Releases are told from versions, and the hook points of one from all others."""

from __future__ import annotations

from rlvr_probe.adapter import HookPoint
from rlvr_probe.releases import Dated, points_of, release


def test_releases_are_in_order_and_what_names_none_is_the_newest() -> None:
    names = ["0.17.0", "0.24", "0.29.0", "0.29.1", "1.0.0.dev0", "1.9.0", "1.16.0", "unknown"]
    assert sorted(names, key=release) == names
    assert release("0") == release(None) == release("unknown")


def test_a_hook_point_belongs_to_the_releases_from_its_first_to_before_its_last() -> None:
    dated = Dated(HookPoint("f"), since="0.24", until="0.29.1")
    held = [
        version
        for version in ("0.23.1", "0.24.0", "0.29.0", "0.29.1", "0")
        if dated.holds(release(version))
    ]
    assert held == ["0.24.0", "0.29.0"]


def test_the_points_of_a_release_are_those_that_it_has_in_their_order() -> None:
    first, renamed, other = (HookPoint(f"framework:{name}") for name in ("f", "g", "h"))
    dated = (Dated(first, "0.17", "0.24"), Dated(renamed, "0.24"), Dated(other, "0.17"))
    assert points_of(dated, release("0.20.1")) == (first, other)
    assert points_of(dated, release("unknown")) == (renamed, other)
    assert points_of(dated, release("0.16")) == ()
