"""Frameworks whose processes are actors of Ray: who is who, and facts of a run of theirs.

Ray is never imported: asked is what the framework has loaded.
"""

from __future__ import annotations

import sys
from typing import Any

from rlvr_probe.reading import attribute, foreign_ids

__all__ = ["actor_id", "class_of", "context", "facts"]


def context() -> Any:
    """Ray's runtime context of this process; None where there is none."""
    ray = sys.modules.get("ray")
    return None if ray is None or not ray.is_initialized() else ray.get_runtime_context()


def actor_id(handle: Any) -> str | None:
    """Id of the actor behind a handle."""
    to_hex = getattr(attribute(handle, "_actor_id"), "hex", None)
    return str(to_hex()) if callable(to_hex) else None


def class_of(actor: Any) -> Any:
    """The class that Ray makes actors of; None for what belongs to no actor."""
    return attribute(actor, "__ray_metadata__", "modified_class")


def facts(
    nodes: int | None, per_node: int | None, epochs: int | None, prompts: int | None
) -> dict[str, Any]:
    """Attributes of ``names.SESSION`` of a run with one controller.

    A step goes over its batch in mini-batches, and updates the model after each.

    Args:
        nodes: Machines.
        per_node: Accelerators of each.
        epochs: How often a step goes over its batch.
        prompts: Prompts of a mini-batch.
    """
    updates = bool(epochs and prompts)
    return {
        "rank": 0,
        "world_size": 1,
        "accelerators": nodes * per_node if nodes and per_node else None,
        "steps_per_generation": 1,
        "iterations": epochs if updates else None,
        "accumulation": epochs if updates else 1,
        "prompts_per_update": prompts if updates else None,
        "ids": foreign_ids(sys.modules),
    }
