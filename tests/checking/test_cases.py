"""Proofs by cases: right trees are accepted, and no changed one proves too much."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from jigsaw_opt.checking.proofs.arguments import proven
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError
from jigsaw_opt.instances import best_known, load
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.case_search import prove_by_cases
from tests.checking.proof_mutants import mutants
from tests.random_instances import GOALS
from tests.random_task_graphs import random_task_graph_instance, with_copies
from tests.task_graph_oracle import task_graph_optimum


@pytest.mark.parametrize("number", [0, 4, 9, 13, 15, 21, 27, 34, 37, 44, 58, 61, 70])
def test_the_optimum_is_proven_and_no_more(number: int) -> None:
    name = f"tiny/{number:03}"
    instance, known = load(name), best_known(name)
    assert known is not None
    assert prove_by_cases(instance, known.objective + 1, 100_000) is None
    argument = prove_by_cases(instance, known.objective)
    assert argument is not None
    assert proven(ProofStep(argument, "$"), Facts(instance)) == known.objective


@pytest.mark.parametrize(
    "name", ["shop/job-6x4", "shop/cyclic-5x4", "pipeline/two-servers-cyclic", "pipeline/tight-memory"]
)
def test_the_optimum_of_task_graphs_is_proven(name: str) -> None:
    instance, known = load(name), best_known(name)
    assert known is not None
    argument = prove_by_cases(instance, known.objective)
    assert argument is not None
    assert proven(ProofStep(argument, "$"), Facts(instance)) == known.objective


def test_what_memory_intervals_hold_at_once_bounds_the_period() -> None:
    instance = load("pipeline/tight-memory")
    argument = prove_by_cases(instance, 300_000)
    assert argument is not None
    assert proven(ProofStep(argument, "$"), Facts(instance)) == 300_000
    large = (replace(server, gpu_memory=2 * server.gpu_memory) for server in instance.cluster.servers)
    with pytest.raises(ProofStepError):
        ample = replace(instance, cluster=replace(instance.cluster, servers=tuple(large)))
        proven(ProofStep(argument, "$"), Facts(ample))


@pytest.mark.parametrize("goal", [GOALS[0], ("cyclic", "period")], ids=lambda goal: goal[1])
def test_no_more_than_the_optimum_of_random_task_graphs_is_proven(goal: tuple[Horizon, Objective]) -> None:
    found = 0
    for seed in range(6):
        instance = random_task_graph_instance(seed, *goal)
        if seed % 3 == 0:
            instance = with_copies(instance)
        best = task_graph_optimum(instance)
        if best is None:
            continue
        assert prove_by_cases(instance, best + 1, 3_000) is None, seed
        argument = prove_by_cases(instance, best, 3_000)
        found += argument is not None
        # A changed tree of many cases may take long.
        changes = [*mutants(argument)] if argument and len(argument["tree"]) < 20 else []
        for path, changed in changes[:: 1 + len(changes) // 10]:
            with suppress(ProofStepError):
                assert proven(ProofStep(changed, "$"), Facts(instance)) <= best, (seed, path)
    assert found > 2


@pytest.mark.parametrize("number", [0, 4, 13])
def test_a_changed_argument_proves_nothing_that_is_not_so(number: int) -> None:
    name = f"tiny/{number:03}"
    instance, known = load(name), best_known(name)
    argument = prove_by_cases(instance, known.objective if known else 0)
    refused = 0
    for path, changed in mutants(argument):
        try:
            # A changed tree may still be one of contradictions; then what it proves still holds.
            assert proven(ProofStep(changed, "$"), Facts(instance)) <= known.objective, path
        except ProofStepError:
            refused += 1
    assert refused > 0


def test_a_search_ends_where_it_is_stopped_and_where_work_runs_out() -> None:
    assert prove_by_cases(load("tiny/003"), 10589, 100) is None
    assert prove_by_cases(load("tiny/003"), 10589, stop=lambda: True) is None
    assert prove_by_cases(load("tiny/003"), 0) == {"kind": "none"}
