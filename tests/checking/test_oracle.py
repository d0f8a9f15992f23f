"""The oracle itself, on what is known (specification: known-answers)."""

from __future__ import annotations

from itertools import permutations

import pytest

from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server
from tests.oracle import optimum

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
