"""Names of what processes and inference engines record, and what a recorded name is made of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "FINISHES", "LEFT", "PROCESS", "REQUEST", "SERVED", "SIDECAR", "STARTED", "TELLERS",
    "Attribute", "Name",
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


SIDECAR = "sidecar"
"""Role of the process that reads the devices of a node: no part of the job."""

PROCESS = Name(
    "process",
    "what a process is to its job, recorded once it is known",
    (
        Attribute("role", "", "name of the class of the actor, 'driver', or what else it is"),
        Attribute("actor", "", "id of the actor"),
        Attribute("node", "", "id of the node in its cluster"),
        Attribute(
            "accelerators", "", "list: kind and number of each that its cluster gave it on the node"
        ),
        Attribute(
            "model_type",
            "",
            "architecture family of the model that it trains, where another process leads the"
            " training: 'qwen2'",
        ),
        Attribute(
            "spool_s",
            "s",
            "of a sidecar: how often it copies what its node wrote to DIR",
        ),
    ),
    event=True,
)
STARTED = Name(
    "started",
    "an actor that this process asked for: one that never records anything was not reached",
    (
        Attribute("actor", "", "its id"),
        Attribute("role", "", "name of its class"),
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

SERVED = (
    Attribute("queue_s", "s", "from when the engine had it until it was first scheduled"),
    Attribute("prefill_s", "s", "from then to its first token"),
    Attribute("decode_s", "s", "from its first token to its end"),
    Attribute("preemptions", "", "how often it lost its place in the engine's cache"),
    Attribute("finish", "", "one of " + ", ".join(f"'{finish}'" for finish in FINISHES)),
)
"""What a request and a turn that is one request have in common."""

REQUEST = Name(
    "request",
    "one sequence as an inference engine served it, from when it was given to its end; recorded by"
    " the process that asked, by the one that scheduled it, or by both",
    (
        Attribute("told_by", "", "'client' or 'scheduler'"),
        Attribute("key", "", "digest of the engine's own id of it: the same on both sides"),
        Attribute("request", "", "digest of the id that its caller gave: joins it with its turn"),
        Attribute("prompt_tokens", "tokens", "of its prompt"),
        Attribute("response_tokens", "tokens", "that it generated"),
        Attribute("cached_tokens", "tokens", "of its prompt, found in the cache"),
        *SERVED,
    ),
    otel="llm_request",
)
