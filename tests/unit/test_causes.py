"""What made GPUs wait is named first, in its place and with its size; a sound run is silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import comb

import pytest

from rlvr_probe.analysis.causes import KINDS, Cause, Saving, find_causes
from rlvr_probe.analysis.causes.cause import HELPS, REFUTED
from rlvr_probe.analysis.causes.thresholds import CONFIDENCE
from rlvr_probe.analysis.characterization import characterize
from rlvr_probe.analysis.ledger import make_ledger
from rlvr_probe.recording.tables import TABLES
from rlvr_probe.report.blocks import Line
from rlvr_probe.report.characterize import lay_out_characterization, to_document
from rlvr_probe.report.page.contents import document
from tests import today
from tests.causes_scored import Judged, judged, score
from tests.seeds import draw
from tests.simulated import SMALL, Corpus, brief
from tests.simulator import scenario
from tests.simulator.judging import Outcome, Score, Verdict
from tests.simulator.wider import wider_scenario

PLANTED = {
    "slow_rank": 464,
    "thermal_throttling": 70,
    "straggler": 13,
    "serial_reward": 148,
    "slow_tool": 425,
    "slow_weight_sync": 456,
    "aggressive_filter": 40,
    "starving_trainer": 344,
    "waiting_rollout": 330,
}
"""A seed of each fault that saves much."""

WIDER = (1134, 1042, 1226, 1121, 1131, 1071)
"""Seeds of faults with a course: rollout that is slow beside the training, and its warm-up; few
stragglers in steps that follow each other; a machine that is a tenth slower; prompts fetched late
beside the training, too little to be named; none, with a tail that is heavy by nature."""

NATURAL_BESIDE = {
    "stragglers beside two that were cut": 3001,
    "a tail with gaps beside a slow update": 3006,
    "a queue that takes three steps to fill": 3037,
    "rollout with slack beside an update that grows": 3066,
    "slow evaluations whose tokens explain the others": 3073,
    "a tail in a rollout that takes three times as long for a token": 393681985,
    "a tail behind stragglers in each of five steps": 654692570,
    "gaps of every third step beside rollout that is slow for a while": 122632534,
    "a trainer that waits for its queue as in sound runs": 1709848063,
}
"""Seeds in which something natural is beside what is to be named, or alone."""

CLEAN = (2, 3, 18)
"""Seeds without a fault, one of each shape."""

MEASURED = replace(scenario(2), hz=1.0, steps=4)
"""A sound run whose GPUs are read often."""

UNEVEN = replace(scenario(34), eval_every=0, checkpoint_every=0)
"""A sound run of two dozen steps, with tools and functions that take different times."""


def run_of(seed: int, corpus: Corpus) -> Judged:
    drawn = brief(scenario(seed))
    return judged(corpus.run(drawn)[1], corpus.asked(drawn, find_causes))


@pytest.mark.parametrize("kind", today.some(list(PLANTED), 2))
def test_the_fault_that_costs_most_is_named_first_with_what_it_saves(
    corpus: Corpus, kind: str
) -> None:
    found = run_of(PLANTED[kind], corpus)
    first, verdict = found.causes[0], found.verdict
    assert (first.kind, verdict.outcome) == (kind, "right")
    fault = next(one for one in found.truth.faults if one["kind"] == kind)
    assert first.gpu_s == pytest.approx(fault["saved_gpu_ns"] / 1e9, rel=0.15)


@pytest.mark.parametrize("seed", today.some(WIDER, 2))
def test_what_has_a_course_is_named_first_and_nothing_where_the_tail_is_natural(
    corpus: Corpus, seed: int
) -> None:
    drawn = wider_scenario(seed)
    assert judged(corpus.run(drawn)[1], corpus.asked(drawn, find_causes)).verdict.right


@pytest.mark.parametrize("seed", NATURAL_BESIDE.values(), ids=NATURAL_BESIDE)
def test_what_is_natural_is_not_named_before_what_is_planted(corpus: Corpus, seed: int) -> None:
    drawn = wider_scenario(seed)
    assert judged(corpus.run(drawn)[1], corpus.asked(drawn, find_causes)).verdict.right


def test_rollout_that_warms_up_is_no_error_where_nothing_says_that_a_trainer_waited(
    corpus: Corpus,
) -> None:
    """OpenRLHF waits for its queue in a span of another name."""
    with corpus.tables(wider_scenario(1042)) as tables:
        tables.sql.execute("DELETE FROM span WHERE name = 'data'")
        found = find_causes(tables)
    assert "slow_rollout" not in [cause.kind for cause in found]
    assert all(cause.where.get("stage") != "rollout" for cause in found)


@pytest.mark.parametrize("kind", today.some(list(PLANTED), 2))
def test_a_cause_says_how_it_was_found_and_what_would_refute_it(corpus: Corpus, kind: str) -> None:
    found = run_of(PLANTED[kind], corpus)
    first = found.causes[0]
    wall = (found.truth.end_ns - found.truth.begin_ns) / 1e9
    assert first.share == pytest.approx(first.gpu_s / (found.truth.gpus * wall), rel=0.01)
    assert first.title.endswith("% of GPU time")
    assert first.query.startswith("WITH") or first.query.startswith("SELECT")
    assert first.inputs
    # How full a queue was is known of the run, and of no step.
    assert bool(first.worst) == ("step" in first.evidence) == (kind != "waiting_rollout")
    assert all(one.ids for one in first.evidence.values())
    assert (first.usually_helps, first.refuted_by) == (HELPS[kind], REFUTED[kind])
    if first.low is not None and first.high is not None:
        assert first.low <= first.gpu_s <= first.high


def test_a_cause_that_is_known_of_the_run_alone_has_neither_steps_nor_an_interval(
    corpus: Corpus,
) -> None:
    causes = run_of(PLANTED["waiting_rollout"], corpus).causes
    with corpus.after(SMALL, characterize) as (tables, another):
        found = replace(another, causes=causes)
        first = found.causes[0]
        on_the_page = document(tables, found)["causes"][0]
    assert (first.kind, first.low, first.high) == ("waiting_rollout", None, None)
    assert (first.worst, first.evidence) == ((), {})
    written = to_document(found)["causes"][0]
    assert (written["low"], written["high"]) == (None, None)
    assert (written["worst"], written["evidence"]) == ([], {})
    assert (on_the_page["low"], on_the_page["high"]) == (None, None)
    assert (on_the_page["worst"], on_the_page["evidence"]) == ([], {})
    lines = [one.text for one in lay_out_characterization(found) if isinstance(one, Line)]
    told = lines[lines.index(f"1. {first.title}") + 1]
    assert told.startswith("   removing it would save ")
    assert told.endswith(
        f" (no interval: {first.no_interval}); what usually helps: {first.usually_helps}"
    )


@pytest.mark.parametrize("seed", today.some(CLEAN, 1))
def test_a_sound_run_has_no_cause(corpus: Corpus, seed: int) -> None:
    found = run_of(seed, corpus)
    assert found.truth.faults == []
    assert [one.kind for one in found.causes if not one.natural] == []


@pytest.mark.parametrize("seed", today.some([12, 22], 1))
def test_clocks_that_differ_are_told_and_cost_nothing(corpus: Corpus, seed: int) -> None:
    found = run_of(seed, corpus)
    told = [(one.gpu_s, one.share) for one in found.causes if one.kind == "clock_skew"]
    assert told == [(0.0, 0.0)]


def test_a_clock_that_was_corrected_already_is_told_with_its_machine(corpus: Corpus) -> None:
    """By the number in the tables, whatever notes say of it."""
    with corpus.tables(MEASURED) as tables:
        tables.sql.execute(
            "UPDATE process SET host = 'node-' || process, boot = host,"
            " corrected_s = CASE process WHEN 1 THEN -0.04 WHEN 2 THEN -2.5 ELSE 0 END"
        )
        [skew] = [one for one in find_causes(tables) if one.kind == "clock_skew"]
        assert (skew.title, skew.where) == (
            "wall clocks of two machines are 2.5 s apart", {"host": "node-2"}
        )  # fmt: skip
        assert (skew.gpu_s, skew.evidence) == (0.0, {})
        assert "corrected_s" in skew.query
        tables.sql.execute("UPDATE process SET corrected_s = corrected_s / 40")
        assert [one for one in find_causes(tables) if one.kind == "clock_skew"] == []


def test_of_two_faults_the_one_that_saves_more_is_first(corpus: Corpus) -> None:
    found = run_of(36, corpus)
    saved = {one["kind"]: one["saved_gpu_ns"] for one in found.truth.faults}
    assert named(found.causes) == sorted(saved, key=lambda kind: -saved[kind])


def test_without_its_fault_the_same_run_is_silent(corpus: Corpus) -> None:
    drawn = brief(scenario(PLANTED["slow_tool"]))
    assert named(corpus.asked(replace(drawn, faults=()), find_causes)) == []


def test_without_devices_a_hot_rank_is_a_slow_one(corpus: Corpus) -> None:
    drawn = brief(scenario(PLANTED["thermal_throttling"]))
    assert named(corpus.asked(replace(drawn, hz=0), find_causes)) == ["slow_rank"]


def test_a_hot_rank_is_named_with_its_device(corpus: Corpus) -> None:
    found = run_of(PLANTED["thermal_throttling"], corpus)
    first, fault = found.causes[0], found.truth.faults[0]
    assert set(first.where) == {"rank", "device"}
    assert first.where["rank"] == fault["gpu"]
    assert len(first.evidence["device"].ids) == 1


def test_a_gpu_is_hot_by_its_own_counter_alone(corpus: Corpus) -> None:
    """Of two GPUs that a process may use, the counter of one says nothing beside the other's."""
    with corpus.tables(MEASURED) as tables:
        tables.sql.execute(
            "INSERT INTO device_process BY NAME SELECT device, process, 'visible' AS how"
            " FROM device, process WHERE kind = 'gpu' AND (device, process) NOT IN"
            " (SELECT (device, process) FROM device_process)"
        )
        # One was held down long ago, and one is now, by a process that nobody knows.
        tables.sql.execute(
            "UPDATE reading SET value = CASE device WHEN (SELECT min(device) FROM reading)"
            " THEN 5000 ELSE end_ns / 1e9 END WHERE counter = 'throttle_thermal_s'"
        )
        tables.sql.execute("UPDATE device_process SET how = 'visible'")
        find_causes(tables)
        assert tables.sql.execute("SELECT * FROM cause_hot").fetchall() == []
    with corpus.tables(MEASURED) as tables:
        [[device]] = tables.sql.execute("SELECT max(device) FROM reading").fetchall()
        tables.sql.execute(
            "UPDATE reading SET value = CASE device WHEN ? THEN end_ns / 1e9 ELSE 1000 * device"
            " END WHERE counter = 'throttle_thermal_s'", [device]
        )  # fmt: skip
        find_causes(tables)
        whose = tables.sql.execute(
            "SELECT process, device FROM device_process WHERE device = ?", [device]
        ).fetchall()
        hot = tables.sql.execute("SELECT DISTINCT process, device FROM cause_hot").fetchall()
        assert hot == whose


