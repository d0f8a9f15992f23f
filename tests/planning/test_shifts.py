"""Time shifts on shared links, their traversal, and jobs that share links by rate."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import OutOfTimeError, UsageError
from jigsaw_opt.planning.shifts.affinity import affinity_parts, has_no_cycle, time_shifts
from jigsaw_opt.planning.shifts.comparison import best_placement, candidates, compare
from jigsaw_opt.planning.shifts.demand import GridDemand, choose_grid, compatibility, shared_links
from jigsaw_opt.planning.shifts.jobs import OwnIteration, RepeatedJob, draw_placement, placement_of, repeated_jobs
from jigsaw_opt.planning.shifts.link_rates import simulate_shared
from jigsaw_opt.planning.shifts.ratios import _RatioSearch, best_ratios, with_ratios
from jigsaw_opt.planning.shifts.rotations import RotationProblem, best_rotations
from jigsaw_opt.problem.cluster import Channel, Cluster, Link, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.depth import StaircaseDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.random_task_graphs import random_task_graph_instance
from tests.refusals import misuse


def job(links: Sequence[int], *phases: tuple[int, int], rate: int = 10) -> RepeatedJob:
    """A job of one bucket: in each iteration so long a block, then so long a transfer."""
    iterations = tuple(OwnIteration(block, (block,), (send,)) for block, send in phases)
    return RepeatedJob("job", Channel(tuple(links), rate, 0), iterations)


def mean_compatibility(jobs: Sequence[RepeatedJob], bandwidths: Sequence[int], shifts: Sequence[int]) -> Fraction:
    """By the definition, microsecond by microsecond."""
    found = []
    for link, capacity in enumerate(bandwidths):
        users = [(each, shift) for each, shift in zip(jobs, shifts, strict=True) if link in each.channel.links]
        if len(users) < 2:
            continue
        around = math.lcm(*(user.cycle_us for user, _ in users))
        excess = 0
        for moment in range(around):
            on = (any(a <= (moment - shift) % user.cycle_us < b for a, b in user.transfers) for user, shift in users)
            excess += max(
                0, sum(each.channel.rate for (each, _), sends in zip(users, on, strict=True) if sends) - capacity
            )
        found.append(1 - Fraction(excess, around * capacity))
    return sum(found, Fraction(0)) / len(found)


def drawn(seed: int, links: int) -> tuple[list[RepeatedJob], list[int]]:
    rng = random.Random(seed)
    bandwidths = [rng.choice([10, 12, 15]) for _ in range(links)]
    jobs = []
    for _ in range(3):
        used = sorted(rng.sample(range(links), rng.randint(1, min(2, links))))
        length, send = rng.choice([4, 5, 6]), rng.randint(1, 4)
        jobs.append(job(used, (length - min(send, 3), min(send, 3)), rate=rng.choice([6, 10])))
    return jobs, bandwidths


@pytest.mark.parametrize(("seed", "links"), [(seed, links) for seed in range(12) for links in (1, 2, 3)])
def test_shifts_are_those_of_brute_force(seed: int, links: int) -> None:
    jobs, bandwidths = drawn(seed, links)
    found = time_shifts(jobs, bandwidths, grid_us=1)
    if not found.links:
        assert shared_links(jobs, bandwidths) == ()
        return
    best = max(
        mean_compatibility(jobs, bandwidths, shifts)
        for shifts in product(range(1), *(range(job.cycle_us) for job in jobs[1:]))
    )
    assert mean_compatibility(jobs, bandwidths, found.shifts_us) == sum(link.shifted for link in found.links) / len(
        found.links
    )
    assert found.status == "optimal"
    assert found.mean == pytest.approx(float(best), abs=1e-9)
    assert found.bound == pytest.approx(float(best), abs=1e-8)


def test_traversal_agrees_with_the_best_rotations_of_every_link_alone() -> None:
    jobs = [job([0], (6, 6)), job([0, 1], (9, 9)), job([1, 2], (7, 5)), job([2], (4, 4)), job([2], (12, 4))]
    found = time_shifts(jobs, [10, 10, 10], grid_us=1)
    assert not found.has_cycle
    demands = [GridDemand.of(job, 1) for job in jobs]
    for told in found.links:
        alone = best_rotations(RotationProblem([told.shared], demands, 1))
        assert 1 - alone.excess == pytest.approx(float(told.shifted), abs=1e-9)
        assert compatibility(told.shared, demands, found.shifts_us, 1) == told.shifted


def test_parts_of_the_affinity_graph() -> None:
    jobs = [job(links, (1, 1)) for links in ([0, 1], [0, 1], [2], [2], [3])]
    parts = affinity_parts(shared_links(jobs, [10] * 4))
    assert [([each.link for each in part], has_no_cycle(part)) for part in parts] == [([0, 1], False), ([2], True)]
    found = time_shifts(jobs, [10] * 4)
    assert found.has_cycle and found.mean == 1.0
    assert [link.method for link in found.links] == ["joint", "joint", "traversal"]


def test_a_grid_divides_all_cycles_or_rounds_them_up() -> None:
    even = [job([0], (60_000, 40_000)), job([0], (90_000, 60_000))]
    grid = choose_grid(even, shared_links(even, [10]), most_cells=300)
    assert grid == 1_000
    odd = [job([0], (60_000, 40_009)), job([0], (90_000, 60_001))]
    links = shared_links(odd, [10])
    grid = choose_grid(odd, links, most_cells=300)
    assert math.lcm(*(GridDemand.of(each, grid).cells for each in odd)) <= 300
    assert time_shifts(odd, [10], grid).rounded
    assert sum(GridDemand.of(odd[0], grid).busy_us) == 40_009


def test_cycles_without_a_common_divisor_cannot_be_in_turn() -> None:
    jobs = [job([0], (5, 5)), job([0], (7, 6))]
    found = time_shifts(jobs, [10], grid_us=1)
    # Every two moments of the two meet, wherever they start.
    assert found.links[0].shifted == found.links[0].unshifted == 1 - Fraction(5 * 6, 10 * 13)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_sent_is_what_was_asked_for(seed: int) -> None:
    jobs, bandwidths = drawn(seed, 2)
    run = simulate_shared(jobs, bandwidths, [0, 1, 2], iterations=20, warm_up=5)
    for each, count, sent in zip(jobs, run.iterations, run.sent_us, strict=True):
        assert count * each.busy_us <= sent + 1e-3 <= (count + 1) * each.busy_us + 2e-3
    for link, bandwidth in enumerate(bandwidths):
        used = sum(
            sent * each.channel.rate for each, sent in zip(jobs, run.sent_us, strict=True) if link in each.channel.links
        )
        assert used <= bandwidth * run.end_us * (1 + 1e-9)
    assert all(us >= each.alone_us - 1e-6 for us, each in zip(run.iteration_us, jobs, strict=True))


def test_alone_a_job_keeps_its_own_length() -> None:
    two = job([0], (30, 20), (10, 5))
    assert simulate_shared([two], [10], [7.0], iterations=10).iteration_us == (32.5,)
    buckets = OwnIteration(50, (20, 50), (40, 0))
    alone = RepeatedJob("early", Channel((0,), 10, 0), (buckets,))
    assert alone.transfers == ((20, 60),)
    assert simulate_shared([alone], [10], [0.0], iterations=10).iteration_us == (60.0,)


@pytest.mark.parametrize(("shift_us", "iteration_us"), [(0, 150), (50, 100)])
def test_two_alike_jobs_in_turn_do_not_slow_each_other(shift_us: int, iteration_us: int) -> None:
    jobs = [job([0], (50, 50)), job([0], (50, 50))]
    found = time_shifts(jobs, [10])
    assert (found.mean, found.unshifted, found.status, found.shifts_us[1] % 100) == (1.0, 0.5, "optimal", 50)
    shared = simulate_shared(jobs, [10], [0, shift_us])
    assert shared.iteration_us == pytest.approx((iteration_us,) * 2)


def small_instance(gpus: int = 2, bandwidth: int = 10**10) -> Instance:
    segments = tuple(Segment(name, {"v": 100}, {"v": 200}, 1_000_000, 1) for name in ("stem", "head"))
    servers = tuple(Server(f"s{k}", "v", gpus, 10**9, 10**12) for k in range(2))
    cluster = Cluster(servers, (), (Link("wire", ("s0", "s1"), bandwidth),))
    jobs = (Job("a", "net", 2, 1, depth=StaircaseDepth()), Job("b", "net", 2, 1, depth=StaircaseDepth()))
    return Instance("small", cluster, {"net": Model(segments)}, jobs, "cyclic", "period")


def test_jobs_are_cut_as_plans_have_them() -> None:
    instance = small_instance(gpus=1)
    operations = compile_instance(instance)
    plan = solve(instance, "cpsat", Options(work_limit=5, threads=1)).plan
    assert plan is not None
    with pytest.raises(UsageError, match="share GPU"):
        repeated_jobs(operations, placement_of(operations, plan), plan)
    roomy = compile_instance(small_instance())
    for seed in range(3):
        placement = draw_placement(roomy, seed)
        assert placement is not None and len({gpu for gpus in placement for gpu in gpus}) == 4
    spread = (((0, 0), (1, 0)), ((0, 1), (1, 1)))
    first, _ = repeated_jobs(roomy, spread, plan)
    # The deep worker has the head ready at 400 us, the stem at 600 us; one sends the stem, both receive it.
    assert first.iterations == (OwnIteration(600, (400, 600), (100, 50)),)
    assert (first.cycle_us, first.transfers, first.channel.links) == (650, ((400, 500), (600, 650)), (0,))
    assert draw_placement(operations, 0) is None


def test_ratios_are_those_of_brute_force() -> None:
    instance = small_instance()
    fast = Model((Segment("all", {"v": 100}, {"v": 100}, 1_000_000, 1),))
    jobs = (Job("a", "net", 2, 1), Job("b", "fast", 2, 1))
    instance = replace(instance, models={**instance.models, "fast": fast}, jobs=jobs)
    operations = compile_instance(instance)
    spread = (((0, 0), (1, 0)), ((0, 1), (1, 1)))
    plan = solve(instance, "cpsat", Options(work_limit=5, threads=1)).plan
    assert plan is not None
    alone = [job.cycle_us for job in repeated_jobs(operations, spread, plan)]
    assert alone == [700, 300]
    found = best_ratios(instance, alone, Options(work_limit=50, threads=1), most=3)
    values = {}
    for ratios in ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)):
        each = solve(with_ratios(instance, ratios), "cpsat", Options(work_limit=5, threads=1))
        assert each.status == "optimal"
        values[ratios] = sum(each.bound / (a * us) for a, us in zip(ratios, alone, strict=True)) / 2
    assert found.best.value == pytest.approx(min(values.values()))
    assert found.plain.value == found.plain_bound == pytest.approx(values[1, 1])
    assert found.status == "optimal"
    assert not check(found.best.instance, found.best.plan)


def test_the_placement_of_the_best_compatibility_is_taken() -> None:
    instance = small_instance(bandwidth=10**9)
    operations = compile_instance(instance)
    plan = solve(instance, "cpsat", Options(work_limit=5, threads=1)).plan
    assert plan is not None
    across, within = (((0, 0), (1, 0)), ((0, 1), (1, 1))), (((0, 0), (0, 1)), ((1, 0), (1, 1)))
    crowded = best_placement(operations, [across], plan, 0)
    assert len(crowded.shifts.links) == 1 and crowded.shifts.mean < 1
    apart = best_placement(operations, [across, within], plan, 0)
    assert apart.shifts.links == ()
    assert apart.shifts.mean == 1.0
    narrow = small_instance(gpus=1)
    shared = solve(narrow, "cpsat", Options(work_limit=5, threads=1)).plan
    assert shared is not None
    with misuse("does-not-fit", naming=["placement", "worker"]):
        candidates(compile_instance(narrow), [shared], 2, 0)
    with pytest.raises(UsageError, match="vectors"):
        best_ratios(instance, [1, 1], Options(work_limit=1), most=65)


def test_jobs_with_a_task_graph_are_refused() -> None:
    with misuse("unsupported", naming=["'p0'", "task graph"]):
        compare(random_task_graph_instance(3, "cyclic", "period"), Options(work_limit=1))


def test_a_plan_at_hand_is_the_common_period_when_nothing_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a signal comes before the first solve has a plan."""
    whole = small_instance(gpus=4)
    plan = solve(whole, "greedy", Options(threads=1)).plan
    assert plan is not None
    options = Options(time_limit=100, threads=1)
    options.cancel.set()
    monkeypatch.setattr(_RatioSearch, "_attempt", lambda *_: None)
    found = best_ratios(whole, [1.0] * len(whole.jobs), options, start=plan)
    assert found.best.plan == plan and found.bound <= found.best.value
    with pytest.raises(OutOfTimeError):
        best_ratios(whole, [1.0] * len(whole.jobs), options)
