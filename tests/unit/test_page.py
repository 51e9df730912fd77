"""The page of ``rlvr-probe characterize --html``: one file, whatever a recording holds."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.characterization import Characterization, characterize
from rlvr_probe.analysis.ledger import CATEGORIES, FAMILIES, NAMES
from rlvr_probe.analysis.metrics.registry import DEFINITIONS, SERIES
from rlvr_probe.analysis.page.timeline import timeline_of
from rlvr_probe.analysis.results import Chapter, Evidence, Figure
from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.blocks import Grid
from rlvr_probe.report.characterize import lay_out_characterization
from rlvr_probe.report.page import SCRIPTS, page_text
from rlvr_probe.report.page.contents import document
from rlvr_probe.report.page.encode import SHARES, clean, drawn, embedded
from tests import today
from tests.hostile import HOSTILE
from tests.simulated import SMALL, Corpus
from tests.simulator import Truth
from tests.synthetic import SECOND, Process

FREQUENT = (
    "work-rollout", "work-old-logprob", "work-ref-logprob", "work-update-actor", "work-weight-sync",
    "wait-rollout", "wait-reward", "wait-update", "wait-refit", "bubble", "overhead-data", "eval",
    "checkpoint", "discarded-filtered",
)  # fmt: skip
"""Categories that are often beside one another; others are shades of these."""

# Machado, Oliveira and Fernandes 2009, severity 1.0.
EYES = {
    "all colours": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}

SOURCES = Path(__file__).resolve().parents[2] / "src" / "rlvr_probe" / "report" / "page"


@pytest.fixture
def recorded(corpus: Corpus) -> tuple[Path, Truth]:
    return corpus.run(SMALL)


@pytest.fixture(scope="module")
def found(corpus: Corpus) -> Iterator[tuple[Tables, Characterization]]:
    with corpus.after(SMALL, characterize) as found:
        yield found


@pytest.fixture
def page(corpus: Corpus) -> str:
    return corpus.characterized(SMALL).page.read_text(encoding="utf-8")


class Elements(HTMLParser):
    """What a browser would make of a text: elements with their attributes, and what is in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        self.inside.setdefault(self._open[-1] if self._open else "", []).append(data)


def renamed(known: Characterization, name: str) -> Characterization:
    """The same with a name wherever a recording may put one."""
    figure = Figure("a.b.c", name, name, "1", 1, query=name, by={"function": name})
    causes = [replace(one, title=name, where={"function": name}) for one in known.causes]
    return replace(
        known,
        source=name,
        facts={**known.facts, "framework": name, "run": name},
        causes=causes,
        chapters=(Chapter("x", name, (figure,), notes=(name,)),),
        notes=(name,),
    )


def told_of(text: str) -> Any:
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(data)


def hashed(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_page_loads_nothing_and_its_policy_forbids_it(page: str) -> None:
    elements = Elements(page)
    for tag, attributes in elements.found:
        assert tag not in ("iframe", "object", "embed", "img", "base", "form")
        assert not attributes.get("src")
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
        assert not any(name.startswith("on") for name in attributes)
    [policy] = [
        one["content"] for _, one in elements.found
        if one.get("http-equiv") == "Content-Security-Policy"
    ]  # fmt: skip
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    [style] = re.findall(r"<style>(.*?)</style>", page, re.S)
    [script] = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert hashed(style) in policy
    assert hashed(script) in policy
    assert "url(" not in style
    assert "@import" not in style


def test_scripts_set_texts_and_never_markup() -> None:
    scripts = sorted((SOURCES / "scripts").glob("*.js"))
    assert {path.stem for path in scripts} == set(SCRIPTS)
    for path in scripts:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                     "fetch(", "XMLHttpRequest", "import(", "WebSocket", "sendBeacon"):  # fmt: skip
            assert word not in text, f"{path.name}: {word}"


def test_every_category_has_a_colour_in_both_themes_and_a_name() -> None:
    style = (SOURCES / "page.css").read_text(encoding="utf-8")
    for category in CATEGORIES:
        assert len(re.findall(rf"--k-{re.sub('[._]', '-', category)}: #", style)) == 2
    assert set(NAMES) == set(CATEGORIES)
    assert len(set(NAMES.values())) == len(NAMES)
    assert {category.partition(".")[0] for category in CATEGORIES} == set(FAMILIES)


def test_the_page_and_the_terminal_call_a_category_the_same(
    found: tuple[Tables, Characterization],
) -> None:
    assert document(*found)["categories"] == NAMES
    [table] = [one for one in lay_out_characterization(found[1]) if isinstance(one, Grid)]
    rows = [row[0] for row in table.rows]
    assert {"rollout", "wait for rollout", "unaccounted"} <= set(rows)
    assert set(rows) <= {*NAMES.values(), *FAMILIES.values(), "training"}