def test_a_reward_function_that_takes_long_is_named_though_it_is_parallel(corpus: Corpus) -> None:
    drawn = scenario(2)
    lengths = replace(drawn.lengths, reward_s=(0.1, 12.0, 0.1))
    with corpus.tables(replace(drawn, lengths=lengths, steps=12)) as tables:
        first, *_ = find_causes(tables)
        [[seconds]] = tables.sql.execute(
            "SELECT sum(s) FROM (SELECT max(end_ns - start_ns) / 1e9 AS s FROM reward_call"
            f" WHERE function = '{drawn.functions[1]}' GROUP BY batch_id)"
        ).fetchall()
    assert (first.kind, first.where) == ("slow_reward", {"function": drawn.functions[1]})
    assert first.gpu_s == pytest.approx(drawn.ranks * seconds, rel=0.05)


def test_a_rank_that_is_late_in_one_stage_is_named_with_that_stage(corpus: Corpus) -> None:
    drawn = scenario(2)
    late_ns, stage = 4_000_000_000, "ref_logprob"
    with corpus.tables(drawn) as tables:
        tables.sql.execute(
            f"UPDATE span SET end_ns = end_ns + {late_ns} WHERE process = 1 AND name = '{stage}'"
        )
        first, *_ = find_causes(tables)
        assert (first.kind, first.where) == ("slow_rank", {"rank": 1, "stage": stage})
        # Somebody else was longer by less than that in some steps.
        assert 0.6 < first.gpu_s * 1e9 / (late_ns * drawn.steps * drawn.ranks) <= 1.0


