"""The finite CP-SAT model alone: proven optima against brute force, hints, and load inequalities."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.formulations.cpsat import CpSatModel, build
from jigsaw_opt.formulations.cpsat.size import interval_count
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.windows import serial_limit, windows
from jigsaw_opt.instances import load
from jigsaw_opt.problem import (
    Cluster,
    Efficiency,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    Link,
    Model,
    Plan,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem import Model as Network
from jigsaw_opt.problem.compiled.timetable import Timetable, objective_of
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.cpsat import search as cpsat_search
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.ilp import solver as ilp
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import GOALS, MICRO, random_instance, tight_instance
from tests.random_task_graphs import random_mixed_instance

cp_model = pytest.importorskip("ortools.sat.python.cp_model")
WORK_LIMIT = 20.0


def model_of(instance: Instance, bound: int = 0, limit: int | None = None) -> CpSatModel:
    operations = compile_instance(instance)
    limit = serial_limit(operations) if limit is None else limit
    return build(operations, windows(operations, limit), bound, limit)


def solved(model: CpSatModel) -> tuple[int, cp_model.CpSolver]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = WORK_LIMIT
    return solver.solve(model.proto), solver


def proven_optimum(instance: Instance) -> int | None:
    """Objective of the plan, which must be correct and as good as the engine says; None where there is none."""
    model = model_of(instance)
    status, solver = solved(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    timetable = model.plan(solver.value)
    objective = objective_of(compile_instance(instance), timetable.jobs)
    assert objective == round(solver.objective_value)
    assert check(instance, plan_of(instance, timetable, objective)) == ()
    return objective


def plan_of(instance: Instance, timetable: Timetable, objective: int) -> Plan:
    signature = {"name": "test", "seconds": 0, "seed": 0}
    digest = instance_sha256(instance)
    return Plan.of_jobs(instance.name, digest, "optimal", objective, objective, None, timetable.jobs, signature)


def enlarged(instance: Instance, factor: int) -> Instance:
    """The same problem with all bytes and rates multiplied: the optimum stays."""
    cluster = instance.cluster
    servers = tuple(
        replace(s, gpu_memory=s.gpu_memory * factor, fabric_bandwidth=s.fabric_bandwidth * factor)
        for s in cluster.servers
    )
    links = tuple(replace(link, bandwidth=link.bandwidth * factor) for link in cluster.links)
    models = {
        name: replace(model, segments=tuple(_heavier(segment, factor) for segment in model.segments))
        for name, model in instance.models.items()
    }
    return replace(instance, cluster=replace(cluster, servers=servers, links=links), models=models)


def _heavier(segment: Segment, factor: int) -> Segment:
    return replace(
        segment, parameter_bytes=segment.parameter_bytes * factor, activation_bytes=segment.activation_bytes * factor
    )


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_optimum_is_that_of_brute_force(objective: str) -> None:
    for seed in range(10, 40):
        instance = random_instance(seed, "finite", objective, operations=7)
        assert proven_optimum(instance) == optimum(instance), instance.name


@pytest.mark.parametrize(
    "depth", [FullDepth(), StaircaseDepth(), FreeDepth(), FreeDepth(balance=0), FreeDepth(min_progress="9/10")]
)
def test_a_hinted_plan_is_a_solution(depth: FullDepth | StaircaseDepth | FreeDepth) -> None:
    """Also where the hint names jobs, servers and GPUs in another order than the model's."""
    servers = tuple(Server(f"s{k}", "v", 2, 10**6, 10**6) for k in range(3))
    links = tuple(Link(f"l{k}", (f"s{k}", "hub"), 10**6) for k in range(3))
    noisy = Efficiency((500, 4_000), (1, 1))
    model = Network(tuple(Segment(f"g{k}", {"v": 4}, {"v": 9}, 6, 3) for k in range(2)), efficiency=noisy)
    jobs = tuple(Job(f"j{k}", "net", w, 2, depth=depth) for k, w in enumerate((2, 2, 4, 1, 1)))
    instance = Instance("hints", Cluster(servers, ("hub",), links), {"net": model}, jobs)
    best = model_of(instance)
    status, solver = solved(best)
    assert status == cp_model.OPTIMAL
    renamed = _renamed(best.plan(solver.value))
    objective = objective_of(compile_instance(instance), renamed.jobs)
    fixed = model_of(instance, objective, objective)
    fixed.hint(renamed)
    checker = cp_model.CpSolver()
    checker.parameters.num_workers = 1
    checker.parameters.fix_variables_to_their_hinted_value = True
    assert checker.solve(fixed.proto) == cp_model.OPTIMAL


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_a_hinted_plan_of_both_kinds_of_job_is_a_solution(horizon: Horizon, objective: Objective) -> None:
    """Whatever order of GPUs, servers and parts it has, and wherever its period begins."""
    hinted = 0
    for seed in range(12):
        operations = compile_instance(random_mixed_instance(seed, horizon, objective))
        plan = greedy_timetable(operations)
        if plan is None:
            continue
        hinted += 1
        most = objective_of(operations, plan.jobs, plan.period_us, plan.task_graph_jobs)
        model = build(operations, windows(operations, most), most, most)
        model.hint(plan)
        checker = cp_model.CpSolver()
        checker.parameters.num_workers = 1
        checker.parameters.fix_variables_to_their_hinted_value = True
        assert checker.solve(model.proto) == cp_model.OPTIMAL, seed
    assert hinted


