"""Stronger bounds on the weighted sum of ends: never above an optimum, and stronger where they should be."""

from __future__ import annotations

from fractions import Fraction

import pytest

from jigsaw_opt.instances import catalogue
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server, cut
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.bounds.completion import stronger_completion_bounds
from jigsaw_opt.solvers.bounds.completion_program import CompletionProgram, Inequality
from tests.oracle import optimum
from tests.random_instances import random_instance

WEIGHTED = [name for name in catalogue.names("tiny") if catalogue.load(name).objective == "weighted_completion"]


def best_bound(pieces: Pieces) -> int:
    values = [bound.value for bound in stronger_completion_bounds(pieces, lambda: False)]
    assert values == sorted(set(values)), "each bound is better than those before"
    return max([lower_bound(pieces).value, *values])


@pytest.mark.parametrize("size", (6, 8))
def test_a_bound_never_exceeds_the_optimum(size: int) -> None:
    checked = 0
    for seed in range(60):
        instance = random_instance(seed, "finite", "weighted_completion", size)
        best = optimum(instance)
        if best is not None:
            assert best_bound(cut(instance)) <= best, seed
            checked += 1
    assert checked >= 40


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_bound_never_exceeds_a_proven_optimum(name: str) -> None:
    known = catalogue.best_known(name)
    assert known is not None and known.objective is not None and known.optimal
    assert best_bound(cut(catalogue.load(name))) <= known.objective


def long_and_short(weight: int) -> Instance:
    """Two jobs over the same link: eight iterations of 10 us + 10 us, and one transfer of 40 us."""
    models = {
        "long": Model((Segment("a", {"v": 10}, {"v": 0}, 10, 0),)),
        "short": Model((Segment("a", {"v": 10}, {"v": 0}, 40, 0),)),
    }
    servers = tuple(Server(f"s{k}", "v", 1, 10**6, 10**9) for k in range(2))
    jobs = (Job("long", "long", 2, 8), Job("short", "short", 2, 1, weight=weight))
    cluster = Cluster(servers, (), (Link("l", ("s0", "s1"), 10**6),))
    return Instance("two", cluster, models, jobs, objective="weighted_completion")


def test_iterations_tell_more_than_whole_jobs() -> None:
    pieces = cut(long_and_short(20))
    assert best_bound(pieces) > lower_bound(pieces).value


def test_links_of_a_server_pair_give_more() -> None:
    pieces = cut(generate("server", 76))
    assert best_bound(pieces) > 1.02 * lower_bound(pieces).value


def test_nothing_follows_a_stop() -> None:
    assert not list(stronger_completion_bounds(cut(generate("server", 76)), lambda: True))


def test_bounds_repeat() -> None:
    first, second = (list(stronger_completion_bounds(cut(generate("server", 44)), lambda: False)) for _ in range(2))
    assert first == second


def test_the_program_adds_up_exactly() -> None:
    program = CompletionProgram([3, 1], [10**15, 10**15 + 1])
    assert program.bound() == 4 * 10**15 + 1
    program.add(Inequality({0: 1, 1: 1}, 3 * 10**15, "pair"))
    program.solve()
    # The cheaper job waits for the other: its end is 2 * 10**15, and not a microsecond of it is rounded away.
    assert program.bound() == 5 * 10**15


def test_multipliers_that_take_too_much_are_scaled_down() -> None:
    program = CompletionProgram([1, 1], [0, 0])
    program.add(Inequality({0: 3, 1: 7}, 10**6, "pair"))
    program.solve()
    least = Fraction(10**6, 7)
    assert least - 1 <= program.bound() <= least + 1
