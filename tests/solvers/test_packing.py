"""Packing: what it returns fits, its bound holds against every packing there is, and timetables give its rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import pytest

from jigsaw_opt.formulations.packing.cheapest_levels import cheapest_levels
from jigsaw_opt.formulations.packing.coscheduling import coschedule_instance, coschedules, kinds, references_us
from jigsaw_opt.formulations.packing.master import Prices, Pricing
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.costs import staircase
from jigsaw_opt.problem.depth import FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.efficiency import Efficiency, goodput_levels
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.packing import PackingProblem, QueuedJobs, ServerType
from jigsaw_opt.solvers.allocation.packing.generation import Memory, Timetables
from jigsaw_opt.solvers.allocation.packing.packing import PackedQueue, fill, pack
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

STAIRCASE = StaircaseDepth()


def network(forward: int, backward: int, parameters: int = 1_000_000) -> Model:
    us = {"v": forward, "a": forward // 2}, {"v": backward, "a": backward // 2}
    return Model(tuple(Segment(f"s{k}", *us, parameters, 1_000_000) for k in range(4)))


MODELS = {"small": network(1_000, 2_000), "large": network(2_500, 5_500, 20_000_000)}
BOX = ServerType(Server("box", "v", 4, 16_000_000_000, 10_000_000_000), 3, 1_250_000_000, 10)


def queue(*counts: tuple[str, int, int, float]) -> PackingProblem:
    classes = (QueuedJobs(f"{m}/{w}/{k}", m, w, n, weight, (STAIRCASE,)) for k, (m, w, n, weight) in enumerate(counts))
    return PackingProblem((BOX,), MODELS, tuple(classes))


MIXED = queue(
    ("small", 4, 3, 4.0), ("large", 4, 2, 4.0), ("large", 2, 3, 2.5), ("small", 1, 4, 1.0), ("small", 8, 2, 8.0)
)


def require_fit(problem: PackingProblem, packed: PackedQueue) -> None:
    jobs: Counter[int] = Counter()
    servers: Counter[int] = Counter()
    progress = [0.0] * len(problem.classes)
    for pattern, copies in packed.patterns:
        servers[pattern.type] += copies * pattern.servers
        used = sum(packed.coschedules[team.coschedule].site.gpus * n for team, n in pattern.teams)
        assert used <= pattern.servers * problem.types[pattern.type].server.gpus
        for team, n in pattern.teams:
            coschedule = packed.coschedules[team.coschedule]
            for c, kind, rate in zip(team.classes, coschedule.kinds, packed.rates[team.coschedule], strict=True):
                assert (kind.model, kind.workers) == (problem.classes[c].model, problem.classes[c].workers)
                jobs[c] += copies * n
                progress[c] += copies * n * rate
    assert all(jobs[c] <= own.count for c, own in enumerate(problem.classes))
    assert all(servers[t] <= own.count for t, own in enumerate(problem.types))
    assert progress == pytest.approx(packed.progress)


def test_a_packing_fits_and_its_bound_is_close() -> None:
    problem = replace(
        queue(
            ("small", 4, 90, 4.0),
            ("large", 4, 80, 4.0),
            ("large", 2, 70, 2.5),
            ("small", 1, 200, 1.0),
            ("small", 8, 20, 8.0),
        ),
        types=(replace(BOX, count=100),),
    )
    packed = pack(problem)
    require_fit(problem, packed)
    assert packed.objective == pytest.approx(
        sum(4.0 * p for p in packed.progress[:2])
        + 2.5 * packed.progress[2]
        + packed.progress[3]
        + 8.0 * packed.progress[4]
    )
    assert packed.objective <= packed.bound
    assert packed.gap <= 0.02


def test_the_bound_holds_against_every_packing() -> None:
    packed = pack(MIXED)
    require_fit(MIXED, packed)
    best = most_valuable(MIXED)
    assert packed.objective <= best + 1e-9
    assert best <= packed.bound + 1e-9
    assert packed.objective >= 0.9 * best


def most_valuable(problem: PackingProblem) -> float:
    """By trying every number of every team on GPUs that are filled from the left, at rates that none beats."""
    known = references_us(problem, kinds(problem)[0])
    found = list(coschedules(problem, 0, known))
    teams = [
        (
            coschedule.site.gpus,
            classes,
            sum(
                problem.classes[c].weight * r
                for c, r in zip(classes, coschedule.rates(coschedule.least_us), strict=True)
            ),
        )
        for coschedule in found
        for classes in classes_of(problem, [(k.model, k.workers) for k in coschedule.kinds])
    ]

    # Sizes are powers of two that divide or are divided by the server, so counting GPUs is enough.
    @cache
    def best(first: int, room: int, left: tuple[int, ...]) -> float:
        if first == len(teams):
            return 0.0
        size, classes, value = teams[first]
        skipped = best(first + 1, room, left)
        after = list(left)
        for c in classes:
            after[c] -= 1
        if size > room or min(after) < 0:
            return skipped
        return max(skipped, value + best(first, room - size, tuple(after)))

    return best(0, sum(t.count * t.server.gpus for t in problem.types), tuple(c.count for c in problem.classes))


def classes_of(problem: PackingProblem, members: list[tuple[str, int]]) -> Iterator[tuple[int, ...]]:
    if not members:
        yield ()
        return
    for c, own in enumerate(problem.classes):
        if (own.model, own.workers) == members[0]:
            for rest in classes_of(problem, members[1:]):
                yield (c, *rest)


def test_timetables_are_no_faster_than_the_rates_that_none_beats() -> None:
    timetables = Timetables()
    pairs = [
        coschedule
        for coschedule in coschedules(MIXED, 0, references_us(MIXED, kinds(MIXED)[0]))
        if len(coschedule.kinds) == 2
    ]
    assert pairs
    for coschedule in pairs:
        found = timetables.whole_us(MIXED, 0, coschedule)
        assert found is not None
        (period,) = set(found)
        assert coschedule.period_us <= period <= coschedule.period_us * Fraction(6, 5)
    assert timetables.found == len(pairs)


def test_a_worker_that_keeps_its_level_gains_less_than_one_that_does_not() -> None:
    pair = next(
        g
        for g in coschedules(MIXED, 0, references_us(MIXED, kinds(MIXED)[0]))
        if {k.model for k in g.kinds} == {"small", "large"}
    )
    steps = (StaircaseDepth(staircase(MODELS[kind.model].depth, kind.workers)) for kind in pair.kinds)
    kept, chosen = (
        Timetables().whole_us(MIXED, 0, replace(pair, depths=depths)) for depths in ((STAIRCASE,) * 2, tuple(steps))
    )
    assert kept is not None
    assert chosen is not None
    assert chosen < kept


@pytest.mark.parametrize(("workers", "noise"), [(2, 0), (4, 1000), (4, 10**9)])
def test_of_the_rules_below_full_depth_a_pair_has_the_one_of_most_progress(workers: int, noise: int) -> None:
    """The cheapest levels make most of the GPU time of even segments; where that is full depth, others lose."""
    model = replace(MODELS["small"], efficiency=Efficiency((noise,) * 4, (1,) * 4))
    memory = Timetables()
    best = StaircaseDepth(goodput_levels(model.efficiency, model.block_us("v"), workers))
    gains = {}
    for depths in ((FullDepth(),), (FullDepth(), StaircaseDepth()), (FullDepth(), StaircaseDepth(), best)):
        job = QueuedJobs("a", "small", workers, 2, 1.0, depths)
        problem = PackingProblem((BOX,), {"small": model}, (job,))
        found = [g for g in coschedules(problem, 0, references_us(problem, kinds(problem)[0])) if len(g.kinds) == 2]
        whole_us = [(g, memory.whole_us(problem, 0, g)) for g in found]
        for g, us in whole_us:  # the optimistic rates are a bound
            assert us is not None and all(own >= least for own, least in zip(us, g.least_us, strict=True))
        gains[len(depths)] = max((sum(1 / each for each in us) for _, us in whole_us if us is not None), default=0)
        assert len(depths) < 3 or {d for g in found for d in g.depths} <= {FullDepth(), best}
    assert gains[3] > gains[2] if noise < 10**9 else gains[3] == gains[2] == gains[1]


def test_a_job_alone_has_the_rate_that_the_solver_proves() -> None:
    alone = [g for g in coschedules(MIXED, 0, references_us(MIXED, kinds(MIXED)[0])) if len(g.kinds) == 1]
    for coschedule in alone:
        members = [(kind, FullDepth(), MODELS[kind.model]) for kind in coschedule.kinds]
        instance = coschedule_instance(BOX, members, coschedule.site, 1)
        assert solve(instance, "cpsat", Options(work_limit=5, threads=1)).bound == coschedule.period_us


def test_no_two_jobs_share_gpus_without_room_for_both() -> None:
    tight = replace(BOX, server=replace(BOX.server, gpu_memory=330_000_000))
    problem = replace(MIXED, types=(tight,))
    found = list(coschedules(problem, 0, references_us(problem, kinds(problem)[0])))
    assert {tuple(k.model for k in g.kinds) for g in found if len(g.kinds) == 2} == {("small", "small")}
    require_fit(problem, pack(problem))


def test_a_second_packing_makes_no_timetables_and_is_as_good() -> None:
    memory = Memory()
    first = pack(MIXED, memory)
    made = memory.timetables.found
    second = pack(MIXED, memory)
    assert made > 0
    assert memory.timetables.found == made
    assert second.objective >= first.objective * (1 - 1e-9)
    assert second.bound <= first.bound * (1 + 1e-6)


def test_a_class_without_jobs_or_without_a_place_takes_nothing() -> None:
    problem = queue(("small", 4, 0, 4.0), ("small", 16, 3, 16.0), ("large", 1, 2, 1.0))
    packed = pack(problem)
    require_fit(problem, packed)
    assert packed.progress == (0.0, 0.0, 2.0)
    assert packed.gap == pytest.approx(0.0)


def test_free_levels_are_no_slower_than_the_staircase() -> None:
    free = replace(MIXED, classes=tuple(replace(c, depths=(FreeDepth(),)) for c in MIXED.classes))
    periods = []
    for problem in (MIXED, free):
        coschedule = next(
            g for g in coschedules(problem, 0, references_us(problem, kinds(problem)[0])) if len(g.kinds) == 2
        )
        periods.append(Timetables().whole_us(problem, 0, coschedule))
    assert periods[1] is not None
    assert periods[0] is not None
    assert periods[1] <= periods[0]


def test_prices_above_all_worth_leave_no_pattern() -> None:
    found = list(coschedules(MIXED, 0, references_us(MIXED, kinds(MIXED)[0])))
    members = {kind: [c] for c, kind in enumerate(kinds(MIXED)[0])}
    pricing = Pricing(0, 4, found, list(range(len(found))), members, [c.weight for c in MIXED.classes])
    counts = [c.count for c in MIXED.classes]
    rates = [coschedule.rates(coschedule.least_us) for coschedule in found]
    dear = Prices([0.0], [100.0] * 5)
    assert not list(pricing.patterns(dear, rates, counts))
    free = replace(dear, jobs=[0.0] * 5)
    best = max(pricing.patterns(free, rates, counts), key=lambda priced: priced.value / priced.pattern.servers)
    assert best.value > 4.0


def test_the_cheapest_levels_are_those_of_every_choice_tried() -> None:
    convex = Model(tuple(Segment(f"s{k}", {"v": 100}, {"v": b}, 1, 1) for k, b in enumerate((900, 300, 700, 100))))
    jobs = (Job("j", "net", 4, 2, depth=FreeDepth(min_contributors=2, mean_depth="2/3")),)
    job = compile_instance(Instance("one", Cluster((BOX.server,)), {"net": convex}, jobs)).jobs[0]
    cost = job.blocks[0].duration_us["v"]
    found = cheapest_levels(job, cost)
    assert found is not None
    allowed = (
        levels
        for levels in combinations_with_replacement(range(1, 5), 4)
        if levels.count(4) >= 2 and 2 * sum(levels) >= job.rule.min_total
    )
    assert sum(cost[d - 1] for d in found) == min(sum(cost[d - 1] for d in levels) for levels in allowed)
    assert found.count(4) >= 2
    assert 2 * sum(found) >= job.rule.min_total


def test_filling_alone_fits_and_has_no_bound() -> None:
    packed = fill(MIXED)
    require_fit(MIXED, packed)
    assert packed.bound == float("inf")
    assert packed.objective >= 0.85 * pack(MIXED).bound
