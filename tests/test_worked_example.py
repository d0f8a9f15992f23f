"""The worked example of the specification: its numbers come out of the code, and its plans are correct and optimal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, decode_plan, instance_sha256
from jigsaw_opt.problem import Block, Instance, Job, Plan, Transfer, compile_instance
from jigsaw_opt.problem.costs import contributors, transfer_us
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.solvers.bounds import lower_bound
from tests.oracle import optimum
from tests.pages import SPECIFICATION, equations, holds, prose, section

PAGE = SPECIFICATION.read_text(encoding="utf-8")
EXAMPLE = section(PAGE, "Worked example")
EQUATIONS = equations(EXAMPLE)
CYCLIC_ENDS = {("a", 2): (2460, 2520), ("b", 1): (2520, 2820)}


def document(heading: str) -> str:
    found = re.search(r"```json\n(.*?)```", section(PAGE, heading), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def instance() -> Instance:
    return decode_instance(document("Instance"))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return decode_plan(document("Plan"))


@pytest.fixture(scope="module")
def cyclic(instance: Instance) -> Instance:
    return replace(instance, horizon="cyclic", objective="period")


@pytest.fixture(scope="module")
def cyclic_plan(cyclic: Instance, plan: Plan) -> Plan:
    """The finite plan with the last transfer of each job where the page puts it."""
    jobs = []
    for job in plan.jobs:
        *firsts, last = job.iterations
        *before, late = last.transfers
        moved = Transfer(late.bucket, *CYCLIC_ENDS[job.name, late.bucket])
        jobs.append(replace(job, iterations=(*firsts, replace(last, transfers=(*before, moved)))))
    sha256 = instance_sha256(cyclic)
    return replace(plan.with_jobs(tuple(jobs)).with_period(2520), objective=2520, bound=2520, instance_sha256=sha256)


def value(cell: str) -> object:
    """What a cell of a table says: the right side of an equation, a number, or names."""
    cell = cell.strip().strip("`").rpartition(" = ")[2]
    return int(cell) if cell.isdigit() else cell.replace("`", "")


def tables(heading: str) -> list[list[tuple[object, ...]]]:
    found = re.findall(r"^\|[-|]+\|\n((?:\|.*\|\n)+)", section(EXAMPLE, heading), re.MULTILINE)
    return [[tuple(map(value, row.strip("|").split("|"))) for row in rows.splitlines()] for rows in found]


TABLES = [row for heading in re.findall(r"^### (.*)", EXAMPLE, re.MULTILINE) for row in chain(*tables(heading))]


def test_every_equation_holds() -> None:
    assert EQUATIONS and [equation for equation in EQUATIONS if not holds(equation)] == []


def test_blocks_and_buckets(instance: Instance) -> None:
    models = instance.models.items()
    blocks = [(name, d, us) for name, model in models for d, us in enumerate(model.block_us("v100"), 1)]
    assert tables("Blocks and buckets")[0] == blocks
    buckets = tables("Blocks and buckets")[1]
    assert [(name, b, size) for name, b, _, size in buckets] == [
        (name, b, size) for name, model in models for b, size in enumerate(model.bucket_bytes(), 1)
    ]
    for name, _, segments, size in buckets:
        model = instance.models[str(name)]
        assert sum(s.parameter_bytes for s in model.segments if s.name in str(segments).split(", ")) == size


def test_levels_and_contributors(instance: Instance, plan: Plan) -> None:
    rows = []
    for job in plan.jobs:
        for i, iteration in enumerate(job.iterations, 1):
            levels = [block.level for block in iteration.blocks]
            counts = [contributors(levels, b.bucket) for b in iteration.transfers]
            rows.append((job.name, i, ", ".join(map(str, levels)), *counts, *[""] * (2 - len(counts))))
    assert tables("Levels and contributors")[0] == rows
    rule = compile_instance(instance).jobs[0].rule
    assert (rule.min_contributors, rule.min_total, rule.balance) == (1, 6, 0)


def test_transfers(instance: Instance) -> None:
    channel = compile_instance(instance).routes.channel({0: 1, 1: 1})
    assert channel is not None
    assert [instance.cluster.links[k].name for k in channel.links] == ["wire"]
    assert (channel.rate, channel.latency_us) == (10000000000, 10)
    found = tables("Transfers over the wire")[0]
    assert {(job, bucket, c) for job, bucket, c, _ in found} >= set(_exchanges(document("Plan")))
    models = {job.name: instance.models[job.model] for job in instance.jobs}
    for job, bucket, c, us in found:
        payload = models[str(job)].bucket_bytes()[int(str(bucket)) - 1]
        assert transfer_us(payload, int(str(c)), 2, channel.rate, channel.latency_us) == us


def _exchanges(plan: str) -> Iterator[tuple[str, int, int]]:
    """Job, bucket and number of contributors of each transfer."""
    for job in json.loads(plan)["jobs"]:
        for iteration in job["iterations"]:
            for transfer in iteration["transfers"]:
                bucket = transfer["bucket"]
                yield job["name"], bucket, sum(block["level"] >= bucket for block in iteration["blocks"])


def test_memory(instance: Instance, plan: Plan) -> None:
    models = instance.models.items()
    activations = [(name, d, held) for name, model in models for d, held in enumerate(model.activation_bytes(), 1)]
    assert tables("Memory of the GPUs")[0] == activations
    here = [(job, instance.models[job.model]) for job in instance.jobs]
    need = sum(model.state_bytes for _, model in here) + max(model.activation_bytes()[-1] for _, model in here)
    assert tables("Memory of the GPUs")[1] == [(gpu, need) for gpu in plan.jobs[0].gpus]
    assert need < instance.cluster.servers[0].gpu_memory == 80000000


def test_the_finite_plan_is_correct_and_optimal(instance: Instance, plan: Plan) -> None:
    assert check(instance, plan) == ()
    assert plan.status == "optimal" and plan.objective == optimum(instance)


def test_at_full_depth_the_makespan_is_longer(instance: Instance) -> None:
    full: tuple[Job, ...] = tuple(replace(job, depth=FullDepth()) for job in instance.jobs)
    assert optimum(replace(instance, jobs=full)) == 3120
    assert "the least makespan is 3120" in EXAMPLE


def test_the_cyclic_plan_is_correct_and_optimal(cyclic: Instance, cyclic_plan: Plan) -> None:
    assert check(cyclic, cyclic_plan) == ()
    assert lower_bound(compile_instance(cyclic)).value == cyclic_plan.period_us == 2520
    # Before the turn, the transfer of `b` would meet the last one of `a`.
    assert check(cyclic, replace(cyclic_plan.with_period(2519), objective=2519, bound=2519))


@pytest.mark.parametrize(("heading", "period"), [("Finite plan", None), ("Cyclic plan", 2520)])
def test_the_pictures_show_the_plans(heading: str, period: int | None, plan: Plan, cyclic_plan: Plan) -> None:
    shown = plan if period is None else cyclic_plan
    lanes = {lane: ["."] * ((period or 2820) // 60) for lane in ("s0/0", "s1/0", "wire")}
    for job in shown.jobs:
        for iteration in job.iterations:
            uses: list[tuple[str, Block | Transfer]] = [("wire", transfer) for transfer in iteration.transfers]
            uses += zip(job.gpus, iteration.blocks, strict=True)
            for lane, use in uses:
                for slot in range(use.start_us // 60, use.end_us // 60):
                    assert lanes[lane][slot % len(lanes[lane])] == "."
                    lanes[lane][slot % len(lanes[lane])] = job.name
    picture = "".join(f"{lane} {''.join(row)}\n" for lane, row in lanes.items())
    assert f"```text\n{picture}```" in section(EXAMPLE, heading)


def test_no_number_is_only_written(instance: Instance, plan: Plan, cyclic_plan: Plan) -> None:
    """The prose says numbers of the documents and results of equations; equations on plans begin with such numbers."""
    facts = numbers(document("Instance"), document("Plan"), repr(cyclic_plan), *map(str, chain(*TABLES)))
    results = numbers(*(re.split(r"[<>]?= ", equation)[-1] for equation in EQUATIONS))
    at_full_depth = {1320, 3120}
    assert numbers(re.sub(r"`[^`\n]*`|\]\([^)]*\)", " ", prose(EXAMPLE))) <= facts | results | at_full_depth
    plans = section(EXAMPLE, "Finite plan") + section(EXAMPLE, "Cyclic plan")
    assert numbers(*(equation for equation in EQUATIONS if equation in plans)) <= facts | at_full_depth


def numbers(*texts: str) -> set[int]:
    return {int(found) for text in texts for found in re.findall(r"\b\d+\b", text)}
