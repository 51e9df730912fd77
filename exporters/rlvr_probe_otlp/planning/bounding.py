"""Bounds a trace: viewers fail on those of tens of thousands of spans."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Placed", "keep_longest", "without_loops"]

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Placed(Generic[_Key]):
    """A span as far as bounding looks at it: times, ns, and the key of its parent."""

    start_ns: int
    end_ns: int
    parent: _Key | None


def without_loops(spans: Mapping[_Key, Placed[_Key]]) -> dict[_Key, _Key | None]:
    """The parent of each span, None where it is not among ``spans`` or would be its own ancestor.

    Args:
        spans: In an order that is the same for the same spans.
    """
    parents = dict[_Key, _Key | None]()
    for key, span in spans.items():
        parents[key] = span.parent if span.parent in spans else None
    sound = set[_Key]()
    for key in spans:
        path, at = list[_Key](), key
        seen = set[_Key]()
        while at not in sound:
            path.append(at)
            seen.add(at)
            above = parents[at]
            if above is None:
                break
            if above in seen:
                parents[at] = None
                break
            at = above
        sound.update(path)
    return parents


def keep_longest(
    spans: Mapping[_Key, Placed[_Key]], parents: Mapping[_Key, _Key | None], limit: int
) -> set[_Key]:
    """The keys of at most ``limit`` spans: the longest, each with everything around it.

    Args:
        spans: In an order that is the same for the same spans; it decides between equals.
        parents: From :func:`without_loops`.
        limit: How many may be kept.
    """
    if len(spans) <= limit:
        return set(spans)
    kept = set[_Key]()
    for key in sorted(spans, key=lambda span: spans[span].start_ns - spans[span].end_ns):
        chain, at = list[_Key](), key
        while at not in kept:
            chain.append(at)
            above = parents[at]
            if above is None:
                break
            at = above
        if len(kept) + len(chain) <= limit:
            kept.update(chain)
    return kept
