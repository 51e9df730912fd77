"""What the adapter reads out of TRL's values; fast, without a framework."""

from __future__ import annotations

import math
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_trl.reading import (
    end_id,
    is_module,
    lengths,
    reward_values,
    row_sums,
    stop_ids,
    truncated,
)
from rlvr_probe_trl.stages import is_reference
from rlvr_probe_trl.trainer import Batch, Training, algorithm, facts, installed, reward_names

from rlvr_probe import releases
from rlvr_probe.adapter.controller import Sessions


class OnDevice:
    """Like a tensor on an accelerator: reading its values would wait for the device."""

    device = SimpleNamespace(type="cuda")

    def tolist(self) -> list[float]:
        raise AssertionError("an accelerator was read")

    __float__ = __iter__ = tolist


class OnHost:
    device = SimpleNamespace(type="cpu")

    def tolist(self) -> list[float]:
        return [0.5, 1.0]


def test_lengths_are_counts_of_tokens() -> None:
    assert lengths([[1, 2, 3], [], (4,)]) == [3, 0, 1]
    assert lengths([]) == []


@pytest.mark.parametrize("shape", [None, 7, "text", [1, 2], {"a": 1}])
def test_lengths_of_an_unexpected_shape_are_unknown(shape: object) -> None:
    assert lengths(shape) is None


def test_a_completion_is_truncated_unless_it_ends_on_a_stop_token() -> None:
    assert truncated([[5, 1], [5, 6], [5, 0], []], {0, 1}) == [0, 1, 0, 1]


def test_truncation_is_unknown_without_stop_tokens_or_for_tensors() -> None:
    assert truncated([[5, 1]], frozenset()) is None
    assert truncated([OnDevice()], {1}) is None
    assert truncated(None, {1}) is None


def test_stop_tokens_are_those_of_the_trainer_and_the_pad_token() -> None:
    tokenizer = SimpleNamespace(eos_token_id=1, pad_token_id=0)
    assert stop_ids(SimpleNamespace(eos_token_ids=[1, 7], _tokenizer=tokenizer)) == {0, 1, 7}
    assert stop_ids(SimpleNamespace(processing_class=tokenizer)) == {0, 1}
    assert stop_ids(SimpleNamespace()) == frozenset()


def test_the_end_of_older_releases_is_one_token_and_not_padding() -> None:
    tokenizer = SimpleNamespace(eos_token_id=1, pad_token_id=0)
    assert end_id(SimpleNamespace(processing_class=tokenizer)) == {1}
    assert end_id(SimpleNamespace(eos_token_id=7, processing_class=tokenizer)) == {7}
    assert end_id(SimpleNamespace()) == frozenset()


def test_a_mask_on_an_accelerator_is_not_read() -> None:
    assert row_sums(OnDevice()) is None
    assert row_sums(SimpleNamespace(device=SimpleNamespace(type="cuda"), ndim=2)) is None


def test_a_mask_that_is_none_is_unknown() -> None:
    assert row_sums(None) is None
    assert row_sums(SimpleNamespace(device=SimpleNamespace(type="cpu"), ndim=1)) is None


def test_a_release_that_does_not_say_its_version_is_the_one_that_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: {"trl": "0.22.0"}[name])
    monkeypatch.setattr(releases, "_from_metadata", releases._from_metadata.__wrapped__)
    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(__version__="unknown"))
    assert (releases.version_of("trl"), installed()) == ("0.22.0", (0, 22, 0))
    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(__version__="0.19.1"))
    assert installed() == (0, 19, 1)


def test_rewards_are_floats_and_what_is_missing_is_absent() -> None:
    assert reward_values([1, None, True, 0.5]) == [1.0, None, 1.0, 0.5]
    assert str(reward_values((math.nan, math.inf, None, 2))) == "[nan, inf, None, 2.0]"
    assert reward_values(OnHost()) == [0.5, 1.0]
    assert reward_values(["good"]) is None


def test_rewards_on_an_accelerator_are_not_read() -> None:
    assert reward_values(OnDevice()) is None
    assert reward_values([OnDevice(), OnDevice()]) is None


def test_a_generator_of_rewards_is_left_to_the_trainer() -> None:
    rewards = (reward for reward in (1.0, 2.0))
    assert reward_values(rewards) is None
    assert list(rewards) == [1.0, 2.0]


def test_a_torch_module_is_told_by_its_class() -> None:
    module = type("Module", (), {"__module__": "torch.nn.modules.module"})
    assert is_module(type("RewardModel", (module,), {})())
    assert not is_module(type("Module", (), {})())


def test_sessions_count_trainings_from_scratch() -> None:
    sessions = Sessions()
    assert [sessions.start(resumed) for resumed in (0, 0, 3, 0)] == [0, 1, 1, 2]


def test_a_process_that_resumes_begins_in_session_0() -> None:
    assert Sessions().start(3) == 0


def test_the_algorithm_is_named_after_trl_and_never_after_the_user() -> None:
    grpo = type("GRPOTrainer", (), {"__module__": "trl.trainer.grpo_trainer"})
    secret = type("SecretProjectTrainer", (grpo,), {})
    unsloth = type("UnslothGRPOTrainer", (), {"__module__": "UnslothGRPOTrainer"})
    own = type("SecretProjectTrainer", (), {"__module__": "trlish.trainer"})
    assert [algorithm(kind) for kind in (secret, unsloth, own)] == ["grpo", "grpo", None]


