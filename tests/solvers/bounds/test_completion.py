"""Bounds on the weighted sum of completion times: never above an optimum, and stronger where they should be."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from jigsaw_opt.formulations.timetable.windows import windows
from jigsaw_opt.instances import catalogue
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import (
    Cluster,
    Depth,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    Link,
    Model,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import objective_of
from jigsaw_opt.solvers.bounds import BoundContext, lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.combinatorial.gpu_work import gpu_resources
from jigsaw_opt.solvers.bounds.completion import chains
from jigsaw_opt.solvers.bounds.completion.chains import Chain, Step, pair_inequalities
from jigsaw_opt.solvers.bounds.completion.dual_bound import UNIT, CompletionCost, DualTerm
from jigsaw_opt.solvers.bounds.completion.energetic import energetic_bounds
from jigsaw_opt.solvers.bounds.completion.load_cuts import LoadCuts, cut_rounds
from jigsaw_opt.solvers.bounds.completion.placement_kinds import (
    kind_prices,
    kind_resources,
    placement_kinds,
    whole_jobs,
)
from jigsaw_opt.solvers.bounds.completion.program import CompletionProgram, Inequality
from jigsaw_opt.solvers.bounds.completion.work_functions import Profile, WorkFunction
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import random_instance

WEIGHTED = [name for name in catalogue.names("tiny") if catalogue.load(name).objective == "weighted_completion"]


def best_bound(operations: Operations) -> int:
    known = lower_bound(operations).value
    values = [known, *(bound.value for bound in stronger_bounds(operations, known))]
    assert values == sorted(set(values)), "each bound is better than those before"
    return values[-1]


@pytest.mark.parametrize("size", (6, 8))
def test_a_bound_never_exceeds_the_optimum(size: int) -> None:
    checked = 0
    for seed in range(60):
        instance = random_instance(seed, "finite", "weighted_completion", size)
        best = optimum(instance)
        if best is not None:
            assert best_bound(compile_instance(instance)) <= best, seed
            checked += 1
    assert checked >= 40


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_bound_never_exceeds_a_proven_optimum(name: str) -> None:
    known = catalogue.best_known(name)
    assert known is not None and known.objective is not None and known.optimal
    assert best_bound(compile_instance(catalogue.load(name))) <= known.objective


@pytest.mark.parametrize("size", (6, 8))
def test_no_job_of_a_plan_ends_later_than_its_objective_allows(size: int) -> None:
    told = earlier = 0
    for seed in range(60):
        operations = compile_instance(random_instance(seed, "finite", "weighted_completion", size))
        plan = greedy_timetable(operations, 0)
        if plan is None:
            continue
        limit = objective_of(operations, plan.jobs, None)
        deadlines = [window.deadline for window in windows(operations, limit)]
        known = lower_bound(operations).value
        for bound in stronger_bounds(operations, known - 1):
            for job, latest in bound.deadlines(limit).items():
                assert plan.jobs[job].end_us <= latest, seed
                told += 1
                earlier += latest < deadlines[job]
    assert told >= 80
    assert earlier >= 10


@pytest.mark.parametrize("seed", (37, 44, 12))
def test_a_stronger_bound_leaves_jobs_less_time(seed: int) -> None:
    # By windows, by loads, and by branches over who shares a link.
    operations = compile_instance(generate("server", seed, objective="weighted_completion"))
    *_, best = stronger_bounds(operations, lower_bound(operations).value)
    limit = best.value + best.value // 50
    before, after = windows(operations, limit), windows(operations, limit, best.deadlines(limit))
    own = [data.completion for data in BoundContext(operations).job_data]
    left = [(b.deadline - end, a.deadline - end) for b, a, end in zip(before, after, own, strict=True)]
    assert all(0 <= later <= sooner for sooner, later in left)
    assert min(later / sooner for sooner, later in left) < 0.65


@pytest.mark.parametrize("price", (0, 3))
def test_the_cost_of_a_completion_time_is_cheapest_and_latest_where_trying_all_says(price: int) -> None:
    late = Profile(WorkFunction([(2, 0, 4), (2, 9, 4)]), WorkFunction([(1, 0, 30)]), 5)
    terms = [DualTerm(20, 18, 2 * UNIT, late, late.corners(18)), DualTerm(33, 9, 5 * UNIT // 3, late, late.corners(9))]
    cost = CompletionCost(11, price * UNIT, terms)
    # Behind the last corner a cost is no more than its price times the end.
    costs = {end: cost.at(end) for end in range(11, 400)}
    value = min(costs.values())
    assert cost.cheapest() == (value, min(end for end, of in costs.items() if of == value))
    for most in (*range(0, 250, 7), *(of // UNIT for of in costs.values())):
        allowed = [end for end, of in costs.items() if of <= most * UNIT]
        latest = cost.latest(most * UNIT)
        if price == 0 and allowed:
            assert latest is None
        elif max(allowed, default=11) < 399:
            assert latest == max(allowed, default=11)


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
    operations = compile_instance(long_and_short(20))
    assert best_bound(operations) > lower_bound(operations).value


def star(servers: int, jobs: tuple[Job, ...]) -> Instance:
    """Servers of one GPU around a switch, and jobs of 10 us and 40 us of transfers over each link that they use."""
    model = Model((Segment("a", {"v": 10}, {"v": 0}, 40, 0),))
    names = tuple(f"s{k}" for k in range(servers))
    links = tuple(Link(name, (name, "hub"), 10**6) for name in names)
    cluster = Cluster(tuple(Server(name, "v", 1, 10**6, 10**9) for name in names), ("hub",), links)
    return Instance("star", cluster, {"m": model}, jobs, objective="weighted_completion")


def test_two_jobs_over_the_same_links_merge_in_the_best_order() -> None:
    instance = star(2, (Job("a", "m", 2, 2, weight=2), Job("b", "m", 2, 1, weight=1)))
    # b ends at 10 + 40; meanwhile a is ready, and its transfers end at 90 and 140.
    assert best_bound(compile_instance(instance)) == optimum(instance) == 50 + 2 * 140


def test_of_three_jobs_on_four_links_two_exclude_each_other() -> None:
    operations = compile_instance(star(4, tuple(Job(name, "m", 2, 2) for name in "abc")))
    # Two jobs side by side end at 100, and the third shares links with one of them.
    assert lower_bound(operations).value < best_bound(operations)
    assert best_bound(operations) >= 100 + optimum_of_two()


def optimum_of_two() -> int:
    best = optimum(star(2, (Job("a", "m", 2, 2), Job("b", "m", 2, 2))))
    assert best is not None
    return best


def test_labels_are_merged_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Chain(0, 4, 30, (Step(True, 7, 7, 3, 13), Step(True, 13, 13, 11, 0)))
    other = Chain(5, 5, 26, (Step(True, 11, 11, 9, 0),))
    exact = list(pair_inequalities((0, 1), one, other, "pair", BoundBudget()))
    monkeypatch.setattr(chains, "_MOST_LABELS", 2)
    relaxed = list(pair_inequalities((0, 1), one, other, "pair", BoundBudget()))
    assert least_sum(relaxed) < least_sum(exact)


@pytest.mark.parametrize("shift", (0, 2**70, -(2**70)))
def test_labels_that_another_beats_are_left_out_however_large_they_are(shift: int) -> None:
    draw = np.random.default_rng(3)
    labels = {tuple(shift + int(value) for value in row) for row in draw.integers(0, 6, (200, 4))}
    best = [a for a in sorted(labels) if not any(b != a and all(x <= y for x, y in zip(b, a)) for b in labels)]
    assert chains._undominated(labels) == best
    assert 1 < len(best) < len(labels)


def least_sum(rows: list[Inequality]) -> int:
    """Least sum of two completion times."""
    program = CompletionProgram([1, 1], [0, 0])
    for row in rows:
        program.add(row)
    program.solve()
    return program.dual().value


def test_surplus_of_a_job_between_transfers_of_another_costs_time() -> None:
    # Alone the first ends at 2 * (10 + 20) + 15, the second at 25; each wait of the first for the second is a loss.
    first = Chain(0, 2, 30, (Step(True, 10, 10, 10, 10), Step(True, 10, 10, 20, 0)), free_work=15, room=10)
    second = Chain(0, 1, 25, (Step(True, 20, 20, 5, 0),))
    with_surplus = least_sum(list(pair_inequalities((0, 1), first, second, "pair", BoundBudget())))
    without = least_sum(list(pair_inequalities((0, 1), first._replace(free_work=0), second, "pair", BoundBudget())))
    # The second goes first and holds the first up by 15 us, which no free_work can fill: none was due yet.
    assert (without, with_surplus) == (100, 115)


@pytest.mark.parametrize("seed", (2408, 2528))
def test_bucket_1_is_ready_before_a_deeper_least_level_is(seed: int) -> None:
    # Two workers and three levels: the staircase is (2, 3), so the first transfer hides a part of every block.
    changes = {"objective": "weighted_completion", "depths": (StaircaseDepth(),), "load": 200, "iterations": (2, 3)}
    instance = generate("tiny", seed, **changes)
    plan = solve(instance, "cpsat", Options(work_limit=1.0, threads=1)).objective
    assert plan is not None
    assert lower_bound(compile_instance(instance)).value < best_bound(compile_instance(instance)) <= plan


def test_two_jobs_too_wide_for_the_gpus_share_one() -> None:
    model = Model((Segment("a", {"v": 30}, {"v": 0}, 10, 0),))
    cluster = Cluster((Server("s", "v", 3, 10**6, 10**6),))
    jobs = (Job("a", "m", 2, 3), Job("b", "m", 2, 1))
    operations = compile_instance(Instance("crowd", cluster, {"m": model}, jobs, objective="weighted_completion"))
    # Alone they end at 120 and 40. On the GPU that they share, b intervals beside a transfer of a, and either waits.
    assert 160 < best_bound(operations) <= optimum(operations.instance)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "share"), ((76, 1.04), (44, 1.04), (21, 1.02)))
def test_shared_links_give_more(seed: int, share: float) -> None:
    operations = compile_instance(generate("server", seed))
    assert best_bound(operations) > share * lower_bound(operations).value


def test_windows_see_what_whole_loads_do_not() -> None:
    operations = compile_instance(generate("server", 37))
    context = BoundContext(operations)
    job_data, resources = context.job_data, gpu_resources(context)
    program = CompletionProgram([data.job.weight for data in job_data], [data.completion for data in job_data])
    program.solve()
    for _ in cut_rounds(program, [LoadCuts(resource, job_data) for resource in resources], BoundBudget()):
        continue
    loads = program.dual().value
    kinds = whole_jobs(context)
    values = [dual.value for dual in energetic_bounds(program, resources, kinds, BoundBudget())]
    assert max(values) > 1.01 * loads
    # Smith's order comes close before the first program is solved.
    assert 0.9 * loads < values[0] <= loads


def two_types(rule: Depth, workers: int, iterations: int) -> Operations:
    model = Model(
        (
            Segment("a", {"v": 5, "w": 2}, {"v": 7, "w": 5}, 10, 0),
            Segment("b", {"v": 4, "w": 1}, {"v": 9, "w": 2}, 10, 0),
        )
    )
    servers = (Server("s", "v", 3, 10**6, 10**7), Server("t", "w", 2, 10**6, 10**7))
    cluster = Cluster(servers, links=(Link("l", ("s", "t"), 10**6, 3),))
    jobs = tuple(Job(f"j{k}", "m", workers, iterations, depth=rule, weight=k + 1) for k in range(3))
    return compile_instance(Instance("types", cluster, {"m": model}, jobs, objective="weighted_completion"))


@pytest.mark.parametrize("rule", (FullDepth(), StaircaseDepth(), FreeDepth(), FreeDepth(min_contributors=2)))
def test_no_kind_of_placement_asks_more_than_its_cheapest_levels(rule: Depth) -> None:
    operations = two_types(rule, 3, 2)
    context = BoundContext(operations)
    job, times = operations.jobs[0], [operations.jobs[0].blocks[0].duration_us[t] for t in ("v", "w")]
    kinds = [kind for kind in placement_kinds(context) if kind.job == 0]
    assert {kind.counts for kind in kinds} == {((3, 0),), ((2, 1),), ((1, 2),)}
    resources = [each for each in kind_resources(context, kinds) if each.reason.startswith("GPU")]
    vectors = kind_prices(context)
    assert len(resources) == len(vectors) == 4
    levels = [
        both
        for both in product(product(range(1, 3), repeat=3), repeat=2)
        if (
            all(tuple(sorted(each)) == job.rule.multiset for each in both)
            if job.rule.multiset
            else all(each.count(2) >= job.rule.min_contributors for each in both)
            and sum(map(sum, both)) >= job.rule.min_total
        )
    ]
    for prices, resource in zip(vectors, resources, strict=True):
        for kind, demand in zip(kinds, resource.demands, strict=True):
            classes = [c for c in (0, 1) for _ in range(kind.counts[0][c])]
            costs = [
                sum(prices[c] * times[c][d - 1] for each in both for c, d in zip(classes, each, strict=True))
                for both in levels
            ]
            work = demand.work if demand else 0
            assert 0.95 * min(costs) <= work <= min(costs)
            # What the rule leaves open has room in the iterations.
            assert demand is None or demand.free_work(2) <= 2 * (
                demand.free_interval.work if demand.free_interval else 0
            )


def test_a_kind_of_placement_lasts_as_long_as_its_slowest_gpu_and_its_links() -> None:
    data = {
        kind.counts[0]: kind.data
        for kind in placement_kinds(BoundContext(two_types(FullDepth(), 2, 1)))
        if kind.job == 0
    }
    # On one server the ring of two takes 1 us for each bucket, between servers 16 us.
    assert {counts: each.completion for counts, each in data.items()} == {(2, 0): 26, (0, 2): 11, (1, 1): 50}


def test_unlike_gpus_are_worth_what_single_placements_say() -> None:
    pytest.importorskip("ortools")
    operations = two_types(FullDepth(), 2, 1)
    known = lower_bound(operations).value
    without = max(bound.value for bound in stronger_bounds(operations, known, without=["energetic_intervals"]))
    # Brute force says that 101 is least, in most of a minute; that another engine proves it takes no time.
    assert solve(operations.instance, "cpsat", threads=1, work_limit=20.0).objective == 101
    assert 1.03 * without < best_bound(operations) <= 101


def test_a_curve_is_exact_at_integers_and_near_in_between() -> None:
    function = WorkFunction([(3, 2, 4), (1, 5, 10), (2, 0, 1)])
    values = [0, 2, 2, 5, 8, 11, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 24]
    assert [function.at(time) for time in range(17)] == values
    assert function.at(-3) == 0
    assert list(function.near(np.array([2.5, 100.0]))) == [3.5, 24.0]


def test_corners_split_a_profile_into_straight_parts() -> None:
    profile = Profile(WorkFunction([(2, 1, 5), (2, 9, 5)]), WorkFunction([(3, 0, 4), (3, 8, 4)]), 14)
    for work in (0, 5, 17, 34):
        left = [max(0, work - profile.at(length)) for length in range(20)]
        corners = profile.corners(work)
        bends = {k for k in range(1, 19) if left[k + 1] - left[k] != left[k] - left[k - 1]}
        assert bends <= corners, work


def test_nothing_follows_a_stop() -> None:
    assert not list(stronger_bounds(compile_instance(generate("server", 76)), 0, stop=lambda: True))


def test_bounds_repeat_within_the_same_work() -> None:
    first, second, less = (
        list(stronger_bounds(compile_instance(generate("server", 44)), 0, work)) for work in (0.2, 0.2, 0.001)
    )
    assert [bound[:2] for bound in first] == [bound[:2] for bound in second]
    assert [bound[:2] for bound in less] == [bound[:2] for bound in first[: len(less)]]


def test_the_program_adds_up_exactly() -> None:
    program = CompletionProgram([3, 1], [10**15, 10**15 + 1])
    assert program.dual().value == 4 * 10**15 + 1
    program.add(Inequality({0: 1, 1: 1}, 3 * 10**15, "pair"))
    program.solve()
    # The cheaper job waits for the other: its end is 2 * 10**15, and not a microsecond of it is rounded away.
    assert program.dual().value == 5 * 10**15


def test_multipliers_that_take_too_much_are_scaled_down() -> None:
    program = CompletionProgram([1, 1], [0, 0])
    program.add(Inequality({0: 3, 1: 7}, 10**6, "pair"))
    program.solve()
    least = Fraction(10**6, 7)
    assert least - 1 <= program.dual().value <= least + 1
