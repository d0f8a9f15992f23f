"""Groups of servers cut anew for jobs that are fast enough only across them, and which nesting is laid by."""

from __future__ import annotations

from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server, compile_instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateTable, FixedPolicy
from jigsaw_opt.solvers.search.cyclic.group_insertion import DecomposedInsertion
from jigsaw_opt.solvers.search.cyclic.hierarchy import HierarchicalAssignment
from jigsaw_opt.solvers.search.cyclic.period_search import Hierarchies
from jigsaw_opt.solvers.search.cyclic.server_groups import groups_of, repartitioned
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.state.job_insertion import JobInsertion
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule
from jigsaw_opt.solvers.solve_state import SolveState

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


def ground_of(instance: Instance) -> ProblemData:
    operations = compile_instance(instance)
    asked = demands(operations)
    assert asked is not None
    return ProblemData(operations, asked)


def types(data: ProblemData, group: list[int]) -> str:
    return "".join(sorted(data.layout.servers[server].gpu_type for server in group))


def test_fast_servers_of_two_racks_become_a_group_for_a_job_that_needs_them() -> None:
    data = ground_of(racks([("keen", 4), ("easy", 4), ("easy", 2)]))
    groups = groups_of(data)
    assert [types(data, group) for group in groups] == ["ffss"] * 4
    found = repartitioned(groups, CandidateTable(data), SLOW - 1)
    assert sorted(server for group in found for server in group) == list(range(16))
    assert sorted(types(data, group) for group in found) == ["ffff", "ffss", "ffss", "ssss"]


def test_groups_stay_as_they_are_where_each_job_is_fast_enough_in_one() -> None:
    data = ground_of(racks([("keen", 4), ("easy", 4), ("easy", 2)]))
    groups = groups_of(data)
    assert repartitioned(groups, CandidateTable(data), 2 * SLOW) == groups
    data = ground_of(racks([("keen", 2), ("easy", 4)]))
    assert repartitioned(groups_of(data), CandidateTable(data), SLOW - 1) == groups_of(data)


@pytest.mark.parametrize(("longest", "number"), [(20, 1), (12, 2)])
def test_jobs_share_such_a_group_as_long_as_their_transfers_find_time(longest: int, number: int) -> None:
    data = ground_of(racks([("keen", 4), ("keen", 4), ("easy", 4)]))
    candidate_table = CandidateTable(data)
    exchange = min(candidate_set.exchange for candidate_set in candidate_table.of(0))
    assert longest // exchange == 3 - number
    found = repartitioned(groups_of(data), candidate_table, longest)
    assert [types(data, group) for group in found].count("ffff") == number


def nestings_of(candidate_table: CandidateTable) -> Hierarchies:
    return Hierarchies(
        lambda target, longest: HierarchicalAssignment(candidate_table, target, longest, Random(0)), lambda: False
    )


def ignore(event: Event) -> None:
    """Progress is of no interest here."""


def test_jobs_in_such_groups_are_laid_by_the_rules() -> None:
    instance = racks([("keen", 4), ("keen", 4), ("keen", 4), ("easy", 4), ("easy", 4), ("easy", 2), ("easy", 1)])
    data, period = ground_of(instance), 30
    candidate_table = CandidateTable(data)
    hierarchy = nestings_of(candidate_table).fitting(period, 20)
    assert hierarchy is not None
    assert hierarchy.longest <= period
    assert None not in [hierarchy.group(index) for index in range(7)]
    solve_state = SolveState("groups", data.operations, Options(threads=1), ignore)
    decomposed = DecomposedInsertion(
        candidate_table, hierarchy, period, Random(0), Engine(Budget(solve_state)), [1.0] * 7, lambda: False, {}
    )
    timetable = decomposed.insert_all(5)
    assert timetable is not None
    solve_state.offer(timetable)
    plan = solve_state.result(StoppedBy.COMPLETED).plan
    assert plan is not None
    assert not check(instance, plan)


def test_a_nesting_is_kept_for_longer_periods_but_not_time_and_again() -> None:
    candidate_table = CandidateTable(ground_of(racks([("easy", 4)] * 5, count=1)))
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
    data = ground_of(racks([("easy", 4)] * 8, count=1))
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
