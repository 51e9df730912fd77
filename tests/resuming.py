"""Goes on where an interrupted `make conformance-full` stopped, and writes down how it ended.

A pytest plugin: ``-p tests.resuming``. What passed is kept in pytest's cache, for the code as it
is; a change of the code, of a test or of a lock starts it anew. The result of a whole run becomes
one line of CONTRIBUTING.md.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["Progress", "code_hash", "result_line", "write_result"]

PAGE: Final = "CONTRIBUTING.md"
CACHE: Final = "rlvr-probe/conformance-full"
LINE: Final = re.compile(r"^Last `make conformance-full`: .*$", re.MULTILINE)
CODE: Final = (":!*.md", ":!*/looked_up.json")
"""All but pages, one of which has the result, and answers that a run itself writes down."""


class Progress:
    """What ended so far, in all the sessions of one run.

    Attributes:
        outcomes: ``passed``, ``failed`` or ``skipped``, by test.
        seconds: How long the sessions took together.
        root: Root of the checkout.
    """

    def __init__(self, cache: pytest.Cache, root: Path) -> None:
        self.root = root
        self._cache, self._code = cache, code_hash(root)
        kept: dict[str, Any] = cache.get(CACHE, {})
        same = kept.get("code") == self._code
        self.outcomes: dict[str, str] = kept["outcomes"] if same else {}
        self.seconds: float = kept["seconds"] if same else 0.0
        self._running: dict[str, str] = {}
        self._before = self.seconds
        self._start = time.monotonic()

    @property
    def done(self) -> set[str]:
        """Tests that need not run again."""
        return {test for test, outcome in self.outcomes.items() if outcome == "passed"}

    def add(self, report: pytest.TestReport) -> None:
        """Keep what became of a test, or of a part of it."""
        if report.when == "setup" or report.outcome != "passed":
            self._running[report.nodeid] = report.outcome
        if report.when == "teardown":
            self.outcomes[report.nodeid] = self._running.pop(report.nodeid)
            self.seconds = self._before + time.monotonic() - self._start
            kept = {"code": self._code, "outcomes": self.outcomes, "seconds": self.seconds}
            self._cache.set(CACHE, kept)


class Resuming:
    """The hooks."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tests: set[str] = set()
        self.whole = False

    # After marks have been looked at.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what has passed."""
        self.tests = {item.nodeid for item in items}
        self.whole = config.args_source is config.ArgsSource.TESTPATHS and not config.option.keyword
        done = self.progress.done
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]
        if hasattr(config, "workeroutput"):
            config.workeroutput |= {"tests": sorted(self.tests), "whole": self.whole}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take from a worker of xdist what the tests are."""
        told = getattr(node, "workeroutput", {})
        self.tests.update(told.get("tests", ()))
        self.whole = self.whole or told.get("whole", False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep it; a worker of xdist leaves that to its controller."""
        self.progress.add(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the line, unless something has not been run."""
        outcomes = self.progress.outcomes
        if self.whole and self.tests and self.tests <= outcomes.keys():
            line = result_line([outcomes[test] for test in self.tests], self.progress)
            write_result(self.progress.root / PAGE, line)


class Leaving:
    """The hooks in a worker of xdist, which keeps nothing itself."""

    def __init__(self, resuming: Resuming) -> None:
        self.pytest_collection_modifyitems = resuming.pytest_collection_modifyitems


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks: all of them, or those of a worker."""
    assert config.cache is not None, "progress is kept in pytest's cache"
    resuming = Resuming(Progress(config.cache, config.rootpath))
    is_worker = hasattr(config, "workeroutput")
    config.pluginmanager.register(Leaving(resuming) if is_worker else resuming)


def code_hash(root: Path) -> str:
    """A hash of all files that git knows or would add, but of pages of text."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *CODE]
    names = subprocess.run(listed, cwd=root, capture_output=True, check=True).stdout
    paths = (root / name.decode() for name in sorted(names.split(b"\0")) if name)
    found = hashlib.sha256()
    for path in paths:
        if path.is_file():
            found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def result_line(outcomes: Sequence[str], progress: Progress) -> str:
    """What a whole run gave: commit, date, duration, passed."""
    described = ["git", "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    done = subprocess.run(described, cwd=progress.root, capture_output=True, text=True, check=True)
    commit, today = done.stdout.strip(), datetime.now(timezone.utc).date()
    duration, counts = f"{progress.seconds / 60:.0f} min", ", ".join(_counted(outcomes))
    return f"Last `make conformance-full`: {commit}, {today}, {duration}, {counts}."


def _counted(outcomes: Sequence[str]) -> Iterator[str]:
    for outcome in ("passed", "failed", "skipped"):
        if outcome == "passed" or outcome in outcomes:
            yield f"{outcomes.count(outcome)} {outcome}"


def write_result(page: Path, line: str) -> None:
    """Put the line where the page has the last one.

    Raises:
        ValueError: The page has none, or several.
    """
    text, count = LINE.subn(lambda _: line, page.read_text("utf-8"))
    if count != 1:
        raise ValueError(f"{page.name}: one line 'Last `make conformance-full`: ...', not {count}")
    page.write_text(text, "utf-8")