def test_a_late_process_whose_rank_is_not_known_is_given_none(corpus: Corpus) -> None:
    with corpus.tables(scenario(2)) as tables:
        tables.sql.execute("UPDATE engine_call SET end_ns = end_ns + 3e10 WHERE process = 1")
        tables.sql.execute("UPDATE span SET end_ns = end_ns + 3e10 WHERE name = 'rollout'")
        tables.sql.execute("UPDATE process SET rank = NULL")
        first, *_ = find_causes(tables)
    assert (first.kind, first.where) == ("slow_rank", {"process": 1, "stage": "generation"})
    assert first.title.startswith("process 1 is 30 s a step later than its peers")


def test_a_rank_that_is_late_in_one_of_two_stages_is_not_slow_in_all_it_does(
    corpus: Corpus,
) -> None:
    """As with verl 0.5, whose other stages end together."""
    drawn = replace(scenario(2), ranks=2)
    with corpus.tables(drawn) as tables:
        tables.sql.execute("DELETE FROM span WHERE name = 'weight_sync'")
        tables.sql.execute(
            "UPDATE span SET end_ns = start_ns + 1e9 + process * 6e9 WHERE name = 'ref_logprob'"
        )
        first, *others = find_causes(tables)
    assert (first.kind, first.where) == ("slow_rank", {"rank": 1, "stage": "ref_logprob"})
    # The other rank was longer by less than that in some steps.
    assert 0.6 < first.gpu_s / (6.0 * drawn.steps * drawn.ranks) <= 1.0
    assert [one.kind for one in others if not one.natural] == []


