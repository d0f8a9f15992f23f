"""Each measure against its definition, on figures worked out by hand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.metrics import fairness, median, quantile, restarts_so_far, summarise
from jigsaw_opt.simulation.results.tables import jobs_csv, rounds_csv, summary_json
from tests.simulation.cases import SECOND, job, random_jobs, run, setting

HOUR = 3600


def test_two_jobs_one_after_the_other() -> None:
    second = replace(job("b", 0, 8, 2 * HOUR), weight=3)
    made = setting(job("a", 0, 8, HOUR), second, restart_s=0)
    outcome = run(made, FIFO)
    summary = summarise(made, outcome)
    assert summary.mean_completion_h == 2.0
    assert summary.median_completion_h == 2.0
    assert summary.p99_completion_h == 3.0
    assert summary.weighted_completion_h == (1 + 3 * 3) / 4
    assert (summary.mean_waiting_h, summary.median_waiting_h, summary.p99_waiting_h) == (0.5, 0.5, 1.0)
    assert (summary.longest_waiting_h, summary.longest_waiting_gpus) == (1.0, 8)
    assert summary.makespan_h == 3.0
    assert (summary.gpu_hours, summary.mean_gpu_hours) == (24.0, 12.0)
    assert summary.utilisation == 1.0
    assert summary.cluster_efficiency == 1.0
    assert (summary.jobs, summary.unfinished, summary.restarts, summary.rounds) == (2, 0, 0, 2)
    # Two jobs share 8 GPUs in the life of the first, so its fair time is two hours; 4/3 jobs in the life of the second.
    assert [fairness(made, record) for record in outcome.jobs] == pytest.approx([1 / 2, 3 / (2 * 4 / 3)])
    assert summary.unfair_share == 0.5


def test_the_longest_wait_may_be_that_of_a_job_that_never_starts() -> None:
    made = setting(job("a", 0, 4, 5 * HOUR), job("starves", HOUR, 8, 20 * HOUR), job("b", HOUR, 4, HOUR), restart_s=0)
    simulation = Simulation(made.under(SRTF))
    simulation.run(until_us=4 * HOUR * SECOND)
    summary = summarise(made, simulation.close())
    assert (summary.longest_waiting_h, summary.longest_waiting_gpus, summary.p99_waiting_h) == (3.0, 8, 0.0)


def test_a_job_that_waits_for_nothing_is_treated_unfairly() -> None:
    made = setting(job("a", 1, 1, 60), restart_s=0)
    outcome = run(made, FIFO)
    summary = summarise(made, outcome)
    assert summary.worst_fairness == pytest.approx(119 / 60)
    assert summary.unfair_share == 1.0
    assert summary.utilisation == pytest.approx(60 / (8 * 119))


def test_restarts_take_gpus_but_do_no_work() -> None:
    made = setting(job("a", 0, 8, 300), restart_s=100)
    summary = summarise(made, run(made, FIFO))
    assert summary.utilisation == 1.0
    assert summary.cluster_efficiency == pytest.approx(300 / 400)


def test_restarts_by_round_and_by_job_are_the_same_ones() -> None:
    made = setting(*random_jobs(3, 40))
    outcome = run(made, SRTF)
    so_far = restarts_so_far(outcome)
    assert so_far[-1] == summarise(made, outcome).restarts > 0
    assert so_far == sorted(so_far)


def test_jobs_that_have_not_ended_count_for_efficiency_alone() -> None:
    made = setting(job("a", 0, 4, HOUR), restart_s=0)
    simulation = Simulation(made.under(FIFO, placement="packed"))
    simulation.run(until_us=1800 * SECOND)
    summary = summarise(made, simulation.close())
    assert summary.unfinished == 1
    assert summary.mean_completion_h is summary.worst_fairness is None
    assert summary.cluster_efficiency == 0.5


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.75, 3), (0.76, 4), (0.99, 4), (1.0, 4)])
def test_quantiles_are_values_that_occur(share: float, expected: int) -> None:
    assert quantile([4, 1, 3, 2], share) == expected
    assert quantile([], share) is None


def test_the_median_of_an_even_number_is_halfway_between_the_two_in_the_middle() -> None:
    assert (median([4, 1, 3, 2]), median([3, 1, 2]), median([])) == (2.5, 2, None)


def test_tables_hold_every_job_and_every_round() -> None:
    made = setting(job('a,"b"', 0, 4, 90), job("c", 30, 8, 60), restart_s=30)
    outcome = run(made, FIFO)
    rows = list(csv.DictReader(io.StringIO(jobs_csv(made, outcome))))
    assert [row["name"] for row in rows] == ['a,"b"', "c"]
    assert [row["finish_s"] for row in rows] == ["120.000000", "210.000000"]
    assert [row["completion_s"] for row in rows] == ["120.000000", "180.000000"]
    rounds = list(csv.DictReader(io.StringIO(rounds_csv(outcome))))
    assert [(row["time_s"], row["waiting"], row["gpus"], row["moved"]) for row in rounds] == [
        ("0.000000", "0", "4", "1"),
        ("60.000000", "1", "4", "0"),
        ("120.000000", "0", "8", "1"),
    ]
    document = json.loads(summary_json(made.under("fifo"), summarise(made, outcome)))
    assert document["policy"] == "fifo"
    assert document["jobs"] == 2
