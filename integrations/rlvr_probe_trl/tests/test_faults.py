"""Every function of the integration fails once in a real training, which goes on as without it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_trl.tests.faulty import AT_ATTACH, CACHED, FOLDER, THIN
from rlvr_probe_trl.tests.runs import Scenario, run_command
from rlvr_probe_trl.tests.truth import read_truth

from rlvr_probe.recording import read_run
from tests.faults.enumeration import KIT, adapter_modules, functions_of
from tests.faults.injection import GARBAGE, KINDS, RAISED

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

FAULTY = Path(__file__).with_name("faulty.py")
MANY = (
    "--steps 4 --eval-every 2 --save-every 2 --subclass --async-reward --reward-model --beta 0.1 "
    "--trainings 25"
)
GROUP_SIZE = 4
RUN = Scenario(environment=("RLVR_PROBE_RUN_ID=run",))
FIRST, *_ = KINDS


def kinds(*names: str) -> pytest.MarkDecorator:
    """Runs a test for each of these kinds of faults; continuous integration has time for one."""
    return pytest.mark.parametrize(
        "kind",
        [pytest.param(name, marks=pytest.mark.full if name != FIRST else ()) for name in names],
    )


class Trainings:
    """One for each kind of fault, at most two at a time."""

    def __init__(self, folder: Path, wanted: Iterable[str]) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(2)
        self._played: dict[str, Future[dict[str, Any]]] = {
            name: self._pool.submit(self._play, name) for name in ("bare", "-", *wanted)
        }

    def said(self, kind: str) -> dict[str, Any]:
        """What a training said that is over."""
        return self._played[kind].result()

    def close(self) -> None:
        """Begin no further one."""
        self._pool.shutdown(cancel_futures=True)

    def _play(self, kind: str) -> dict[str, Any]:
        here = self.folder / kind
        here.mkdir()
        arguments = [kind, "--out", str(here / "books"), *MANY.split()]
        output = run_command([sys.executable, str(FAULTY), *arguments], here, RUN)
        assert "Traceback" not in output
        said: dict[str, Any] = json.loads((here / "books" / "said.json").read_text())
        return said | {"result": (here / "books" / "result-0.json").read_text()}


@pytest.fixture(scope="module")
def trainings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trainings]:
    own = (item for item in request.session.items if item.path == Path(__file__))
    wanted = {item.callspec.params["kind"] for item in own if isinstance(item, pytest.Function)}
    made = Trainings(tmp_path_factory.mktemp("faulty"), [kind for kind in KINDS if kind in wanted])
    yield made
    made.close()


def may_be_struck(name: str, kind: str) -> bool:
    """Whether a function is one that is struck where it is called."""
    own = name.removeprefix(f"{FOLDER}.")
    return not own.startswith((*AT_ATTACH, *THIN, *(CACHED if kind in GARBAGE else ())))


@kinds(*KINDS)
def test_the_training_is_bit_for_bit_the_one_without_a_probe(
    trainings: Trainings, kind: str
) -> None:
    assert trainings.said(kind)["result"] == trainings.said("bare")["result"]


@kinds(*KINDS)
def test_every_function_that_a_training_calls_was_struck(trainings: Trainings, kind: str) -> None:
    enumerated = functions_of(
        {name: path for name, path in adapter_modules().items() if name.startswith((FOLDER, KIT))}
    )
    called = set(trainings.said("-")["reached"])
    assert called <= enumerated.keys()
    struck = set(trainings.said(kind)["struck"])
    # What is called only where another one failed may come on top.
    assert {name for name in called if may_be_struck(name, kind)} - struck == set()
    assert len(struck) > 60


@kinds(*RAISED)
def test_every_error_is_counted_once_in_the_recording(trainings: Trainings, kind: str) -> None:
    struck = trainings.said(kind)["struck"]
    [process] = read_run(trainings.folder / kind / "recordings" / "run").processes
    assert sum(process.faults.values()) == len(struck)
    said = trainings.said(kind)["faults"]
    assert dict(process.faults) == {f"{place}: {error}": count for place, error, count in said}


@kinds(*KINDS)
def test_no_length_is_recorded_that_was_not_sampled(trainings: Trainings, kind: str) -> None:
    trainings.said(kind)
    truth = read_truth(trainings.folder / kind / "books", GROUP_SIZE)
    sampled = {
        (step, tuple(group["input"] for group in groups for _ in group["output"]),
         tuple(length for group in groups for length in group["output"]))
        for step, groups in truth.batches
    }  # fmt: skip
    trace = read_run(trainings.folder / kind / "recordings" / "run")
    recorded = {
        (step.number, tuple(shard.prompt_tokens), tuple(shard.response_tokens))
        for attempt in trace.attempts
        for step in attempt.steps
        for batch in step.batches
        for shard in batch.shards
    }
    assert recorded <= sampled
    assert len(recorded) > len(sampled) / 2
