"""What is read of trajectories, tools, engines and the queue, without verl."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_verl import loops
from rlvr_probe_verl.conversation import Conversation, was_cut
from rlvr_probe_verl.queue import groups_of
from rlvr_probe_verl.requests import replica_of
from rlvr_probe_verl.tools import Use, status_of

from rlvr_probe.reading import digest, scalar

EOS = frozenset({2})


@pytest.mark.parametrize(
    ("tokens", "cap", "stop", "cut"),
    [
        ([5, 5, 2], 4, None, 0),
        ([5, 5, 5], 4, "completed", 0),
        ([5, 5, 5, 5], 4, "completed", 1),
        ([5, 5, 5, 2], 4, "completed", 0),
        ([5, 5], 4, "length", 1),
        ([5, 5], 4, "aborted", None),
        ([5, 5], None, "completed", None),
        ([], 4, None, 0),
    ],
)
def test_a_response_is_cut_where_the_cap_and_no_eos_ends_it(
    tokens: list[int], cap: int | None, stop: str | None, cut: int | None
) -> None:
    assert was_cut(tokens, cap, EOS, stop) == cut


@pytest.mark.parametrize(
    ("name", "replica"),
    [
        ("vllm_server_3_0", 3),
        ("sglang_server_0_0", 0),
        ("trtllm_server_12", 12),
        ("async_llm_server_1", 1),
        ("vllm_server_1_1", None),  # its second node
        ("vllm_server_decode_0_1", None),
        ("vllm_server_reward_0_0", None),
        ("vllm_server_teacher_0_0", None),
        ("agent_loop_worker_0", None),
    ],
)
def test_a_server_of_the_policy_is_known_by_its_name(name: str, replica: int | None) -> None:
    assert replica_of(name) == replica


def use(**seen: Any) -> Use:
    given = {"tool": "search", "watched": True, "reached": True, **seen}
    return Use(Conversation(1, "key"), 2, 0, **given)


@pytest.mark.parametrize(
    ("seen", "error", "status"),
    [
        (use(), None, "ok"),
        (use(failed=True), None, "error"),
        (use(), "ValueError", "error"),
        (use(), "CancelledError", "cancelled"),
        (use(tool=None, watched=False, reached=False), None, "not_found"),
        (use(reached=False), None, "bad_call"),
        (use(reached=False, failed=True), None, "error"),
        (use(watched=False, reached=False), None, None),
    ],
)
def test_the_status_of_a_tool_is_what_was_seen_of_it(
    seen: Use, error: str | None, status: str | None
) -> None:
    assert status_of(seen, error) == status


def test_weights_are_told_only_if_every_turn_tells_them() -> None:
    conversation = Conversation(1, "key", turns=2, versions=[(3, 3), (4, 5)])
    assert conversation.version() == (3, 5)
    conversation.versions[0] = None
    assert conversation.version() == (None, None)


def test_an_output_is_numbered_where_a_session_may_have_several() -> None:
    assert Conversation(1, "uid_2", numbered=True).name(1) == "uid_2_1"
    assert Conversation(1, "uid/0/1/2").name() == "uid/0/1/2"
    assert Conversation(1, None, numbered=True).name(1) is None


def test_rewards_are_numbers() -> None:
    class Scalar:
        def __float__(self) -> float:
            return 0.25

    values = [1, 0.5, Scalar(), None, True, float("nan"), float("inf"), "1.0"]
    given = [scalar(value) for value in values]
    assert str(given) == "[1.0, 0.5, 0.25, None, None, nan, inf, None]"


def test_a_reward_on_an_accelerator_is_not_read_and_several_are_none() -> None:
    class OnDevice:
        device = SimpleNamespace(type="cuda")

        def __float__(self) -> float:
            raise AssertionError("this waits for the accelerator")

    class Several:
        def __float__(self) -> float:
            raise TypeError("only arrays of one element can be converted")

    assert scalar(OnDevice()) is scalar(Several()) is scalar(10**400) is None


def tag(prompt: int, response: int) -> dict[str, int]:
    return {"prompt_len": prompt, "response_len": response}


def test_rows_of_the_queue_are_grouped_by_prompt_and_ordered_by_session_and_output() -> None:
    keys = ["b_1_0", "a_0_0", "b_0_1", "b_0_0", "c_10_0", "c_9_0"]
    tags = [tag(5, 1), tag(6, 2), tag(5, 3), tag(5, 4), tag(7, 5), tag(7, 6)]
    groups = groups_of(keys, tags, {"b", "c"})
    assert [group.prompt for group in groups] == [digest("b"), digest("c")]
    assert [[row[0] for row in group.rows] for group in groups] == [
        [(0, 0), (0, 1), (1, 0)],
        [(9, 0), (10, 0)],
    ]
    assert [row[1:] for row in groups[0].rows] == [(5, 4), (5, 3), (5, 1)]


@pytest.mark.parametrize(
    ("key", "known"),
    [("a_0_0", {"prompt_len": 3}), ("a_0_0", None), ("a_x_0", tag(1, 1)), ("a", tag(1, 1))],
)
def test_a_row_of_the_queue_without_a_name_or_lengths_is_an_error(key: str, known: Any) -> None:
    with pytest.raises(LookupError):
        groups_of([key], [known])


def made_chunk(infos: list[dict[str, Any]]) -> None:
    call = SimpleNamespace(state=None, result=infos)
    loops._chunk_begin(call)  # type: ignore[arg-type]
    loops._chunk_known(call)  # type: ignore[arg-type]


def test_rows_are_named_by_the_object_that_verl_made_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "worker_number", lambda: 7)
    names: dict[int, str | None] = {}

    async def trajectory(row: int, infos: list[dict[str, Any]]) -> None:
        chunk = loops._CHUNK.get()
        await asyncio.sleep(0)
        assert chunk is not None
        assert chunk is loops._CHUNK.get()
        names[row] = loops.row_name("uid", chunk.rows.get(id(infos[row])))

    async def generate(first: int) -> None:
        infos = [{"sample_index": 0, "rollout_n": 0} for _ in range(3)]
        made_chunk(infos)
        number = loops._CHUNK.get()
        assert number is not None
        # The second row is not recorded: the third keeps its name.
        await asyncio.gather(*(trajectory(row, infos) for row in (2, 0)))
        assert names == {row: f"{digest('uid')}/{number.number}/7/{row}" for row in (0, 2)}
        # Rows of other lists are unknown, and so are places that two rows share.
        assert chunk_of({"sample_index": 0, "rollout_n": 0}) is None

    def chunk_of(info: dict[str, Any]) -> int | None:
        chunk = loops._CHUNK.get()
        assert chunk is not None
        place = (info["sample_index"], info["rollout_n"])
        return chunk.rows.get(id(info), chunk.places.get(place))

    asyncio.run(generate(0))


def test_without_a_chunk_or_the_name_of_the_actor_there_is_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def generate() -> None:
        loops._CHUNK.set(None)
        monkeypatch.setattr(loops, "worker_number", lambda: 7)
        assert loops.row_name("uid", 0) is None
        made_chunk([{}])
        assert loops.row_name("uid", None) is None
        assert loops.row_name("uid", 0) is not None
        monkeypatch.setattr(loops, "worker_number", lambda: None)
        assert loops.row_name("uid", 0) is None

    asyncio.run(generate())
