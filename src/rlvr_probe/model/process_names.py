"""Names of what processes and inference engines record, and what a recorded name is made of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "FINISHES", "LEFT", "PROCESS", "REQUEST", "SERVED", "SIDECAR", "STARTED", "TELLERS",
    "Attribute", "Name", "attributes",
]  # fmt: skip


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


_UNITS = {"b": "By", "hz": "Hz", "s": "s", "tokens": "tokens"}


def attributes(**meanings: str) -> tuple[Attribute, ...]:
    """Attributes: what each name means. The last word of a name is its unit, if it is one."""
    return tuple(
        Attribute(name, _UNITS.get(name.rpartition("_")[2], ""), meaning)
        for name, meaning in meanings.items()
    )


SIDECAR = "sidecar"
"""Role of the process that reads the devices of a node: no part of the job."""

PROCESS = Name(
    "process",
    "what a process is to its job, recorded once it is known",
    attributes(
        role="name of the class of the actor, 'driver', or what else it is",
        actor="id of the actor",
        node="id of the node in its cluster",
        accelerators="list: kind and number of each that its cluster gave it on the node",
        model_type="architecture family of the model that it trains, where another process leads"
        " the training: 'qwen2'",
        spool_s="of a sidecar: how often it copies what its node wrote to DIR",
    ),
    event=True,
)
STARTED = Name(
    "started",
    "an actor that this process asked for: one that never records anything was not reached",
    attributes(
        actor="its id",
        role="name of its class",
    ),
    event=True,
)
LEFT = Name(
    "left",
    "this process leaves its job, which ends all processes of it",
    (Attribute("since_s", "s", "since it started to: a process gone before that was not ended"),),
    event=True,
)


FINISHES = ("stop", "length", "abort", "error", "repetition")
"""Values of the attribute ``finish``: EOS or a stop string; a cap; given up, by the caller or for
new weights; the engine failed; the engine saw it repeat itself."""

TELLERS = ("client", "scheduler")
"""Values of the attribute ``told_by``."""

SERVED = attributes(
    queue_s="from when the engine had it until it was first scheduled",
    prefill_s="from then to its first token",
    decode_s="from its first token to its end",
    preemptions="how often it lost its place in the engine's cache",
    finish="one of " + ", ".join(f"'{finish}'" for finish in FINISHES),
)
"""What a request and a turn that is one request have in common."""

REQUEST = Name(
    "request",
    "one sequence as an inference engine served it, from when it was given to its end; recorded by"
    " the process that asked, by the one that scheduled it, or by both",
    (
        *attributes(
            told_by="'client' or 'scheduler'",
            key="digest of the engine's own id of it: the same on both sides",
            request="digest of the id that its caller gave: joins it with its turn",
            prompt_tokens="of its prompt",
            response_tokens="that it generated",
            cached_tokens="of its prompt, found in the cache",
        ),
        *SERVED,
    ),
    otel="llm_request",
)
