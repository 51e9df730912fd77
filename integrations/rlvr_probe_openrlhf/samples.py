"""Sample generation: what a generator asked engines for, and what each sample became.

The engines answer prompt by prompt, in any order. An answer is read where OpenRLHF makes an
``Experience`` of it; which task it is the answer of is seen in the frame of the loop that takes
answers: nothing else there knows it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.adapter.batch_events import sources
from rlvr_probe.reading import argument, attribute
from rlvr_probe_openrlhf.reading import Lengths, lengths_of, local, reward_of, width

__all__ = ["RESPONSE", "SAMPLES", "Sample", "Samples"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample as the generator got it.

    Attributes:
        task: Id of the task that answered; None if it was not found.
        place: Its number in the answer.
        actor: Id of the engine's actor.
        lengths: What it is made of; None if that has an unknown shape.
        truncated: 1 if a cap stopped it, 0 if not; None if OpenRLHF does not say.
        reward: Its reward; None if it has none yet, or it cannot be read.
        rewarded: Whether it has one.
        source: Where its prompt is from; None if that is not asked for.
    """

    task: str | None
    place: int
    actor: str | None
    lengths: Lengths | None
    truncated: int | None
    reward: float | None
    rewarded: bool
    source: str | None = None

    @property
    def key(self) -> str | None:
        """Its name, the same in every process."""
        return None if self.task is None else f"{self.task}/{self.place}"


class Samples:
    """Samples by the ``Experience`` that each became, as long as that lives.

    Attributes:
        came: Those of the generation in work, until they are known to be dropped.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Sample]] = {}
        self._places: tuple[str | None, int] = (None, 0)
        self.came: list[Sample] = []

    def __len__(self) -> int:
        return len(self._known)

    def begin(self) -> None:
        """A generation starts: nothing came yet."""
        self.came = []

    def add(self, experience: Any, sample: Sample) -> None:
        """Remember what became of a sample."""
        number = id(experience)
        known = self._known

        def forget(gone: weakref.ref[Any]) -> None:
            remembered = known.get(number)
            if remembered is not None and remembered[0] is gone:
                del known[number]

        known[number] = (weakref.ref(experience, forget), sample)
        self.came.append(sample)

    def of(self, experience: Any) -> Sample | None:
        """The sample that became this; None if it is not known."""
        known = self._known.get(id(experience))
        return known[1] if known is not None and known[0]() is experience else None

    def take_gone(self, kept: Iterable[Any]) -> list[Sample]:
        """Those that came and are none of these: what a filter dropped, each once."""
        passed = {id(self.of(experience)) for experience in kept}
        gone = [sample for sample in self.came if id(sample) not in passed]
        self.came = [sample for sample in self.came if id(sample) in passed]
        return gone

    def place(self, task: str | None) -> int:
        """Number of the next sample of a task's answer, all of which are taken at once."""
        before = self._places[1] if self._places[0] == task else 0
        self._places = (task, before + 1)
        return before


SAMPLES = Samples()


def _source_of(call: Call, prompt: Any, name: str) -> Iterator[Any]:
    """Where a prompt is from: datasets keep that; who generates gets the prompts alone."""
    state = call.probe.state(call.args[0])
    if "sources" not in state:
        state["sources"] = {}
        for loader in ("eval_dataloader", "prompts_dataloader"):
            data = attribute(call.args[0], loader, "dataset")
            state["sources"] |= zip(
                attribute(data, "prompts") or (), attribute(data, f"{name}s") or (), strict=False
            )
    yield state["sources"].get(prompt)


def _answered(call: Call) -> None:
    """After OpenRLHF made an ``Experience`` of a sample."""
    response = argument(call, 1, "response")
    if call.error is not None or not isinstance(response, dict):
        return
    kept = width(attribute(call.result, "attention_mask"))
    lengths = lengths_of(response, kept)
    ask = attribute(local("_generate_vllm", "ref"), "task_id")
    task: Any = ask() if callable(ask) else None
    name = None if task is None else str(task.hex())
    flag = response.get("truncated")
    over = lengths is not None and lengths.cut
    cut = int(flag or over) if isinstance(flag, bool) else (1 if over else None)
    sample = Sample(
        name,
        SAMPLES.place(name),
        None if task is None else str(task.actor_id().hex()),
        lengths,
        cut,
        reward_of(response.get("reward")),
        response.get("reward") is not None,
        (sources(partial(_source_of, call, response.get("prompt"))) or [None])[0],
    )
    SAMPLES.add(call.result, sample)
    if lengths is None:
        raise LookupError("a sample of unknown length")


RESPONSE = HookPoint(
    "SamplesGenerator._process_response_into_experience",
    after=_answered,
    parameters=("response",),
)
