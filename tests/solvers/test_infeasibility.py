"""Causes of infeasibility: certain, minimal, and never claimed where a plan exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from jigsaw_opt.problem import (
    Cluster,
    Depth,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    Link,
    Model,
    Operations,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from jigsaw_opt.solvers.infeasibility.conflict import minimal_conflict, placement_feasible
from jigsaw_opt.solvers.infeasibility.together import restrict
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import random_instance
from tests.refusals import carries

SERVER = Server("s", "v", 2, 100, 1)


DEEP = (20, 20, 10)
"""Activations: 30 at level 1, and 50 at level 2, which is all three segments."""


def model(state: int = 10, activations: Sequence[int] = (5,), gpu_type: str = "v") -> Model:
    """Segments from the input on, all parameters in the first; the levels are the last segment and all."""
    times = {gpu_type: 1}
    sizes = [state] + [0] * (len(activations) - 1)
    segments = (Segment(f"g{k}", times, times, p, a) for k, (p, a) in enumerate(zip(sizes, activations, strict=True)))
    return Model(tuple(segments), (1,) if len(sizes) == 1 else (1, len(sizes)), state_factor=1)


def operations(models: dict[str, Model], jobs: Sequence[Job], servers: Sequence[Server] = (SERVER,)) -> Operations:
    return compile_instance(Instance("i", Cluster(tuple(servers)), models, tuple(jobs)))


def repeated(models: dict[str, Model], jobs: Sequence[Job], servers: Sequence[Server] = (SERVER,)) -> Operations:
    """On the cyclic horizon, where all jobs are always present."""
    return compile_instance(Instance("i", Cluster(tuple(servers)), models, tuple(jobs), "cyclic", "period"))


def only(part: Operations) -> tuple[str, tuple[str, ...], str]:
    (cause,) = certain_causes(part)
    assert placement_feasible(part) is False
    return cause.kind, cause.jobs, cause.message


def test_a_job_of_another_gpu_type() -> None:
    kind, jobs, message = only(operations({"m": model(gpu_type="w")}, [Job("a", "m", 1, 1)]))
    assert (kind, jobs) == ("gpu_type", ("a",))
    assert carries(message, "times", "cluster")


def test_more_workers_than_gpus() -> None:
    kind, jobs, message = only(operations({"m": model()}, [Job("ok", "m", 2, 1), Job("a", "m", 3, 1)]))
    assert (kind, jobs) == ("reach", ("a",))
    assert "3 workers" in message and carries(message, "2 GPUs", "1 more", "wanted", "2 workers")


def test_more_workers_than_gpus_of_the_types() -> None:
    _, _, message = only(operations({"m": model()}, [Job("a", "m", 3, 1)], (SERVER, Server("t", "w", 4, 100, 1))))
    assert "type v" in message and carries(message, "2 GPUs", "6")


def test_servers_without_a_path() -> None:
    kind, _, message = only(operations({"m": model()}, [Job("a", "m", 3, 1)], (SERVER, Server("t", "v", 2, 100, 1))))
    assert kind == "reach" and carries(message, "more", "2") and carries(message, "1 more", "wanted")


def test_memory_of_the_worker_that_must_be_deep() -> None:
    part = operations({"m": model(60, DEEP)}, [Job("a", "m", 2, 1, depth=StaircaseDepth())])
    kind, jobs, message = only(part)
    assert (kind, jobs) == ("memory", ("a",))
    assert carries(message, "1 worker", "110 bytes", "60", "state") and "has 100" in message


@pytest.mark.parametrize(
    ("state", "told"), [(120, "at least 25 bytes"), (3_000_000, "at least 3 MB"), (2_340_000_000, "at least 2.4 GB")]
)
def test_what_is_missing_is_told_and_is_enough(state: int, told: str) -> None:
    def instance(memory: int) -> Instance:
        cluster = Cluster((Server("small", "v", 2, 50, 1), replace(SERVER, gpu_memory=memory)))
        return Instance("one", cluster, {"m": model(state)}, (Job("a", "m", 1, 1),), "finite", "makespan")

    (conflict,) = certain_causes(compile_instance(instance(100)))
    assert carries(conflict.message, told, "server s")
    assert certain_causes(compile_instance(instance(state + 5))) == ()


def test_memory_of_one_deep_worker_is_enough_under_a_staircase() -> None:
    servers = (Server("big", "v", 1, 110, 1), Server("small", "v", 1, 109, 1))
    cluster = Cluster(servers, (), (Link("l", ("big", "small"), 1),))
    models = {"m": model(60, DEEP)}

    def job(depth: Depth) -> Operations:
        return compile_instance(Instance("i", cluster, models, (Job("a", "m", 2, 3, depth=depth),)))

    assert not certain_causes(job(StaircaseDepth())) and placement_feasible(job(StaircaseDepth()))
    kind, _, message = only(job(FullDepth()))
    assert kind == "memory" and carries(message, "2 workers", "110 bytes") and "only 1 GPU has" in message


def test_least_total_needs_memory_for_deep_levels() -> None:
    servers = (Server("big", "v", 1, 110, 1), Server("small", "v", 1, 109, 1))
    cluster = Cluster(servers, (), (Link("l", ("big", "small"), 1),))
    part = compile_instance(
        Instance("i", cluster, {"m": model(60, DEEP)}, (Job("a", "m", 2, 1, depth=FreeDepth(1, 1)),))
    )
    kind, _, message = only(part)
    assert kind == "memory" and carries(message, "depth", "between")


def test_balance_forbids_that_one_worker_is_always_the_deep_one() -> None:
    servers = (Server("big", "v", 1, 110, 1), Server("small", "v", 1, 109, 1))
    cluster = Cluster(servers, (), (Link("l", ("big", "small"), 1),))

    def job(balance: int, iterations: int) -> Operations:
        depth = FreeDepth(1, "1/2", balance)
        jobs = (Job("a", "m", 2, iterations, depth=depth),)
        return compile_instance(Instance("i", cluster, {"m": model(60, DEEP)}, jobs))

    assert placement_feasible(job(3, 3)) is True
    assert placement_feasible(job(2, 3)) is False


def test_mean_depth_above_one() -> None:
    part = operations({"m": model()}, [Job("a", "m", 2, 1, depth=FreeDepth(1, "3/2"))])
    kind, jobs, message = only(part)
    assert (kind, jobs) == ("depth", ("a",))
    assert "3 levels" in message and "only 2" in message
    for activations in ((5,), (5, 5)):
        part = operations({"m": model(activations=activations)}, [Job("a", "m", 2, 1, depth=FreeDepth(1, 2))])
        assert solve(part.instance, "greedy", Options(threads=1)).status is Status.INFEASIBLE


def test_states_exceed_the_memory_of_the_gpus_they_depend_on() -> None:
    servers = (SERVER, Server("t", "w", 8, 100, 1))
    models = {"v": model(90), "w": model(90, gpu_type="w")}
    jobs = [Job("a", "v", 2, 1), Job("other", "w", 1, 1), Job("b", "v", 1, 1)]
    kind, names, message = only(repeated(models, jobs, servers))
    assert (kind, names) == ("memory", ("a", "b"))
    assert carries(message, "3 workers", "take", "270 bytes") and "type v have 190" in message


def test_a_minimal_conflict_names_only_the_jobs_that_take_part() -> None:
    models = {"small": model(10), "large": model(50)}
    sizes = ["small", "large", "small", "large", "small", "large", "small"]
    part = repeated(models, [Job(f"j{k}", m, 1, 1) for k, m in enumerate(sizes)])
    conflict = minimal_conflict(part)
    assert (conflict.kind, conflict.jobs) == ("search", ("j1", "j3", "j5"))
    assert carries(conflict.message, "2 GPUs", "100 bytes")


def test_jobs_that_do_not_fit_together_may_follow_one_another() -> None:
    jobs = [Job(f"j{k}", "m", 2, 3) for k in range(3)]
    part = operations({"m": model(90)}, jobs)
    assert certain_causes(part) == () and placement_feasible(part) is True
    assert placement_feasible(repeated({"m": model(90)}, jobs)) is False


def test_on_the_finite_horizon_a_conflict_is_one_job() -> None:
    """Each level needs the large GPU, and the balance forbids that one worker is always the deep one."""
    servers = (Server("big", "v", 1, 110, 1), Server("small", "v", 1, 109, 1))
    cluster = Cluster(servers, (), (Link("l", ("big", "small"), 1),))
    jobs = tuple(Job(name, "m", 2, 3, depth=FreeDepth(1, "1/2", balance)) for name, balance in (("a", 3), ("b", 2)))
    conflict = minimal_conflict(compile_instance(Instance("i", cluster, {"m": model(60, DEEP)}, jobs)))
    assert (conflict.kind, conflict.jobs) == ("search", ("b",))
    assert carries(conflict.message, "no place", "even alone")


def test_a_check_that_stays_open_keeps_the_jobs() -> None:
    part = operations({"large": model(50)}, [Job(f"j{k}", "large", 1, 1) for k in range(4)])
    conflict = minimal_conflict(part, lambda _: None)
    assert conflict.jobs == ("j0", "j1", "j2", "j3") and "any fewer" not in conflict.message


def test_jobs_without_a_place_together_are_told_what_gives_them_one() -> None:
    jobs = [Job(f"j{k}", "m", 1, 1) for k in range(3)]
    message = minimal_conflict(repeated({"m": model(50)}, jobs)).message
    assert carries(message, "though", "fewer")
    helps = "one GPU more on server s, or 5 bytes more on each GPU of server s, gives them a place"
    assert message.endswith(helps)

    def enlarged(gpus: int, memory: int) -> bool | None:
        server = replace(SERVER, gpus=gpus, gpu_memory=memory)
        return placement_feasible(repeated({"m": model(50)}, jobs, (server,)))

    assert enlarged(3, 100) and enlarged(2, 105) and enlarged(2, 104) is False


def test_links_that_a_route_policy_forbids() -> None:
    links = (Link("l", ("s", "t"), 1),)
    policies = {"other": RoutePolicy(avoid_links=("l",))}
    cluster = Cluster((SERVER, replace(SERVER, name="t")), (), links, policies)
    jobs = (Job("a", "m", 3, 1, route_policy="other"),)
    kind, _, message = only(compile_instance(Instance("i", cluster, {"m": model()}, jobs)))
    assert kind == "reach"
    assert carries(message, "'other'", "1 more")


def test_routes_that_keep_a_policy_join_too_few_at_once() -> None:
    """A chain of three servers whose ends are not joined by a route of one link."""
    links = (Link("l", ("s", "t"), 1), Link("k", ("t", "u"), 1))
    servers = tuple(Server(name, "v", 1, 100, 1) for name in "stu")
    cluster = Cluster(servers, (), links, {"near": RoutePolicy(max_links=1)})

    def near(workers: int) -> Operations:
        jobs = (Job("a", "m", workers, 1, route_policy="near"),)
        return compile_instance(Instance("i", cluster, {"m": model()}, jobs))

    assert placement_feasible(near(2)) and placement_feasible(near(3)) is False
    assert minimal_conflict(near(3)).message.endswith("a wider route policy or fewer workers may help")


def test_a_conflict_of_one_job_says_why() -> None:
    part = operations({"m": model()}, [Job("a", "m", 1, 1), Job("b", "m", 3, 1)])
    assert minimal_conflict(part) == certain_causes(part)[0]


def test_restriction_keeps_jobs_of_operations_and_instance_in_step() -> None:
    part = restrict(operations({"m": model()}, [Job(f"j{k}", "m", 1, 1) for k in range(4)]), (2, 0))
    assert [job.name for job in part.jobs] == [job.name for job in part.instance.jobs] == ["j2", "j0"]


@pytest.mark.parametrize("count", (1, 2))
def test_sizes_beyond_the_engine_stay_open(count: int) -> None:
    huge = Server("s", "v", 1, 2**53 - 1, 1)
    long = [Job(f"j{k}", "m", 1, 2**53 - 1) for k in range(count)]
    assert placement_feasible(operations({"m": model(1)}, long, (huge,))) is True
    jobs = [Job(f"j{k}", "m", 1, 1) for k in range(600)]
    assert placement_feasible(operations({"m": model(2**43)}, jobs, (huge,))) is None


@pytest.mark.slow
def test_agrees_with_brute_force_on_whether_there_is_a_plan() -> None:
    feasible = 0
    for seed in range(40):
        instance = random_instance(seed, operations=7)
        part, exists = compile_instance(instance), optimum(instance) is not None
        assert placement_feasible(part) is exists, seed
        assert not (exists and certain_causes(part)), seed
        feasible += exists
    assert 12 < feasible < 39
