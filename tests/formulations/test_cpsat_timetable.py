"""The finite CP-SAT model alone: proven optima against brute force, exactness of what is read back, hints."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.formulations import cpsat_cycle
from jigsaw_opt.formulations.cpsat_timetable import CpSatTimetable, build, interval_count, serial_limit, windows
from jigsaw_opt.instances import load
from jigsaw_opt.problem import (
    Cluster,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    Link,
    Plan,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem import Model as Network
from jigsaw_opt.problem.compiled.timetable import Timetable, objective_of
from jigsaw_opt.problem.instance import Objective
from tests.oracle import optimum
from tests.random_instances import MICRO, random_instance, tight_instance

cp_model = pytest.importorskip("ortools.sat.python.cp_model")
WORK_LIMIT = 20.0


def model_of(instance: Instance, bound: int = 0, limit: int | None = None) -> CpSatTimetable:
    operations = compile_instance(instance)
    limit = serial_limit(operations) if limit is None else limit
    return build(operations, windows(operations, limit), bound, limit)


def solved(model: CpSatTimetable) -> tuple[int, cp_model.CpSolver]:
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
        segment,
        parameter_bytes=segment.parameter_bytes * factor,
        activation_bytes=segment.activation_bytes * factor,
    )


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_optimum_is_that_of_brute_force(first: int, objective: str) -> None:
    for seed in range(first, first + 10):
        instance = random_instance(seed, "finite", objective, operations=7)
        assert proven_optimum(instance) == optimum(instance), instance.name


def test_bytes_beyond_32_bits_change_nothing() -> None:
    for seed in range(100, 120):
        instance = random_instance(seed, "finite", "makespan", operations=6)
        assert proven_optimum(enlarged(instance, 15 * 10**8)) == optimum(instance), instance.name


def test_example_of_the_specification(pair: Instance, pair_plan: Plan) -> None:
    assert proven_optimum(pair) == pair_plan.objective == 1800
    full = replace(pair, jobs=tuple(replace(job, depth=FullDepth()) for job in pair.jobs))
    assert proven_optimum(full) == 2400


def one_segment(forward: int, backward: int, payload: int = 0) -> Network:
    return Network((Segment("all", {"v": forward}, {"v": backward}, payload, 1),))


def test_smith_rule_on_one_gpu() -> None:
    times, weights = (7, 3, 5, 2, 6), (2, 3, 1, 4, 2)
    models = {f"m{k}": one_segment(1, time - 1) for k, time in enumerate(times)}
    jobs = tuple(Job(f"j{k}", f"m{k}", 1, 1, weight=weight) for k, weight in enumerate(weights))
    instance = Instance(
        "smith", Cluster((Server("s", "v", 1, 1000, 1),)), models, jobs, "finite", "weighted_completion"
    )
    best, end = 0, 0
    for time, weight in sorted(zip(times, weights, strict=True), key=lambda job: job[0] / job[1]):
        end += time
        best += weight * end
    assert proven_optimum(instance) == best


def test_identical_machines() -> None:
    times = (5, 5, 4, 4, 3, 3, 3)
    models = {f"m{time}": one_segment(1, time - 1) for time in times}
    jobs = tuple(Job(f"j{k}", f"m{time}", 1, 1) for k, time in enumerate(times))
    cluster = Cluster((Server("s", "v", 3, 1000, 1),))
    # 5 + 4, 5 + 4 and 3 + 3 + 3: the longest-processing-time rule gives 11.
    assert proven_optimum(Instance("p-cmax", cluster, models, jobs)) == 9


def test_johnson_rule_on_two_servers() -> None:
    blocks, exchanges = (3, 5, 1, 6, 7), (6, 2, 2, 6, 5)
    servers = tuple(Server(f"s{k}", "v", 1, 10**6, 10**6) for k in range(2))
    cluster = Cluster(servers, (), (Link("cable", ("s0", "s1"), 10**6),))
    models = {f"m{k}": one_segment(1, b - 1, c) for k, (b, c) in enumerate(zip(blocks, exchanges, strict=True))}
    jobs = tuple(Job(f"j{k}", f"m{k}", 2, 1) for k in range(len(blocks)))
    best = min(_flow_shop([(blocks[k], exchanges[k]) for k in order]) for order in permutations(range(len(blocks))))
    assert proven_optimum(Instance("johnson", cluster, models, jobs)) == best


def _flow_shop(jobs: list[tuple[int, int]]) -> int:
    first = second = 0
    for block, exchange in jobs:
        first += block
        second = max(first, second) + exchange
    return second


def test_lone_full_job_ends_after_its_iterations() -> None:
    model = Network((Segment("body", {"v": 30}, {"v": 60}, 20, 1), Segment("head", {"v": 10}, {"v": 20}, 50, 1)))
    job = Job("lone", "net", 2, 3, release_us=11)
    cluster = Cluster((Server("s", "v", 4, 1000, 10**6),))
    # The head's exchange (50) hides behind the body's backward pass (60), the body's (20) does not.
    assert proven_optimum(Instance("lone", cluster, {"net": model}, (job,))) == 11 + 3 * (120 + 20)


@pytest.mark.parametrize("depth", [FullDepth(), StaircaseDepth(), FreeDepth(), FreeDepth(balance=0)])
def test_a_hinted_plan_is_a_solution(depth: FullDepth | StaircaseDepth | FreeDepth) -> None:
    """Also where the hint names jobs, servers and GPUs in another order than the model's."""
    servers = tuple(Server(f"s{k}", "v", 2, 10**6, 10**6) for k in range(3))
    links = tuple(Link(f"l{k}", (f"s{k}", "hub"), 10**6) for k in range(3))
    model = Network(tuple(Segment(f"g{k}", {"v": 4}, {"v": 9}, 6, 3) for k in range(2)))
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