def test_engines_that_a_gpu_has_in_another_attempt_cost_a_slow_rank_nothing(
    corpus: Corpus,
) -> None:
    drawn = brief(scenario(PLANTED["thermal_throttling"]))
    with corpus.after(drawn, make_ledger) as (tables, _):
        expected = [(one.kind, one.gpu_s) for one in find_causes(tables)]
        tables.sql.execute(
            "INSERT INTO engine_gpu SELECT DISTINCT attempt + 1, one.engine, other.gpu"
            " FROM engine_gpu AS one JOIN engine_gpu AS other USING (attempt)"
        )
        assert [(one.kind, one.gpu_s) for one in find_causes(tables)] == expected
    assert expected[0][0] == "thermal_throttling"


def test_what_queues_a_little_is_not_named_for_a_function_that_takes_long(corpus: Corpus) -> None:
    drawn = brief(scenario(18))
    with corpus.tables(drawn) as tables:
        # Who was first waited for nobody, who came then for a quarter of that.
        tables.sql.execute(
            "CREATE TEMP TABLE late AS SELECT trajectory_id, [60e9, 60e9, 75e9][place]::BIGINT"
            " AS ns FROM (SELECT v.trajectory_id, row_number() OVER (PARTITION BY t.batch_id"
            " ORDER BY v.start_ns) AS place FROM verification AS v JOIN trajectory AS t"
            " USING (trajectory_id) WHERE v.function = 'math_reward') WHERE place <= 3"
        )
        for table in ("trajectory", "verification"):
            tables.sql.execute(
                f"UPDATE {table} SET end_ns = end_ns + late.ns FROM late"
                f" WHERE late.trajectory_id = {table}.trajectory_id"
            )
        first, *others = find_causes(tables)
    assert (first.kind, first.where) == ("slow_reward", {"function": "math_reward"})
    assert [one.kind for one in others if one.kind.endswith("reward")] == []


def test_calls_at_the_same_time_are_waited_for_once(corpus: Corpus) -> None:
    """Three functions that run together cost what they take, not three times that."""
    drawn = scenario(2)
    together_ns = 20_000_000_000
    with corpus.tables(drawn) as tables:
        tables.sql.execute(f"UPDATE span SET end_ns = end_ns + {together_ns} WHERE name = 'reward'")
        tables.sql.execute(
            "UPDATE reward_call AS c SET start_ns = first.ns, end_ns = first.ns +"
            f" CASE function WHEN 'math_reward' THEN {together_ns} ELSE {together_ns // 2} END"
            " FROM (SELECT batch_id, process, min(start_ns) AS ns FROM reward_call GROUP BY ALL)"
            " AS first WHERE first.batch_id = c.batch_id AND first.process = c.process"
        )
        first, *others = find_causes(tables)
    assert (first.kind, first.where) == ("slow_reward", {"function": "math_reward"})
    # Without the longest of them, the others still take half of it.
    assert first.gpu_s * 1e9 == pytest.approx(together_ns / 2 * drawn.steps * drawn.ranks, rel=0.01)
    assert [one.where for one in others if one.kind == "slow_reward"] == []


