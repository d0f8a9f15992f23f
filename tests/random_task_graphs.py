"""Tiny random instances with task-graph jobs, plans that do one thing after another, and random changes of these."""

from __future__ import annotations

from dataclasses import replace
from graphlib import TopologicalSorter
from random import Random
from typing import Any

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Edge,
    Execution,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Link,
    MemoryInterval,
    Model,
    Plan,
    Segment,
    Server,
    Slot,
    StaircaseDepth,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphIteration,
    TaskGraphJob,
    TaskGraphJobPlan,
    TaskGraphTransfer,
    Transfer,
)
from jigsaw_opt.problem.instance import Horizon, Objective
from tests.random_instances import MICRO, random_instance


def random_task_graph_instance(seed: int, horizon: Horizon = "finite", objective: Objective = "makespan") -> Instance:
    """A valid instance of task-graph jobs, and in some cases a data-parallel one; it may be infeasible.

    Same arguments, same instance. Covers sharded blocks, both kinds of transfer, mixed GPU types, edges with lags,
    every barrier, holds within and across blocks, memory of slots, releases, weights and latencies.
    """
    random = Random(f"shapes/{seed}/{horizon}/{objective}")
    cluster = _cluster(random)
    jobs: list[Job | TaskGraphJob] = []
    for number in range(random.choice((1, 1, 2))):
        release_us = random.choice((0, 0, 3)) if horizon == "finite" else 0
        shape = random_shape(random, random.randint(1, min(3, cluster.gpu_count)))
        jobs.append(TaskGraphJob(f"p{number}", shape, random.choice((1, 1, 2)), release_us, random.choice((1, 3))))
    models = {}
    if random.random() < 0.4:
        times = {"v": random.randint(1, 4), "w": 2}
        models = {
            "m": Model((Segment("s", times, times, random.choice((1, 4)), random.choice((0, 5))),), state_factor=1)
        }
        jobs.insert(random.randrange(2), Job("d", "m", random.randint(1, min(2, cluster.gpu_count)), 1))
    if random.random() < 0.3:
        jobs = [replace(job, depth=StaircaseDepth()) if isinstance(job, Job) else job for job in jobs]
    return Instance(
        f"shapes-{seed}", cluster, models, tuple(jobs), horizon, "period" if horizon == "cyclic" else objective
    )


def random_mixed_instance(
    seed: int, horizon: Horizon = "finite", objective: Objective = "makespan", operations: int = 4
) -> Instance:
    """A valid instance of one task-graph job and a few data-parallel ones, in any order; it may be infeasible.

    Same arguments, same instance. It has what `random_task_graph_instance` and `tests.random_instances` cover, the
    data-parallel jobs with at most about `operations` blocks and transfers.
    """
    drawn = random_task_graph_instance(seed, horizon, objective)
    others = random_instance(seed, horizon, objective, operations)
    jobs: list[Job | TaskGraphJob] = [*drawn.task_graph_jobs[:1], *others.jobs]
    Random(f"mixed/{seed}").shuffle(jobs)
    return replace(drawn, name=f"mixed-{seed}", models=others.models, jobs=tuple(jobs))


def _cluster(random: Random) -> Cluster:
    count = random.choice((1, 2, 2, 3))
    servers = tuple(
        Server(
            f"s{k}",
            random.choice(("v", "v", "w")),
            random.choice((1, 2, 2)),
            random.choice((100, 100, 30, 20)),
            random.choice((1, 2, 5)) * MICRO,
            random.choice((0, 0, 1)),
        )
        for k in range(count)
    )
    rates = [random.choice((1, 2, 3)) * MICRO for _ in range(count)]
    if random.random() < 0.5:
        links = tuple(Link(f"l{k}", (f"s{k}", "hub"), rates[k], random.choice((0, 1))) for k in range(count))
        return Cluster(servers, ("hub",), links)
    # A chain, so that routes pass through servers.
    chain = tuple(Link(f"l{k}", (f"s{k + 1}", f"s{k}"), rates[k], random.choice((0, 0, 2))) for k in range(count - 1))
    return Cluster(servers, (), chain)


