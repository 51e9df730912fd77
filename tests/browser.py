"""A real headless Chromium, driven over a pipe: no port, no driver, no library.

It is the one of the machine, or else Debian's, unpacked beside the tests.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.debian import program

__all__ = ["Browser", "Page", "browser"]

_NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome")
_SHELL = "usr/lib/chromium/chromium-headless-shell"
_START = """
import os, sys
os.dup2(int(sys.argv[1]), 100)
os.dup2(int(sys.argv[2]), 101)
os.dup2(100, 3)
os.dup2(101, 4)
os.closerange(100, 102)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from descriptor 3 and answers on 4; these may be others' before."""
_PATIENCE_S = 240.0
"""Of one question; the machine may be busy."""


@dataclass
class Browser:
    """One that runs.

    Attributes:
        send, receive: Ends of the pipes to it.
        events: What it told without being asked, by session, in order.
    """

    send: int
    receive: int
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _asked: int = 0
    _rest: bytes = b""

    def ask(self, method: str, session: str | None = None, **values: Any) -> dict[str, Any]:
        """The answer to a command of the DevTools protocol.

        Raises:
            AssertionError: It refused, or did not answer.
        """
        self._asked += 1
        asked: dict[str, Any] = {"id": self._asked, "method": method, "params": values}
        if session is not None:
            asked["sessionId"] = session
        os.write(self.send, json.dumps(asked).encode() + b"\0")
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            told = self._next(until - time.monotonic())
            if told.get("id") == self._asked:
                assert "error" not in told, f"{method}: {told['error']}"
                result: dict[str, Any] = told["result"]
                return result
        raise AssertionError(f"the browser did not answer {method}")

    def _next(self, patience: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.receive], [], [], max(0.0, patience))
            more = os.read(self.receive, 1 << 20) if ready else b""
            assert more, "the browser is gone, or does not answer"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        if "method" in told:
            self.events.setdefault(told.get("sessionId", ""), []).append(told)
        return told

    @contextmanager
    def page(
        self,
        path: Path,
        *,
        width: int = 1440,
        height: int = 900,
        dark: bool = False,
        fragment: str = "",
    ) -> Iterator[Page]:
        """A page that was loaded from a file, with a fragment in its address."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, path.resolve().as_uri())
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            page.ask(f"{domain}.enable")
        page.look(width=width, height=height, dark=dark)
        page.ask("Page.navigate", url=page.url + fragment)
        page.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        try:
            yield page
        finally:
            self.ask("Target.closeTarget", targetId=target)


@dataclass
class Page:
    """One tab.

    Attributes:
        url: Of the file that it was asked for.
    """

    browser: Browser
    session: str
    url: str

    def ask(self, method: str, **values: Any) -> dict[str, Any]:
        """As :meth:`Browser.ask`, of this tab."""
        return self.browser.ask(method, self.session, **values)

    def look(self, *, width: int, height: int, dark: bool) -> None:
        """Set the size of the window, and what the system wishes colours to be."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise.

        Raises:
            AssertionError: It threw.
        """
        told = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true.

        Raises:
            AssertionError: It never was.
        """
        until = time.monotonic() + _PATIENCE_S
        while not self.run(condition):
            assert time.monotonic() < until, f"never true: {condition}"
            time.sleep(0.02)

    def press(self, key: str, code: int = 0) -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def point(self, x: float, y: float) -> None:
        """Move the pointer there."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def events(self, method: str) -> list[Mapping[str, Any]]:
        """What the browser told of this tab."""
        self.run("0")
        told = self.browser.events.get(self.session, [])
        return [one["params"] for one in told if one["method"] == method]

    @property
    def cpu_s(self) -> float:
        """CPU time of the process that shows this tab, which grows however busy the machine is."""
        told = {one["name"]: one["value"] for one in self.ask("Performance.getMetrics")["metrics"]}
        return float(told["ProcessTime"])

    @property
    def complaints(self) -> list[str]:
        """Exceptions, and all that stands in the console."""
        thrown = [str(one["exceptionDetails"]) for one in self.events("Runtime.exceptionThrown")]
        said = [str(one) for one in self.events("Runtime.consoleAPICalled")]
        return thrown + said + [str(one["entry"]) for one in self.events("Log.entryAdded")]

    @property
    def requests(self) -> list[str]:
        """Addresses that it asked for, its own file first; without those that are data."""
        asked = [one["request"]["url"] for one in self.events("Network.requestWillBeSent")]
        return [url for url in asked if not url.startswith("data:")]


def _chromium() -> tuple[Path, dict[str, str]]:
    """The one of the machine, or Debian's; and where it finds libraries."""
    there = next(filter(None, map(shutil.which, _NAMES)), None)
    if there is not None:
        return Path(there), {}
    shell = program("chromium-headless-shell", _SHELL, needs=True)
    root = shell.parents[len(Path(_SHELL).parts) - 1]
    # libpulse looks for a part of itself in a folder of its own.
    places = "usr/lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/pulseaudio"
    folders = [str(one) for place in places for one in root.glob(place)]
    return shell, {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {}


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """One without a window, whose profile is in ``folder``."""
    chromium, libraries = _chromium()
    there, here = os.pipe(), os.pipe()
    command = [
        sys.executable, "-c", _START, str(there[0]), str(here[1]), str(chromium),
        "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-sandbox",
        "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
        "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    ]  # fmt: skip
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            pass_fds=(there[0], here[1]), env={**os.environ, **libraries},
        )  # fmt: skip
    os.close(there[0])
    os.close(here[1])
    found = Browser(there[1], here[0])
    try:
        yield found
        found.ask("Browser.close")
    finally:
        os.close(found.send)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(found.receive)