def test_a_function_that_takes_long_in_some_steps_costs_what_it_took_longer_there(
    corpus: Corpus,
) -> None:
    drawn = scenario(2)
    late_ns, steps = 90_000_000_000, (3, 11)
    with corpus.tables(drawn) as tables:
        tables.sql.execute(
            f"UPDATE span SET end_ns = end_ns + {late_ns} WHERE name = 'reward'"
            f" AND step_id IN {steps}"
        )
        tables.sql.execute(
            f"UPDATE reward_call SET end_ns = end_ns + {late_ns} WHERE function = 'code_reward'"
            f" AND batch_id IN (SELECT batch_id FROM batch WHERE step_id IN {steps})"
        )
        first, *_ = find_causes(tables)
    assert (first.kind, first.where) == ("slow_reward", {"function": "code_reward"})
    assert f"in 2 of {drawn.steps} steps" in first.title
    assert sorted(first.evidence["step"].ids) == list(steps)
    assert first.gpu_s * 1e9 == pytest.approx(2 * late_ns * drawn.ranks, rel=0.02)


def test_a_function_that_takes_no_time_is_not_blamed_for_another(corpus: Corpus) -> None:
    """It takes longer for more rows; that which takes long always has the same rows."""
    drawn = scenario(2)
    with corpus.tables(drawn) as tables:
        tables.sql.execute("UPDATE span SET end_ns = end_ns + 90_000_000_000 WHERE name = 'reward'")
        tables.sql.execute("UPDATE reward SET value = 0 WHERE function = 'math_reward'")
        tables.sql.execute(
            "INSERT INTO reward BY NAME"
            " SELECT trajectory_id, batch_id, 'math_reward' AS function, 0 AS value"
            " FROM trajectory WHERE trajectory_id NOT IN"
            " (SELECT trajectory_id FROM reward WHERE function = 'math_reward')"
        )
        tables.sql.execute(
            "UPDATE reward_call AS c SET end_ns = start_ns + if(c.function = 'math_reward',"
            " 20_000_000_000, 1000 * n.rows) FROM (SELECT batch_id, process, function,"
            " count(value) AS rows FROM reward JOIN trajectory USING (trajectory_id, batch_id)"
            " GROUP BY ALL)"
            " AS n WHERE (n.batch_id, n.process, n.function) = (c.batch_id, c.process, c.function)"
        )
        first, *_ = find_causes(tables)
    assert (first.kind, first.where) == ("slow_reward", {"function": "math_reward"})


@pytest.mark.parametrize(
    ("factors", "named"),
    today.some(
        [((1.9, 1.8, 1.9, 2.0, 1.8, 1.9), ["slow_rank"]), ((1.2, 1.9, 1.2, 2.5, 1.2, 1.2), [])], 1
    ),
)
def test_in_few_steps_a_rank_is_named_only_if_it_is_late_by_as_much_in_all(
    corpus: Corpus, factors: tuple[float, ...], named: list[str]
) -> None:
    """Of few ranks one is the last in nearly all of a few steps by chance."""
    drawn = replace(scenario(2), steps=len(factors))
    with corpus.tables(drawn) as tables:
        tables.sql.execute("UPDATE span SET end_ns = start_ns + 2e9 WHERE name = 'ref_logprob'")
        for step, factor in enumerate(factors):
            tables.sql.execute(
                f"UPDATE span SET end_ns = start_ns + {factor} * 2e9 WHERE name = 'ref_logprob'"
                f" AND process = 1 AND step_id = (SELECT min(step_id) + {step} FROM step)"
            )
        found = [one.kind for one in find_causes(tables) if not one.natural]
    assert found == named


@pytest.mark.parametrize(("factor", "named"), today.some([(1.06, []), (1.4, ["slow_rank"])], 1))
def test_one_of_two_ranks_is_slow_only_if_it_is_by_much(
    corpus: Corpus, factor: float, named: list[str]
) -> None:
    """How much ranks differ without a reason, no other pair of them tells."""
    with corpus.tables(replace(scenario(2), ranks=2)) as tables:
        tables.sql.execute(
            f"UPDATE span SET end_ns = start_ns + {factor} * (end_ns - start_ns) WHERE process = 1"
            " AND name IN ('weight_sync', 'old_logprob', 'ref_logprob')"
        )
        found = [one.kind for one in find_causes(tables) if not one.natural]
    assert found == named


