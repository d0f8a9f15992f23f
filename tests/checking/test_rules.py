"""For every rule, a correct plan changed in one place so that it breaks that rule and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from fault_campaign.referee import verdict

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_plan, encode_instance, encode_plan, instance_sha256
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Efficiency,
    FreeDepth,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Link,
    Model,
    Plan,
    Segment,
    Server,
    StaircaseDepth,
    TaskGraphIteration,
    TaskGraphJobPlan,
    Transfer,
)
from tests.refusals import carries, refuses

MODEL = Model((Segment("body", {"v": 3}, {"v": 6}, 10, 40), Segment("head", {"v": 1}, {"v": 2}, 5, 1)), state_factor=1)
ONE = Model((Segment("s", {"v": 5, "w": 5}, {"v": 5, "w": 5}, 0, 30),))
CLUSTER = Cluster(
    (Server("a", "v", 2, 100, 10**6), Server("b", "v", 1, 100, 10**6), Server("c", "w", 1, 100, 10**6)),
    ("hub",),
    (Link("ah", ("a", "hub"), 10**6, 1), Link("hb", ("hub", "b"), 10**6, 1)),
)
JOBS = (
    Job("pair", "m", 2, 2, release_us=7, depth=StaircaseDepth()),
    Job("lone", "one", 1, 1),
    Job("full", "m", 2, 1, deadline_us=72),
    Job("free", "m", 2, 2, depth=FreeDepth(balance=1)),
)


def finished(instance: Instance, jobs: tuple[JobPlan, ...], objective: int, period: int | None = None) -> Plan:
    return Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", objective, 0, period, jobs)


def iteration(blocks: list[tuple[int, int, int]], transfers: list[tuple[int, int]]) -> Iteration:
    return Iteration(
        tuple(Block(*block) for block in blocks), tuple(Transfer(b, *times) for b, times in enumerate(transfers, 1))
    )


def finite() -> tuple[Instance, Plan]:
    """Everything one after the other: blocks of 6 and 12, transfers over two links or over the fabric of `a`.

    Between `a` and `b`: bucket 1 with two contributors 5 + 2 us, bucket 2 with one 5 + 1 us, with two 10 + 2 us.
    """
    instance = Instance("rules", CLUSTER, {"m": MODEL, "one": ONE}, JOBS)
    pair = JobPlan(
        "pair",
        ("a/0", "b/0"),
        (
            iteration([(2, 7, 19), (1, 7, 13)], [(13, 20), (20, 26)]),
            iteration([(1, 26, 32), (2, 26, 38)], [(32, 39), (39, 45)]),
        ),
    )
    lone = JobPlan("lone", ("a/1",), (iteration([(1, 0, 10)], []),))
    full = JobPlan("full", ("a/0", "a/1"), (iteration([(2, 50, 62), (2, 50, 62)], [(56, 61), (62, 72)]),))
    free = JobPlan(
        "free",
        ("a/1", "a/0"),
        (
            iteration([(2, 80, 92), (1, 80, 86)], [(86, 91), (92, 97)]),
            iteration([(1, 100, 106), (2, 100, 112)], [(106, 111), (112, 117)]),
        ),
    )
    return instance, finished(instance, (pair, lone, full, free), 117)


def cyclic() -> tuple[Instance, Plan]:
    """Two pairs across the link, and a lone worker whose block wraps."""
    jobs = (Job("p", "m", 2, 1), Job("q", "m", 2, 1, pace_us=38), Job("lone", "one", 1, 1))
    instance = Instance("cyclic", CLUSTER, {"m": MODEL, "one": ONE}, jobs, "cyclic", "period")
    first = JobPlan("p", ("a/0", "b/0"), (iteration([(2, 0, 12), (2, 0, 12)], [(6, 13), (13, 25)]),))
    second = JobPlan("q", ("a/0", "b/0"), (iteration([(2, 19, 31), (2, 19, 31)], [(25, 32), (32, 44)]),))
    lone = JobPlan("lone", ("a/1",), (iteration([(1, 33, 43)], []),))
    return instance, finished(instance, (first, second, lone), 38, 38)


def with_job(plan: Plan, number: int, **changes: object) -> Plan:
    jobs = list(plan.jobs)
    jobs[number] = replace(jobs[number], **changes)  # type: ignore[arg-type]
    return plan.with_jobs(tuple(jobs))


def with_iteration(plan: Plan, job: int, number: int, **changes: object) -> Plan:
    iterations = list(plan.jobs[job].iterations)
    iterations[number] = replace(iterations[number], **changes)  # type: ignore[arg-type]
    return with_job(plan, job, iterations=tuple(iterations))


def with_block(plan: Plan, job: int, number: int, worker: int, **changes: int) -> Plan:
    blocks = list(plan.jobs[job].iterations[number].blocks)
    blocks[worker] = replace(blocks[worker], **changes)
    return with_iteration(plan, job, number, blocks=tuple(blocks))


def with_transfer(plan: Plan, job: int, number: int, which: int, **changes: int) -> Plan:
    transfers = list(plan.jobs[job].iterations[number].transfers)
    transfers[which - 1] = replace(transfers[which - 1], **changes)
    return with_iteration(plan, job, number, transfers=tuple(transfers))


Mutation = Callable[[Plan], Plan]
FINITE: dict[str, tuple[str, Mutation]] = {
    "a GPU that does not exist": ("placement", lambda p: with_job(p, 1, gpus=("a/2",))),
    "a GPU of another server's name": ("placement", lambda p: with_job(p, 1, gpus=("z/0",))),
    "a type that the model has no times for": ("placement", lambda p: with_job(p, 2, gpus=("a/0", "c/0"))),
    "levels that are no staircase": ("levels", lambda p: with_block(p, 0, 0, 0, level=1)),
    "a level below 1": ("levels", lambda p: with_block(p, 3, 1, 0, level=0)),
    "a level above D": ("levels", lambda p: with_block(p, 3, 1, 1, level=3)),
    "not full": ("levels", lambda p: with_block(p, 2, 0, 1, level=1)),
    "a short block": ("duration", lambda p: with_block(p, 1, 0, 0, end_us=9)),
    "a short transfer": ("duration", lambda p: with_transfer(p, 0, 1, 2, end_us=44)),
    "a transfer before its bucket is ready": ("readiness", lambda p: with_transfer(p, 2, 0, 1, start_us=55)),
    "a transfer before the one before has ended": ("order", lambda p: with_transfer(p, 2, 0, 1, end_us=63)),
    "a block before the barrier": ("barrier", lambda p: with_block(p, 0, 1, 1, start_us=25)),
    "a block before the release": ("release", lambda p: with_block(p, 0, 0, 0, start_us=6)),
    "an end after the deadline": ("deadline", lambda p: with_transfer(p, 2, 0, 2, end_us=73)),
    "two blocks at once on a GPU": ("exclusive", lambda p: with_block(p, 1, 0, 0, start_us=45, end_us=55)),
    "an objective that is not the plan's": ("objective", lambda p: replace(p, objective=118)),
    "a bound above the objective": ("bound", lambda p: replace(p, bound=118)),
    "optimal with a gap": ("bound", lambda p: replace(p, status="optimal")),
    "another instance's name": ("document", lambda p: replace(p, instance="other")),
    "another instance's hash": ("document", lambda p: replace(p, instance_sha256="0" * 64)),
    "jobs in another order": ("document", lambda p: p.with_jobs((p.jobs[1], p.jobs[0], *p.jobs[2:]))),
    "a missing transfer": (
        "document",
        lambda p: with_iteration(p, 0, 0, transfers=p.jobs[0].iterations[0].transfers[:1]),
    ),
    "swapped buckets": ("document", lambda p: with_transfer(p, 0, 0, 2, bucket=1)),
    "a transfer of a lone worker": ("document", lambda p: with_iteration(p, 1, 0, transfers=(Transfer(1, 10, 10),))),
    "a missing block": ("document", lambda p: with_iteration(p, 0, 0, blocks=p.jobs[0].iterations[0].blocks[:1])),
    "a missing iteration": ("document", lambda p: with_job(p, 0, iterations=p.jobs[0].iterations[:1])),
    "a missing job": ("document", lambda p: p.with_jobs(p.jobs[1:])),
}
CYCLIC: dict[str, tuple[str, Mutation]] = {
    "blocks at once modulo the period": ("exclusive", lambda p: with_job(p, 2, gpus=("a/0",))),
    "transfers at once modulo the period": ("exclusive", lambda p: with_transfer(p, 1, 0, 2, end_us=45)),
    "an objective other than the period": ("objective", lambda p: replace(p, objective=39)),
    "a span longer than the period": ("period", lambda p: with_block(p, 2, 0, 0, end_us=33 + 39)),
    "a period longer than the cycle-time limit": ("pace", lambda p: replace(p.with_period(39), objective=39)),
    "no period": ("period", lambda p: p.with_period(None)),
}


def rules(instance: Instance, plan: Plan) -> set[str]:
    return {violation.rule for violation in check(instance, plan)}


def test_the_plans_are_correct() -> None:
    for instance, plan in (finite(), cyclic()):
        assert check(instance, plan) == ()


@pytest.mark.parametrize(("rule", "mutate"), FINITE.values(), ids=FINITE.keys())
def test_one_change_breaks_one_rule(rule: str, mutate: Mutation) -> None:
    instance, plan = finite()
    assert rules(instance, mutate(plan)) == {rule}


@pytest.mark.parametrize(("rule", "mutate"), CYCLIC.values(), ids=CYCLIC.keys())
def test_one_change_breaks_one_rule_of_a_cyclic_plan(rule: str, mutate: Mutation) -> None:
    instance, plan = cyclic()
    assert rules(instance, mutate(plan)) == {rule}


def test_two_workers_of_a_job_on_one_gpu() -> None:
    instance = Instance("twice", CLUSTER, {"m": MODEL}, (Job("j", "m", 2, 1),))
    turns = (iteration([(2, 0, 12), (2, 12, 24)], [(18, 23), (24, 34)]),)
    assert rules(instance, finished(instance, (JobPlan("j", ("a/0", "a/1"), turns),), 34)) == set()
    assert rules(instance, finished(instance, (JobPlan("j", ("a/0", "a/0"), turns),), 34)) == {"placement"}


def test_a_violation_says_where_its_rule_stands() -> None:
    instance, plan = finite()
    (found,) = check(instance, replace(plan, bound=118))
    assert found.read == "docs/specification.md#bound"
    expected = "bound at $.bound: the bound 118 exceeds the objective 117 (docs/specification.md#bound)"
    assert str(found) == expected


def with_memory(instance: Instance, plan: Plan, size: int) -> tuple[Instance, Plan]:
    """Both, with so many bytes on each GPU."""
    servers = tuple(replace(server, gpu_memory=size) for server in instance.cluster.servers)
    tight = replace(instance, cluster=replace(instance.cluster, servers=servers))
    return tight, replace(plan, instance_sha256=instance_sha256(tight))


def test_progress_counts_over_all_iterations() -> None:
    """Both referees agree with the checker on limits at, below and above what an iteration is worth."""
    deep, shallow = Efficiency((0, 4000), (1, 1)), iteration([(2, 0, 12), (1, 0, 12)], [(6, 11), (12, 22)])
    # Of two workers one contributes to bucket 2: 1 * (2 + 4) / (2 * (1 + 4)) = 0.6, so the iteration makes 0.8.
    whole = iteration([(2, 22, 34), (2, 22, 34)], [(28, 33), (34, 44)])
    for share, broken in (("8/10", set()), ("9/10", set()), ("900001/1000000", {"progress"}), (2, {"progress"})):
        rule = FreeDepth(min_progress=share)
        instance = Instance("p", CLUSTER, {"m": replace(MODEL, efficiency=deep)}, (Job("j", "m", 2, 2, depth=rule),))
        plan = finished(instance, (JobPlan("j", ("a/0", "a/1"), (shallow, whole)),), 44)
        assert rules(instance, plan) == broken
        found = verdict(json.loads(encode_instance(instance)), json.loads(encode_plan(plan)))
        assert found == "".join(broken)


def test_a_job_is_present_up_to_its_end_and_no_longer() -> None:
    """A job's last block ends on a/0 long before its last transfer; another one may be there only after that."""
    models = {"m": MODEL, "one": Model((Segment("s", {"v": 5}, {"v": 5}, 4, 30),))}
    jobs = (Job("pair", "m", 2, 1), Job("lone", "one", 1, 1))
    pair = JobPlan("pair", ("a/0", "b/0"), (iteration([(2, 0, 12), (2, 0, 12)], [(6, 13), (13, 25)]),))
    for start, end in ((25, 35), (24, 34)):
        lone = JobPlan("lone", ("a/0",), (iteration([(1, start, end)], []),))
        instance = Instance("present", CLUSTER, models, jobs)
        # Together they need 15 + 16 bytes and the larger activations, 41.
        plan = finished(instance, (pair, lone), end)
        assert check(*with_memory(instance, plan, 72)) == ()
        found = check(*with_memory(instance, plan, 71))
        assert [violation.rule for violation in found] == ["memory"] * (start < 25)
    assert carries(found[0].message, "a/0", "72", "24", "71")


