"""Predicted against measured: what is compared, and when there is nothing to compare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.executor.replay.evaluation import timeline
from jigsaw_opt.executor.replay.summaries import mean_distance, summary
from jigsaw_opt.executor.schedules.records import Part, RunRecord
from jigsaw_opt.problem import Plan
from jigsaw_opt.problem.plan import Transfer
from tests.views.test_replay_view import carried_out
from tests.views.test_views import crossing


def test_the_makespan_is_the_median_of_the_passes(pair_plan: Plan) -> None:
    found = carried_out(pair_plan, 3, (0, 5000, 9000)).timeline
    measured = summary(pair_plan, found)
    assert (measured.objective, measured.predicted_us, measured.measured_us) == ("makespan", 1800, 1810)
    assert (measured.block_error, measured.block_bias, measured.transfer_error_us) == (0, 0, 0)
    assert measured.busy_predicted == pytest.approx((1200 + 600 + 1200) / 3600, abs=1e-4)
    assert measured.busy_measured == pytest.approx(3000 / 3620, abs=1e-4)
    assert measured.error == pytest.approx(10 / 1800)
    late = summary(pair_plan, replace(found, origins_us=(0, 4000, 8500)))
    assert late.measured_us == 2310


def test_errors_of_blocks_are_relative_to_the_plan(pair_plan: Plan) -> None:
    found = carried_out(pair_plan, 1, (0,)).timeline
    job = found.jobs[0]
    shorter = tuple(replace(b, end_us=b.end_us - (b.end_us - b.start_us) // 10) for b in job.iterations[0].blocks)
    longer = tuple(replace(t, end_us=t.end_us + 30) for t in job.iterations[0].transfers)
    iteration = replace(job.iterations[0], blocks=shorter, transfers=longer)
    measured = summary(pair_plan, replace(found, jobs=(replace(job, iterations=(iteration,)), found.jobs[1])))
    assert (measured.block_error, measured.block_error_p90, measured.block_bias) == (0.1, 0.1, -0.1)
    assert measured.transfer_error_us == 30


def test_a_resumed_pass_is_not_measured_as_a_whole(pair_plan: Plan) -> None:
    found = carried_out(pair_plan, 1, (0,)).timeline
    done = replace(found.jobs[1], first_iteration=1, iterations=())
    rest = summary(pair_plan, replace(found, jobs=(found.jobs[0], done)))
    assert rest.measured_us is None and rest.busy_measured is None and rest.error is None


def test_the_period_is_the_distance_of_the_ends_of_passes() -> None:
    _, plan = crossing()
    assert summary(plan, carried_out(plan, 6, ()).timeline).measured_us == 30
    assert summary(plan, carried_out(plan, 2, ()).timeline).measured_us is None


def test_passes_beside_which_others_begin_or_end_are_not_measured() -> None:
    assert mean_distance([10, 25, 55, 85, 90], 1) == 30
    assert mean_distance([10, 20, 30], 0) == 10
    assert mean_distance([10, 25, 55], 1) is None


def test_a_transfer_lasts_from_the_last_who_takes_part_to_the_last_who_has_the_result() -> None:
    _, plan = crossing()
    parts = [
        Part([RunRecord("block", 0, 0, slot, 0, 20, 1, 0.5), RunRecord("transfer", 0, 0, 1, start, end)], [], 1)
        for slot, (start, end) in enumerate([(21, 40), (30, 38)])
    ]
    found = timeline(plan, parts, None, {(0, 0): "x", (0, 1): "x"})
    assert found.jobs[0].iterations[0].transfers == (Transfer(1, 30, 40),)
    assert found.jobs[0].parameters_sha256 == ("x", "x")


def test_the_clock_stands_still_while_workers_are_saved() -> None:
    _, plan = crossing()
    saves = [[(20, 60)], [(25, 75)]]
    parts = [
        Part(
            [
                RunRecord("block", 0, 0, slot, 0, 20, 1, 0.5),
                RunRecord("block", 0, 1, slot, own[0][1], own[0][1] + 20, 1, 0.5),
                RunRecord("transfer", 0, 0, 1, 5, 19),
                RunRecord("transfer", 0, 1, 1, own[0][1] + 20, 110),
            ],
            [],
            0,
            own,
        )
        for slot, own in enumerate(saves)
    ]
    found = timeline(plan, parts, None, {(0, 0): "x", (0, 1): "x"})
    first, second = found.jobs[0].iterations
    assert [(b.start_us, b.end_us) for b in first.blocks] == [(0, 20), (0, 20)]
    assert [(b.start_us, b.end_us) for b in second.blocks] == [(20, 40), (25, 45)]
    assert second.transfers == (Transfer(1, 45, 60),)


def test_an_interrupted_run_counts_what_all_workers_have_ended() -> None:
    _, plan = crossing()
    blocks = [
        [RunRecord("block", 0, k, slot, 100 * k, 100 * k + 20, 1, 0.5) for k in range(3 - slot)] for slot in range(2)
    ]
    sent = [RunRecord("transfer", 0, k, 1, 100 * k + 20, 100 * k + 30) for k in range(2)]
    parts = [Part(blocks[0] + sent, [], 9), Part(blocks[1] + sent[:1], [], 9)]
    found = timeline(plan, parts, [0], {})
    assert found.passes == 1 and found.jobs[0].parameters_sha256 == ()
    assert len(found.jobs[0].iterations) == 1