def test_what_a_query_read_stands_beside_every_series_and_cause(
    found: tuple[Tables, Characterization],
) -> None:
    page = document(*found)
    series = [series for chapter in page["chapters"] for series in chapter["series"]]
    told = {series.id: series for chapter in found[1].chapters for series in chapter.series}
    assert {part["id"]: part["inputs"] for part in series} == {
        name: list(recorded.inputs) for name, recorded in told.items()
    }
    assert any(part["inputs"] for part in series)
    assert [cause["inputs"] for cause in page["causes"]] == [
        list(cause.inputs) for cause in found[1].causes
    ]


def test_gpus_are_in_the_order_of_their_ranks(found: tuple[Tables, Characterization]) -> None:
    page = document(*found)
    ranks = [gpu["rank"] for gpu in page["timeline"]["gpus"]]
    assert ranks == sorted(ranks) == [first["rank"] for first, _ in page["ledger"]["map"]["ends"]]


def seen(colour: str, eye: tuple[tuple[float, float, float], ...]) -> tuple[float, float, float]:
    """What an eye sees of a colour, in CIELAB."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    light = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    r, g, b = (sum(w * one for w, one in zip(row, light, strict=True)) for row in eye)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (max(one, 0.0) ** (1 / 3) if one > 0.008856 else 7.787 * max(one, 0.0) + 16 / 116
                  for one in (x, y, z))  # fmt: skip
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("eye", EYES)
def test_who_confuses_colours_can_tell_categories_apart(eye: str) -> None:
    style = (SOURCES / "page.css").read_text(encoding="utf-8")
    light, _, dark = style.partition(":root[data-dark]")
    for theme in (light, dark):
        colours = dict(re.findall(r"--k-([\w-]+): (#\w{6})", theme))
        for one, other in itertools.combinations(FREQUENT, 2):
            far = math.dist(seen(colours[one], EYES[eye]), seen(colours[other], EYES[eye]))
            assert far > 15, f"{one} and {other}"


def test_the_ledger_of_the_page_is_the_truth(page: str, recorded: tuple[Path, Truth]) -> None:
    truth = recorded[1]
    ledger = told_of(page)["ledger"]
    found = dict(zip((name for name, _ in ledger["categories"]), ledger["gpu_s"], strict=True))
    whole = ledger["gpus"] * ledger["wall_s"]
    assert sum(found.values()) == pytest.approx(whole, rel=1e-9)
    for name, ns in truth.ledger_ns.items():
        assert found[name] == pytest.approx(ns / 1e9, abs=0.01 * whole)
    by_steps = [sum(row) for row in ledger["bars"]["cells"]]
    assert by_steps == pytest.approx(ledger["gpu_s"], rel=1e-4)


def test_every_gpu_of_the_timeline_is_told_of_from_begin_to_end(page: str) -> None:
    timeline = told_of(page)["timeline"]
    assert len(timeline["gpus"]) == timeline["of"] == 4
    [window] = timeline["exact"]
    assert timeline["exact_steps"] is None
    for line in window["lines"]:
        assert sum(line[::2]) == pytest.approx(timeline["end_us"], abs=1)
    for line in timeline["over"]:
        pieces = sum(one & 127 for one in line if one < 1_000_000) / 100
        again = sum(one - 1_000_000 for one in line if one >= 1_000_000)
        assert pieces + again == timeline["pieces"]


def test_of_very_many_gpus_some_are_drawn_and_all_are_counted(
    found: tuple[Tables, Characterization], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlvr_probe.analysis.page.timeline.GPUS", 3)
    monkeypatch.setattr("rlvr_probe.analysis.page.timeline._ENDS", 1)
    monkeypatch.setattr("rlvr_probe.analysis.page.timeline._EXACT", 150)
    monkeypatch.setattr("rlvr_probe.analysis.page.charts._BARS", 2)
    monkeypatch.setattr("rlvr_probe.analysis.page.charts._LINES", 2)
    told = document(*found)
    timeline, ledger = told["timeline"], told["ledger"]
    assert (len(timeline["gpus"]), timeline["of"]) == (3, 4)
    assert sum(timeline["why"].values()) == 3
    assert 0 < timeline["exact_steps"] < 4
    assert sum(len(line) // 2 for one in timeline["exact"] for line in one["lines"]) <= 150
    assert ledger["bars"]["together"] == 2
    assert [sum(row) for row in ledger["bars"]["cells"]] == pytest.approx(ledger["gpu_s"], rel=1e-4)
    assert len(ledger["map"]["cells"]) == 2
    whole = found[1].ledger
    assert whole is not None
    assert sum(ledger["gpu_s"]) == pytest.approx(sum(whole.ns.values()) / 1e9)


def test_gpus_that_a_cause_names_are_drawn(
    found: tuple[Tables, Characterization], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlvr_probe.analysis.page.timeline.GPUS", 2)
    monkeypatch.setattr("rlvr_probe.analysis.page.timeline._ENDS", 0)
    tables, told = found
    assert told.ledger is not None
    for rank in range(4):
        slow = [replace(told.causes[0], where={"rank": rank}, evidence={})]
        drawn_gpus = timeline_of(tables, told.ledger, slow)["gpus"]
        assert rank in [gpu["rank"] for gpu in drawn_gpus]
    devices = tables.sql.execute("SELECT device, rank FROM gpu ORDER BY gpu").fetchall()
    assert len(devices) == 4
    for device, rank in devices:
        hot = [replace(told.causes[0], where={}, evidence={"device": Evidence.of([device])})]
        drawn_gpus = timeline_of(tables, told.ledger, hot)["gpus"]
        assert rank in [gpu["rank"] for gpu in drawn_gpus]


def test_a_chapter_that_nobody_knows_is_on_the_page(
    found: tuple[Tables, Characterization],
) -> None:
    figure = Figure("tides.height.mean", "mean", "Mean height.", "m", 2.5, query="SELECT 2.5")
    tables, known = found
    added = replace(known, chapters=(*known.chapters, Chapter("tides", "Tides", (figure,))))
    told = document(tables, added)
    chapter = told["chapters"][-1]
    assert (chapter["name"], chapter["title"]) == ("tides", "Tides")
    [one] = chapter["figures"]
    assert list(told["definitions"][one["is"]][:4]) == [
        "tides.height.mean",
        "mean",
        "Mean height.",
        "m",
    ]
    assert told["queries"][one["query"]] == "SELECT 2.5"


@pytest.mark.parametrize("name", today.some(list(HOSTILE), 3))
def test_a_hostile_name_stays_a_text(found: tuple[Tables, Characterization], name: str) -> None:
    tables, known = found
    text = page_text(document(tables, renamed(known, name)))
    plain = Elements(text)
    assert [tag for tag, _ in plain.found].count("script") == 2
    assert not {"img", "svg", "b", "iframe"} & {tag for tag, _ in plain.found}
    told = told_of(text)
    assert told["chapters"][0]["title"] == clean(name)
    assert all(one.isprintable() or one == "\n" for one in told["run"]["run"])
    assert all(one.isprintable() or one in "\n\ufffd" for one in plain.inside["title"][0])


def test_a_recording_of_nothing_has_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    Process(folder, 0).close(SECOND)
    path = tmp_path / "page.html"
    assert cli.main(["characterize", str(folder), "--html", str(path)]) == cli.OK
    told = told_of(path.read_text(encoding="utf-8"))
    assert told["ledger"] is told["timeline"] is told["causes"] is None
    assert told["headline"][0].startswith("No training step was recorded")


def test_a_page_into_no_folder_is_refused_before_the_work(
    recorded: tuple[Path, Truth], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "page.html"
    assert cli.main(["characterize", str(recorded[0]), "--html", str(path)]) == cli.UNABLE
    assert "does not exist; expected a folder" in capsys.readouterr().err


def test_numbers_of_charts_have_six_digits() -> None:
    assert drawn([1 / 3, 2.0, 10**9, None, "a", 123456789.5]) == [
        0.333333, 2, 10**9, None, "a", 123457000,
    ]  # fmt: skip


def test_nothing_in_the_data_ends_its_element() -> None:
    text = embedded(json.dumps("</script><!--\u2028&", ensure_ascii=False))
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == "</script><!--\u2028&"


def test_every_share_is_said_to_be_one_and_nothing_else_is(
    found: tuple[Tables, Characterization],
) -> None:
    units = {one.id: one.unit for one in DEFINITIONS.values()}
    units |= {
        f"{one.id}:{name}": unit for one in SERIES.values() for name, unit in one.units.items()
    }
    assert {units.get(name) for name in SHARES} == {"1"}
    said = {
        one.id for one in DEFINITIONS.values() if one.unit == "1" and " share" in f" {one.title}"
    }
    said |= {name for name in units if name.endswith("share")}
    assert said <= SHARES
    for chapter in found[1].chapters:
        for figure in chapter.figures:
            if figure.id in SHARES and figure.value is not None:
                assert 0 <= float(figure.value) <= 1 + 1e-9, figure.id
    page = document(*found)
    assert ["ledger.share", "share"] in [[one[0], one[3]] for one in page["definitions"]]
    told = {one["id"]: one for chapter in page["chapters"] for one in chapter["series"]}
    batches = told["occupancy.by_batch"]
    assert dict(zip(batches["columns"], batches["units"], strict=True))["mean"] == "share"


def test_the_page_counts_as_the_screen_does(found: tuple[Tables, Characterization]) -> None:
    [counts] = found[1].counts.dicts
    run = document(*found)["run"]
    told = {name: run[name] for name in ("steps", "trajectories", "processes")}
    assert told == {name: counts[name] for name in told}
    assert run["tokens"] == counts["response_tokens"]
