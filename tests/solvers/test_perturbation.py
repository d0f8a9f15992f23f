"""Relocation that begins with a share of the jobs placed anew."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances import generate
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.problem.operations import cut
from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.layout import Layout, demands
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.moves.placing import Placing
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing
from jigsaw_opt.solvers.search.params import RelocationParams, SearchParams
from jigsaw_opt.solvers.search.problem_data import ProblemData


def balancer_of(seed: int) -> LoadBalancer:
    operations = cut(generate("rack", seed))
    asked = demands(operations)
    assert asked is not None
    balancer = LoadBalancer(ProblemData(operations, Layout(operations), asked), Random(seed), 1_000_000)
    assert balancer.build(range(len(asked)))
    return balancer


@pytest.mark.parametrize("share", [0.01, 0.2, 1.0])
def test_a_share_of_the_jobs_is_placed_anew_and_all_others_stay(share: float) -> None:
    for seed in range(6):
        balancer = balancer_of(seed)
        before = balancer.assignments()
        assert balancer.ruin_and_recreate(None, share)
        after = balancer.assignments()
        assert len(after) == len(before)
        moved = sum(one is not other for one, other in zip(before, after, strict=True))
        assert moved <= max(2, round(share * len(before)))


def test_the_jobs_placed_anew_have_gpus_or_links_in_common() -> None:
    balancer = balancer_of(1)
    chosen = balancer._around(0, 0.3)
    assert chosen[0] == 0 and 2 <= len(chosen) <= round(0.3 * len(balancer.assignments()))
    assert len(set(chosen)) == len(chosen)

    def resources(index: int) -> set[tuple[str, int]]:
        assignment = balancer.assignment(index)
        return {("gpu", gpu) for gpu in assignment.gpus} | {("link", link) for link in assignment.links}

    for place, index in enumerate(chosen[1:], 1):
        assert any(resources(index) & resources(earlier) for earlier in chosen[:place])


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion", "period"])
def test_relocation_begins_with_more_jobs_placed_anew_the_more_often_it_was_in_vain(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    relocation = replace(RelocationParams(), placements=5, ruin_share=1.0)
    options = Options(workers=1, work_limit=5.0, params=SearchParams(relocation=relocation))
    control = Control("test", cut(generate("server", 2, objective=objective)), options, lambda event: None)
    driver = Driver(control)
    assert driver.open(Budget(control))
    context, shares = driver.context, list[float]()
    ruin_and_recreate = LoadBalancer.ruin_and_recreate

    def noted(self: LoadBalancer, first: int | None, share: float) -> bool:
        shares.append(share)
        return ruin_and_recreate(self, first, share)

    monkeypatch.setattr(LoadBalancer, "ruin_and_recreate", noted)
    sequences, lengths = context.shared(SequenceAnnealing), list[float]()
    for _ in range(12):
        best: Timetable | None = control.best
        assert best is not None
        lengths.append(sequences._effort.length)
        sequences.relocate(context.shared(Placing).balancer(), best)
    assert shares == [min(0.64, 0.08 * length) for length in lengths if length > 1]
    assert len(shares) > 3 and lengths[0] == 1
    result = control.result(StoppedBy.COMPLETED)
    assert result.plan is not None and not check(control.operations.instance, result.plan)
