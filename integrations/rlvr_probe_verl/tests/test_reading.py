"""Values of verl are read as what they are, and anything else is unknown."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

from rlvr_probe_verl.controller import facts, reward_function
from rlvr_probe_verl.reading import batch_rows

from rlvr_probe.reading import digest, option


class Estimator(str, Enum):
    GRPO = "grpo"


class DataProto(list[int]):
    """Stands for verl's batch: of it only the name and the length are looked at."""


class KVBatchMeta:
    def __init__(self, keys: list[str]) -> None:
        self.keys = keys


CONFIG: dict[str, Any] = {
    "actor_rollout_ref": {
        "actor": {"ppo_epochs": 2, "ppo_mini_batch_size": 64},
        "rollout": {
            "name": "vllm",
            "mode": "async",
            "n": 16,
            "val_kwargs": {"n": 4},
            "tensor_model_parallel_size": 2,
        },
    },
    "algorithm": {"adv_estimator": Estimator.GRPO},
    "data": {"max_prompt_length": 64, "max_response_length": 128},
    "trainer": {"nnodes": 2, "n_gpus_per_node": 8},
    "reward": {"custom_reward_function": {"path": "a/secret.py", "name": "score"}},
}


def test_facts_come_from_the_configuration() -> None:
    recorded = facts(SimpleNamespace(config=CONFIG))
    assert {name: value for name, value in recorded.items() if value is not None} == {
        "framework": "verl",
        "algorithm": "grpo",
        "rank": 0,
        "world_size": 1,
        "accelerators": 16,
        "rollout_tp": 2,
        "engine": "vllm-async",
        "group_size": 16,
        "group_size_eval": 4,
        "max_prompt_tokens": 64,
        "max_response_tokens": 128,
        "steps_per_generation": 1,
        "iterations": 2,
        "accumulation": 2,
        "prompts_per_update": 64,
        "reward_functions": ["score"],
    }


def test_a_trainer_without_a_configuration_has_no_facts_but_what_it_is() -> None:
    recorded = facts(SimpleNamespace())
    assert recorded["framework"] == "verl"
    assert recorded["group_size"] is recorded["engine"] is recorded["accelerators"] is None
    assert recorded["reward_functions"] is None
    assert recorded["iterations"] is recorded["prompts_per_update"] is None
    assert recorded["accumulation"] == recorded["steps_per_generation"] == 1


def test_the_reward_function_is_the_users_if_it_has_a_path() -> None:
    given = {"path": None, "name": "compute_score"}
    assert reward_function({"custom_reward_function": given}) == "default_compute_score"
    given["path"] = "somewhere.py"
    assert reward_function({"custom_reward_function": given}) == "compute_score"
    assert reward_function({"reward_model": {"enable": True}}) == "reward_model"


def test_an_option_that_is_not_there_is_unknown() -> None:
    assert option(CONFIG, "trainer.nnodes") == 2
    assert option(CONFIG, "trainer.gone.deeper") is None
    assert option(None, "trainer") is None


def test_the_rows_of_a_call_are_those_of_its_first_batch() -> None:
    assert batch_rows((3, DataProto([1, 2])), {}) == 2
    assert batch_rows((), {"data": KVBatchMeta(["a", "b", "c"])}) == 3
    assert batch_rows(([1, 2],), {"text": "abc"}) is None


def test_a_uid_is_recorded_as_something_else() -> None:
    assert digest("a uid") == digest("a uid") != digest("another")
    assert len(digest("a uid")) == 16
    assert "uid" not in digest("a uid")
