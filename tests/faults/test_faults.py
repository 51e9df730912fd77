"""Any function of the probe fails, sleeps or returns garbage: the user's program never sees it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.recording import read_run
from tests import today
from tests.faults.conftest import (
    DAYS,
    FUNCTIONS,
    Case,
    Matrix,
    Outcome,
    each,
    every,
    half,
    sample,
)
from tests.faults.enumeration import core_modules
from tests.faults.injection import GARBAGE, KINDS, RAISED
from tests.faults.listed import AFTER, NEVER, PASSED_ON, UNSEEN, VALUE

# What the toy's trainer generates in each step: five rows, the last one of a subclass.
LENGTHS = {step: [*((3 * step + i) % 5 for i in range(4)), 1] for step in (1, 2, 3)}

# Errors of the toy's own integration, which are in every run.
TOY = ("rlvr_probe_toyrl._broken", "rlvr_probe_toyrl._too_many")


@pytest.fixture(
    scope="session",
    params=[
        "sample",
        pytest.param("half", marks=pytest.mark.conformance),
        pytest.param(
            "every", marks=(pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(3600))
        ),
    ],
)
def played(request: pytest.FixtureRequest, matrix: Matrix) -> dict[Case, Outcome]:
    """Outcomes by function and kind of fault."""
    drawn = {"sample": sample, "half": half}
    cases = drawn[request.param](today.seed()) if request.param in drawn else every()
    matrix.play(cases)
    return {case: matrix.played[case] for case in cases}


def allowed(outcome: Outcome) -> bool:
    """Whether the user may see this one."""
    function = outcome.function.partition(" after ")[0]
    return outcome.kind != "sleep" and (
        function in PASSED_ON or (function in VALUE and outcome.kind in GARBAGE)
    )


def harm(outcome: Outcome, bare: Outcome) -> list[str]:
    """What the user noticed."""
    noticed = {
        "hangs": outcome.status is None,
        f"ends with {outcome.status}": outcome.status not in (0, None),
        "sees something else": outcome.seen != bare.seen,
        "sees a traceback": "Traceback" in outcome.stderr or "ignored in" in outcome.stderr,
    }
    return [what for what, is_so in noticed.items() if is_so]


def test_a_run_without_a_fault_is_the_run_without_the_probe(matrix: Matrix) -> None:
    bare, probed = matrix.played["-", "bare"], matrix.played["-", "-"]
    assert harm(probed, bare) == []
    assert {place for place, _, _ in probed.faults} == set(TOY)
    assert list(bare.faults) == []


def test_every_function_that_a_users_process_runs_is_enumerated_and_reached(matrix: Matrix) -> None:
    probed = matrix.played["-", "-"]
    assert set(probed.modules) == set(core_modules())
    assert set(probed.reached) == FUNCTIONS.keys() - NEVER.keys() - AFTER.keys()


def test_every_fault_strikes(played: dict[Case, Outcome]) -> None:
    silent = {case for case, outcome in played.items() if not outcome.fired}
    # What an async generator returns is decided by the language.
    yields = {
        (name, kind)
        for name, function in FUNCTIONS.items()
        for kind in GARBAGE
        if function.generator and "async" in name
    }
    assert silent - yields == set()


def test_no_fault_reaches_the_user(played: dict[Case, Outcome], matrix: Matrix) -> None:
    bare = matrix.played["-", "bare"]
    noticed = {case: harm(outcome, bare) for case, outcome in played.items()}
    assert {
        case: what for case, what in noticed.items() if what and not allowed(played[case])
    } == {}


def test_what_is_listed_as_passed_on_is_the_users_own_call(
    played: dict[Case, Outcome], matrix: Matrix
) -> None:
    bare = matrix.played["-", "bare"]
    seen = {function for (function, _), outcome in played.items() if harm(outcome, bare)}
    kinds = {kind for _, kind in played}
    listed = PASSED_ON.keys() | (VALUE.keys() if kinds & GARBAGE.keys() else set())
    assert listed <= FUNCTIONS.keys()
    assert seen == listed & {function for function, _ in played}


def test_what_is_listed_as_passed_on_holds_little_of_ours() -> None:
    # Beyond a docstring: a call or two of what is guarded, an assignment, a return.
    for module, path in core_modules().items():
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                names = [name for name in PASSED_ON if name.endswith(f".{node.name}")]
                if any(name.startswith(f"{module}:span.") for name in names):
                    assert len(node.body) <= 4


def test_every_error_is_counted_in_the_recording(
    played: dict[Case, Outcome], matrix: Matrix
) -> None:
    always = counted(matrix.played["-", "-"])
    errors = {
        case: outcome
        for case, outcome in played.items()
        if outcome.kind in RAISED and not allowed(outcome) and case[0] not in AFTER
    }
    uncounted = {case[0] for case, outcome in errors.items() if counted(outcome) <= always}
    # On a loaded machine one of them may be counted as well, by what it delayed.
    assert uncounted <= UNSEEN.keys()


def test_an_error_that_is_in_no_recording_shows_otherwise(
    played: dict[Case, Outcome], matrix: Matrix
) -> None:
    whole = journals(matrix.played["-", "-"])
    for (function, kind), outcome in played.items():
        if function in UNSEEN and kind in RAISED:
            assert journals(outcome) < whole, function


def test_no_fault_breaks_a_recording_or_invents_a_number(played: dict[Case, Outcome]) -> None:
    wrong: dict[Case, list[str]] = {}
    for case, outcome in played.items():
        for run in sorted(outcome.recordings.glob("*")):
            found = list(invented(run))
            if found:
                wrong[case] = found
    assert wrong == {}


def invented(run: Path) -> Iterator[str]:
    """What a recording says that did not happen."""
    try:
        trace = read_run(run)
    except RecordingError:
        return
    for attempt in trace.attempts:
        for step in attempt.steps:
            for batch in step.batches:
                for shard in batch.shards:
                    if list(shard.response_tokens) != LENGTHS.get(step.number):
                        yield f"step {step.number}: {list(shard.response_tokens)}"
                    if list(shard.prompt_tokens) != [3] * 5:
                        yield f"step {step.number}: {list(shard.prompt_tokens)}"


def counted(outcome: Outcome) -> set[tuple[str, str]]:
    """Places and types of faults, and reasons of lost rows, in all recordings of a case."""
    found: set[tuple[str, str]] = set()
    for path in outcome.recordings.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            row = json.loads(line)
            if isinstance(row, list) and row[0] in ("fault", "lost"):
                found.add(("lost", row[2]) if row[0] == "lost" else (row[2], row[3]))
    # Of the small files that the program asks for: not in every run.
    return {one for one in found if not one[1].endswith("efbig")}


def journals(outcome: Outcome) -> int:
    """Processes whose journal was closed in an orderly way."""
    return sum(b'["end",' in path.read_bytes() for path in outcome.recordings.rglob("*.jsonl"))


def test_the_matrix_is_whole() -> None:
    functions = FUNCTIONS.keys() - NEVER.keys()
    assert len(functions) > 200
    assert set(every()) == {(function, kind) for function in functions for kind in KINDS}
    assert [function for function, _ in each()] == sorted(functions)


def test_two_halves_are_every_function() -> None:
    assert sorted([*half(6), *half(7)]) == sorted(each(3))


def test_the_samples_of_some_days_have_every_error_of_every_function() -> None:
    errors = {(function, kind) for function, kind in every() if kind in RAISED}
    days = [sample(day) for day in range(DAYS * len(RAISED))]
    assert set().union(*days) == errors
    assert max(map(len, days)) < len(each()) / 2
