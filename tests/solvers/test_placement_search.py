"""Schedules whose jobs go elsewhere or take other levels by the loads of GPUs and links."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.instances import generate
from jigsaw_opt.instances.recipes import FULL
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.engines import compiled
from jigsaw_opt.solvers.greedy.evaluation import Evaluator
from jigsaw_opt.solvers.kernels.placement_annealing import anneal_placement, settle_placement
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.search import placement_search
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer, random_order
from jigsaw_opt.solvers.search.placement_search import PlacementSearch
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule, SequenceSearch
from tests.extras import needs_fast

SEEDS = (4019, 4017)
"""A cyclic instance and one of the finite horizon."""


def scheduled(instance: Instance) -> tuple[ProblemData, SequenceSearch, SequencedSchedule]:
    """Return a list schedule of an instance whose jobs were placed one after the other."""
    operations = compile_instance(instance)
    asked = demands(operations)
    assert asked is not None
    data, rng = ProblemData(operations, asked), Random(0)
    balancer = LoadBalancer(data, rng, 1_000_000)
    assert any(balancer.build(random_order(data.demands, rng)) for _ in range(20))
    assignments = balancer.placement.resolved()
    assert assignments is not None
    evaluator, count = Evaluator(operations, data.layout), len(assignments)
    outcome = evaluator.evaluate(assignments, [1.0] * count, [0] * count)
    sequencing = SequenceSearch(data, rng)
    return data, sequencing, sequencing.given(evaluator.timetable(outcome))


def loads_us(data: ProblemData, schedule: SequencedSchedule) -> Counter[int]:
    """Return the time that the blocks of a schedule take of each GPU."""
    loads: Counter[int] = Counter()
    operation = 0
    for assignment in schedule.assignments:
        job = assignment.job
        for _ in range(job.iterations):
            for slot, gpu in enumerate(assignment.gpus):
                loads[gpu] += assignment.tables[slot][int(schedule.level[operation + slot]) - 1]
            operation += job.slots + len(job.transfers) + 1
    return loads


def plan_of(instance: Instance, sequencing: SequenceSearch, schedule: SequencedSchedule) -> Plan:
    """Return the plan of a schedule whose sequence has been repaired."""
    after = sequencing.anneal(schedule, schedule.assignments, 1, 0.0, lambda operations: False)
    timetable = sequencing.timetable(after)
    return Plan.of_jobs(
        instance.name, instance_sha256(instance), "feasible", after.value, 0, timetable.period_us, timetable.jobs
    )


def test_largest_load_agrees_with_brute_force_on_one_server() -> None:
    changes = {"servers": 1, "gpus": 3, "load": 130, "widths": (1, 2), "gpu_types": ("v100",)}
    data, _, before = scheduled(generate("crowded", 4019, depths=(FULL,), deal_depths=False, **changes))
    places = [list(permutations(range(3), each.job.slots)) for each in before.assignments]
    least = min(
        max(
            sum(
                each.job.iterations * each.tables[0][-1]
                for each, gpus in zip(before.assignments, choice, strict=True)
                if gpu in gpus
            )
            for gpu in range(3)
        )
        for choice in product(*places)
    )
    search, found = PlacementSearch(data, Random(1)), before
    for _ in range(20):
        found = search.rebalanced(found, 0.9, 500, lambda steps: False) or found
    assert max(loads_us(data, found).values()) == least


@pytest.mark.parametrize("seed", SEEDS)
def test_loads_fall_and_every_rule_holds(seed: int) -> None:
    instance = generate("crowded", seed, servers=4, gpus=4)
    data, sequencing, before = scheduled(instance)
    before = SequencedSchedule(
        before.assignments, before.sequence, before.level, before.start, max(loads_us(data, before).values()), ()
    )
    after = PlacementSearch(data, Random(1)).rebalanced(before, 0.5, 3000, lambda steps: False)
    assert after is not None
    assert max(loads_us(data, after).values()) < max(loads_us(data, before).values())
    assert not violations(instance, plan_of(instance, sequencing, after))


def test_a_job_of_the_critical_circuit_goes_elsewhere_where_no_load_binds() -> None:
    instance = generate("crowded", 4019, servers=4, gpus=4)
    data, sequencing, before = scheduled(instance)
    critical = next(index for index, each in enumerate(before.assignments) if each.job.slots <= 4)
    free = SequencedSchedule(
        before.assignments, before.sequence, before.level, before.start, 2 * before.value, (critical,)
    )
    after = PlacementSearch(data, Random(1)).rebalanced(free, 0.1, 10, lambda steps: False)
    assert after is not None
    assert {*after.assignments[critical].gpus} != {*before.assignments[critical].gpus}
    assert not violations(instance, plan_of(instance, sequencing, after))


def test_the_same_seed_gives_the_same_schedule() -> None:
    data, _, before = scheduled(generate("crowded", 4019, servers=4, gpus=4))
    found = [PlacementSearch(data, Random(5)).rebalanced(before, 0.5, 2000, lambda steps: False) for _ in range(2)]
    assert [each and [one.gpus for one in each.assignments] for each in found] == [
        [one.gpus for one in found[0].assignments] if found[0] else None
    ] * 2


@needs_fast
@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_functions_rebalance_as_they_do_uncompiled(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    assert compiled.compiled(anneal_placement) is not None and compiled.compiled(settle_placement) is not None
    data, _, before = scheduled(generate("crowded", seed, servers=4, gpus=4))
    largest = max(loads_us(data, before).values())
    jobs = range(len(before.assignments))

    def rebalanced() -> list[tuple[list[list[int]], list[int]]]:
        found = []
        # The largest load binds, or jobs of the critical circuit go elsewhere.
        for value, steps in ((largest, 1000), (2 * before.value, 100)):
            given = replace(before, value=value, critical_jobs=jobs)
            for number in range(3):
                after = PlacementSearch(data, Random(number)).rebalanced(given, 0.5, steps, lambda steps: False)
                if after is not None:
                    found.append(([[*one.gpus] for one in after.assignments], [*map(int, after.level)]))
        return found

    fast = rebalanced()
    monkeypatch.setattr(compiled, "compiled", lambda function: None)
    assert rebalanced() == fast
    assert len(fast) > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_many_parts_rebalance_as_one_does(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    data, _, before = scheduled(generate("crowded", seed, servers=4, gpus=4))
    given = replace(before, value=max(loads_us(data, before).values()))

    def rebalanced() -> list[tuple[list[list[int]], list[int]] | None]:
        runs = (PlacementSearch(data, Random(n)).rebalanced(given, 0.5, 1000, lambda steps: False) for n in range(3))
        return [one and ([[*each.gpus] for each in one.assignments], [*map(int, one.level)]) for one in runs]

    whole = rebalanced()
    monkeypatch.setattr(placement_search, "_STEPS", 7)
    assert rebalanced() == whole
    assert any(whole)
