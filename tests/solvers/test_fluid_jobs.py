"""Jobs at rates: when they end by hand, and the local search over their order and GPUs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import pytest

from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.engines import compiled
from jigsaw_opt.solvers.kernels.processor_sharing import share_processors
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased.phases import Gpus, GroupProgress, LastPhase
from jigsaw_opt.solvers.phased.rates import jobs as rate_jobs
from jigsaw_opt.solvers.phased.rates.jobs import RateJob, RateJobs, RatePolicy
from jigsaw_opt.solvers.phased.rates.model import RateModel
from jigsaw_opt.solvers.phased.rates.search import RateSearch
from jigsaw_opt.solvers.phased.timer import PhaseTimer, UntimedError
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extras import needs_fast

MEMORY = {"x/0": 100, "x/1": 100}


def job(name: str, iterations: int, iteration_us: int, load_us: float, **changes: object) -> RateJob:
    found = RateJob(name, iterations, 1, 0, None, ("x/0",), iteration_us, ((0, load_us),), 10, 20)
    return replace(found, **changes)  # type: ignore[arg-type]


def ends_of(order: list[RateJob]) -> dict[str, float]:
    return {job.name: end for job, end in zip(order, RateJobs(MEMORY).ends_us(order), strict=True)}


def test_a_job_takes_what_those_before_it_leave() -> None:
    """`a` uses half of the GPU, and 0.1 of that is lost; `b` goes at 0.45 of its speed until `a` ends at 1000."""
    order = [job("a", 100, 10, 5.0), job("b", 100, 10, 10.0)]
    ends = ends_of(order)
    assert ends["a"] == 1000 and round(ends["b"]) == 1000 + ((100 - 45) * 10)


def test_a_job_waits_for_its_release_and_for_memory() -> None:
    late = job("late", 10, 10, 1.0, release_us=500)
    assert ends_of([late, job("now", 10, 10, 1.0)]) == {"now": 100, "late": 600}
    large = [job("a", 10, 10, 1.0, state_bytes=60), job("b", 10, 10, 1.0, state_bytes=60)]
    assert ends_of(large) == {"a": 100, "b": 200}


def test_a_job_that_may_move_goes_where_there_is_room_after_a_restart() -> None:
    """`wide` takes both GPUs from 50 to 150; `late` takes one of them from 180 on, so `moves` takes the other one."""
    one = job("moves", 20, 10, 10.0, restart_us=40)
    options = tuple(replace(one, gpus=(f"x/{k}",), loads_us=((k, 10.0),)) for k in (0, 1))
    moving = replace(one, options=options)
    wide = job("wide", 10, 10, 10.0, release_us=50, gpus=("x/0", "x/1"), loads_us=((0, 10.0), (1, 10.0)))
    late = job("late", 10, 10, 10.0, release_us=100)
    assert ends_of([wide, late, moving]) == {"wide": 150, "late": 250, "moves": 300}
    anywhere = replace(one, options=(replace(one, anywhere=True),))
    jobs = RateJobs(MEMORY, {"x": "any"})
    assert jobs.ends_us([wide, late, anywhere]) == [150, 250, 300]


def drawn_jobs(draw: random.Random) -> list[RateJob]:
    """Jobs of one or two GPUs, some of which move to certain GPUs or to any of a server."""
    found = []
    for number in range(draw.randint(2, 6)):
        gpus = draw.choice((("x/0",), ("x/1",), ("x/0", "x/1"), ("y/0", "y/1")))
        loads = tuple((int(gpu[0] == "y") * 2 + int(gpu[2]), draw.uniform(1.0, 10.0)) for gpu in gpus)
        one = job(
            str(number), draw.randint(1, 300), 10, 0.0, gpus=gpus, loads_us=loads, release_us=draw.choice((0, 700))
        )
        one = replace(one, state_bytes=draw.randint(10, 60), restart_us=draw.choice((None, None, 0, 40)))
        if one.restart_us is not None:
            one = replace(one, options=(replace(one, anywhere=draw.random() < 0.5), replace(one, iteration_us=15)))
        found.append(one)
    return found


@needs_fast
def test_compiled_jobs_end_when_they_do_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.compiled(share_processors) is not None
    orders = [drawn_jobs(random.Random(seed)) for seed in range(100)]

    def ends() -> list[list[float]]:
        memory = {"x/0": 100, "x/1": 100, "y/0": 100, "y/1": 90}
        return [RateJobs(memory, {"x": "any", "y": "any"}).ends_us(order) for order in orders]

    fast = ends()
    monkeypatch.setattr(rate_jobs, "compiled", lambda function: None)
    assert ends() == fast  # to the last bit
    assert len({end for order in fast for end in order}) > 300


def test_counts_are_rates_in_whole_numbers() -> None:
    order = [
        job("fast", 1000, 10, 1.0, gpus=("x/0",)),
        job("slow", 1000, 30, 1.0, gpus=("x/1",), loads_us=((1, 30.0),)),
    ]
    policy = RatePolicy(order, RateJobs(MEMORY), cyclic_plan, most=1)
    assert policy.running({}, GroupProgress({"fast": 1000, "slow": 1000})).counts == {"fast": 3, "slow": 1}
    last = {job.name: LastPhase(job.gpus, 0, 0) for job in order}
    assert policy.running({}, GroupProgress({"fast": 2, "slow": 1000}, 0, last, 1)).counts == {"fast": 2, "slow": 1}


def test_counts_are_those_whose_cyclic_plans_waste_least() -> None:
    """One job: a period of two iterations takes 22 us, others take half as long again for each iteration."""
    alone = [job("a", 1000, 10, 10.0)]
    asked: list[int] = []

    def timing(counts: Mapping[str, int], gpus: Gpus) -> Plan:
        asked.append(counts["a"])
        period_us = 22 if counts["a"] == 2 else 15 * counts["a"]
        return Plan.of_jobs("f", "", "feasible", period_us, 0, period_us, ())

    first = RatePolicy(alone, RateJobs(MEMORY), timing, most=1)
    assert first.running({}, GroupProgress({"a": 1000})).counts == {"a": 1}
    asked.clear()
    measured = RatePolicy(alone, RateJobs(MEMORY), timing)
    assert measured.running({}, GroupProgress({"a": 1000})).counts == {"a": 2}
    assert asked == [1, 2, 4, 8]


def test_a_job_that_has_not_begun_waits_where_there_is_no_cyclic_plan_with_it() -> None:
    order = [job(name, 1000, 20, 8.0) for name in ("first", "second", "third")]

    def timing(counts: Mapping[str, int], gpus: Gpus) -> Plan:
        if {"first", "second"} <= {*counts}:
            raise UntimedError("no memory for both")
        return cyclic_plan(counts, gpus)

    policy = RatePolicy(order, RateJobs(MEMORY), timing, most=1)
    remaining = {job.name: 1000 for job in order}
    assert [*policy.running({}, GroupProgress(dict(remaining))).counts] == ["first"]
    with pytest.raises(UntimedError):
        policy.running({}, GroupProgress(remaining, 0, {job.name: LastPhase(job.gpus, 0, 0) for job in order}, 1))


def cyclic_plan(counts: Mapping[str, int], gpus: Gpus) -> Plan:
    return Plan.of_jobs("f", "", "feasible", 100, 0, 100, ())


def test_the_search_finds_the_best_order_of_one_gpu() -> None:
    """Four jobs of one GPU: no order of all 24 is better."""
    one = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 30),))
    jobs = tuple(Job(f"j{k}", "one", 1, n, weight=w) for k, (n, w) in enumerate([(90, 3), (40, 1), (70, 5), (10, 2)]))
    cluster = Cluster((Server("x", "v", 1, 200, 10**6),))
    asked = Instance("f", cluster, {"one": one}, jobs, "finite", "weighted_completion")
    search, model = searched(asked)
    found = model.anywhere()
    assert found is not None
    best = min(search.value(order) for order in permutations(found))
    assert search.value(search.improved(found)) == best == search.value(search.placed_in_turn(found))


def test_the_search_takes_gpus_that_are_free() -> None:
    one = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 30),))
    servers = tuple(Server(name, "v", 1, 200, 10**6) for name in "xyz")
    cluster = Cluster(servers, (), (Link("xy", ("x", "y"), 10**6, 1), Link("yz", ("y", "z"), 10**6, 1)))
    asked = Instance("f", cluster, {"one": one}, tuple(Job(f"j{k}", "one", 1, 100) for k in range(3)), "finite")
    search, model = searched(asked)
    together = [found for k in range(3) if (found := model.on(k, ["x/0"])) is not None]
    assert search.value(together) == 3000
    assert search.value(search.improved(together)) == 1000
    assert search.value(search.placed_in_turn(together)) == 1000


def searched(asked: Instance) -> tuple[RateSearch, RateModel]:
    rng = random.Random(1)
    model = RateModel(asked, rng)
    return RateSearch(
        asked, model, rng, PhaseTimer(SolveState("phased", compile_instance(asked), Options(), lambda _: None))
    ), model