def _renamed(timetable: Timetable) -> Timetable:
    """Swap GPUs and servers, and the first two jobs, which are alike."""
    names = {f"s{s}/{k}": f"s{2 - s}/{1 - k}" for s in range(3) for k in range(2)}
    jobs = [replace(job, gpus=tuple(names[gpu] for gpu in job.gpus)) for job in timetable.jobs]
    jobs[0], jobs[1] = replace(jobs[1], name=jobs[0].name), replace(jobs[0], name=jobs[1].name)
    return Timetable(tuple(jobs))


def test_size_counts_blocks_by_gpu_and_transfers_by_link(pair: Instance) -> None:
    assert interval_count(compile_instance(pair)) == 2 + 2


@pytest.mark.parametrize("name", ["tiny/001", "rack/plain", "tiny/004", "server/cyclic-mixed"])
def test_size_is_that_of_the_model_on_both_horizons(name: str) -> None:
    operations = compile_instance(load(name))
    limit = serial_limit(operations)
    state = cpsat_cycle.build if operations.horizon == "cyclic" else build
    constraints = state(operations, windows(operations, limit), 0, limit).proto.proto.constraints
    assert interval_count(operations) == sum(each.has_interval() for each in constraints)


def test_jobs_that_do_not_fit_together_follow_one_another() -> None:
    models, jobs = {}, []
    for name, length, release, due in (("a", 3, 1, 4), ("b", 5, 9, 20), ("c", 6, 0, 10)):
        models[name] = Network((Segment("all", {"v": length}, {"v": 0}, 10, 1),), state_factor=1)
        jobs.append(Job(name, name, 1, 1, release_us=release, deadline_us=due))
    assert proven_optimum(Instance("one", Cluster((Server("s", "v", 1, 11, MICRO),)), models, tuple(jobs))) == 15


def test_the_fast_gpu_serves_both_jobs() -> None:
    model = Network((Segment("all", {"v": 2, "w": 100}, {"v": 0, "w": 0}, 10, 1),), state_factor=1)
    servers = Server("fast", "v", 1, 11, MICRO), Server("slow", "w", 1, 11, MICRO)
    jobs = tuple(Job(name, "m", 1, 1) for name in "ab")
    assert proven_optimum(Instance("two", Cluster(servers), {"m": model}, jobs)) == 4
    roomy = tuple(replace(server, gpu_memory=10) for server in servers)
    assert proven_optimum(Instance("two", Cluster(roomy), {"m": model}, jobs)) is None


def test_only_the_largest_activations_count() -> None:
    """Two-worker jobs whose transfers leave the GPUs to others, if memory admits both at once."""
    segments = {name: Segment("all", {"v": 2}, {"v": 0}, 2, size) for name, size in (("a", 5), ("b", 3))}
    models = {name: Network((segment,), state_factor=1) for name, segment in segments.items()}
    jobs = tuple(Job(name, name, 2, 1) for name in "ab")
    servers = tuple(Server(f"s{k}", "v", 1, 9, MICRO) for k in range(2))
    cluster = Cluster(servers, links=(Link("l", ("s0", "s1"), MICRO),))
    instance = Instance("pairs", cluster, models, jobs)
    assert not compile_instance(instance).has_scarce_memory
    together = proven_optimum(instance)
    less = tuple(replace(server, gpu_memory=8) for server in servers)
    scarce = replace(instance, cluster=replace(cluster, servers=less))
    assert compile_instance(scarce).has_scarce_memory
    assert (together, proven_optimum(scarce)) == (6, 8)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_scarce_memory_as_brute_force_has_it(objective: Objective) -> None:
    for seed in range(40):
        instance = tight_instance(seed, objective, "data-parallel", operations=5)
        # With deadlines the windows may be empty, for which solvers build no model.
        instance = replace(instance, jobs=tuple(replace(job, deadline_us=None) for job in instance.jobs))
        assert proven_optimum(instance) == optimum(instance), instance.name
        assert proven_optimum(enlarged(instance, 15 * 10**8 + 1)) == optimum(instance), instance.name