def test_on_the_cyclic_horizon_all_jobs_are_present() -> None:
    # a/0 and b/0 hold two workers each.
    assert check(*with_memory(*cyclic(), 71)) == ()
    assert rules(*with_memory(*cyclic(), 70)) == {"memory"}


def test_servers_without_a_route() -> None:
    instance, plan = cyclic()
    apart = replace(instance, cluster=replace(CLUSTER, switches=(), links=()))
    assert rules(apart, replace(plan, instance_sha256=instance_sha256(apart))) == {"placement"}


@pytest.mark.parametrize(
    ("depth", "rule"),
    [
        (FreeDepth(min_contributors=2), "coverage"),
        (FreeDepth(mean_depth=1), "mean-depth"),
        (FreeDepth(mean_depth="1/2", balance=0), "balance"),
    ],
    ids=["coverage", "mean", "balance"],
)
def test_free_rules(depth: FreeDepth, rule: str) -> None:
    instance = Instance("free", CLUSTER, {"m": MODEL}, (Job("j", "m", 2, 1, depth=depth),))
    blocks = [(2, 0, 12), (1, 0, 12)]
    job = JobPlan("j", ("a/0", "a/1"), (iteration(blocks, [(6, 11), (12, 22)]),))
    assert rules(instance, finished(instance, (job,), 22)) == {rule}
    whole = JobPlan("j", ("a/0", "a/1"), (iteration([(2, 0, 12), (2, 0, 12)], [(6, 11), (12, 22)]),))
    assert rules(instance, finished(instance, (whole,), 22)) == set()


