"""The worked pipeline of the specification: its numbers hold, and its plans are correct. Other known answers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import ceil

import pytest

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
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.lanes import picture
from jigsaw_opt.views.perfetto import perfetto_trace
from jigsaw_opt.views.text import timeline_text
from tests.pages import SPECIFICATION, prose, section
from tests.views.test_views import embedded

PAGE = section(SPECIFICATION.read_text(encoding="utf-8"), "Worked pipeline")
EQUATIONS = [span for span in re.findall(r"`([^`\n]+)`", prose(PAGE)) if re.search(r" (=|<=|>=) ", span)]
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


@pytest.mark.parametrize("equation", EQUATIONS)
def test_every_equation_holds(equation: str) -> None:
    assert re.fullmatch(r"(?:[\d\s+*/%()<>=,-]|ceil|max)+", equation)
    assert eval(re.sub(r"(?<![<>])=", "==", equation), {"__builtins__": {}, "ceil": ceil, "max": max})


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


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_the_pipeline_and_the_worker_are_scheduled_at_their_best_and_drawn(horizon: str) -> None:
    pytest.importorskip("ortools")
    instance = decode_instance(INSTANCE)
    result = solve(instance if horizon == "finite" else cyclic(instance), "auto", Options(threads=1, work_limit=5.0))
    assert (result.status, result.objective) == (Status.OPTIMAL, 132)
    assert result.plan is not None
    drawn = picture(instance if horizon == "finite" else cyclic(instance), result.plan)
    assert "100 % busy" in timeline_text(drawn, 44)
    names = {event["name"] for event in json.loads(perfetto_trace(drawn))["traceEvents"] if event["ph"] == "X"}
    assert {"F0", "B1", "act"} < names
    assert any(name.startswith("d") for name in names)
    assert [job["name"] for job in embedded(timeline_html(drawn))["jobs"]] == ["pipe", "d"]  # type: ignore[attr-defined]


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


def test_one_slot_without_edges_takes_the_sum_of_its_blocks() -> None:
    shape = TaskGraph((Slot("p"),), tuple(TaskGraphBlock(f"b{us}", ("p",), {"v": us}) for us in (3, 1, 4)))
    instance = Instance("one", Cluster((Server("s", "v", 1, 0, 1),)), {}, (TaskGraphJob("c", shape, 1),))
    for runs, objective, broken in (
        (((1, 4), (0, 1), (4, 8)), 8, set()),
        (((1, 4), (0, 1), (3, 7)), 7, {"exclusive"}),
    ):
        jobs = (TaskGraphJobPlan("c", ("s/0",), (TaskGraphIteration(tuple(Execution(*run) for run in runs), ()),)),)
        plan = Plan.of_jobs("one", instance_sha256(instance), "optimal", objective, objective, None, jobs)
        assert rules(instance, plan) == broken


def one_forward_one_backward() -> tuple[Instance, TaskGraphIteration]:
    """Two stages, four microbatches, forward passes of 1 us and backward passes of 2 us in the order 1F1B."""
    runs = {
        "F00": (0, 1),
        "F10": (1, 2),
        "B00": (4, 6),
        "F20": (6, 7),
        "B10": (7, 9),
        "F30": (9, 10),
        "B20": (10, 12),
        "B30": (13, 15),
        "F01": (1, 2),
        "B01": (2, 4),
        "F11": (4, 5),
        "B11": (5, 7),
        "F21": (7, 8),
        "B21": (8, 10),
        "F31": (10, 11),
        "B31": (11, 13),
    }
    blocks = tuple(TaskGraphBlock(name, (f"stage{name[2]}",), {"v": 1 if name[0] == "F" else 2}) for name in runs)
    ways = [(f"F{m}0", f"F{m}1") for m in range(4)] + [(f"F{m}1", f"B{m}1") for m in range(4)]
    ways += [(f"B{m}1", f"B{m}0") for m in range(4)]
    shape = TaskGraph((Slot("stage0"), Slot("stage1")), blocks, (), tuple(Edge(*way) for way in ways), "slot")
    cluster = Cluster((Server("s", "v", 2, 0, 1),))
    instance = Instance("1f1b", cluster, {}, (TaskGraphJob("pipe", shape, 1),), "cyclic", "period")
    return instance, TaskGraphIteration(tuple(Execution(*run) for run in runs.values()), ())


def test_one_forward_one_backward_repeats_after_all_microbatches_and_the_bubble() -> None:
    """The period is (microbatches + stages - 1) x (1 + 2) us = 15 us.

    None is shorter: the second stage begins at least 1 us after the first one, works for 12 us, and the first stage
    then has a backward pass of 2 us to do; so the first stage spans 15 us, and its barrier makes that the period.
    """
    instance, iteration = one_forward_one_backward()
    plan = Plan.of_jobs("1f1b", "", "feasible", 0, 0, None, (TaskGraphJobPlan("pipe", ("s/0", "s/1"), (iteration,)),))
    assert check(instance, stated(instance, plan, 15)) == ()
    assert rules(instance, stated(instance, plan, 14)) == {"barrier", "exclusive"}
    (job,) = instance.task_graph_jobs
    loose = replace(instance, jobs=(replace(job, shape=replace(job.shape, barrier="none")),))
    assert rules(loose, stated(loose, plan, 15)) == set()
