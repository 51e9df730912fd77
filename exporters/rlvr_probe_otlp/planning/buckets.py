"""What came of a time, as NeMo-RL says it: durations are summed by ``rl.bucket``.

https://github.com/NVIDIA-NeMo/RL/blob/main/nemo_rl/telemetry/instrumentation.py. Only a stage that
holds no other stage has one, so that no time of a rank is summed twice: an evaluation has one where
nothing is known of what it is made of. Work on single trajectories overlaps itself, and has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlvr_probe.model import names
from rlvr_probe_otlp.planning.telemetry import ERROR, Attributes

__all__ = ["BUCKET", "bucket_of"]

BUCKET: Final = "rl.bucket"

_PRODUCTIVE: Final = frozenset(
    name.name for name in (names.ROLLOUT, names.REWARD, names.UPDATE_ACTOR, names.UPDATE_CRITIC)
)


def bucket_of(stage: Attributes, *, superseded: bool) -> Mapping[str, str]:
    """The attribute of a span, from its others; none where it is no stage.

    Args:
        stage: Attributes of the span, which holds no stage.
        superseded: A later attempt resumed from before its step: its weights were thrown away.
    """
    name = stage.get("rlvr.stage")
    if name is None:
        return {}
    if name == names.WAIT.name:
        return {BUCKET: "idle"}
    if superseded or ERROR in stage:
        return {BUCKET: "wasted"}
    evaluated = stage.get("rlvr.mode") == "eval"
    return {BUCKET: "productive" if name in _PRODUCTIVE and not evaluated else "overhead"}
