"""The oracle itself, on what is known (specification: known-answers)."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server
from jigsaw_opt.problem.instance import Objective
from tests.oracle import optimum
from tests.random_instances import tight_instance
from tests.task_graph_oracle import task_graph_optimum

LENGTHS, WEIGHTS = (3, 1, 4, 2), (2, 5, 1, 3)


def machines(gpus: int, objective: str) -> Instance:
    models = {f"m{p}": Model((Segment("s", {"v": p}, {"v": 0}, 0, 0),)) for p in LENGTHS}
    jobs = tuple(Job(f"j{k}", f"m{p}", 1, 1, weight=WEIGHTS[k]) for k, p in enumerate(LENGTHS))
    return Instance("machines", Cluster((Server("s", "v", gpus, 1, 1),)), models, jobs, "finite", objective)  # type: ignore[arg-type]


def test_smiths_rule() -> None:
    order = sorted(range(4), key=lambda k: LENGTHS[k] / WEIGHTS[k])
    ends = {k: sum(LENGTHS[j] for j in order[: place + 1]) for place, k in enumerate(order)}
    assert optimum(machines(1, "weighted_completion")) == sum(WEIGHTS[k] * end for k, end in ends.items())


def test_identical_machines() -> None:
    assert optimum(machines(2, "makespan")) == 5


@pytest.mark.parametrize("pairs", [((3, 2), (1, 4), (5, 1)), ((2, 5), (4, 4), (3, 1))])
def test_johnsons_rule(pairs: tuple[tuple[int, int], ...]) -> None:
    models = {f"m{k}": Model((Segment("s", {"v": a}, {"v": 0}, b, 0),)) for k, (a, b) in enumerate(pairs)}
    cluster = Cluster((Server("s", "v", 1, 1000, 1), Server("t", "v", 1, 1000, 1)), (), (Link("l", ("s", "t"), 10**6),))
    jobs = tuple(Job(f"j{k}", f"m{k}", 2, 1) for k in range(len(pairs)))

    def flow(order: tuple[int, ...]) -> int:
        first = second = 0
        for k in order:
            first += pairs[k][0]
            second = max(first, second) + pairs[k][1]
        return second

    best = min(flow(order) for order in permutations(range(len(pairs))))
    early = sorted((k for k in range(len(pairs)) if pairs[k][0] <= pairs[k][1]), key=lambda k: pairs[k][0])
    late = sorted((k for k in range(len(pairs)) if pairs[k][0] > pairs[k][1]), key=lambda k: -pairs[k][1])
    assert optimum(Instance("flow", cluster, models, jobs)) == best == flow((*early, *late))


def test_the_example_of_the_specification(pair: Instance) -> None:
    assert optimum(pair) == 1800


def one_at_a_time(lasts: tuple[int, ...], *servers: Server) -> Instance:
    """Jobs of one block of these lengths, of which only one has room on a GPU; fifty times as long on type ``w``."""
    models = {
        f"m{k}": Model((Segment("s", {"v": p, "w": 50 * p}, {"v": 0, "w": 0}, 10, 0),), state_factor=1)
        for k, p in enumerate(lasts)
    }
    jobs = tuple(Job(f"j{k}", f"m{k}", 1, 1) for k in range(len(lasts)))
    return Instance("one at a time", Cluster(servers), models, jobs)


def test_jobs_that_do_not_fit_together_follow_one_another() -> None:
    instance = one_at_a_time((3, 5, 6), Server("s", "v", 1, 10, 1))
    times = zip(instance.jobs, (1, 9, 0), (4, 20, 10), strict=True)
    instance = replace(instance, jobs=tuple(replace(job, release_us=r, deadline_us=d) for job, r, d in times))
    assert optimum(instance) == task_graph_optimum(instance) == 15


def test_a_fast_gpu_is_waited_for() -> None:
    instance = one_at_a_time((2, 2), Server("fast", "v", 1, 10, 1), Server("slow", "w", 1, 10, 1))
    assert optimum(instance) == task_graph_optimum(instance) == 4


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_two_ways_of_brute_force_agree_where_memory_is_scarce(objective: Objective) -> None:
    found = []
    for seed in range(12):
        instance = tight_instance(seed, objective, "data-parallel", operations=5)
        found.append(optimum(instance))
        assert task_graph_optimum(instance) == found[-1], seed
    assert None in found and len(set(found)) > 5
