"""Names of what an inference engine tells of its work: requests, and what they share with turns."""

from __future__ import annotations

from rlvr_probe.model.vocabulary import Attribute, Name

__all__ = ["FINISHES", "REQUEST", "SERVED", "TELLERS"]

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
    "one sequence as an inference engine served it, from when it was given to its end; told by the"
    " process that asked, by the one that scheduled it, or by both",
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