def test_of_two_ranks_one_time_of_each_tells_nothing(corpus: Corpus) -> None:
    with corpus.tables(replace(scenario(2), ranks=2)) as tables:
        tables.sql.execute(
            "DELETE FROM span WHERE name IN ('weight_sync', 'old_logprob', 'ref_logprob')"
            " AND (name <> 'ref_logprob' OR step_id <> 3)"
        )
        tables.sql.execute(
            "UPDATE span SET end_ns = start_ns + 1e9 + 600e9 * (process = 1)::INTEGER"
            " WHERE name = 'ref_logprob'"
        )
        found = [one.kind for one in find_causes(tables) if not one.natural]
    # Where the stages were, nothing is recorded now.
    assert found == ["slow_between_steps"]


def test_a_tool_is_not_slow_because_another_asks_nobody(corpus: Corpus) -> None:
    with corpus.tables(UNEVEN) as tables:
        tables.sql.execute(
            "UPDATE tool_call SET end_ns = start_ns + 1_000_000 WHERE tool = 'math_tool'"
        )
        assert [one.kind for one in find_causes(tables) if not one.natural] == []


def test_a_late_rank_whose_responses_are_as_long_as_those_of_others_has_no_long_tail(
    corpus: Corpus,
) -> None:
    with corpus.tables(scenario(2)) as tables:
        for table in ("trajectory", "turn"):
            tables.sql.execute(f"UPDATE {table} SET response_tokens = 500")
        tables.sql.execute("UPDATE engine_call SET end_ns = end_ns + 3e10 WHERE process = 1")
        tables.sql.execute("UPDATE span SET end_ns = end_ns + 3e10 WHERE name = 'rollout'")
        found = [one.kind for one in find_causes(tables)]
    assert "long_tail" not in found
    assert found[0] == "slow_rank"


def test_a_trajectory_that_waits_for_its_verification_has_no_long_tail(corpus: Corpus) -> None:
    late_ns = 900_000_000_000
    with corpus.tables(brief(scenario(18))) as tables:
        [[one]] = tables.sql.execute(
            "SELECT min_by(trajectory_id, response_tokens) FROM trajectory WHERE step_id = 5"
        ).fetchall()
        for table in ("trajectory", "verification"):
            tables.sql.execute(
                f"UPDATE {table} SET end_ns = end_ns + {late_ns} WHERE trajectory_id = {one}"
            )
        named = [cause for cause in find_causes(tables) if cause.kind in ("straggler", "long_tail")]
    assert [cause for cause in named if one in cause.evidence["trajectory"].ids] == []


def test_of_the_only_length_that_is_known_no_other_is_told(corpus: Corpus) -> None:
    with corpus.tables(brief(scenario(18))) as tables:
        [[one]] = tables.sql.execute(
            "SELECT max_by(trajectory_id, response_tokens) FROM trajectory WHERE step_id = 5"
        ).fetchall()
        tables.sql.execute(
            "UPDATE trajectory SET end_ns = end_ns + if(trajectory_id = $one, 900e9, 0),"
            " response_tokens = if(trajectory_id = $one, response_tokens, NULL)",
            {"one": one},
        )
        [tail] = [cause for cause in find_causes(tables) if cause.kind == "long_tail"]
    assert tail.evidence["trajectory"].ids == (one,)
    assert "longest other" not in tail.title


def test_a_worst_step_says_whom_it_waited_for_if_the_ledger_knows(corpus: Corpus) -> None:
    drawn = brief(scenario(PLANTED["slow_tool"]))
    with corpus.after(drawn, make_ledger) as (tables, _):
        first, *_ = find_causes(tables)
        worst = first.evidence["step"].ids[0]
        [[trajectory]] = tables.sql.execute(
            "SELECT arg_max(trajectory_id, gpu_ns) FROM barrier_wait WHERE step_id = ?", [worst]
        ).fetchall()
    told = next(one for one in first.worst if one.startswith("step "))
    assert f"for trajectory {trajectory} (sample " in told
    assert told.endswith(str(first.where["tool"]))


