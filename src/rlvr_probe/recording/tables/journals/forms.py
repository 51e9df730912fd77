r"""What fine rows look like, as SQL: a pattern that is all of a usual row, and what to take of it.

A row that the pattern does not fit is decoded in Python, which knows every rule of the schema. So a
pattern need not fit everything that is allowed, but nothing that is not: its numbers are whole
and at most 18 digits long, its texts hold no escapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlvr_probe.model import names
from rlvr_probe.model.schema import Column
from rlvr_probe.recording.left import Form

__all__ = ["OPEN", "OPEN_PATTERN", "STAGES", "Stage", "Taken", "taken"]

_NUMBER: Final = r"(?:0|[1-9]\d{0,17})"
_TOKENS: Final = r"(?:0|[1-9]\d{0,8})"
_SPAN: Final = r"[1-9]\d{0,11}"
_BATCH: Final = r"(?:0|[1-9]\d{0,11})"
_TEXT: Final = r'"[^"\\\x00-\x1f]*"'
_REAL: Final = r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,40})?(?:[eE][-+]?\d{1,3})?"
_SPANS: Final = rf"\[{_SPAN}(?:,{_SPAN})*\]"
_LIST: Final = rf"\[(?:{_TOKENS}(?:,{_TOKENS})*)?\]"
_HEAD: Final = (rf"-?{_NUMBER}", _NUMBER, _SPAN, _BATCH, rf"(?:null|{_TEXT})")
"""Start, duration, span, parent and error of a span."""

_STATUS: Final = '"(?:' + "|".join(names.TOOL_STATUSES) + ')"'


def _or_null(pattern: str) -> str:
    return f"(?:null|{pattern})"


_PATTERNS: Final[Mapping[str, Mapping[str, str]]] = {
    names.TRAJECTORY.name: {
        "weight_version": _or_null(_NUMBER),
        "key": _or_null(_TEXT),
        "engine": _or_null(_NUMBER),
        "policy_version_min": _or_null(_NUMBER),
        "policy_version_max": _or_null(_NUMBER),
        "prompt_tokens": _or_null(_TOKENS),
        "response_tokens": _or_null(_TOKENS),
        "loss_runs": _or_null(_LIST),
        "truncated": _or_null("[01]"),
    },
    names.TURN.name: {
        "batch": _or_null(_BATCH),
        "samples": _or_null("1"),
        "rows": _or_null(_NUMBER),
        "turn": _TOKENS,
        "prompt_tokens": _TOKENS,
        "response_tokens": _TOKENS,
        "cached_tokens": _or_null(_TOKENS),
    },
    names.TOOL_CALL.name: {
        "batch": _or_null(_BATCH),
        "row": _or_null(_NUMBER),
        "turn": _or_null(_NUMBER),
        "tool": _or_null(_TEXT),
        "status": _or_null(_STATUS),
    },
    names.VERIFY.name: {
        "batch": _or_null(_BATCH),
        "function": _or_null(_TEXT),
        "value": _or_null(_REAL),
        "not_finite": _or_null("[01]"),
        "attempts": _or_null(_NUMBER),
        "timeouts": _or_null(_NUMBER),
        "shared": _or_null(_SPANS),
    },
}
"""By name of the span: what each attribute may be; any other must be null."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where fine rows of one name go first.

    Attributes:
        columns: Name, type, and how it is made of ``$attribute``, the text of one, and
            ``#attribute``, the whole number that one is.
        sound: What must hold besides the pattern, over the columns and ``checked``.
        checked: Further expressions for that, by name.
    """

    table: str
    columns: Sequence[tuple[str, str, str]]
    sound: str = "true"
    checked: Sequence[tuple[str, str]] = ()

    @property
    def ddl(self) -> str:
        """The statement that makes it, with what every fine row has before its own columns."""
        own = "".join(f", {name} {kind}" for name, kind, _ in self.columns)
        head = "p INTEGER, span BIGINT, start_ns BIGINT, end_ns BIGINT"
        return f"CREATE TABLE {self.table} ({head}{own})"


_BATCH_COLUMN: Final = ("batch", "BIGINT", "coalesce(#batch, #parent)")
_RUNS: Final = "try_cast($loss_runs AS BIGINT[])"
_ONE_RUN: Final = (
    "CASE WHEN $loss_runs = '[]' THEN 0 ELSE try_cast(($loss_runs)[2:-2] AS BIGINT) END"
)
_GIVEN: Final = "try_cast($value AS DOUBLE)"
_SEVERAL: Final = "contains($loss_runs, ',')"

STAGES: Final[Mapping[str, Stage]] = {
    names.TRAJECTORY.name: Stage(
        "q_trajectory",
        (
            ("high", "UBIGINT", "CASE WHEN $key IS NOT NULL THEN hash($key) END"),
            ("low", "UBIGINT", "CASE WHEN $key IS NOT NULL THEN hash('#' || $key) END"),
            ("narrow", "BOOLEAN", "starts_with($key, '-')"),
            ("engine", "BIGINT", "#engine"),
            ("oldest", "BIGINT", "#policy_version_min"),
            ("newest", "BIGINT", "#policy_version_max"),
            ("prompt", "BIGINT", "#prompt_tokens"),
            ("response", "BIGINT", "#response_tokens"),
            ("truncated", "BOOLEAN", "#truncated = 1"),
            (
                "loss",
                "BIGINT",
                f"CASE WHEN {_SEVERAL} THEN list_sum(list_select({_RUNS},"
                f" range(1, len({_RUNS}) + 1, 2)))::BIGINT ELSE {_ONE_RUN} END",
            ),
        ),
        "(oldest IS NULL) = (newest IS NULL) AND coalesce(oldest <= newest, true)"
        " AND (whole IS NULL OR (response IS NOT NULL AND whole = response))",
        (("whole", f"CASE WHEN {_SEVERAL} THEN list_sum({_RUNS})::BIGINT ELSE {_ONE_RUN} END"),),
    ),
    names.TURN.name: Stage(
        "q_turn",
        (
            _BATCH_COLUMN,
            ("row", "BIGINT", "#rows"),
            ("turn", "BIGINT", "#turn"),
            ("prompt", "BIGINT", "#prompt_tokens"),
            ("response", "BIGINT", "#response_tokens"),
            ("cached", "BIGINT", "#cached_tokens"),
        ),
    ),
    names.TOOL_CALL.name: Stage(
        "q_tool",
        (
            _BATCH_COLUMN,
            ("row", "BIGINT", "#row"),
            ("turn", "BIGINT", "#turn"),
            ("tool", "VARCHAR", "$tool"),
            ("status", "VARCHAR", "$status"),
            ("error", "VARCHAR", "$error"),
        ),
    ),
    names.VERIFY.name: Stage(
        "q_verification",
        (
            _BATCH_COLUMN,
            ("function", "VARCHAR", "coalesce($function, '')"),
            (
                "value",
                "DOUBLE",
                f"CASE WHEN #not_finite = 1 THEN 'NaN'::DOUBLE ELSE {_GIVEN} END",
            ),
            ("attempts", "BIGINT", "#attempts"),
            ("timeouts", "BIGINT", "#timeouts"),
            ("shared", "BIGINT[]", "try_cast($shared AS BIGINT[])"),
        ),
        "coalesce(isfinite(given), true) AND (given IS NULL OR NOT isnan(value))"
        " AND (timeouts IS NULL OR timeouts <= coalesce(attempts, 0))",
        (("given", _GIVEN),),
    ),
}
"""By name of the span."""

_ATTRIBUTE: Final = re.compile(r"(?P<kind>[$#])(?P<name>[a-z_]+)")
_NUMBERS: Final = """from_json(line, '["BIGINT"]')"""
"""Of a row: what is no number is NULL. DuckDB reads all of them faster than a text of each."""

OPEN: Final = (
    "CREATE TABLE q_open (p INTEGER, span BIGINT, name VARCHAR, start_ns BIGINT, parent BIGINT)"
)

OPEN_PATTERN: Final = rf'\["open",({_TOKENS}),(-?{_NUMBER}),({_SPAN}),({_NUMBER})\]'
"""Of a row that says that a span is open: its definition, start, id and parent."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How rows of one form are taken.

    Attributes:
        stage: Where they go.
        prefix: What a row begins with.
        pattern: All of a usual one.
        values: Expression over ``line`` for ``s``, which holds what is taken.
        head: Expressions over ``s`` for start, duration and id.
        columns: The same by name of the column; what is only checked comes last.
    """

    stage: Stage
    prefix: str
    pattern: str
    values: str
    head: tuple[str, str, str]
    columns: Mapping[str, str]


def taken(form: Form) -> Taken:
    """How rows of ``form`` are taken."""
    stage, patterns = STAGES[form.name], _PATTERNS[form.name]
    place = {name: Column.SPAN_ATTRIBUTES + at for at, name in enumerate(form.attributes)}
    place = {name: at for name, at in place.items() if name in patterns}
    place |= {"parent": 4, "error": 5}
    texts = list[int]()

    def of(found: re.Match[str]) -> str:
        whole, name = found["kind"] == "#", found["name"]
        if name not in place:
            return "NULL::BIGINT" if whole else "NULL::VARCHAR"
        if whole:
            return _number(place[name])
        if place[name] not in texts:
            texts.append(place[name])
        return f"s.texts[{texts.index(place[name]) + 1}]"

    every = [(name, made) for name, _, made in stage.columns]
    columns = {name: _ATTRIBUTE.sub(of, made) for name, made in (*every, *stage.checked)}
    values = f"'numbers': {_NUMBERS}"
    if texts:
        paths = ", ".join(f"'$[{at}]'" for at in texts)
        values += f", 'texts': json_extract_string(line, [{paths}])"
    own = [patterns.get(name, "null") for name in form.attributes]
    return Taken(
        stage=stage,
        prefix=f"[{form.number},",
        pattern=",".join((rf"\[{form.number}", *_HEAD, *own)) + r"\]",
        values=f"{{{values}}}",
        head=(_number(1), _number(2), _number(3)),
        columns=columns,
    )


def _number(at: int) -> str:
    return f"s.numbers[{at + 1}]"