def random_shape(random: Random, slots: int) -> TaskGraph:
    """A task graph of a few operations over `slots` slots, on GPUs of types ``v`` and mostly also ``w``."""
    names = [f"s{k}" for k in range(slots)]
    both = random.random() < 0.8
    uses = [(name,) for name in names]
    uses += [
        tuple(random.sample(names, random.randint(2, slots))) if slots > 1 and random.random() < 0.3 else (name,)
        for name in random.choices(names, k=random.randint(0, 3))
    ]
    random.shuffle(uses)
    blocks = [TaskGraphBlock(f"b{k}", at, _times(random, both)) for k, at in enumerate(uses)]
    transfers = [_transfer(random, f"t{k}", names) for k in range(random.choice((0, 1, 2)) if slots > 1 else 0)]
    # A random order keeps edges with lag 0 from going round.
    order = [operation.name for operation in (*blocks, *transfers)]
    random.shuffle(order)
    edges = {_edge(random, order) for _ in range(random.randint(0, len(order)))}
    return TaskGraph(
        tuple(Slot(name, random.choice((0, 0, 5))) for name in names),
        tuple(blocks),
        tuple(transfers),
        tuple(sorted(edges, key=repr)),
        random.choice(("none", "slot", "job")),
        tuple(filter(None, (_hold(random, blocks) for _ in range(random.randint(0, 3))))),
    )


def _times(random: Random, both: bool) -> dict[str, int]:
    return {"v": random.randint(1, 5)} | ({"w": random.randint(1, 3)} if both else {})


def _transfer(random: Random, name: str, slots: list[str]) -> TaskGraphTransfer:
    size = random.choice((0, 1, 3, 5))
    if random.random() < 0.5:
        source, target = random.sample(slots, 2)
        return TaskGraphTransfer(name, size, source, target)
    return TaskGraphTransfer(name, size, among=tuple(random.sample(slots, random.randint(2, len(slots)))))


def _edge(random: Random, order: list[str]) -> Edge:
    one, other = random.choice(range(len(order))), random.choice(range(len(order)))
    lag = random.choice((0, 0, 0, 1, 2))
    if one == other:
        return Edge(order[one], order[one], lag + 1)
    first, second = (min(one, other), max(one, other)) if lag == 0 else (one, other)
    return Edge(order[first], order[second], lag)


def _hold(random: Random, blocks: list[TaskGraphBlock]) -> MemoryInterval | None:
    start, end = random.choice(blocks), random.choice(blocks)
    shared = [slot for slot in start.slots if slot in end.slots]
    if not shared:
        return None
    several = len(start.slots) > 1 or len(end.slots) > 1
    return MemoryInterval(start.name, end.name, random.choice((1, 4, 9)), random.choice(shared) if several else None)


def with_copies(instance: Instance, times: int = 2) -> Instance:
    """The instance whose task graphs have all of their operations so many times, each time without the others."""

    def copied(shape: TaskGraph, k: int) -> TaskGraph:
        return TaskGraph(
            shape.slots,
            tuple(replace(block, name=f"{block.name}.{k}") for block in shape.blocks),
            tuple(replace(transfer, name=f"{transfer.name}.{k}") for transfer in shape.transfers),
            tuple(replace(edge, before=f"{edge.before}.{k}", after=f"{edge.after}.{k}") for edge in shape.edges),
            shape.barrier,
            tuple(replace(each, start=f"{each.start}.{k}", end=f"{each.end}.{k}") for each in shape.holds),
        )

    def repeated(job: TaskGraphJob) -> TaskGraphJob:
        all_of = [copied(job.shape, k) for k in range(times)]
        parts = {
            part: tuple(each for one in all_of for each in getattr(one, part))
            for part in ("blocks", "transfers", "edges", "holds")
        }
        return replace(job, shape=replace(job.shape, **parts))

    jobs = (repeated(job) if isinstance(job, TaskGraphJob) else job for job in instance.jobs)
    return replace(instance, jobs=tuple(jobs))


