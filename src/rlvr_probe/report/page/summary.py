"""The first sentence of the page."""

from __future__ import annotations

from rlvr_probe.analysis.causes import NATURAL
from rlvr_probe.analysis.characterization import NO_CAUSE, Characterization, unexplained
from rlvr_probe.analysis.ledger import FAMILIES, NAMES, Ledger

__all__ = ["summary"]


def summary(told: Characterization, ledger: Ledger | None) -> tuple[str, str]:
    """What became of the GPU time, and what to look at first: two sentences."""
    causes, kind = told.causes, told.kind
    if ledger is None or not ledger.gpu_s:
        if kind == "workload":
            return "A workload has lengths and durations, no clock: no ledger of GPU time.", ""
        return "No training step was recorded: the ledger is empty.", ""
    shares = {name: ledger.share_of_family(name) for name in FAMILIES}
    text = f"{told.unit.say('GPUs')} worked {_percent(shares['work'])} of the time and waited"
    text += f" {_percent(shares['wait'])}"
    waits = {name: ledger.share(name) for name in NAMES if name.startswith("wait.")}
    most = max(waits, key=lambda name: waits[name])
    if waits[most] >= 0.005:
        whole = waits[most] > 0.95 * shares["wait"]
        text += f", {'nearly all of it' if whole else f'most ({_percent(waits[most])})'}"
        text += f" {NAMES[most].removeprefix('wait ')}"
    rest = {
        name: shares[name] for name in ("bubble", "overhead", "discarded", "unaccounted")
        if shares[name] >= 0.05
    }  # fmt: skip
    if rest:
        also = max(rest, key=lambda name: rest[name])
        text += f"; {_percent(rest[also])} was {FAMILIES[also]}"
    text = text[:1].upper() + text[1:]
    unknown = unexplained(told)
    if causes and unknown is not None and unknown.first:
        return f"{text}.", f"{unknown.sentence}."
    faults = [cause for cause in causes if cause.kind not in NATURAL]
    if faults and faults[0].early:
        return f"{text}.", f"Only a hint, as {faults[0].no_interval}: {faults[0].title}"
    if faults:
        return f"{text}.", faults[0].title[:1].upper() + faults[0].title[1:]
    if causes:
        return f"{text}.", f"No fault found. Inherent to the workload: {causes[0].title}"
    silence = NO_CAUSE if unknown is None else f"{NO_CAUSE}; {unknown.sentence}"
    return f"{text}.", f"{silence[:1].upper()}{silence[1:]}."


def _percent(share: float) -> str:
    """A share for reading: never 0 % of something, never all of it if something is left."""
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{share:.0%}".replace("%", " %")
