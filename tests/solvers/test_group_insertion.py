"""Jobs inserted modulo the period group by group, groups that exchange jobs, and groups cut anew across servers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Cluster, Job, Link, Model, Segment, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.engines import compiled
from jigsaw_opt.solvers.kernels.assignment_annealing import anneal_assignment, reassign_pairs
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.cyclic import hierarchy as nesting_module
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateTable, FixedPolicy
from jigsaw_opt.solvers.search.cyclic.group_insertion import DecomposedInsertion, NoGood, jointly_timed
from jigsaw_opt.solvers.search.cyclic.hierarchy import COLD, HOT, HierarchicalAssignment
from jigsaw_opt.solvers.search.cyclic.period_search import Hierarchies
from jigsaw_opt.solvers.search.cyclic.server_groups import groups_of, repartitioned
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.state.job_insertion import JobInsertion
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extras import needs_fast


def ignore(event: Event) -> None:
    """Progress is of no interest here."""


def data_of(instance: Instance) -> ProblemData:
    operations = compile_instance(instance)
    asked = demands(operations)
    assert asked is not None
    return ProblemData(operations, asked)


def nested(
    data: ProblemData, steps: int = 60_000, threads: int = 1, count: Callable[[int], object] = lambda steps: None
) -> HierarchicalAssignment:
    least = lower_bound(data.operations).value
    hierarchy = HierarchicalAssignment(CandidateTable(data), least, least * 11 // 10, Random(1), threads, count)
    hierarchy.anneal(range(len(data.operations.jobs)), range(len(hierarchy.groups)), steps, HOT, COLD)
    return hierarchy


def insert(
    data: ProblemData,
    hierarchy: HierarchicalAssignment,
    period: int,
    patience: int,
    no_goods: dict[NoGood, int] | None = None,
) -> Plan | None:
    solve_state = SolveState("grouped", data.operations, Options(threads=1), ignore)
    known = {} if no_goods is None else no_goods
    weights = [float(hierarchy.candidate_set(index).length) for index in range(len(data.operations.jobs))]
    decomposed = DecomposedInsertion(
        CandidateTable(data), hierarchy, period, Random(1), Engine(Budget(solve_state)), weights, lambda: False, known
    )
    timetable = decomposed.insert_all(patience)
    if timetable is None:
        return None
    solve_state.offer(timetable)
    return solve_state.result(StoppedBy.COMPLETED).plan


CROWDED = generate("cluster", 13, servers=24, load=400, objective="period", releases=False)


@pytest.mark.parametrize(
    ("family", "seed", "sizes"),
    [("cluster", 3, {8}), ("pod", 3, {4}), ("rack", 7, {2, 4, 8}), ("server", 15, {1, 2, 4})],
)
def test_every_server_is_in_one_group_with_room_for_the_widest_job(family: str, seed: int, sizes: set[int]) -> None:
    data = data_of(generate(family, seed, objective="period", releases=False))
    groups = groups_of(data)
    assert sorted(server for group in groups for server in group) == list(range(len(data.layout.servers)))
    widest = max(job.slots for job in data.operations.jobs)
    inside = data.layout.on_server
    assert all(sum(len(inside[server]) for server in group) >= widest for group in groups)
    assert {len(group) for group in groups} <= sizes


def test_nesting_evens_loads_and_keeps_blocks_within_groups() -> None:
    data = data_of(CROWDED)
    groups = range(len(groups_of(data)))
    before = nested(data, 0)
    after = nested(data)
    assert len(groups) == 3
    assert after.fullest(groups) < before.fullest(groups)
    for index, job in enumerate(data.operations.jobs):
        servers = after.candidate_set(index).servers
        home = after.group(index)
        assert home is not None
        assert set(servers) <= set(after.groups[home])
        assert sum(len(data.layout.on_server[server]) for server in servers) >= job.slots


def test_loads_are_those_of_the_berths_and_come_back() -> None:
    data = data_of(CROWDED)
    hierarchy = nested(data, 3_000)
    links: dict[int, int] = {}
    for index in range(len(data.operations.jobs)):
        candidate_set = hierarchy.candidate_set(index)
        for link in candidate_set.alone.links:
            links[link] = links.get(link, 0) + candidate_set.exchange
    groups = range(len(hierarchy.groups))
    assert hierarchy.fullest(groups) * hierarchy.target == pytest.approx(max(links.values()))
    jobs = range(len(data.operations.jobs))
    numbers, fullest = hierarchy.numbers(jobs), hierarchy.fullest(groups)
    hierarchy.anneal(jobs, groups, 500, HOT, HOT)
    assert hierarchy.numbers(jobs) != numbers
    hierarchy.restore(jobs, numbers)
    assert hierarchy.numbers(jobs) == numbers
    assert hierarchy.fullest(groups) == pytest.approx(fullest)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "seed", "changes"),
    [("cluster", 3, {"servers": 16}), ("rack", 7, {"load": 150}), ("server", 15, {}), ("pod", 4, {"servers": 8})],
)
def test_what_is_laid_in_groups_keeps_every_rule(family: str, seed: int, changes: dict[str, int]) -> None:
    instance = generate(family, seed, objective="period", releases=False, **changes)
    data = data_of(instance)
    least = lower_bound(data.operations).value
    plan = insert(data, nested(data), 2 * least, 5)
    assert plan is not None
    assert plan.period_us is not None
    assert plan.period_us <= 2 * least
    assert not check(instance, plan)
    assert insert(data, nested(data), least - 1, 1) is None


@pytest.mark.slow
def test_groups_exchange_jobs_until_all_have_room() -> None:
    data = data_of(CROWDED)
    period = lower_bound(data.operations).value * 105 // 100
    assert insert(data, nested(data), period, 0) is None
    plan = insert(data, nested(data), period, 40)
    assert plan is not None
    assert not check(CROWDED, plan)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_reassigning_makes_loads_even_and_keeps_count_of_them(threads: int) -> None:
    data = data_of(CROWDED)
    jobs, most = range(len(data.operations.jobs)), 1.02

    def excess(hierarchy: HierarchicalAssignment) -> float:
        placement: dict[int, int] = {}
        for index in jobs:
            for link in hierarchy.candidate_set(index).alone.links:
                placement[link] = placement.get(link, 0) + hierarchy.candidate_set(index).exchange
        assert hierarchy.fullest(range(3)) * hierarchy.target == pytest.approx(max(placement.values()))
        return sum(max(0.0, load / hierarchy.target - most) ** 2 for load in placement.values())

    steps: list[int] = []
    first, second = (nested(data, 1_000, threads, steps.append) for _ in range(2))
    before = excess(first)
    for _ in range(5):
        assert first.reassign_pairs(most) == second.reassign_pairs(most)
    assert 0 <= excess(first) < before
    assert first.numbers(jobs) == second.numbers(jobs)
    assert steps[:2] == [1_000, 1_000]
    assert sum(steps) > 2_000
    alone = data_of(generate("cluster", 13, servers=4, objective="period", releases=False))
    assert len(groups_of(alone)) == 1
    assert not nested(alone, 0, threads).reassign_pairs(1.0)


class Everyone(dict[NoGood, int]):
    """Knows of every no-good that it was not timed at any period."""

    def get(self, no_good: NoGood, default: int = 0) -> int:  # type: ignore[override]
        return 2**60


@pytest.mark.slow
def test_no_goods_that_were_not_timed_are_not_tried_again() -> None:
    data = data_of(CROWDED)
    least = lower_bound(data.operations).value
    no_goods: dict[NoGood, int] = {}
    assert insert(data, nested(data), least * 1005 // 1000, 1, no_goods) is None
    assert set(no_goods.values()) == {least * 1005 // 1000}
    assert insert(data, nested(data), least * 105 // 100, 4, Everyone()) is None


def test_jobs_timed_together_leave_what_is_taken_to_others() -> None:
    data = data_of(CROWDED)
    hierarchy = nested(data)
    period = 2 * lower_bound(data.operations).value
    engine = Engine(Budget(SolveState("together", data.operations, Options(threads=1), ignore)))
    wide = [
        k
        for k in range(len(data.operations.jobs))
        if hierarchy.candidate_set(k).alone.links and hierarchy.group(k) == 0
    ]
    schedule = PartialSchedule(data, period)
    for some in (wide[:3], wide[3:6]):
        (scheduled,) = jointly_timed(schedule, [[hierarchy.candidate_set(index).alone for index in some]], engine, 1.0)
        assert scheduled is not None
        assert all(map(schedule.admits, scheduled))
        for index, each in zip(some, scheduled, strict=True):
            schedule.add(index, each)
    assert engine.budget.work > 0


@needs_fast
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_functions_move_jobs_as_they_do_uncompiled(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    assert compiled.compiled(anneal_assignment) not in (None, anneal_assignment)
    assert compiled.compiled(reassign_pairs) not in (None, reassign_pairs)
    data = data_of(CROWDED)
    jobs = range(len(data.operations.jobs))

    def moved() -> tuple[list[int], list[int], float]:
        hierarchy = nested(data, 5_000, threads)
        shuffled = hierarchy.numbers(jobs)
        assert hierarchy.reassign_pairs(1.0)
        return shuffled, hierarchy.numbers(jobs), hierarchy.fullest(range(3))

    fast = moved()
    monkeypatch.setattr(nesting_module, "compiled", lambda function: None)
    assert moved() == fast
    assert fast[0] != fast[1]
    assert fast[0] != nested(data, 0).numbers(jobs)


MICRO = 1_000_000
SLOW = 400


def racks(jobs: list[tuple[str, int]], count: int = 4) -> Instance:
    """Racks of two fast and two slow servers of one GPU each, and jobs of a model and a width.

    Jobs of `keen` take 400 us on slow GPUs, those of `easy` 12 us; on fast ones both take 12 us or less.
    """
    servers, links = [], []
    for r in range(count):
        links.append(Link(f"u{r}", (f"rack{r}", "core"), 100 * MICRO))
        for k, kind in enumerate("ffss"):
            servers.append(Server(f"{kind}{r}{k}", kind, 1, 10**6, 10**9))
            links.append(Link(f"l{r}{k}", (f"{kind}{r}{k}", f"rack{r}"), MICRO))
    switches = ("core", *(f"rack{r}" for r in range(count)))
    models = {
        "keen": Model((Segment("a", {"f": 2, "s": SLOW}, {"f": 0, "s": 0}, 5, 0),)),
        "easy": Model((Segment("a", {"f": 2, "s": 2}, {"f": 0, "s": 0}, 5, 0),)),
    }
    asked = tuple(Job(f"j{k}", model, width, 1) for k, (model, width) in enumerate(jobs))
    return Instance("racks", Cluster(tuple(servers), switches, tuple(links)), models, asked, "cyclic", "period")


def types(data: ProblemData, group: list[int]) -> str:
    return "".join(sorted(data.layout.servers[server].gpu_type for server in group))


def test_fast_servers_of_two_racks_become_a_group_for_a_job_that_needs_them() -> None:
    data = data_of(racks([("keen", 4), ("easy", 4), ("easy", 2)]))
    groups = groups_of(data)
    assert [types(data, group) for group in groups] == ["ffss"] * 4
    found = repartitioned(groups, CandidateTable(data), SLOW - 1)
    assert sorted(server for group in found for server in group) == list(range(16))
    assert sorted(types(data, group) for group in found) == ["ffff", "ffss", "ffss", "ssss"]


def test_groups_stay_as_they_are_where_each_job_is_fast_enough_in_one() -> None:
    data = data_of(racks([("keen", 4), ("easy", 4), ("easy", 2)]))
    groups = groups_of(data)
    assert repartitioned(groups, CandidateTable(data), 2 * SLOW) == groups
    data = data_of(racks([("keen", 2), ("easy", 4)]))
    assert repartitioned(groups_of(data), CandidateTable(data), SLOW - 1) == groups_of(data)


@pytest.mark.parametrize(("longest", "number"), [(20, 1), (12, 2)])
def test_jobs_share_such_a_group_as_long_as_their_transfers_find_time(longest: int, number: int) -> None:
    data = data_of(racks([("keen", 4), ("keen", 4), ("easy", 4)]))
    candidate_table = CandidateTable(data)
    exchange = min(candidate_set.exchange for candidate_set in candidate_table.of(0))
    assert longest // exchange == 3 - number
    found = repartitioned(groups_of(data), candidate_table, longest)
    assert [types(data, group) for group in found].count("ffff") == number


def nestings_of(candidate_table: CandidateTable) -> Hierarchies:
    return Hierarchies(
        lambda target, longest: HierarchicalAssignment(candidate_table, target, longest, Random(0)), lambda: False
    )


def test_jobs_in_such_groups_are_laid_by_the_rules() -> None:
    instance = racks([("keen", 4), ("keen", 4), ("keen", 4), ("easy", 4), ("easy", 4), ("easy", 2), ("easy", 1)])
    data, period = data_of(instance), 30
    hierarchy = nestings_of(CandidateTable(data)).fitting(period, 20)
    assert hierarchy is not None
    assert hierarchy.longest <= period
    assert None not in [hierarchy.group(index) for index in range(7)]
    plan = insert(data, hierarchy, period, 5)
    assert plan is not None and not check(instance, plan)


def test_a_nesting_is_kept_for_longer_periods_but_not_time_and_again() -> None:
    candidate_table = CandidateTable(data_of(racks([("easy", 4)] * 5, count=1)))
    # The transfers of five jobs one after the other take longer.
    least = 5 * candidate_table.of(0)[0].exchange
    hierarchies = nestings_of(candidate_table)
    first = hierarchies.fitting(100, 10)
    assert first is not None
    assert hierarchies.fitting(least - 1, 10) is None
    assert hierarchies.fitting(100, 10) is first
    assert hierarchies.fitting(least - 1, 10) is None
    assert hierarchies.fitting(least - 1, 10) is None
    assert hierarchies.fitting(100, 10) is not first


def test_jobs_that_are_held_stay_when_room_is_made() -> None:
    data = data_of(racks([("easy", 4)] * 8, count=1))
    assignments = [CandidateTable(data).of(index)[0].alone for index in range(8)]
    # The links have time for the transfers of two jobs.
    period = 2 * sum(map(sum, assignments[0].exchange))
    insertion = JobInsertion(PartialSchedule(data, period), FixedPolicy(assignments), Random(0))
    assert insertion.insert([0], [1.0] * 8, 0, lambda: False) == []
    before = insertion.schedule.scheduled[0]
    for _ in range(5):
        left = insertion.insert([1, 2], [1.0] * 8, 20, lambda: False, held={0})
        assert 0 not in left
        assert insertion.schedule.scheduled[0] is before
        for index in {1, 2} - set(left):
            insertion.schedule.remove(index)
    left = insertion.insert([1, 2], [1.0] * 8, 200, lambda: False)
    assert len(left) == 1
