"""The worked pipeline of the specification: its numbers hold, and its plans are correct. Other known answers."""

from __future__ import annotations

import re
from dataclasses import replace

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, decode_plan, instance_sha256
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Execution,
    Instance,
    Link,
    Plan,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphIteration,
    TaskGraphJob,
    TaskGraphJobPlan,
    TaskGraphTransfer,
)
from tests.pages import SPECIFICATION, equations, holds, section

PAGE = section(SPECIFICATION.read_text(encoding="utf-8"), "Worked pipeline")
EQUATIONS = equations(PAGE)
INSTANCE, PLAN = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def stated(instance: Instance, plan: Plan, period_us: int) -> Plan:
    """A plan of a cyclic instance with a period."""
    return replace(
        plan.with_period(period_us),
        instance_sha256=instance_sha256(instance),
        objective=period_us,
        bound=0,
        status="feasible",
    )


def cyclic(instance: Instance) -> Instance:
    return replace(instance, horizon="cyclic", objective="period")


def alone(barrier: str) -> Instance:
    """The pipeline alone, one iteration a period."""
    instance = decode_instance(INSTANCE.replace('"barrier": "slot"', f'"barrier": "{barrier}"'))
    return cyclic(replace(instance, jobs=(replace(instance.jobs[0], iterations=1),)))


def rules(instance: Instance, plan: Plan) -> set[str]:
    return {violation.rule for violation in check(instance, plan)}


def test_every_equation_holds() -> None:
    assert EQUATIONS and [equation for equation in EQUATIONS if not holds(equation)] == []


def test_the_finite_plan_is_correct_and_full() -> None:
    instance, plan = decode_instance(INSTANCE), decode_plan(PLAN)
    assert check(instance, plan) == ()
    busy = [
        x
        for job, slots in ((0, (0, 3)), (1, (0,)))
        for i in plan.jobs[job].iterations
        for x in map(i.blocks.__getitem__, slots)
    ]
    assert sum(x.end_us - x.start_us for x in busy) == plan.objective == 132
    less = replace(instance.cluster.servers[0], gpu_memory=9299)
    short = replace(instance, cluster=replace(instance.cluster, servers=(less, *instance.cluster.servers[1:])))
    assert rules(short, replace(plan, instance_sha256=instance_sha256(short))) == {"memory"}


def test_the_cyclic_plan_is_correct_and_no_shorter() -> None:
    instance = cyclic(decode_instance(INSTANCE))
    assert check(instance, stated(instance, decode_plan(PLAN), 132)) == ()
    assert rules(instance, stated(instance, decode_plan(PLAN), 131)) == {"exclusive", "barrier", "memory"}


def test_the_largest_span_of_a_stage_is_the_least_period_of_a_flushing_pipeline() -> None:
    instance = alone("slot")
    first = replace(decode_plan(PLAN).jobs[0], iterations=decode_plan(PLAN).jobs[0].iterations[:1])
    plan = decode_plan(PLAN).with_jobs((first,))
    assert check(instance, stated(instance, plan, 66)) == ()
    assert rules(instance, stated(instance, plan, 65)) == {"barrier", "exclusive"}


def test_without_a_barrier_iterations_overlap_and_so_do_their_holds() -> None:
    instance = alone("none")
    runs = [(0, 10), (13, 23), (23, 43), (70, 90)]
    iteration = TaskGraphIteration(
        tuple(Execution(*run) for run in runs), tuple(Execution(*run) for run in ((10, 13), (43, 46)))
    )
    plan = decode_plan(PLAN).with_jobs((TaskGraphJobPlan("pipe", ("s0/0", "s1/0"), (iteration,)),))
    assert check(instance, stated(instance, plan, 30)) == ()
    assert "exclusive" in rules(instance, stated(instance, plan, 29))
    for memory, broken in ((5500, set()), (5499, {"memory"})):
        servers = tuple(replace(server, gpu_memory=memory) for server in instance.cluster.servers)
        small = replace(instance, cluster=replace(instance.cluster, servers=servers))
        assert rules(small, stated(small, plan, 30)) == broken


def test_a_chain_has_the_period_of_its_longest_operation() -> None:
    """Three stages of 5, 9 and 4 us, and transfers of 7 and 8 us over links of their own."""
    servers = tuple(Server(f"s{k}", "v", 1, 0, 10**6) for k in range(3))
    links = tuple(Link(f"l{k}", (f"s{k}", f"s{k + 1}"), 10**6) for k in range(2))
    shape = TaskGraph(
        tuple(Slot(f"p{k}") for k in range(3)),
        tuple(TaskGraphBlock(f"b{k}", (f"p{k}",), {"v": us}) for k, us in enumerate((5, 9, 4))),
        tuple(TaskGraphTransfer(f"t{k}", us, source=f"p{k}", target=f"p{k + 1}") for k, us in enumerate((7, 8))),
        tuple(edge for k in range(2) for edge in (Edge(f"b{k}", f"t{k}"), Edge(f"t{k}", f"b{k + 1}"))),
    )
    instance = Instance("chain", Cluster(servers, (), links), {}, (TaskGraphJob("c", shape, 1),), "cyclic", "period")
    iteration = TaskGraphIteration(
        (Execution(0, 5), Execution(12, 21), Execution(29, 33)), (Execution(5, 12), Execution(21, 29))
    )
    plan = Plan.of_jobs(
        "chain", "", "feasible", 0, 0, None, (TaskGraphJobPlan("c", ("s0/0", "s1/0", "s2/0"), (iteration,)),)
    )
    assert check(instance, stated(instance, plan, 9)) == ()
    assert rules(instance, stated(instance, plan, 8)) == {"period", "edges"}