def one_after_another(instance: Instance, random: Random) -> Plan | None:
    """A plan on random GPUs in which operations of all jobs follow one another, iteration by iteration.

    It keeps whatever concerns times. None where the jobs do not fit on the GPUs.
    """
    cluster = instance.cluster
    gpus = [cluster.gpu_name(s, k) for s, server in enumerate(cluster.servers) for k in range(server.gpus)]
    jobs: list[JobPlan | TaskGraphJobPlan] = []
    now = 0
    for job in instance.jobs:
        slots = len(job.shape.slots) if isinstance(job, TaskGraphJob) else job.workers
        if slots > len(gpus):
            return None
        chosen = tuple(random.sample(gpus, slots))
        now = max(now, job.release_us)
        if isinstance(job, Job):
            planned, now = _worker_plan(instance, job, chosen, now)
            jobs.append(planned)
        else:
            drawn, now = _task_graph_plan(instance, job, chosen, now)
            jobs.append(drawn)
    period = now if instance.horizon == "cyclic" else None
    return with_objective(
        instance, Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", 0, 0, period, tuple(jobs))
    )


def _worker_plan(instance: Instance, job: Job, gpus: tuple[str, ...], now: int) -> tuple[JobPlan, int]:
    """One iteration of a job of one segment, with room for any transfer."""
    blocks, transfers = tuple(Block(1, now, now + 5) for _ in gpus), ()
    if len(gpus) > 1:
        return JobPlan(job.name, gpus, (Iteration(blocks, (Transfer(1, now + 5, now + 50),)),)), now + 50
    return JobPlan(job.name, gpus, (Iteration(blocks, transfers),)), now + 5


def _task_graph_plan(
    instance: Instance, job: TaskGraphJob, gpus: tuple[str, ...], now: int
) -> tuple[TaskGraphJobPlan, int]:
    """Operations in an order that the edges allow, each with room for its duration on any GPU."""
    shape = job.shape
    number = {operation.name: k for k, operation in enumerate((*shape.blocks, *shape.transfers))}
    waits = {name: [e.before for e in shape.edges if e.after == name and e.lag == 0] for name in number}
    names = list(TopologicalSorter(waits).static_order())
    rows = []
    for _ in range(job.iterations):
        row = dict.fromkeys(number, Execution(0, 0))
        for name in names:
            lasts = 5 if number[name] < len(shape.blocks) else 40
            row[name] = Execution(now, now + lasts)
            now += lasts
        runs = tuple(row.values())
        rows.append(TaskGraphIteration(runs[: len(shape.blocks)], runs[len(shape.blocks) :]))
    return TaskGraphJobPlan(job.name, gpus, tuple(rows)), now


def with_objective(instance: Instance, plan: Plan) -> Plan:
    """The plan with the objective that its times have."""
    if plan.period_us is not None:
        return replace(plan, objective=plan.period_us)
    ends = [max(x.end_us for i in job.iterations for x in (*i.blocks, *i.transfers)) for job in plan.jobs]
    weighted = sum(job.weight * end for job, end in zip(instance.jobs, ends, strict=True))
    return replace(plan, objective=max(ends) if instance.objective == "makespan" else weighted)


def changed_plan(instance: Instance, plan: Plan, random: Random) -> Plan:
    """The plan with one operation moved or resized, the period changed, or a GPU exchanged."""
    if plan.period_us is not None and random.random() < 0.2:
        return with_objective(instance, plan.with_period(max(1, plan.period_us - random.choice((1, 1, 3, 9)))))
    place = random.randrange(len(plan.jobs))
    job = plan.jobs[place]
    if random.random() < 0.1:
        gpus = list(job.gpus)
        gpus[random.randrange(len(gpus))] = random.choice(("s0/0", "s0/1", "s1/0", "s2/0", "s9/0"))
        job = replace(job, gpus=tuple(gpus))
    else:
        i = random.randrange(len(job.iterations))
        iterations: list[Any] = list(job.iterations)
        kind = random.choice(("blocks", "transfers") if iterations[i].transfers else ("blocks",))
        runs = list(getattr(iterations[i], kind))
        k = random.randrange(len(runs))
        start = max(0, runs[k].start_us + random.choice((-40, -9, -4, -2, -1, 1, 3)))
        lasts = runs[k].end_us - runs[k].start_us
        if random.random() < 0.5:
            start, lasts = runs[k].start_us, max(0, lasts - random.choice((1, 1, 2, 10)))
        runs[k] = replace(runs[k], start_us=start, end_us=start + lasts)
        iterations[i] = replace(iterations[i], **{kind: tuple(runs)})
        job = replace(job, iterations=tuple(iterations))
    return with_objective(instance, plan.with_jobs((*plan.jobs[:place], job, *plan.jobs[place + 1 :])))
