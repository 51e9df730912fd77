"""The page in a real browser: it renders, in both themes and narrow, and asks for nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlvr_probe.analysis.characterization import Characterization, characterize
from rlvr_probe.analysis.results import Chapter, Figure
from rlvr_probe.recording.tables import Tables, open_tables
from rlvr_probe.report.page import write_page
from tests.browser import Browser, Page, browser
from tests.crowds import crowd
from tests.hostile import HOSTILE
from tests.journals import simple_run
from tests.simulator import scenario, simulate
from tests.synthetic import SECOND, Process

pytestmark = pytest.mark.conformance

_READY = "document.documentElement.hasAttribute('data-ready')"
_DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_WINDOW = "document.querySelector('.tools [role=status]').textContent"
_TABS = "[...document.querySelectorAll('[role=tab]')].map(one => one.id.slice(4))"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def simulated(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Tables, Characterization]]:
    folder = tmp_path_factory.mktemp("simulated") / "run"
    simulate(replace(scenario(4), steps=4), folder, again=False)
    with open_tables(folder) as tables:
        yield tables, characterize(tables)


@pytest.fixture(scope="module")
def written(
    simulated: tuple[Tables, Characterization], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("written") / "page.html"
    write_page(path, *simulated)
    return path


def open_tab(page: Page, name: str) -> None:
    page.run(f"document.getElementById('tab-{name}').click()")
    page.run(_DRAWN)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_tab_renders_and_nothing_is_asked_for(
    chromium: Browser, written: Path, width: int, dark: bool
) -> None:
    with chromium.page(written, width=width, dark=dark) as page:
        page.wait(_READY)
        assert page.run("document.documentElement.hasAttribute('data-dark')") == dark
        names = page.run(_TABS)
        assert names[:4] == ["overview", "ledger", "timeline", "lengths"]
        assert len(set(names)) == len(names)
        for name in names:
            open_tab(page, name)
            shown = page.run("[...document.querySelectorAll('[role=tabpanel]:not([hidden])')]"
                             ".map(one => [one.id, one.innerText.length])")  # fmt: skip
            [[panel, length]] = shown
            assert panel == f"panel-{name}"
            assert length > 20, name
            assert page.run("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.complaints == []
        assert page.requests == [page.url]


def test_what_is_drawn_has_the_colours_of_the_theme(chromium: Browser, written: Path) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        open_tab(page, "timeline")
        seen = """(() => {
            const canvas = document.querySelector('.lanes .body canvas');
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const found = {};
            for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) {
                const one = [data[at], data[at + 1], data[at + 2]].join();
                found[one] = (found[one] || 0) + 1;
            }
            const wanted = getComputedStyle(document.documentElement)
                .getPropertyValue('--k-work-rollout').trim();
            const key = [1, 3, 5].map(at => parseInt(wanted.slice(at, at + 2), 16)).join();
            return [wanted, (found[key] || 0) / canvas.width / canvas.height];
        })()"""
        light, share = page.run(seen)
        assert share > 0.02
        page.run("document.getElementById('theme').click()")
        page.run(_DRAWN)
        dark, share = page.run(seen)
        assert dark != light
        assert share > 0.02


def test_tabs_and_the_timeline_can_be_used_from_the_keyboard(
    chromium: Browser, written: Path
) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        page.run("document.getElementById('tab-overview').focus()")
        page.press("ArrowDown", 40)
        page.press("ArrowDown", 40)
        assert page.run("document.activeElement.id") == "tab-timeline"
        assert page.run("document.getElementById('panel-timeline').hidden") is False
        page.run("document.querySelector('.lanes').focus()")
        page.run(_DRAWN)
        whole = page.run(_WINDOW)
        page.press("+")
        page.run(_DRAWN)
        assert page.run(_WINDOW) != whole
        page.press("Home", 36)
        page.run(_DRAWN)
        assert page.run(_WINDOW) == whole


def test_the_pointer_is_told_what_a_gpu_did(chromium: Browser, written: Path) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        open_tab(page, "timeline")
        frame = "document.querySelector('.lanes .body canvas').getBoundingClientRect()"
        x, y = page.run(f"[{frame}.left + 130, {frame}.top + 15]")
        page.point(x, y)
        page.wait("!document.getElementById('tip').hidden")
        told = page.run("document.getElementById('tip').innerText")
        assert told.startswith("rank 0 (GPU 0")
        assert "rollout" in told
        assert "step 1" in told


def test_a_number_opens_its_query(chromium: Browser, written: Path) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        open_tab(page, "lengths")
        page.run("document.querySelector('#panel-lengths button.cell').click()")
        detail = "document.querySelector('#panel-lengths tr.detail')"
        assert "lengths.prompt" in page.run(f"{detail}.innerText")
        page.run(f"{detail}.querySelector('summary').click()")
        page.wait(f"{detail}.querySelector('pre') !== null")
        assert "SELECT" in page.run(f"{detail}.querySelector('pre').innerText")


def test_a_cause_leads_to_its_step_and_back_returns(chromium: Browser, written: Path) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        cause = "document.querySelector('.cause-item .links a')"
        step = page.run(f"{cause}.innerText").removeprefix("step ")
        page.run(f"{cause}.click()")
        page.run(_DRAWN)
        assert page.run("location.hash") == f"#timeline?step={step}"
        assert page.run("document.getElementById('panel-timeline').hidden") is False
        assert page.run("document.querySelector('#selection h3').innerText") == f"Step {step}"
        zoomed = page.run(_WINDOW)
        page.run("document.querySelector('#selection a[href*=cause]').click()")
        page.wait("!document.getElementById('panel-overview').hidden")
        assert page.run("document.querySelector('.cause-item.selected') !== null")
        page.run("history.back()")
        page.wait("!document.getElementById('panel-timeline').hidden")
        assert page.run(_WINDOW) == zoomed
        page.run("history.back()")
        page.wait("!document.getElementById('panel-overview').hidden")
        assert page.run("document.getElementById('selection').childElementCount") == 0
        assert page.run("location.hash") == "#overview"
        assert page.complaints == []


def test_a_step_leads_to_a_reward_function_and_to_a_trajectory(
    chromium: Browser, written: Path
) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        for kind, section in (("function", "rewards"), ("trajectory", "timeline")):
            page.run("location.hash = '#timeline?step=2'")
            page.wait("document.querySelector('#selection h3')?.innerText === 'Step 2'")
            page.run(f"document.querySelector('#selection a[href*=\"select={kind}%3A\"]').click()")
            page.run(_DRAWN)
            assert page.run("location.hash").startswith(f"#{section}?")
            text = page.run("document.getElementById('selection').innerText").lower()
            assert kind in text
            assert page.run(f"document.getElementById('panel-{section}').hidden") is False
        assert page.complaints == []


def test_an_address_that_is_opened_anew_restores_the_position(
    chromium: Browser, written: Path
) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        page.run("location.hash = '#timeline?step=3'")
        page.wait("document.querySelector('#selection h3')?.innerText === 'Step 3'")
        page.run("document.querySelector('.lanes').focus()")
        page.press("+")
        page.wait("location.hash.includes('time=')")
        window, fragment = page.run(_WINDOW), page.run("location.hash")
    with chromium.page(written, fragment=fragment) as page:
        page.wait(_READY)
        page.run(_DRAWN)
        assert page.run("document.querySelector('#selection h3').innerText") == "Step 3"
        assert page.run(_WINDOW) == window
        assert page.run("location.hash") == fragment


def test_search_finds_a_trajectory_and_a_function(chromium: Browser, written: Path) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        page.press("/", 191)
        assert page.run("document.activeElement.id") == "search"
        for text, kind in (("trajectory step 2", "trajectory"), ("code_reward", "function")):
            page.run(
                f"(() => {{ const field = document.getElementById('search'); "
                f"field.value = {text!r}; field.dispatchEvent(new Event('input')); }})()"
            )
            page.run(_DRAWN)
            assert page.run("new URLSearchParams(location.hash.split('?')[1]).get('q')") == text
            hits = page.run(
                "[...document.querySelectorAll('#results .hits li')]"
                ".map(hit => [hit.querySelector('span').innerText, hit.querySelector('a').hash])"
            )
            [hash_, *_] = [address for found, address in hits if found == kind]
            assert f"select={kind}%3A" in hash_
        page.run("document.querySelector('#results .hits a').click()")
        page.run(_DRAWN)
        assert page.run("document.getElementById('results').childElementCount") == 0
        page.run("history.back()")
        page.wait("document.getElementById('search').value === 'code_reward'")
        page.run("location.hash = '#overview?q=nothing-is-called-so'")
        page.wait("document.getElementById('results').innerText.startsWith('Found: 0')")
        assert page.complaints == []


@pytest.mark.parametrize(
    "chart",
    ["#panel-overview svg.leads", "#panel-ledger canvas.heat", "#panel-overview .stack > *"],
)
def test_a_bar_leads_to_its_step(chromium: Browser, written: Path, chart: str) -> None:
    with chromium.page(written) as page:
        page.wait(_READY)
        open_tab(page, chart.split()[0].removeprefix("#panel-"))
        page.run(
            f"(() => {{ const node = document.querySelector({chart!r});"
            "const frame = node.getBoundingClientRect();"
            "node.dispatchEvent(new MouseEvent('click', { bubbles: true,"
            " clientX: frame.right - 20, clientY: frame.bottom - 40 })); })()"
        )
        page.run(_DRAWN)
        step = "4" if "stack" not in chart else page.run("location.hash").partition("step=")[2]
        assert page.run("location.hash") == f"#timeline?step={step}"
        assert page.run("document.querySelector('#selection h3').innerText") == f"Step {step}"


@pytest.mark.parametrize("width", [1440, 420])
def test_axes_have_names_with_units(chromium: Browser, written: Path, width: int) -> None:
    with chromium.page(written, width=width) as page:
        page.wait(_READY)
        for name in page.run(_TABS):
            open_tab(page, name)
        charts = page.run(
            "[...document.querySelectorAll('.plot svg')]"
            ".map(chart => [...chart.querySelectorAll('.axis-name')].map(name => name.textContent))"
        )
        assert len(charts) > 10
        assert all(len(names) == 2 and all(names) for names in charts)
        assert ["step", "GPU time, GPU-min"] in charts


def test_hostile_names_are_read_and_not_run(
    chromium: Browser, simulated: tuple[Tables, Characterization], tmp_path: Path
) -> None:
    tables, known = simulated
    figures = tuple(
        Figure(f"odd.{number}.of", name, name, "1", 1.5, query=name, by={"function": name})
        for number, name in enumerate(HOSTILE)
    )
    chapters = (Chapter("odd", HOSTILE[1], figures, notes=HOSTILE),)
    causes = [replace(one, title=HOSTILE[0], worst=HOSTILE) for one in known.causes]
    path = tmp_path / "odd.html"
    write_page(path, tables, replace(known, chapters=chapters, causes=causes, source=HOSTILE[0]))
    with chromium.page(path) as page:
        page.wait(_READY)
        for name in page.run(_TABS):
            open_tab(page, name)
        page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.run("document.querySelectorAll('button.cell').forEach(one => one.click())")
        page.run(_DRAWN)
        assert page.run("document.title") != "owned"
        assert page.run("document.querySelectorAll('img, b > script, main script').length") == 0
        assert HOSTILE[0] in page.run("document.getElementById('first-cause').textContent")
        assert page.complaints == []
        assert page.requests == [page.url]


def test_a_recording_of_nothing_says_so(chromium: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    Process(folder, 0).close(SECOND)
    with open_tables(folder) as tables:
        write_page(tmp_path / "page.html", tables, characterize(tables))
    with chromium.page(tmp_path / "page.html") as page:
        page.wait(_READY)
        assert page.run("document.querySelector('h1').innerText").startswith("No training step")
        for name in page.run(_TABS):
            open_tab(page, name)
        assert page.complaints == []


def test_where_no_gpu_is_known_time_is_of_ranks(chromium: Browser, tmp_path: Path) -> None:
    simple_run(tmp_path / "run")
    with open_tables(tmp_path / "run") as tables:
        write_page(tmp_path / "page.html", tables, characterize(tables))
    with chromium.page(tmp_path / "page.html") as page:
        page.wait(_READY)
        for name in ("overview", "ledger", "timeline"):
            open_tab(page, name)
            text = page.run(f"document.getElementById('panel-{name}').innerText")
            assert "rank" in text
            assert "GPU" not in text
        assert "2 ranks" in page.run("document.getElementById('facts').innerText")
        assert page.complaints == []


def test_2048_gpus_and_1000_steps_are_small_and_soon_there(
    chromium: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    with crowd(gpus=2_048, steps=1_000) as (tables, found):
        write_page(path, tables, found)
    assert path.stat().st_size < 10_000_000
    with chromium.page(path) as page:
        page.wait(_READY)
        # CPU time, not that of a clock: other tests may run beside this one.
        cost = {"ready": page.cpu_s}
        for name in page.run(_TABS):
            before = page.cpu_s
            open_tab(page, name)
            cost[name] = page.cpu_s - before
        cost["by the clock, ready"] = (
            page.run("Number(document.documentElement.dataset.ready)") / 1e3
        )
        print(json.dumps(cost))
        assert max(one for name, one in cost.items() if "clock" not in name) < 2, cost
        assert "2,048" in page.run("document.getElementById('facts').innerText")
        open_tab(page, "notes")
        told = page.run("document.getElementById('panel-notes').innerText")
        assert "48 of 2,048 GPUs" in told
        assert "steps interval by interval" in told
        assert page.complaints == []