def test_what_is_allowed() -> None:
    instance, plan = finite()
    # Blocks and transfers may last longer; readiness still counts from the block's start.
    assert rules(instance, with_block(plan, 2, 0, 0, end_us=70)) == set()
    assert rules(instance, with_transfer(plan, 3, 0, 2, end_us=99)) == set()
    instance, cycle = cyclic()
    # A whole job may be moved by periods.
    block = cycle.jobs[2].iterations[0].blocks[0]
    moved = with_block(cycle, 2, 0, 0, start_us=block.start_us + 76, end_us=block.end_us + 76)
    assert rules(instance, moved) == set()


def test_an_empty_transfer_overlaps_nothing() -> None:
    empty = Model((Segment("s", {"v": 4}, {"v": 4}, 0, 0),))
    cluster = replace(CLUSTER, links=tuple(replace(link, latency_us=0) for link in CLUSTER.links))
    jobs = (Job("pair", "m", 2, 1), Job("empty", "e", 2, 1))
    instance = Instance("empty", cluster, {"m": MODEL, "e": empty}, jobs)
    pair = JobPlan("pair", ("a/0", "b/0"), (iteration([(2, 8, 20), (2, 8, 20)], [(14, 19), (20, 30)]),))
    other = JobPlan("empty", ("a/0", "b/0"), (iteration([(1, 0, 8), (1, 0, 8)], [(25, 25)]),))
    assert check(instance, finished(instance, (pair, other), 30)) == ()


