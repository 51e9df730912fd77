"""Draws the picture of the README: the report of a simulated run, light and dark.

``make picture`` runs it. The run is drawn by the simulator of the tests, which plants a slow
rank; a recording of GPUs cannot be made on the machines that run the tests.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Final

from rlvr_probe.analysis.characterization import characterize
from rlvr_probe.recording.tables import open_tables
from rlvr_probe.report.page import write_page
from tests.browser import browser
from tests.simulator import Scenario, simulate
from tests.simulator.faults import SlowRank

FOLDER: Final = Path(__file__).parents[1] / "docs" / "images"
_RUN: Final = Scenario(5, steps=8, faults=(SlowRank(0.4, rank=5),))


def draw(folder: Path = FOLDER) -> None:
    """Write ``report-light.png`` and ``report-dark.png`` into ``folder``."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="picture-") as temporary:
        run, page = Path(temporary, "run"), Path(temporary, "report.html")
        simulate(_RUN, run, again=False)
        with open_tables(run) as tables:
            write_page(page, tables, characterize(tables))
        Path(temporary, "profile").mkdir()
        with browser(Path(temporary, "profile")) as chromium:
            for theme in ("light", "dark"):
                with chromium.page(page, dark=theme == "dark", width=1280, height=640) as tab:
                    tab.wait("document.documentElement.hasAttribute('data-ready')")
                    image = tab.ask("Page.captureScreenshot", format="png")["data"]
                (folder / f"report-{theme}.png").write_bytes(base64.b64decode(image))


if __name__ == "__main__":
    draw()