@pytest.mark.parametrize(
    ("change", "kind", "where"),
    today.some(
        [
            (
                "UPDATE tool_call SET end_ns = start_ns + 30 * (end_ns - start_ns)"
                " WHERE tool = 'code_tool' AND trajectory_id IN"
                " (SELECT trajectory_id FROM trajectory WHERE step_id >= 12)",
                "slow_tool",
                {"tool": "code_tool"},
            ),
            (
                "UPDATE reward_call SET end_ns = start_ns + 20 * (end_ns - start_ns)"
                " WHERE function = 'math_reward' AND batch_id IN"
                " (SELECT batch_id FROM batch WHERE step_id >= 12)",
                "slow_reward",
                {"function": "math_reward"},
            ),
            (
                "UPDATE span SET end_ns = start_ns + 6 * (end_ns - start_ns)"
                " WHERE name = 'weight_sync' AND step_id >= 12",
                "slow_weight_sync",
                {},
            ),
        ],
        1,
    ),
)
def test_what_takes_longer_than_it_did_is_named_with_the_step_it_began_in(
    corpus: Corpus, change: str, kind: str, where: dict[str, str]
) -> None:
    with corpus.tables(UNEVEN) as tables:
        assert [one for one in find_causes(tables) if not one.natural] == []
        # What encloses it goes on as long, which no replay looks at.
        tables.sql.execute(
            "UPDATE span SET end_ns = end_ns + 100_000_000_000 WHERE name = 'reward'"
        )
        tables.sql.execute(change)
        first, *_ = (one for one in find_causes(tables) if not one.natural)
        [[since]] = tables.sql.execute("SELECT number FROM step WHERE step_id = 12").fetchall()
    assert (first.kind, first.where) == (kind, where)
    assert f"since step {since}," in first.title
    assert min(first.evidence["step"].ids) >= 12


def test_a_source_without_times_has_no_causes(corpus: Corpus) -> None:
    with corpus.tables(MEASURED) as tables:
        tables.sql.execute("UPDATE span SET start_ns = NULL, end_ns = NULL")
        assert find_causes(tables) == []


@pytest.mark.parametrize(
    ("seed", "share"),
    today.some([(seed, share) for share in (0.02, 0.5, 0.95) for seed in (1, 36, 51)], 1),
)
def test_causes_of_a_run_of_which_much_was_lost_raise_nothing(
    corpus: Corpus, seed: int, share: float
) -> None:
    """Rows are missing, and what may be unknown is: in every table, at random."""
    with corpus.tables(replace(scenario(seed), steps=6)) as tables:
        tables.sql.execute(f"SELECT setseed({share})")
        for table in TABLES:
            if table.name not in ("run", "process", "step"):
                tables.sql.execute(f"DELETE FROM {table.name} WHERE random() < {share}")
            for column in table.names[1:]:
                tables.sql.execute(
                    f'UPDATE {table.name} SET "{column}" = NULL WHERE random() < {share / 10}'
                )
        assert all(one.gpu_s >= 0 for one in find_causes(tables))


def named(causes: list[Cause]) -> list[str]:
    return [one.kind for one in causes if not one.natural]


def test_every_kind_has_its_words() -> None:
    assert set(KINDS) == set(HELPS) == set(REFUTED)


def test_a_kind_that_was_first_in_no_judged_run_has_no_confidence(corpus: Corpus) -> None:
    """0.5 is not what a recording tells, where nobody judged one."""
    assert set(KINDS) - set(CONFIDENCE) == {
        "slow_reward", "long_tail", "unfinished", "warm_up", "restart", "slow_host", "slow_probe",
        "slow_data", "slow_rollout", "slow_logprob", "slow_update", "slow_checkpoint",
        "slow_evaluation", "slow_between_steps", "slow_dispatch",
    }  # fmt: skip
    drawn = scenario(2)
    with corpus.tables(drawn) as tables:
        tables.sql.execute("UPDATE span SET end_ns = end_ns + 90_000_000_000 WHERE name = 'reward'")
        tables.sql.execute(
            "UPDATE reward_call SET end_ns = end_ns + 90_000_000_000 WHERE function = 'code_reward'"
        )
        found = characterize(tables)
        on_the_page = document(tables, found)["causes"][0]
    first = found.causes[0]
    assert (first.kind, first.confidence) == ("slow_reward", None)
    assert to_document(found)["causes"][0]["confidence"] is None
    assert on_the_page["confidence"] is None


