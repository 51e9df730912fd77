"""What in a recording tells on which machine, by whom and where it was made."""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from rlvr_probe.model import names
from rlvr_probe.probe import identity

__all__ = ["BOOT", "CHECKOUT", "HOST", "RELEASE", "told"]

HOST = "trainer"
"""Name of the host, and of the user, that recordings are made on and by."""
BOOT = "00000000-0000-4000-8000-0000000000b0"
"""Id of its boot. A real one names a machine until it starts again, and the key of each of the
host's clocks and the name of the host among devices are made of it."""
RELEASE = "6.0.0"
"""Release of its kernel."""
CHECKOUT = "/srv/rlvr-probe"
"""Where the checkout is said to be."""

PLACES = ("/srv/run", "/srv/home", CHECKOUT, "/usr/bin", "/usr/lib", "/dev/shm", "/tmp/r")
"""Of these folders any machine may have a path. Ray keeps its sockets in `/tmp/r...`."""

_PATH = re.compile(r"(?<![\w./>~-])/[A-Za-z][\w.@+-]*(?:/[\w.@+-]+)*")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_NEUTRAL_UUID = re.compile(r"00000000-0000-4000-8000-")
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_OWN_IPV4 = re.compile(r"127\.|0\.0\.0\.0$")
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE)
_HEADER_IDS = frozenset({"ray_job_id"})


def told(name: str, content: bytes) -> Iterator[str]:
    """What a file tells, in words; nothing if it could have been made anywhere.

    Args:
        name: Of the file, in its archive.
        content: Of the file, not compressed.
    """
    text = f"{name}\n{content.decode('utf-8', errors='replace')}"
    for pattern, kind, neutral in (
        (_PATH, "path", lambda found: found.startswith(PLACES)),
        (_UUID, "uuid", _NEUTRAL_UUID.match),
        (_IPV4, "address", _OWN_IPV4.match),
        (_MAC, "address", lambda _: False),
    ):
        for found in sorted(set(pattern.findall(text))):
            if not neutral(found):
                yield f"{name}: {kind} {found}"
    for found in _of_this_machine():
        if re.search(rf"(?<![A-Za-z0-9_]){re.escape(found)}(?![A-Za-z0-9_])", text):
            yield f"{name}: this machine's {found}"
    if name.startswith("recordings/") and name.endswith(".jsonl"):
        yield from _told_by_journal(name, text.splitlines()[1:])


def _told_by_journal(name: str, lines: list[str]) -> Iterator[str]:
    header = json.loads(lines[0])
    if header["host"] != HOST:
        yield f"{name}: host {header['host']}"
    if header["boot"] != BOOT:
        yield f"{name}: boot {header['boot']}"
    for key in sorted(set(header["ids"]) - _HEADER_IDS):
        yield f"{name}: {key} {header['ids'][key]}"
    for device in _rows(lines, names.DEVICE.name):
        if device["kind"] == "host" and device["driver"] != RELEASE:
            yield f"{name}: kernel {device['driver']}"


def _rows(lines: list[str], kind: str) -> Iterator[dict[str, object]]:
    """Attributes of the events of one kind."""
    columns: dict[int, list[str]] = {}
    for line in lines[1:]:
        row = json.loads(line)
        if row[0] == "def" and row[2:4] == ["event", kind]:
            columns[row[1]] = row[4]
        elif row[0] in columns:
            yield dict(zip(columns[row[0]], row[3:], strict=True))


@cache
def _of_this_machine() -> frozenset[str]:
    """Names of the machine that this runs on, and of whom it runs for."""
    home, host = Path.home(), socket.gethostname()
    given = {host, host.partition(".")[0], home.name, str(home), identity.boot_id() or ""}
    given.add(str(Path(__file__).resolve().parents[2]))
    with suppress(KeyError, OSError):  # a container may run for a user without a name
        given.add(getpass.getuser())
    # Such names say nothing, and machines of continuous integration have them.
    return frozenset(given - {HOST, CHECKOUT, "", "/", "root", "localhost", "runner", "home"})