@pytest.mark.parametrize("period", [None, 0, 1, -5, 38, 200, True, 1.5, "38"])
def test_the_period_of_a_document_is_judged_by_its_horizon(period: object) -> None:
    """Null for a finite plan, an integer of at least 1 for a cyclic one, which must also hold; nothing else."""
    for (instance, plan), right in ((finite(), None), (cyclic(), 38)):
        document = json.dumps({**json.loads(encode_plan(plan)), "period_us": period})
        if isinstance(period, bool | float | str) or (period is not None and period < 0):  # type: ignore[operator]
            with refuses(f"{'out-of-range' if period == -5 else 'wrong-type'} $.period_us"):
                decode_plan(document)
        elif period == right:
            assert not check(instance, decode_plan(document))
        else:
            assert rules(instance, decode_plan(document)) & {"period", "objective"}


def test_a_broken_guarantee_says_by_how_much() -> None:
    instance, plan = finite()
    late = check(instance, with_transfer(plan, 2, 0, 2, end_us=75))
    assert [(v.path, v.message) for v in late] == [("$.jobs[2]", "ends at 75, 3 us after its deadline at 72")]
    instance, plan = cyclic()
    slow = check(instance, replace(plan.with_period(42), objective=42))
    assert [(v.path, v.read) for v in slow] == [("$.jobs[1]", "docs/specification.md#pace")]
    assert carries(slow[0].message, "4 us", "slower", "38 us")


def test_a_plan_without_any_operation_may_say_nothing_of_its_kind(pair: Instance, pair_plan: Plan) -> None:
    empty = tuple(
        TaskGraphJobPlan(job.name, job.gpus, tuple(TaskGraphIteration((), ()) for _ in job.iterations))
        for job in pair_plan.jobs
    )
    found = check(pair, pair_plan.with_jobs(empty))
    assert {(each.rule, each.path) for each in found} >= {
        ("document", f"$.jobs[{k}].iterations[0].blocks") for k in range(len(empty))
    }
