"""What the launcher says last: where the recording is, or why there is none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from shlex import quote

from rlvr_probe.launch.recorded import Losses
from rlvr_probe.probe.launcher_notices import Notice

__all__ = ["nothing_recorded", "recorded"]


def recorded(count: int, shown: str, lost: Losses, notices: Sequence[Notice]) -> str:
    """Where the recording is, what is missing in it, and what to type next.

    Args:
        count: Processes that recorded something.
        shown: Run folder as the user typed it.
        lost: Records that were lost.
        notices: From processes of the command.
    """
    path = quote(shown)
    text = f"recorded {_processes(count)} in {path}"
    if lost.count:
        most = sorted(lost.reasons.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in most)
        text += f"; LOST {lost.count:,} records" + (f" ({reasons})" if reasons else "")
        text += ", the disk is full" if lost.full else ""
    refused = _refused(notices)
    if refused:
        text += f"; {refused}"
    return f"{text}; next: rlvr-probe show {path}"


def nothing_recorded(
    status: int, shown: str, frameworks: Sequence[str], notices: Sequence[Notice]
) -> str:
    """Why nothing was recorded, as far as it is known.

    Args:
        status: Exit status of the command.
        shown: Run folder as the user typed it.
        frameworks: Names of those that were to be recorded.
        notices: From processes of the command.
    """
    refused = _refused(notices)
    if refused:
        return f"nothing was recorded in {quote(shown)}: {refused}"
    failed = _texts(notices, "failed")
    if failed:
        return f"nothing was recorded: {'; '.join(failed)}; rlvr-probe doctor looks all of it up"
    imported = _texts(notices, "imported")
    if imported:
        count = len({notice.pid for notice in notices})
        end = f"ended with status {status}" if status else "ended"
        return (
            f"nothing was recorded: {_processes(count)} imported {' and '.join(imported)}, and the"
            f" command {end} before its first stage"
        )
    *others, last = frameworks or ("a framework, of which none is known here",)
    names = f"{', '.join(others)} or {last}" if others else last
    return (
        f"nothing was recorded: no Python process of the command imported {names} on this node, or"
        " its Python has no rlvr-probe; run rlvr-probe doctor with that Python"
    )


def _refused(notices: Sequence[Notice]) -> str:
    """Who could not write, and why not."""
    codes = _texts(notices, "refused")
    if not codes:
        return ""
    count = len({notice.pid for notice in notices if notice.kind == "refused"})
    return f"{_processes(count)} could not write there ({', '.join(map(_explain, codes))})"


def _explain(code: str) -> str:
    import errno

    number = getattr(errno, code.upper(), None)
    return os.strerror(number) if isinstance(number, int) else code


def _texts(notices: Sequence[Notice], kind: str) -> list[str]:
    return list(dict.fromkeys(notice.text for notice in notices if notice.kind == kind))


def _processes(count: int) -> str:
    return f"{count} process" if count == 1 else f"{count} processes"
