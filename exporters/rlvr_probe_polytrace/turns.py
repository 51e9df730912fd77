"""What the turns of a trajectory say, and whether they say all of it.

A context grows by what the model generates and by what tools, users and templates add to it. All of
it follows from the tokens sent in each turn, the tokens generated, and the mask of the trainer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rlvr_probe.model.batch import ToolCall, Trajectory

__all__ = ["Grown", "LossMask", "flaw_of", "grow", "mask_of", "overlapping"]


@dataclass(frozen=True, slots=True)
class Grown:
    """One turn of a trajectory whose turns are all known.

    Attributes:
        sent, generated: Tokens that the engine got and made.
        kept: Of those generated, how many stayed in the context.
        added: Tokens that came after them, until the next turn or the end.
        calls: Tool calls that it asked for.
    """

    sent: int
    generated: int
    kept: int
    added: int
    calls: tuple[ToolCall, ...]


def flaw_of(sample: Trajectory, *, lossy: bool) -> str | None:
    """Why the turns of ``sample`` cannot be written as the whole of it; None if they can.

    Args:
        sample: To look at.
        lossy: Whether turns and tool calls may be missing. What was added to a context without a
            tool call may then be the result of one that is.
    """
    turns = sample.turns
    if not turns:
        return "no_turns"
    if [turn.index for turn in turns] != list(range(len(turns))):
        return "missing_turns"
    if any(call.turn is None or call.turn >= len(turns) for call in sample.tool_calls):
        return "missing_turns"
    if any(not turn.prompt_tokens or turn.response_tokens is None for turn in turns):
        return "unknown_lengths"
    if any(turn.response_tokens == 0 for turn in turns):
        return "empty_response"
    sent = [turn.prompt_tokens or 0 for turn in turns]
    if sent[0] != sample.prompt_tokens:
        return "other_prompt"
    if any(left > right for left, right in pairwise(sent)):
        return "shrinking_context"
    grown = grow(sample)
    # Tokens in the loss are the model's own: more of them than the turns made are of other turns.
    trained = _runs(sample)
    if trained is not None:
        missing = sum(trained[::2]) > sum(turn.generated for turn in grown)
    else:
        missing = bool(grown[-1].added) and not grown[-1].calls
    if missing or (lossy and any(turn.added and not turn.calls for turn in grown)):
        return "missing_turns"
    return None


def grow(sample: Trajectory) -> list[Grown]:
    """The turns of ``sample``, which has no flaw."""
    calls: dict[int, list[ToolCall]] = {}
    for call in sample.tool_calls:
        calls.setdefault(-1 if call.turn is None else call.turn, []).append(call)
    end = sample.prompt_tokens + sample.response_tokens
    following = [*(turn.prompt_tokens or 0 for turn in sample.turns[1:]), end]
    grown = []
    for index, (turn, after) in enumerate(zip(sample.turns, following, strict=True)):
        sent, generated = turn.prompt_tokens or 0, turn.response_tokens or 0
        # A response may be cut to its cap before the last turn started.
        room = max(0, after - sent)
        kept = min(generated, room)
        grown.append(Grown(sent, generated, kept, room - kept, tuple(calls.get(index, ()))))
    return grown


class LossMask:
    """Which tokens of a trajectory are in the loss, asked many times."""

    def __init__(self, sample: Trajectory) -> None:
        """Add up its runs."""
        runs = _runs(sample)
        self._known = runs is not None
        # Where each run starts in the context, and how many tokens before that are in the loss.
        self._starts, self._before = [sample.prompt_tokens], [0]
        for number, run in enumerate(runs or ()):
            self._starts.append(self._starts[-1] + run)
            self._before.append(self._before[-1] + (0 if number % 2 else run))

    def between(self, start: int, end: int) -> int | None:
        """Tokens in the loss among those of the context from ``start`` to before ``end``.

        None where the mask of the trainer is unknown.
        """
        return max(0, self._until(end) - self._until(start)) if self._known else None

    def _until(self, end: int) -> int:
        run = bisect_right(self._starts, end) - 1
        if run < 0:
            return 0
        inside = not run % 2 and run + 1 < len(self._starts)
        return self._before[run] + (end - self._starts[run] if inside else 0)


def mask_of(sample: Trajectory, grown: Sequence[Grown]) -> list[tuple[int, int]]:
    """The loss mask of the response: runs of 0 or 1, and their tokens.

    Where that of the trainer is unknown: what the model generated.
    """
    runs = _runs(sample)
    if runs is not None:
        return _merged((1 - number % 2, run) for number, run in enumerate(runs))
    generated = list[tuple[int, int]]()
    left = sample.response_tokens
    for turn in grown:
        for value, tokens in ((1, turn.kept), (0, turn.added)):
            generated.append((value, min(tokens, left)))
            left -= min(tokens, left)
    return _merged(generated)


def _runs(sample: Trajectory) -> tuple[int, ...] | None:
    runs = sample.loss_runs
    return runs if runs is not None and sum(runs) == sample.response_tokens else None


def _merged(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """``runs`` without empty ones; neighbours of one value are one run."""
    filled = (run for run in runs if run[1])
    return [
        (value, sum(tokens for _, tokens in members))
        for value, members in groupby(filled, key=lambda run: run[0])
    ]


def overlapping(calls: Sequence[ToolCall]) -> bool:
    """Whether two of ``calls`` ran at the same time."""
    ordered = sorted(calls, key=lambda call: call.start_ns)
    return any(left.end_ns > right.start_ns for left, right in pairwise(ordered))
