"""Facts of data-parallel jobs: the checker and the bounds work them out apart, and agree."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.checking.proofs.facts.cluster_facts import numbers_of_workers
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError
from jigsaw_opt.problem import Cluster, FreeDepth, Instance, Job, Link, Model, Segment, Server, compile_instance
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.solvers.bounds import lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import BoundContext
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import random_instance, with_power_caps, with_progress_limits, with_route_policies


def assert_agree(own: JobFacts, other: JobData) -> None:
    shared, job_class, job = own.shared, other.job_class, other.job
    assert shared.gpus == job_class.gpus
    assert {(s.ready, (s.channel.rate, s.channel.latency_us), s.exchange) for s in job_class.sites} == set(shared.sites)
    assert set(job_class.blocks.values()) == set(shared.blocks.values())
    assert (shared.iteration, shared.tail) == (job_class.iteration, job_class.tail)
    if shared.blocks:
        assert shared.tails == job_class.tails
    ring = job_class.ring
    assert shared.ring == (None if ring is None else (ring.rate, ring.latency_us))
    assert own.completion == other.completion
    cost = [7, *(9 * d * d % 50 + 10 * d for d in range(2, job.levels + 1))]
    cost.sort()
    assert own.least_work(cost) == critical.least_work_us(job, cost)
    if ring is not None and shared.ring is not None:
        transfers = job_class.exchange_over(job, ring)
        assert own.least_transfers(shared.transfers_over(shared.ring)) == critical.least_transfer_us(job, transfers)


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_the_checker_and_the_bounds_agree_on_all_facts(horizon: str) -> None:
    for seed in range(120):
        random, objective = Random(seed), "makespan" if horizon == "finite" else "period"
        instance = random_instance(seed, horizon, objective, 12)  # type: ignore[arg-type]
        for change in (with_power_caps, with_route_policies, with_progress_limits):
            instance = change(instance, random) if random.random() < 0.4 else instance
        if horizon == "finite" and random.random() < 0.4:
            instance = replace(instance, jobs=tuple(replace(job, restart_us=3) for job in instance.data_parallel))
        facts = Facts(instance)
        for data in BoundContext(compile_instance(instance)).job_data:
            assert_agree(facts.job(ProofStep({}, "$"), data.job.name), data)


def test_a_job_that_is_not_there_fails_the_step(plain: Instance) -> None:
    with pytest.raises(ProofStepError, match="no data-parallel job 'x'"):
        Facts(plain).job(ProofStep({}, "$"), "x")


@pytest.fixture(name="plain")
def _plain() -> Instance:
    return random_instance(0, "finite", "makespan", 6)


def test_a_job_may_have_its_last_level_on_gpus_of_another_type_in_each_iteration() -> None:
    """On one type the last level is fast, on the other the levels that are left hide their transfers."""
    segments = (
        Segment("a", {"t": 0, "u": 0}, {"t": 0, "u": 700}, 0, 0),
        Segment("b", {"t": 0, "u": 0}, {"t": 990, "u": 790}, 600_000, 0),
        Segment("c", {"t": 10, "u": 10}, {"t": 0, "u": 0}, 0, 0),
    )
    servers = (Server("s0", "t", 1, 10**7, 10**9), Server("s1", "u", 2, 10**7, 10**9))
    cluster = Cluster(servers, links=(Link("wire", ("s0", "s1"), 10**9),))
    job = Job("j", "net", 3, 2, depth=FreeDepth())
    instance = Instance("types", cluster, {"net": Model(segments, state_factor=1)}, (job,))
    # With levels 3, 1, 1 and then 1, 3, 3 the iterations take 1400 and 1500.
    assert solve(instance, "cpsat", work_limit=3, threads=1).objective == 2900
    operations = compile_instance(instance)
    assert lower_bound(operations).value == 2800
    assert all(bound.value <= 2900 for bound in stronger_bounds(operations, 0, work=2))
    assert Facts(instance).job(ProofStep({}, "$"), "j").span == 2800


@pytest.mark.parametrize(
    ("room", "workers", "counts"),
    [
        ([], 0, [()]),
        ([], 1, []),
        ([2, 0, 1], 2, [(1, 0, 1), (2, 0, 0)]),
        ([1, 1], 3, []),
        ([0] * 2000 + [1, 1], 1, [(0,) * 2001 + (1,), (0,) * 2000 + (1, 0)]),
    ],
)
def test_numbers_of_workers_come_in_ascending_order(
    room: list[int], workers: int, counts: list[tuple[int, ...]]
) -> None:
    assert [*numbers_of_workers(room, workers)] == counts