def test_reward_models_are_named_by_position() -> None:
    module = type("Module", (), {"__module__": "torch.nn.modules.module"})()
    trainer = SimpleNamespace(reward_funcs=[len, module], reward_func_names=["len", "secret"])
    assert reward_names(trainer) == ["len", "reward_model_1"]


def test_facts_of_a_trainer_it_does_not_know_are_unknown_not_zero() -> None:
    known = facts(SimpleNamespace(args=SimpleNamespace()))
    assert {name for name, value in known.items() if value is not None} == {
        "framework",
        "rollout_tp",
        "engine",
        "reward_functions",
        *(["framework_version"] if known["framework_version"] else []),
    }


@pytest.mark.parametrize(
    ("mode", "tensor_parallel"), [("colocate", 2), ("server", None), ("new", None)]
)
def test_the_tensor_parallel_size_of_a_vllm_server_is_unknown(
    mode: str, tensor_parallel: int | None
) -> None:
    args = SimpleNamespace(vllm_tensor_parallel_size=2)
    known = facts(SimpleNamespace(args=args, use_vllm=True, vllm_mode=mode))
    assert known["rollout_tp"] == tensor_parallel


def trainer(step: int, training: bool) -> Any:
    state, model = SimpleNamespace(global_step=step), SimpleNamespace(training=training)
    return SimpleNamespace(state=state, model=model)


def test_training_happens_in_the_step_at_work_and_evaluation_after_the_last_one() -> None:
    training = Training(session=2)
    assert training.where(trainer(4, training=True)) == (2, 5, "train")
    assert training.where(trainer(4, training=False)) == (2, 4, "eval")
    training.evaluating = True
    assert training.where(trainer(4, training=True)) == (2, 4, "eval")


def test_batches_are_counted_from_0_at_each_place() -> None:
    training = Training()
    places = [(0, 1, "train"), (0, 1, "train"), (0, 1, "eval"), (0, 2, "train")]
    assert [training.ordinal(place) for place in places] == [0, 1, 0, 0]


POLICY, REFERENCE = object(), object()


@pytest.mark.parametrize(
    ("given", "model", "old_seen", "expected"),
    [
        ({"ref_model": REFERENCE, "beta": 0.1}, REFERENCE, False, True),
        ({"ref_model": REFERENCE, "beta": 0.1}, POLICY, False, False),
        ({"ref_model": None, "beta": 0.0}, POLICY, False, False),
        # PEFT: the reference is the policy without its adapter, after the pass of the old policy
        # if there is one.
        ({"ref_model": None, "beta": 0.1}, POLICY, False, True),
        ({"ref_model": None, "beta": 0.1, "num_iterations": 2}, POLICY, False, False),
        ({"ref_model": None, "beta": 0.1, "num_iterations": 2}, POLICY, True, True),
        (
            {
                "ref_model": None,
                "beta": 0.1,
                "use_vllm": True,
                "vllm_importance_sampling_correction": True,
            },
            POLICY,
            False,
            False,
        ),
    ],
)
def test_a_pass_of_the_reference_is_told_from_one_of_the_old_policy(
    given: dict[str, Any], model: object, old_seen: bool, expected: bool
) -> None:
    args = SimpleNamespace(gradient_accumulation_steps=1, steps_per_generation=1)
    trainer = SimpleNamespace(**{"num_iterations": 1, "args": args, **given})
    batch = Batch(trainer, 1, (0, 1, "train"), old_seen=old_seen)
    assert is_reference(trainer, model, batch) is expected


@pytest.mark.parametrize("old_seen", [False, True])
def test_rloo_with_peft_makes_the_pass_of_the_old_policy_first_in_any_case(old_seen: bool) -> None:
    rloo = type("RLOOTrainer", (), {"__module__": "trl.trainer.rloo_trainer"})
    given = type("Mine", (rloo,), {"ref_model": None, "beta": 0.1, "num_iterations": 1})()
    given.args = SimpleNamespace(gradient_accumulation_steps=1, steps_per_generation=1)
    batch = Batch(given, 1, (0, 1, "train"), old_seen=old_seen)
    assert is_reference(given, POLICY, batch) is old_seen


@pytest.mark.parametrize(
    ("version", "fed", "iterations", "old_first"),
    [
        ("1.16.0", 2, 2, False),
        ("1.16.0", 4, 2, True),
        ("0.19.1", 2, 2, True),
        ("0.19.1", 2, 1, False),
        ("0.19.1", 8, 1, True),
        ("0.17.0", None, 1, False),
        ("0.17.0", None, 2, True),
    ],
)
def test_which_pass_comes_first_with_peft_is_decided_as_each_release_does(
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    fed: int | None,
    iterations: int,
    old_first: bool,
) -> None:
    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(__version__=version))
    args = SimpleNamespace(gradient_accumulation_steps=4)
    if fed is not None:
        args.steps_per_generation = fed
    trainer = SimpleNamespace(ref_model=None, beta=0.1, num_iterations=iterations, args=args)
    assert is_reference(trainer, POLICY, Batch(trainer, 1, (0, 1, "train"))) is not old_first
