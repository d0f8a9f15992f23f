"""One kind of plan: one phase once or for ever, or phases with a number of repetitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt import Options, Plan, UsageError, instances, solve
from jigsaw_opt.problem.plan import Block, Iteration, JobPlan, Phase, PhaseGroup
from tests.refusals import misuse

JOBS = (JobPlan("j", ("s/0",), (Iteration((Block(1, 0, 10),), ()),)),)


def phased(*phases: Phase) -> Plan:
    return Plan("long", "", "feasible", 40, 30, (PhaseGroup(phases),))


def test_a_plan_without_a_period_is_one_phase_once_and_one_with_a_period_for_ever() -> None:
    listed, cyclic = (Plan.of_jobs("i", "", "feasible", 10, 5, period, JOBS) for period in (None, 10))
    assert listed.groups == (PhaseGroup((Phase(0, None, 1, JOBS),)),)
    assert cyclic.groups == (PhaseGroup((Phase(0, 10, None, JOBS),)),)
    assert listed.with_period(10) == cyclic and cyclic.with_period(None) == listed
    assert (listed.jobs, listed.period_us, listed.is_phased) == (JOBS, None, False)
    assert (cyclic.jobs, cyclic.period_us, cyclic.is_phased) == (JOBS, 10, False)
    assert listed.with_jobs(()).jobs == ()
    assert listed.groups[0].phases[0].end_us == 10


def test_a_phased_plan_has_no_single_list_of_jobs() -> None:
    plan = phased(Phase(0, 10, 4, JOBS))
    assert plan.is_phased and phased().is_phased and plan.groups[0].phases[0].end_us == 40
    for get in (lambda: plan.jobs, lambda: plan.period_us, lambda: plan.data_parallel, lambda: plan.with_jobs(())):
        with misuse("unsupported", "unsupported", naming=["'long'", "phases", "--solver search"]):
            get()


@pytest.mark.parametrize("phase", [(0, None, 2), (0, None, None), (5, None, 1), (5, 10, None)])
def test_a_phase_that_is_not_counted_begins_at_0_and_takes_place_once_or_for_ever(
    phase: tuple[int, int | None, int | None],
) -> None:
    with pytest.raises(UsageError):
        Phase(*phase, JOBS)


@pytest.mark.parametrize("other", [Phase(0, None, 1, JOBS), Phase(0, 10, None, JOBS)])
def test_each_of_several_phases_has_a_number_of_repetitions(other: Phase) -> None:
    with misuse("missing-field", naming=["period", "repetitions"]):
        phased(Phase(0, 10, 4, JOBS), other)


def test_endless_phases_have_no_end_and_single_ones_no_period() -> None:
    with pytest.raises(UsageError, match="for ever"):
        _ = Phase(0, 10, None, JOBS).end_us
    with pytest.raises(UsageError, match="have a period"):
        _ = Phase(0, None, 1, JOBS).cycle_us


def test_plans_and_results_are_shown_on_one_line() -> None:
    cyclic = Plan.of_jobs("i", "", "feasible", 10, 5, 10, JOBS)
    assert repr(cyclic) == "<Plan of 'i': 1 job, period 10, gap 50.00 %>"
    assert repr(replace(cyclic.with_period(None), bound=10)) == "<Plan of 'i': 1 job, objective 10, gap 0.00 %>"
    assert repr(phased(Phase(0, 10, 4, JOBS))) == "<Plan of 'long': 1 job, 1 phase, objective 40, gap 25.00 %>"
    result = replace(solve(instances.load("tiny/000"), "greedy", Options(threads=1)), objective=10, bound=8, seconds=1)
    assert repr(result) == "<Result feasible: objective 10, bound 8, gap 20.00 %, stopped by completed after 1.00 s>"