def test_the_interval_of_a_saving_is_that_of_a_sum_of_steps() -> None:
    saving = Saving({0: 1.0, 1: 2.0, 2: 3.0, 3: 2.0})
    assert saving.wall_ns == 8.0
    assert saving.error_ns == pytest.approx(1.96 * (4 * 2 / 3) ** 0.5)
    assert list(saving.worst_steps) == [2, 1, 3, 0]
    assert Saving({0: 1.0, 1: 1.0}).error_ns is None


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(15, marks=[pytest.mark.conformance, pytest.mark.timeout(3600)]),
        pytest.param(
            500, marks=[pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(7200)]
        ),
    ],
)
def test_causes_of_drawn_runs_are_right(runs: int) -> None:
    """Of 500, at least 95 % are, and 90 % of those of each kind; and at most 2 % of the runs in
    which nothing has to be named have a false alarm.

    A run counts for the fault that it has to be named for, else for the one planted in it that
    saves most, where silence is right too: the bars hold for all faults, not for those alone that
    have to be named. Of 15, a kind may have no run, or fewer right ones by chance: what fails is a
    share that a rate as asked for gives once in a thousand times. Of 500 there is no slack: a kind
    that is right in 92 % of all runs is so in less than 90 % of some 50 in one draw of five.
    """
    seeds = draw(runs)
    print("seeds:", *seeds)
    found = score(seeds)
    print(found.told())
    assert not short_of(found, likely if runs < 500 else reached), found.told()


def short_of(found: Score, enough: Callable[[int, int, float], bool]) -> list[str]:
    """Which bars are missed; ``enough`` is asked of how many of how many a rate is expected."""
    verdicts = found.verdicts
    short = [] if enough(sum(one.right for one in verdicts), len(verdicts), 0.95) else ["overall"]
    short += [kind for kind, pair in found.by_kind().items() if not enough(*pair, 0.9)]
    quiet = [one for one in verdicts if not one.expected]
    alarms = sum(one.outcome == "false alarm" for one in quiet)
    return short + ([] if enough(len(quiet) - alarms, len(quiet), 0.98) else ["false alarms"])


def reached(right: int, count: int, rate: float) -> bool:
    """Whether there is one, and so many of them are right."""
    return count > 0 and right >= rate * count


def likely(right: int, count: int, rate: float) -> bool:
    """Whether so few right ones are no sign of a lower rate, at one in a thousand."""
    chance = sum(comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(right + 1))
    return right >= rate * count or chance > 1e-3


@pytest.mark.parametrize(
    ("right", "count", "rate", "is_reached", "is_likely"),
    [
        (475, 500, 0.95, True, True),
        (474, 500, 0.95, False, True),
        (455, 500, 0.95, False, False),
        (9, 10, 0.9, True, True),
        (8, 10, 0.9, False, True),
        (4, 10, 0.9, False, False),
        (0, 0, 0.9, False, True),
    ],
)
def test_a_rate_that_is_too_low_is_seen(
    right: int, count: int, rate: float, is_reached: bool, is_likely: bool
) -> None:
    assert reached(right, count, rate) == is_reached
    assert likely(right, count, rate) == is_likely


def test_every_bar_that_is_missed_is_told() -> None:
    def verdict(seed: int, outcome: Outcome, kind: str = "") -> Verdict:
        planted = (kind,) if kind else ()
        return Verdict(seed, "verl", outcome, kind, planted, kind if outcome == "right" else "")

    kinds = [kind for kind in Score([]).by_kind() if kind != "clock_skew"]
    clocks = [verdict(1, "right", "clock_skew")]
    sound = [verdict(10 * number, "right", kind) for number, kind in enumerate(kinds)] * 10
    quiet = [verdict(-seed, "silent") for seed in range(98)]
    assert short_of(Score([*sound, *quiet, *clocks]), reached) == []
    alarms = [verdict(-seed, "false alarm") for seed in range(3)]
    assert short_of(Score([*sound, *quiet, *clocks, *alarms]), reached) == ["false alarms"]
    missed = [verdict(5, "missed", kinds[0])] * 2
    assert short_of(Score([*sound, *quiet, *clocks, *missed]), reached) == [kinds[0]]
    assert short_of(Score([*sound, *quiet]), reached) == ["clock_skew"]
    assert "overall" in short_of(Score([*sound, *quiet, *clocks, *missed * 10]), reached)


def test_a_cause_has_the_kinds_that_are_documented(corpus: Corpus) -> None:
    causes = run_of(PLANTED["slow_rank"], corpus).causes
    assert isinstance(causes[0], Cause)
    assert {one.kind for one in causes} <= set(KINDS)
