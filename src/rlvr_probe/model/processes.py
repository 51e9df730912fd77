"""Names of what the processes of a job are to it."""

from __future__ import annotations

from rlvr_probe.model.vocabulary import Attribute, Name

__all__ = ["LEFT", "PROCESS", "SIDECAR", "STARTED"]

SIDECAR = "sidecar"
"""Role of the process that reads the devices of a node: no part of the job."""

PROCESS = Name(
    "process",
    "what a process is to its job, told once it is known",
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
    "an actor that this process asked for: one that never tells of itself was not reached",
    (
        Attribute("actor", "", "its id"),
        Attribute("role", "", "name of its class"),
    ),
    event=True,
)
LEFT = Name(
    "left",
    "this process leaves its job, which ends all processes of it",
    (Attribute("since_s", "s", "how long before it began to: who was gone then was not ended"),),
    event=True,
)
