"""Tiny random instances with small integers, for tests against the oracle and the checker."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal

from jigsaw_opt.problem import (
    Cluster,
    Depth,
    Efficiency,
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
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.network.walks import LinkGraph
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.task_graph import TaskGraphJob
from tests.random_fabrics import random_policy

GOALS: tuple[tuple[Horizon, Objective], ...] = (
    ("finite", "makespan"),
    ("finite", "weighted_completion"),
    ("cyclic", "period"),
)
"""Every horizon with every objective that it may have."""
Kind = Literal["data-parallel", "task-graphs", "mixed"]
KINDS: tuple[Kind, ...] = ("data-parallel", "task-graphs", "mixed")
MICRO = 1_000_000
"""With bandwidths in bytes per second, a payload of this many bytes takes microseconds of small numbers."""


def random_instance(
    seed: int, horizon: Horizon = "finite", objective: Objective = "makespan", operations: int = 8
) -> Instance:
    """A valid instance of at most about `operations` blocks and transfers; it may be infeasible.

    Same arguments, same instance. Covers one and several servers, switches, mixed GPU types, all depth
    rules, releases, weights, tight memory, zero-length transfers and latencies.
    """
    random = Random(f"{seed}/{horizon}/{objective}/{operations}")
    cluster = _cluster(random)
    models = {f"m{k}": _model(random, random.choice((1, 2, 2, 3))) for k in range(random.choice((1, 2)))}
    jobs = _jobs(random, models, horizon, operations, cluster.gpu_count)
    return Instance(f"random-{seed}", cluster, models, jobs, horizon, "period" if horizon == "cyclic" else objective)


def tight_instance(
    seed: int, objective: Objective = "makespan", kind: Kind | None = None, operations: int = 6, restarts: bool = False
) -> Instance:
    """A valid finite instance whose memory is scarce, so that jobs may have to follow one another.

    Same arguments, same instance, of at most three GPUs and twelve operations. Most jobs fit alone on most GPUs; it
    may be infeasible. It has releases and weights, and in some cases deadlines or route policies; with `restarts`, some
    jobs may move. `operations` is about the most blocks and transfers of its data-parallel jobs.
    """
    from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance

    random = Random(f"tight/{seed}/{objective}/{kind}/{operations}")
    kind = kind or random.choice(KINDS)
    while True:
        drawn = random.randrange(10**9)
        if kind == "data-parallel":
            instance = random_instance(drawn, "finite", objective, operations)
        elif kind == "task-graphs":
            instance = random_task_graph_instance(drawn, "finite", objective)
        else:
            instance = random_mixed_instance(drawn, "finite", objective, operations - 2)
        needs = [_most_bytes(instance, job) for job in instance.jobs]
        # Mostly each job fits and no two of them do.
        choices = max(needs), max(needs), max(needs) + min(needs) - 1, min(needs), sum(needs) - 1
        servers = tuple(replace(s, gpu_memory=max(1, random.choice(choices))) for s in instance.cluster.servers)
        instance = replace(instance, name=f"tight-{seed}", cluster=replace(instance.cluster, servers=servers))
        compiled = compile_instance(instance)
        small = instance.cluster.gpu_count <= 3 and compiled.blocks + compiled.transfers <= 12
        if small and compiled.has_scarce_holdings:
            break
    about = sum(_longest(instance, job) for job in instance.jobs)
    if random.random() < 0.4:
        instance = with_guarantees(instance, random, about)
    if random.random() < 0.1:
        instance = with_route_policies(instance, random)
    if restarts:
        jobs = (replace(job, restart_us=random.choice((None, 0, 0, 1, 3))) for job in instance.jobs)
        instance = replace(instance, jobs=tuple(jobs))
    return instance


def _most_bytes(instance: Instance, job: Job | TaskGraphJob) -> int:
    """Bytes that a job may need on a GPU by itself, the most of all its workers or slots."""
    if isinstance(job, TaskGraphJob):
        held = job.iterations * sum(hold.bytes for hold in job.shape.holds)
        return max(slot.memory for slot in job.shape.slots) + held
    segments = instance.models[job.model].segments
    states = instance.models[job.model].state_factor * sum(segment.parameter_bytes for segment in segments)
    return states + sum(segment.activation_bytes for segment in segments)


def _longest(instance: Instance, job: Job | TaskGraphJob) -> int:
    """Time of all blocks of a job on its slowest GPU, one after another in an iteration of a task graph."""
    if isinstance(job, TaskGraphJob):
        return job.iterations * sum(max(block.duration_us.values()) for block in job.shape.blocks)
    tables = [t for segment in instance.models[job.model].segments for t in (segment.forward_us, segment.backward_us)]
    return job.iterations * sum(max(table.values()) for table in tables)


def with_guarantees(instance: Instance, random: Random, about: int) -> Instance:
    """The instance with guarantees of some of its jobs, drawn so that they matter where plans are `about` long (us)."""
    jobs = []
    for job in instance.jobs:
        most = random.randint(max(1, about // 2), about + 2)
        if random.random() < 0.6 and instance.horizon == "finite":
            jobs.append(replace(job, deadline_us=most))
        elif random.random() < 0.6 and instance.horizon == "cyclic":
            jobs.append(replace(job, pace_us=-(-most // job.iterations)))
        else:
            jobs.append(job)
    return replace(instance, jobs=tuple(jobs))


def with_route_policies(instance: Instance, random: Random) -> Instance:
    """The instance with two policies, and some of its jobs under one of them."""
    cluster = instance.cluster
    points = [*(server.name for server in cluster.servers), *cluster.switches]
    graph = LinkGraph(points, ((link.name, link.ends) for link in cluster.links))
    policies = {name: random_policy(random, graph) for name in ("p", "q")}
    jobs = tuple(replace(job, route_policy=random.choice((None, "p", "q", "q"))) for job in instance.jobs)
    return replace(instance, cluster=replace(cluster, route_policies=policies), jobs=jobs)


def with_power_caps(instance: Instance, random: Random) -> Instance:
    """The instance with one or two power caps, which let one block run on their servers and perhaps not two at once."""
    names = [server.name for server in instance.cluster.servers]
    caps = tuple(
        PowerCap(f"cap{k}", tuple(random.sample(names, random.randint(1, len(names)))), random.randint(2, 5))
        for k in range(random.choice((1, 1, 2)))
    )
    models = {name: replace(model, power_w=_watts(random)) for name, model in instance.models.items()}
    jobs = tuple(_drawing(job, random) if isinstance(job, TaskGraphJob) else job for job in instance.jobs)
    return replace(instance, cluster=replace(instance.cluster, power_caps=caps), models=models, jobs=jobs)


def with_licences(instance: Instance, random: Random) -> Instance:
    """The instance with two licences, of one of which there is one and of the other mostly enough, and their jobs."""
    some = (None, (), ("x",), ("x",), ("x", "y"), ("y",))
    cluster = replace(instance.cluster, licences={"x": 1, "y": random.choice((0, 1, 1, 2, 2, 2, 3))})
    jobs = tuple(replace(job, licences=random.choice(some)) for job in instance.jobs)
    return replace(instance, cluster=cluster, jobs=jobs)


def with_progress_limits(instance: Instance, random: Random) -> Instance:
    """The instance with an efficiency of every model, and with a limit of progress for most data-parallel jobs."""
    models = {
        name: replace(model, efficiency=_efficiency(random, model.depth)) for name, model in instance.models.items()
    }
    shares = (0, "1/2", "3/4", "17/20", "9/10", "19/20", "99/100", 1)
    jobs = []
    for job in instance.jobs:
        if isinstance(job, Job) and random.random() < 0.8:
            contributors, balance = random.choice((1, 1, 2)), random.choice((None, None, 0, 1))
            depth = FreeDepth(contributors, random.choice((None, None, "2/3")), balance, random.choice(shares))
            job = replace(job, depth=depth)
        jobs.append(job)
    return replace(instance, models=models, jobs=tuple(jobs))


def _efficiency(random: Random, depth: int) -> Efficiency:
    noise = tuple(random.choice((0, 500, 4_000, 60_000)) for _ in range(depth))
    return Efficiency(noise, (*(random.choice((0, 1, 1, 7)) for _ in range(depth - 1)), random.choice((1, 3))))


def _drawing(job: TaskGraphJob, random: Random) -> TaskGraphJob:
    blocks = tuple(replace(block, power_w=_watts(random)) for block in job.shape.blocks)
    return replace(job, shape=replace(job.shape, blocks=blocks))


def _watts(random: Random) -> dict[str, int] | None:
    return random.choice((None, {"v": 2}, *({"v": random.randint(1, 4), "w": random.randint(0, 4)} for _ in range(3))))


def _cluster(random: Random) -> Cluster:
    count = random.choice((1, 1, 2, 2, 3))
    servers = tuple(
        Server(
            f"s{k}",
            random.choice(("v", "v", "w")),
            random.choice((1, 1, 2)),
            random.choice((1000, 1000, 60, 40)),
            random.choice((1, 2, 5)) * MICRO,
            random.choice((0, 0, 1)),
        )
        for k in range(count)
    )
    if count == 1 or random.random() < 0.1:
        return Cluster(servers)
    speed, latency = random.choice((1, 2, 3)), random.choice((0, 0, 1))
    if random.random() < 0.5:
        links = tuple(Link(f"l{k}", (f"s{k}", "hub"), speed * MICRO, latency) for k in range(count))
        return Cluster(servers, ("hub",), links)
    return Cluster(
        servers, (), tuple(Link(f"l{k}", (f"s{k + 1}", f"s{k}"), speed * MICRO, latency) for k in range(count - 1))
    )


def _model(random: Random, count: int) -> Model:
    both = random.random() < 0.6
    segments = []
    for k in range(count):
        forward = {"v": random.randint(1, 3)} | ({"w": random.randint(1, 2)} if both else {})
        backward = {"v": random.randint(0, 4)} | ({"w": random.randint(0, 2)} if both else {})
        segments.append(Segment(f"g{k}", forward, backward, random.choice((0, 1, 2, 4)), random.choice((0, 3, 9))))
    levels = (count,) if count > 1 and random.random() < 0.15 else ()
    return Model(tuple(segments), levels, random.choice((1, 4)))


def _jobs(random: Random, models: dict[str, Model], horizon: Horizon, operations: int, gpus: int) -> tuple[Job, ...]:
    jobs: list[Job] = []
    left = operations
    for k in range(random.choice((1, 2, 2, 3))):
        name = random.choice(sorted(models))
        workers = random.randint(1, min(3, gpus))
        size = workers + (models[name].depth if workers > 1 else 0)
        if size > left:
            workers, size = 1, 1
        if size > left:
            break
        iterations = random.randint(1, max(1, min(2, left // size)))
        left -= size * iterations
        release = random.choice((0, 0, 3)) if horizon == "finite" else 0
        jobs.append(Job(f"j{k}", name, workers, iterations, release, random.choice((1, 1, 2, 5)), _depth(random)))
    return tuple(jobs)


def _depth(random: Random) -> Depth:
    free = FreeDepth(random.choice((1, 1, 2)), random.choice((None, 0, "1/2", "2/3", 1)), random.choice((None, 0, 1)))
    return random.choice((FullDepth(), StaircaseDepth(), StaircaseDepth(), free))