def _renamed(timetable: Timetable) -> Timetable:
    """Swap GPUs and servers, and the first two jobs, which are alike."""
    names = {f"s{s}/{k}": f"s{2 - s}/{1 - k}" for s in range(3) for k in range(2)}
    jobs = [replace(job, gpus=tuple(names[gpu] for gpu in job.gpus)) for job in timetable.jobs]
    jobs[0], jobs[1] = replace(jobs[1], name=jobs[0].name), replace(jobs[0], name=jobs[1].name)
    return Timetable(tuple(jobs))


@pytest.mark.parametrize("name", ["tiny/001", "rack/plain", "tiny/004", "server/cyclic-mixed"])
def test_size_is_that_of_the_model_on_both_horizons(name: str) -> None:
    operations = compile_instance(load(name))
    limit = serial_limit(operations)
    constraints = build(operations, windows(operations, limit), 0, limit).proto.proto.constraints
    assert interval_count(operations) == sum(each.has_interval() for each in constraints)


def test_only_the_largest_activations_count() -> None:
    """Two-worker jobs whose transfers leave the GPUs to others, if memory admits both at once."""
    segments = {name: Segment("all", {"v": 2}, {"v": 0}, 2, size) for name, size in (("a", 5), ("b", 3))}
    models = {name: Network((segment,), state_factor=1) for name, segment in segments.items()}
    jobs = tuple(Job(name, name, 2, 1) for name in "ab")
    servers = tuple(Server(f"s{k}", "v", 1, 9, MICRO) for k in range(2))
    cluster = Cluster(servers, links=(Link("l", ("s0", "s1"), MICRO),))
    instance = Instance("pairs", cluster, models, jobs)
    assert not compile_instance(instance).has_scarce_holdings
    together = proven_optimum(instance)
    less = tuple(replace(server, gpu_memory=8) for server in servers)
    scarce = replace(instance, cluster=replace(cluster, servers=less))
    assert compile_instance(scarce).has_scarce_holdings
    assert (together, proven_optimum(scarce)) == (6, 8)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_scarce_memory_as_brute_force_has_it(objective: Objective) -> None:
    for seed in range(20):
        instance = tight_instance(seed, objective, "data-parallel", operations=5)
        # With deadlines the windows may be empty, for which solvers build no model.
        instance = replace(instance, jobs=tuple(replace(job, deadline_us=None) for job in instance.jobs))
        assert proven_optimum(instance) == optimum(instance), instance.name
        assert proven_optimum(enlarged(instance, 15 * 10**8 + 1)) == optimum(instance), instance.name


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
    for count, status in ((8, cp_model.OPTIMAL), (9, cp_model.INFEASIBLE)):
        operations = compile_instance(pairs(count, horizon=horizon))
        model = build(operations, windows(operations, limit), limit if horizon == "cyclic" else 0, limit)
        model.proto.clear_objective()
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        if count == 9:
            solver.parameters.max_number_of_conflicts = 0
        assert solver.solve(model.proto) == status
