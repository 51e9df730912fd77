"""What a name that is recorded is made of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Attribute", "Name"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One recorded value: its name, its unit ('' for none) and what it means."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Name:
    """A span or an event that can be recorded.

    Attributes:
        name: The word used in journals, traces and reports.
        meaning: What it covers.
        attributes: What it may carry. A hook point fills a subset; what is unknown is absent.
        event: True for a point in time, False for a span.
        stage: True if the span is one of the stages that partition a step.
        coarse: True if its start also goes to the open-span table.
        otel: Span name in OpenTelemetry exports.
    """

    name: str
    meaning: str
    attributes: tuple[Attribute, ...] = ()
    event: bool = False
    stage: bool = False
    coarse: bool = False
    otel: str = ""
