"""The order of a replay never deadlocks, whatever the plan, and the usual way is a correct plan at full depth."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from replayed import instance as three_jobs

from jigsaw_opt.checking import check
from jigsaw_opt.executor.schedules.baseline import at_full_depth, baseline_plan
from jigsaw_opt.executor.schedules.order import ReplayExtent, ReplayOrder, TransferKey
from jigsaw_opt.problem import Instance, Iteration, JobPlan, Plan
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import random_instance

PASSES = 3


def solved(seed: int, horizon: str) -> tuple[Instance, Plan] | None:
    instance = random_instance(seed, horizon, operations=48)  # type: ignore[arg-type]
    plan = solve(instance, "greedy", Options(seed=0)).plan
    return None if plan is None else (instance, shifted(plan))


def shifted(plan: Plan) -> Plan:
    """The same plan; of a cyclic one every job starts as many periods later as jobs stand before it."""
    if plan.period_us is None:
        return plan
    return plan.with_jobs(tuple(later(job, number * plan.period_us) for number, job in enumerate(plan.jobs)))


def later(job: JobPlan, shift: int) -> JobPlan:
    iterations = tuple(
        Iteration(
            tuple(replace(b, start_us=b.start_us + shift, end_us=b.end_us + shift) for b in iteration.blocks),
            tuple(replace(t, start_us=t.start_us + shift, end_us=t.end_us + shift) for t in iteration.transfers),
        )
        for iteration in job.iterations
    )
    return replace(job, iterations=iterations)


@pytest.fixture(scope="module", params=["finite", "cyclic"])
def plans(request: pytest.FixtureRequest) -> list[tuple[Instance, Plan]]:
    found = [pair for seed in range(28) if (pair := solved(seed, request.param))]
    assert len(found) > 18
    assert any(job.workers > 1 for instance, _ in found for job in instance.jobs)
    assert all(check(instance, plan) == () for instance, plan in found)
    return found


def carried_out(order: ReplayOrder, progress: ReplayExtent, lifo: bool) -> list[object]:
    """What happens when processes do their blocks in order and every transfer starts as soon as it may.

    Whoever can go on does, the first one or the last one: a deadlock would leave something undone.
    """
    ranks = range(len(order.gpus))
    rows = {r: [s for w in order.windows(progress) for s in order.steps(r, w, progress)] for r in ranks}
    blocks: set[tuple[int, int, int]] = set()
    transfers: set[TransferKey] = set()
    happened: list[object] = []
    position = dict.fromkeys(ranks, 0)
    waiting = {
        TransferKey(s.job, s.iteration, bucket)
        for steps in rows.values()
        for s in steps
        if len(order.ranks[s.job]) > 1
        for bucket in range(1, order.depths[s.job] + 1)
    }

    def finished(job: int, iteration: int) -> bool:
        own = {(job, iteration, slot) for slot in range(len(order.ranks[job]))}
        sent = {TransferKey(job, iteration, b) for b in range(1, order.depths[job] + 1)} if len(own) > 1 else set()
        return iteration < progress.done[job] or (own <= blocks and sent <= transfers)

    def ready(key: TransferKey) -> bool:
        levels = order.levels(key.job, key.iteration)
        reached = all((key.job, key.iteration, s) in blocks for s, level in enumerate(levels) if level >= key.bucket)
        before = key.bucket == 1 or key._replace(bucket=key.bucket - 1) in transfers
        return reached and before and order.before(key, progress) <= transfers

    while True:
        able: list[tuple[str, object]] = [("transfer", key) for key in sorted(waiting) if ready(key)]
        for rank in ranks:
            step = rows[rank][position[rank]] if position[rank] < len(rows[rank]) else None
            if step is not None and (step.iteration == 0 or finished(step.job, step.iteration - 1)):
                able.append(("block", (rank, step)))
        if not able:
            break
        _, what = able[-1 if lifo else 0]
        happened.append(what)
        if isinstance(what, TransferKey):
            transfers.add(what)
            waiting.discard(what)
        else:
            rank, step = what  # type: ignore[misc]
            blocks.add((step.job, step.iteration, step.place))
            position[rank] += 1
    assert not waiting and all(position[rank] == len(rows[rank]) for rank in ranks)
    return happened


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("lifo", [False, True])
def test_nothing_deadlocks(plans: list[tuple[Instance, Plan]], lifo: bool, serial: bool) -> None:
    for instance, plan in plans[:: 2 if lifo else 3]:
        order = ReplayOrder(instance, plan, serial)
        for done in ([0] * len(plan.jobs), [k % (len(j.iterations) + 1) for k, j in enumerate(plan.jobs)]):
            happened = carried_out(order, ReplayExtent(done, PASSES), lifo)
            expected = sum(
                (PASSES * len(job.iterations) - before) * (len(job.gpus) + (depth if len(job.gpus) > 1 else 0))
                for job, before, depth in zip(plan.jobs, done, order.depths, strict=True)
            )
            assert len(happened) == expected


def test_blocks_and_transfers_stand_in_the_order_of_their_planned_starts(plans: list[tuple[Instance, Plan]]) -> None:
    links = 0
    for instance, plan in plans:
        order, progress = ReplayOrder(instance, plan, serial=True), ReplayExtent([0] * len(plan.jobs), PASSES)
        for rank, gpu in enumerate(order.gpus):
            steps = [s for window in order.windows(progress) for s in order.steps(rank, window, progress)]
            assert all(a.start_us <= b.start_us for a, b in pairwise(steps))
            assert {plan.jobs[step.job].gpus[step.place] for step in steps} == {gpu}
        keys = [
            TransferKey(j, i, t.bucket)
            for j, job in enumerate(plan.jobs)
            for i in range(PASSES * len(job.iterations))
            for t in job.iterations[0].transfers
        ]
        for key in keys:
            for earlier in order.before(key, progress):
                links += 1
                assert order.transfer_start_us(earlier) <= order.transfer_start_us(key)
    assert links > 20


def test_a_link_is_handed_on_from_transfer_to_transfer(plans: list[tuple[Instance, Plan]]) -> None:
    """Following who comes before whom from the last transfer on leads over all transfers of other jobs' turns."""
    for instance, plan in plans:
        order, progress = ReplayOrder(instance, plan, serial=True), ReplayExtent([0] * len(plan.jobs), 1)
        after: defaultdict[TransferKey, int] = defaultdict(int)
        for number, job in enumerate(plan.jobs):
            for k, iteration in enumerate(job.iterations):
                for transfer in iteration.transfers:
                    for earlier in order.before(TransferKey(number, k, transfer.bucket), progress):
                        assert earlier.job != number
                        after[earlier] += 1
        assert all(count == 1 for count in after.values())


