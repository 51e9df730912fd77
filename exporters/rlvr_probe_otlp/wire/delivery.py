"""Delivers a plan: in the order of training, once, and as far as each collector takes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

from rlvr_probe.exceptions import ProbeError
from rlvr_probe_otlp.planning.data_model import Unit
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.wire.connection import Destination
from rlvr_probe_otlp.wire.lane import Lane
from rlvr_probe_otlp.wire.offsets import Offsets
from rlvr_probe_otlp.wire.sdk_encoding import Encoder
from rlvr_probe_otlp.wire.transport import Sender, quiet

__all__ = ["complaint", "deliver", "send"]


def send(
    units: Iterable[Unit],
    destinations: Sequence[Destination],
    offsets: Offsets,
    encoder: Encoder,
    size: int,
) -> Sequence[Lane]:
    """Send what each collector does not have yet; what became of it, by collector.

    A collector that takes nothing now, in the time that the OTEL_* variables allow for one request,
    is not asked again.

    Args:
        units: What shall be there in the end.
        destinations: One collector for each signal.
        offsets: What they have; what they take is noted.
        encoder: Of the run.
        size: Most spans or points in one request.

    Raises:
        OSError: What was taken cannot be noted; it is sent again by a repetition.
    """
    with ExitStack() as stack:
        stack.enter_context(quiet())
        lanes = list[Lane]()
        for destination in destinations:
            connection = Sender(destination, encoder)
            stack.callback(connection.close)
            lanes.append(Lane(destination, connection, size, offsets))
        for unit in units:
            for lane in lanes:
                lane.take(unit, encoder)
        for lane in lanes:
            lane.flush()
    return lanes


def deliver(
    plan: Plan, destinations: Sequence[Destination], offsets: Offsets, encoder: Encoder, size: int
) -> Iterator[str]:
    """Send what each collector does not have yet of a whole plan, as :func:`send` does.

    Returns:
        Lines that say what was done.

    Raises:
        ProbeError: A collector does not have everything; what it said to that.
    """
    lanes = send(plan.units(), destinations, offsets, encoder, size)
    yield f"run {plan.context.run}: sent to"
    yield from (_line(lane) for lane in lanes)
    if plan.waiting:
        yield f"  {plan.waiting:,} steps are going on: repeat the command when they are over"
    if plan.unclear:
        yield (
            f"  {plan.unclear:,} open spans were omitted: whether their process runs is"
            " unknown here"
        )
    found = [*map(complaint, lanes), *map(_rejection, lanes)]
    if any(found):
        raise ProbeError("; ".join(filter(None, found)))


def _line(lane: Lane) -> str:
    what = "spans" if lane.destination.signal == "traces" else "points of metrics"
    units = lane.sent + lane.given_up
    line = f"  {lane.destination.shown}: {lane.items:,} {what} in {units:,} units"
    line += f", {lane.before:,} units were there already" if lane.before else ""
    noted = lane.messages and not lane.given_up and not lane.left
    return line + (f"; it says: {' | '.join(lane.messages)}" if noted else "")


def complaint(lane: Lane) -> str:
    """What of a lane is to be sent again, and why; empty if nothing is."""
    if not lane.left:
        return ""
    destination = lane.destination
    why = lane.messages[-1:] if lane.stopped is None else [lane.stopped.said]
    hint = ""
    if destination.protocol != "grpc" and ":4317" in destination.shown:
        hint = " (port 4317 usually speaks gRPC: --protocol grpc)"
    return (
        f"{destination.shown} did not take {lane.left:,} units of {destination.signal}:"
        f" {''.join(why) or 'no reason given'}{hint}; repeat the command to send the rest"
    )


def _rejection(lane: Lane) -> str:
    """What a collector refused for good; empty if nothing."""
    count = lane.rejected + lane.known
    if not count:
        return ""
    what = "spans" if lane.destination.signal == "traces" else "points"
    reasons = ", ".join(f"{code}: {number:,}" for code, number in sorted(count.items()))
    said = f"; it said: {' | '.join(lane.messages)}" if lane.messages and lane.rejected else ""
    return (
        f"{lane.destination.shown} refused {sum(count.values()):,} {what} for good"
        f" ({reasons}{said}), which keeps nothing else back; once the cause is gone, --rejected"
        " sends them again"
    )
