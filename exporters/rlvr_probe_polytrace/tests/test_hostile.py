"""Input that nobody vouches for: a problem with its place, never a traceback, never a hang."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from rlvr_probe_polytrace import PolyTraceExporter, files
from rlvr_probe_polytrace.tests.agents import agents
from rlvr_probe_polytrace.tests.foreign import make_up
from rlvr_probe_polytrace.tests.test_filtering import filtered
from rlvr_probe_polytrace.tests.workloads import simple, write

from rlvr_probe.exceptions import ValidationError
from rlvr_probe.exporter import Problem

STEP = "packed_lengths_step_0.jsonl"
RECORD = (
    '{"step":0,"rank":0,"tp_rank":0,"dp_rank":0,"local_index":0,"input":%s,"output":[%s],'
    '"n_sampling":1,"validate":false}\n'
)


LAUNCH = {"config": "suite.yaml", "groups": 2, "prompts_per_batch": 4, "formal_log": None}


def validate(directory: Path) -> list[Problem]:
    found = list(PolyTraceExporter().validate(directory))
    for problem in found:
        assert str(problem).isascii()
        assert len(str(problem)) < 600
    return found


def judge(tmp_path: Path, data: bytes) -> list[Problem]:
    (tmp_path / STEP).write_bytes(data)
    return [problem for problem in validate(tmp_path) if not problem.warning]


def test_the_record_below_is_sound_as_it_stands(tmp_path: Path) -> None:
    assert judge(tmp_path, (RECORD % (5, 7)).encode()) == []


@pytest.mark.parametrize(
    ("input_value", "output_value", "field"),
    [
        ("1" + "0" * 400, "7", "input"),
        ("5", "1" + "0" * 400, "output[0]"),
        ("5", "1e400", None),
        ("NaN", "7", None),
        ("5", "Infinity", None),
        ("-Infinity", "7", None),
        ("true", "7", "input"),
        ("5", "true", "output[0]"),
        ("5.0", "7", "input"),
        ("-1", "7", "input"),
        ("null", "7", "input"),
        ('"5"', "7", "input"),
        ("5", "", "output"),
        ("5", "[7]", "output[0]"),
        ("2147483648", "7", "input"),
        ("1" + "0" * 5000, "7", None),
        ('5,"input":5', "7", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(
    input_value: str, output_value: str, field: str | None, tmp_path: Path
) -> None:
    problems = judge(tmp_path, (RECORD % (input_value, output_value)).encode())
    assert problems[0].line == 1
    assert field is None or field in {problem.field for problem in problems}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n  \n",
        b"\x00" * 100,
        b"\xff\xfe\x00\n",
        b"\xef\xbb\xbf{}\n",
        b"{" * 200_000 + b"\n",
        b"[" * 200_000 + b"]" * 200_000 + b"\n",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
        b"[]\n",
        b"3\n",
        b"null\n",
        b'"text"\n',
        b'{"step":0}\r{"step":0}\n',
        b'{"\\ud800":1}\n',
        b'{"step":"\\ud800\\u0000\\u001b[31m"}\n',
        (RECORD % (5, 7)).encode()[:-20],
        b"9" * 100_000 + b"\n",
        b"{" + b",".join(b'"k%d":1' % n for n in range(200_000)) + b',"k199999":1}\n',
    ],
    ids=range(18),
)
def test_a_file_of_no_records_is_refused(data: bytes, tmp_path: Path) -> None:
    assert judge(tmp_path, data)


def test_a_line_without_end_is_read_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LINE_B", 1000)
    (problem,) = judge(tmp_path, (RECORD % (5, 7)).encode() + b" " * 5000)
    assert "more than 1000 bytes" in problem.found
    assert problem.line == 2


def test_a_missing_line_end_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / STEP).write_text((RECORD % (5, 7)).rstrip("\n"))
    (problem,) = validate(tmp_path)
    assert problem.warning
    assert problem.line == 1


def _directory(path: Path) -> None:
    path.mkdir()


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "name",
    [
        STEP,
        "dapo_filter_indices.jsonl",
        "manifest.json",
        "suite.yaml",
        "reward_timings_step_1.jsonl",
    ],
)
@pytest.mark.parametrize("make", [_directory, os.mkfifo, _dangling, _loop, _device])
def test_what_is_no_regular_file_is_refused(
    make: Callable[[Path], None], name: str, tmp_path: Path
) -> None:
    make_up("rllm", tmp_path / "w")
    path = tmp_path / "w" / name
    path.unlink(missing_ok=True)
    make(path)
    assert name in {problem.file for problem in validate(tmp_path / "w") if not problem.warning}


@pytest.mark.parametrize(
    "name",
    [
        "packed_lengths_step_.x.jsonl",
        "packed_lengths_step_01.jsonl",
        "packed_lengths_step_-1.jsonl",
        "packed_lengths_step_1e3.jsonl",
        "packed_lengths_step_٣.jsonl",
        "packed_lengths_step_" + "9" * 100 + ".jsonl",
        "packed_lengths_step_0\n.jsonl",
        "packed_lengths_step_\x1b[31m.jsonl",
        "multiturn_workload_step_" + "9" * 100 + "_rank_1.jsonl",
    ],
)
def test_a_step_that_is_no_number_is_refused(name: str, tmp_path: Path) -> None:
    make_up("rllm", tmp_path / "w")
    (tmp_path / "w" / name).write_text(RECORD % (5, 7))
    assert [problem for problem in validate(tmp_path / "w") if not problem.warning]


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, Path.touch])
def test_what_is_no_workload_at_all_is_an_error(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "w")
    with pytest.raises(ValidationError, match="expected"):
        validate(tmp_path / "w")


def test_many_problems_are_counted_but_not_all_listed(tmp_path: Path) -> None:
    problems = judge(tmp_path, b"{oops\n" * 5000)
    assert len(problems) == 6
    assert problems[-1].found == "4995 more like this"


def test_problems_come_in_file_and_line_order(tmp_path: Path) -> None:
    directory = make_up("rllm", tmp_path / "w")
    for step in (0, 2, 4):
        path = directory / f"packed_lengths_step_{step}.jsonl"
        text = path.read_text().splitlines()
        text[7] = text[2] = "{"
        path.write_text("\n".join(text) + "\n")
    places = [(problem.file, problem.line) for problem in validate(directory) if problem.line]
    assert places == sorted(places, key=lambda place: (place[0], place[1] or 0))


def edit_manifest(directory: Path, **changes: object) -> list[str]:
    path = directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return [f"{problem.file} {problem.field}" for problem in validate(directory)]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"format": "other"}, "manifest.json format"),
        ({"schema_version": 2}, "manifest.json schema_version"),
        ({"n": 5}, "manifest.json n"),
        ({"n": "4"}, "manifest.json n"),
        ({"steps": {}}, "packed_lengths_step_0.jsonl None"),
        ({"steps": {"0": 1, "1": []}}, "manifest.json steps.0"),
        ({"steps": {"1": {}, "0": {}}}, "manifest.json steps"),
        ({"totals": {}}, "manifest.json totals.groups"),
        ({"caps": {"response_tokens": 10}}, "packed_lengths_step_0.jsonl output"),
        ({"caps": []}, "manifest.json caps"),
        ({"files": {}}, "packed_lengths_step_0.jsonl None"),
        ({"files": {"../../etc/passwd": {}}}, "manifest.json files"),
        ({"files": {"suite.yaml": 3}}, "manifest.json files.suite.yaml"),
        ({"replay": {"launches": [LAUNCH | {"groups": 1}]}},
         "manifest.json replay.launches[0].groups"),
        ({"replay": {"launches": [LAUNCH | {"prompts_per_batch": 3}]}},
         "manifest.json replay.launches[0].prompts_per_batch"),
        ({"replay": {"launches": [LAUNCH | {"config": "other.yaml"}]}},
         "manifest.json replay.launches[0].config"),
        ({"replay": {"launches": [LAUNCH | {"config": ["suite.yaml"]}]}},
         "manifest.json replay.launches[0].config"),
        ({"replay": {"launches": [LAUNCH | {"formal_log": "../../etc/hosts"}]}},
         "manifest.json replay.launches[0].formal_log"),
        ({"replay": {"launches": []}}, "manifest.json replay.launches"),
        ({"replay": {"launches": [3]}}, "manifest.json replay.launches[0]"),
        ({"flavor": "vanilla"}, "manifest.json flavor"),
    ],
)  # fmt: skip
def test_a_manifest_that_lies_is_refused(
    changes: dict[str, object], place: str, tmp_path: Path
) -> None:
    directory = write(simple(), tmp_path / "w")
    assert place in edit_manifest(directory, **changes)


@pytest.mark.parametrize(
    "name",
    ["packed_lengths_step_1.jsonl", "reward_timings_step_0.jsonl", "suite.yaml", "formal.log"],
)
def test_a_file_that_changed_after_it_was_written_is_refused(name: str, tmp_path: Path) -> None:
    directory = write(simple(), tmp_path / "w")
    path = directory / name
    path.write_bytes(path.read_bytes() + b"\n")
    assert name in {problem.file for problem in validate(directory)}
    path.unlink()
    assert name in {problem.file for problem in validate(directory)}


def test_a_step_file_that_the_manifest_does_not_know_is_refused(tmp_path: Path) -> None:
    directory = write(simple(batches=2), tmp_path / "w")
    extra = (
        (directory / "packed_lengths_step_1.jsonl").read_text().replace('"step": 1', '"step": 2')
    )
    (directory / "packed_lengths_step_2.jsonl").write_text(extra)
    assert "packed_lengths_step_2.jsonl" in {problem.file for problem in validate(directory)}


@pytest.mark.parametrize(
    "text",
    ["step:1 - timing_s/gen:nan", "step:1 - timing_s/gen:1.0 - timing_s/step:inf", "", "nothing"],
)
def test_a_formal_log_that_does_not_parse_is_refused(text: str, tmp_path: Path) -> None:
    directory = write(simple(), tmp_path / "w")
    lines = (directory / "formal.log").read_text().splitlines()
    (directory / "formal.log").write_text("\n".join([lines[0], text]) + "\n")
    assert ("formal.log", 2) in {(problem.file, problem.line) for problem in validate(directory)}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"step_groups": "0;7"}, "step_groups"),
        ({"step_groups": "0,1"}, "step_groups"),
        ({"step_groups": "0;;1"}, "step_groups"),
        ({"step_groups": [0]}, "step_groups"),
        ({"name": ""}, "name"),
        ({"env": []}, "env"),
        ({"env": {}}, "env.WORKLOAD_BENCHMARK_LIVE_TOOL"),
    ],
)
def test_a_suite_config_that_cannot_run_is_refused(
    changes: dict[str, object], field: str, tmp_path: Path
) -> None:
    directory = write(simple(), tmp_path / "w")
    path = directory / "suite.yaml"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert ("suite.yaml", field) in {(one.file, one.field) for one in validate(directory)}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (3, "x_rlvr"),
        ({"v": 2}, "x_rlvr.v"),
        ({}, "x_rlvr.v"),
        ({"v": True}, "x_rlvr.v"),
        ({"v": 1, "reward": [1.0]}, "x_rlvr.reward"),
        ({"v": 1, "rewards": {"a\u00e9\x1b": [1.0]}}, r"x_rlvr.rewards.a\xe9\x1b"),
    ],
)
def test_an_extension_that_does_not_fit_is_refused(
    value: object, field: str, tmp_path: Path
) -> None:
    record = json.loads(RECORD % (5, "7,8")) | {"n_sampling": 2, "x_rlvr": value}
    problems = judge(tmp_path, json.dumps(record).encode() + b"\n")
    assert [problem.field for problem in problems] == [field]


def test_unknown_keys_and_files_are_ignored(tmp_path: Path) -> None:
    record = json.loads(RECORD % (5, 7)) | {"x_other": [1, 2, 3]}
    (tmp_path / "notes.txt").write_text("anything")
    (tmp_path / "folder").mkdir()
    assert judge(tmp_path, json.dumps(record).encode() + b"\n") == []


JUNK: list[object] = [
    None, True, -1, 0, 2**31, 10**400, 1.5, "", "0", "\u00e9\ud800", [], [[]], [0], {}, {"": []}
]  # fmt: skip


def mutate(value: object, draw: random.Random) -> object:
    """``value`` with one node replaced, removed, doubled or renamed."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        change = draw.random()
        if change < 0.15:
            return {name: item for name, item in value.items() if name != key}
        if change < 0.2:
            return {draw.choice(["", "0", "x" * 300]): item for item in value.values()}
        return {**value, key: mutate(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        place = draw.randrange(len(value))
        if draw.random() < 0.2:
            return value[:place] + value[place + 1 :]
        return [*value[:place], mutate(value[place], draw), *value[place + 1 :]]
    return draw.choice(JUNK)


@pytest.mark.parametrize("count", [50, pytest.param(1_000, marks=pytest.mark.conformance)])
@pytest.mark.parametrize("kind", ["verl", "rllm", "search_r1", "ours", "our turns", "our filter"])
def test_no_mutation_ends_in_a_traceback(kind: str, count: int, tmp_path: Path) -> None:
    draw = random.Random(kind)
    original = tmp_path / "original"
    if kind == "ours":
        write(simple(rows=(8, 8), n=4), original)
    elif kind == "our turns":
        write(agents(groups=2, n=2)[0], original)
    elif kind == "our filter":
        write(filtered((1, [1, 2], [1]), (2, [0], [0]), groups=2), original)
    else:
        make_up(kind, original)
        for path in original.iterdir():
            path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:6]))
    names = sorted(path.name for path in original.iterdir())
    whole = {name: (original / name).read_bytes() for name in names}
    for _ in range(count):
        name = draw.choice(names)
        data = whole[name]
        if name.endswith((".json", ".yaml")) and draw.random() < 0.8:
            data = json.dumps(mutate(json.loads(data), draw)).encode()
        elif name.endswith(".jsonl") and draw.random() < 0.8:
            rows = data.splitlines()
            place = draw.randrange(len(rows))
            rows[place] = json.dumps(mutate(json.loads(rows[place]), draw)).encode()
            data = b"\n".join(rows) + b"\n"
        else:
            place = draw.randrange(len(data))
            data = data[:place] + draw.randbytes(draw.randint(0, 3)) + data[place + 1 :]
        (original / name).write_bytes(data)
        validate(original)
        (original / name).write_bytes(whole[name])
