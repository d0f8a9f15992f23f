"""The load inequalities hold where a GPU holds none of their jobs, and say how many jobs a server takes."""

from __future__ import annotations

import pytest

from jigsaw_opt.formulations import cpsat_cycle, cpsat_timetable
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.windows import windows
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server, compile_instance
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.solvers.cpsat import search as cpsat_search
from jigsaw_opt.solvers.ilp import solver as ilp
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve

EXACT = Options(threads=1, work_limit=60)
EXCHANGING = Model((Segment("s", {"v": 10}, {"v": 10}, 50, 0),))
BALANCED = Model((Segment("s", {"v": 10}, {"v": 10}, 20, 0),))
SHORT = Model((Segment("s", {"v": 4, "w": 8}, {"v": 1, "w": 2}, 0, 0),))


@pytest.mark.parametrize("solver", ["cpsat", "ilp"])
@pytest.mark.parametrize("gpus", [3, 4])
def test_a_late_release_and_a_long_exchange_of_another_job_do_not_add_up(
    solver: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pair exchanges its one bucket for 50 us after its blocks and ends at 70; the late job runs from 60 to 65.
    cluster = Cluster((Server("s", "v", gpus, 10**6, 10**6),))
    jobs = (Job("pair", "exchanging", 2, 1), Job("late", "short", 1, 1, release_us=60))
    instance = Instance("late", cluster, {"exchanging": EXCHANGING, "short": SHORT}, jobs)
    for module in (cpsat_search, ilp):  # from the models alone
        monkeypatch.setattr(module, "offer_greedy", lambda solve_state, operations, seed: False)
    result = solve(instance, solver, EXACT)
    assert (result.status, result.objective) == (Status.OPTIMAL, 70)


@pytest.mark.parametrize("solver", ["cpsat", "ilp"])
def test_a_tail_on_one_type_says_nothing_of_the_other(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # On "slow" the pair's last bucket is ready long before its block ends, on "fast" it is not.
    pair = Model(
        (
            Segment("body", {"fast": 1, "slow": 1}, {"fast": 1, "slow": 200}, 0, 0),
            Segment("head", {"fast": 1, "slow": 1}, {"fast": 1, "slow": 1}, 90, 0),
        )
    )
    servers = (Server("f", "fast", 2, 10**6, 10**6), Server("s", "slow", 2, 10**6, 10**6))
    cluster = Cluster(servers)
    jobs = (Job("a", "pair", 2, 1), Job("b", "pair", 2, 1, release_us=300))
    for module in (cpsat_search, ilp):
        monkeypatch.setattr(module, "offer_greedy", lambda solve_state, operations, seed: False)
    result = solve(Instance("types", cluster, {"pair": pair}, jobs), solver, EXACT)
    # Forward 2, head ready at 3, 90 us of exchange: 93 after the later release.
    assert (result.status, result.objective) == (Status.OPTIMAL, 393)


def pairs(count: int, iterations: int = 1, horizon: Horizon = "finite", seconds: int = 1) -> Instance:
    """Jobs of two workers on two servers of four GPUs; an exchange over links takes so many seconds."""
    rate = 20 // seconds
    servers = tuple(Server(f"s{s}", "v", 4, 10**6, 10**6) for s in range(2))
    links = tuple(Link(f"l{s}", (f"s{s}", "hub"), rate) for s in range(2))
    jobs = tuple(Job(f"job{k}", "balanced", 2, iterations) for k in range(count))
    objective = "period" if horizon == "cyclic" else "makespan"
    return Instance("pairs", Cluster(servers, ("hub",), links), {"balanced": BALANCED}, jobs, horizon, objective)


@pytest.mark.parametrize("seconds", [1, 2])
def test_a_job_may_cross_where_its_least_span_over_links_is_left(seconds: int) -> None:
    operations = compile_instance(pairs(1, iterations=3, seconds=seconds))
    eligibility, span = GpuEligibility(operations), 3 * (20 + seconds * 10**6)
    assert eligibility.may_cross(operations.jobs[0], span)
    assert not eligibility.may_cross(operations.jobs[0], span - 1)


@pytest.mark.parametrize(("horizon", "limit"), [("finite", 2 * 20 + 20 + 9), ("cyclic", 2 * 20 + 9)])
def test_a_server_takes_no_more_jobs_than_its_gpus_have_time_for(horizon: Horizon, limit: int) -> None:
    # Two blocks on each of eight GPUs: room for eight pairs. The load of all GPUs together leaves room for nine.
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    build = cpsat_cycle.build if horizon == "cyclic" else cpsat_timetable.build
    for count, status in ((8, cp_model.OPTIMAL), (9, cp_model.INFEASIBLE)):
        operations = compile_instance(pairs(count, horizon=horizon))
        model = build(operations, windows(operations, limit), limit if horizon == "cyclic" else 0, limit)
        model.proto.clear_objective()
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        if count == 9:
            solver.parameters.max_number_of_conflicts = 0
        assert solver.solve(model.proto) == status
