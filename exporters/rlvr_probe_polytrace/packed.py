"""Records of ``packed_lengths_step_N.jsonl``: one line per prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlvr_probe_polytrace.extension import Extender
from rlvr_probe_polytrace.order import PlannedBatch
from rlvr_probe_polytrace.placement import Placement
from rlvr_probe_polytrace.records import Share

__all__ = ["packed_records"]


def packed_records(
    planned: PlannedBatch,
    placement: Placement,
    labels: Mapping[int, str],
    shares: dict[int, Share],
) -> Iterator[dict[str, object]]:
    """One record per prompt in the order of PolyTrace's sort, which is the written order.

    Args:
        planned: Read lazily.
        placement: Where its groups go.
        labels: Name of each reward function by position.
        shares: Filled while the records are taken: by data-parallel rank.
    """
    extender = Extender(planned.batch, placement.tp, labels)
    for group in planned.groups():
        head = group.trajectories[0]
        responses = [int(sample.response_tokens) for sample in group.trajectories]
        dp_rank = placement.dp_rank(extender.engine(head))
        share = shares.setdefault(dp_rank, Share())
        local_index = share.prompts
        share.add(head.prompt_tokens, responses)
        yield {
            "step": planned.batch.index,
            "rank": dp_rank * placement.tp,
            "tp_rank": 0,
            "dp_rank": dp_rank,
            "local_index": local_index,
            "input": int(head.prompt_tokens),
            "output": responses,
            "n_sampling": len(responses),
            "validate": False,
            "x_rlvr": extender.of_group(group),
        }
