"""Releases are told from versions, and the hook points of one from all others."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from rlvr_probe.adapter import HookPoint
from rlvr_probe.releases import Dated, DatedAdapter, points_of, release, version_of, within


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


def test_methods_are_named_within_their_class_and_an_adapter_is_made_of_two_tables() -> None:
    class Toy(DatedAdapter):
        imported = (Dated(HookPoint("toy:fit"), "1"), Dated(HookPoint("toy:old"), "0.1", "1"))
        methods = within("toy:Trainer.", [HookPoint("step")], "1", "2")

    assert [point.target for point in Toy().hook_points("1.5")] == ["toy:fit"]
    assert [point.target for point in Toy().expected("1.5")] == ["toy:fit", "toy:Trainer.step"]
    assert [point.target for point in Toy().expected("2.0")] == ["toy:fit"]


def test_points_with_releases_of_their_own_keep_them_within_a_class_that_came_later() -> None:
    dated = (Dated(HookPoint("old"), "0.1", "0.5"), Dated(HookPoint("new"), "0.9"))
    found = within("toy:Late.", dated, "0.7")
    assert found == (Dated(HookPoint("toy:Late.new"), "0.9"),)
    [held, _] = within("toy:Early.", dated)
    assert (held.since, held.until) == ("0.1", "0.5")


def test_a_framework_says_its_version_or_its_metadata_does(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = SimpleNamespace(__version__="1.4.0")
    monkeypatch.setitem(sys.modules, "pytest", framework)
    assert version_of("pytest") == "1.4.0"
    framework.__version__ = "unknown"
    assert version_of("pytest") == metadata.version("pytest")
    assert version_of("no-such-framework") is None
