"""Background iterations in the holes of one foreground job."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement

import pytest

from jigsaw_opt.checking import violations
from jigsaw_opt.planning.fill import insert
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job, StaircaseDepth
from jigsaw_opt.problem.model import Model, Segment
from tests.refusals import misuse

MEMORY = 10**9


def model(block_us: int, payload: int = 0) -> Model:
    return Model((Segment("s", {"v": 1}, {"v": block_us - 1}, payload, 0),))


def case(*background_us: int, exchange_us: int = 60, memory: int = MEMORY) -> Instance:
    """Blocks of 40 us on each of two servers with one GPU, and an exchange; a period of both without a hole hidden."""
    servers = tuple(Server(f"s{k}", "v", 1, memory, 10**9) for k in range(2))
    links = tuple(Link(f"l{k}", (server.name, "switch"), 10**6, 0) for k, server in enumerate(servers))
    models = {"f": model(40, exchange_us)} | {f"b{us}": model(us) for us in background_us}
    jobs = (Job("f", "f", 2, 1), *(Job(f"j{k}", f"b{us}", 1, 1) for k, us in enumerate(background_us)))
    return Instance("case", Cluster(servers, ("switch",), links), models, jobs, "cyclic", "period")


def counts(instance: Instance, slowdown: float) -> tuple[int, list[int]]:
    found = insert(instance, "f", slowdown)
    assert found is not None
    filled, plan = found
    assert not violations(filled, plan)
    first, *others = [job.iterations for job in filled.data_parallel]
    assert Fraction(plan.objective, first) <= Fraction(str(slowdown)) * 100
    return plan.objective, [first, *others]


def test_what_fits_in_the_exchange_needs_no_slow_down() -> None:
    assert counts(case(30), 1) == (100, [1, 2])
    assert counts(case(25), 1) == (100, [1, 2])


def test_a_longer_hole_takes_one_iteration_more() -> None:
    assert counts(case(35), 1.1) == (110, [1, 2])


def test_holes_of_two_lengths_beat_equal_ones() -> None:
    """Of 10 us each, two make room for a second iteration of 40 us behind every second one of the foreground."""
    assert counts(case(40), 1.1) == (220, [2, 3])


def test_one_long_hole_serves_a_job_that_no_exchange_hides() -> None:
    period_us, (iterations, inserted) = counts(case(150), 1.1)
    assert (iterations, inserted) == (9, 1)
    assert period_us == 990


def test_two_jobs_have_the_same_holes_on_their_own_gpus() -> None:
    assert counts(case(30, 20), 1) == (100, [1, 2, 3])


@pytest.mark.parametrize("background_us", [61, 10_000])
def test_none_where_an_iteration_fits_in_no_hole(background_us: int) -> None:
    assert insert(case(background_us), "f", 1) is None


def test_none_without_memory() -> None:
    states = case(30).models["f"].state_bytes
    assert insert(case(30, memory=states), "f", 1) is not None
    large = case(30, memory=states)
    models = {**large.models, "b30": model(30, 1)}
    assert insert(replace(large, models=models), "f", 1) is None


def test_none_on_gpus_that_differ_or_are_not_joined() -> None:
    first, second = case(30).cluster.servers
    other = Cluster((first, replace(second, gpu_type="w")), ("switch",), case(30).cluster.links)
    both = {
        name: Model((replace(model.segments[0], forward_us={"v": 1, "w": 1}, backward_us={"v": 8, "w": 8}),))
        for name, model in case(30).models.items()
    }
    assert insert(replace(case(30), cluster=other, models=both), "f", 1) is None
    assert insert(replace(case(30), cluster=Cluster((first, second))), "f", 1) is None


@pytest.mark.parametrize(
    ("instance", "foreground", "slowdown", "expected", "named"),
    [
        (replace(case(30), horizon="finite", objective="makespan"), "f", 1, "unsupported instance", "'case'"),
        (case(30), "g", 1, "contradiction foreground", "'g'"),
        (case(30), "j0", 1, "contradiction foreground", "'j0'"),
        (case(10, 10, 10), "f", 1, "wrong-count", "1 and 2"),
        (case(), "f", 1, "wrong-count", "1 and 2"),
        (case(30), "f", 0.9, "out-of-range slowdown", "9/10"),
        (
            replace(case(30), jobs=(replace(case().jobs[0], depth=StaircaseDepth()),)),
            "f",
            1,
            "unsupported",
            "full depth",
        ),
    ],
)
def test_other_instances_are_refused(
    instance: Instance, foreground: str, slowdown: float, expected: str, named: str
) -> None:
    with misuse(expected, naming=[named]):
        insert(instance, foreground, slowdown)


def best_rate(exchange_us: int, lengths: Sequence[int], slowdown: Fraction) -> Fraction:
    """By all choices of holes of at most four iterations, background work over the period; 0 where not all fit."""
    extra = (slowdown - 1) * (40 + exchange_us)
    most = exchange_us + int(4 * extra)
    multiples = {k * own for own in lengths for k in range(1, most // own + 1)}
    useful = sorted({exchange_us, *(length for length in multiples if exchange_us <= length <= most)})
    best = Fraction(0)
    for count in range(1, 5):
        for holes in combinations_with_replacement(useful, count):
            if max(holes) >= max(lengths) and sum(holes) - count * exchange_us <= count * extra:
                work = sum(hole // own * own for hole in holes for own in lengths)
                best = max(best, Fraction(work, sum(holes) + 40 * count))
    return best


def test_no_choice_of_few_holes_is_better() -> None:
    draw = random.Random(1)
    compared = 0
    for _ in range(40):
        exchange_us, lengths = draw.randint(5, 60), draw.sample(range(4, 70), draw.randint(1, 2))
        slowdown = draw.choice((Fraction(1), Fraction(21, 20), Fraction(13, 10)))
        best = best_rate(exchange_us, lengths, slowdown)
        found = insert(case(*lengths, exchange_us=exchange_us), "f", slowdown)
        if best:
            assert found is not None
            filled, plan = found
            work = sum(job.iterations * own for job, own in zip(filled.data_parallel[1:], lengths, strict=True))
            assert Fraction(work, plan.objective) >= best
            compared += 1
    assert compared > 15