@pytest.mark.parametrize("policy", ["fifo", "gang"])
def test_the_usual_way_is_a_correct_plan_with_one_job_at_a_time(
    plans: list[tuple[Instance, Plan]], policy: str
) -> None:
    for instance, plan in plans:
        roomy = tuple(replace(server, gpu_memory=10**9) for server in instance.cluster.servers)
        usual = at_full_depth(replace(instance, cluster=replace(instance.cluster, servers=roomy)))
        found = baseline_plan(usual, plan, policy)  # type: ignore[arg-type]
        assert check(usual, found) == ()
        spans: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for job in found.jobs:
            for iteration in job.iterations:
                operations = [*iteration.blocks, *iteration.transfers]
                for gpu in job.gpus:
                    spans[gpu].append((min(p.start_us for p in operations), max(p.end_us for p in operations)))
        for own in spans.values():
            assert all(a[1] <= b[0] for a, b in pairwise(sorted(own)))


def test_fifo_ends_jobs_one_by_one_and_gang_takes_turns() -> None:
    problem = three_jobs()
    plan = solve(problem, "greedy", Options(seed=0)).plan
    assert plan is not None and set(plan.jobs[0].gpus) == set(plan.jobs[1].gpus)
    fifo, gang = (baseline_plan(problem, plan, policy) for policy in ("fifo", "gang"))
    begins = [min(block.start_us for block in found.jobs[1].iterations[0].blocks) for found in (fifo, gang)]
    assert fifo.jobs[0].end_us <= begins[0]
    assert gang.jobs[0].end_us > begins[1]
