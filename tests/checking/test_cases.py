"""Proofs by cases: the rows hold for correct plans, right trees are accepted, and no changed one proves too much."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import pytest

from jigsaw_opt.checking.proofs.arguments import proven
from jigsaw_opt.checking.proofs.facts import Facts
from jigsaw_opt.checking.proofs.job_rows import Name, PlanRows
from jigsaw_opt.checking.proofs.plan_rows import plan_rows
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError
from jigsaw_opt.instances import best_known, best_plan, load
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.solvers.certificates import prove_by_cases
from tests.checking.proof_mutants import mutants


def values(plan_names: list[Name], instance: Instance, plan: Plan, renamed: dict[str, str]) -> dict[Name, int]:
    """Return the value of each variable in a finite plan whose GPUs are renamed."""
    on_server = [server.name for server in instance.cluster.servers]
    found: dict[Name, int] = {}
    for job in plan.jobs:
        gpus = [renamed[gpu] for gpu in job.gpus]
        counts = tuple(sum(gpu.split("/")[0] == server for gpu in gpus) for server in on_server)
        found["spread", job.name, counts] = 1
        for i, iteration in enumerate(job.iterations, 1):
            begin = found["begin", job.name, i] = min(block.start_us for block in iteration.blocks)
            found["end", job.name, i] = max(each.end_us for each in [*iteration.blocks, *iteration.transfers])
            for name in plan_names:
                if name[0] in ("start", "done") and name[1:3] == (job.name, i):
                    found[name] = begin
            for gpu, block in zip(gpus, iteration.blocks, strict=True):
                found["on", job.name, gpu] = 1
                found["start", job.name, i, gpu], found["done", job.name, i, gpu] = block.start_us, block.end_us
                length = found["length", job.name, i, gpu] = block.end_us - block.start_us
                found["load", gpu] = found.get(("load", gpu), 0) + length
                found |= {("level", job.name, i, gpu, d): 1 for d in range(2, block.level + 1)}
            for transfer in iteration.transfers:
                b, start, end = transfer.bucket, transfer.start_us, transfer.end_us
                found["transfer", job.name, i, b], found["transferred", job.name, i, b] = start, end
                found["lasts", job.name, i, b] = end - start
                reach = sum(block.level >= b for block in iteration.blocks)
                found |= {("contributors", job.name, i, b, c): 1 for c in range(reach + 1)}
    for name in plan_names:
        if name[0] == "order":
            _, a, i, x, b, k, y = name
            kind = "start" if isinstance(x, str) else "transfer"
            found[name] = int(found[kind, a, i, x] <= found[kind, b, k, y])
    return found


def together(found: dict[Name, int], plan: Plan) -> dict[Name, int]:
    """Return the values where one iteration stands for all of a job."""
    merged = dict[Name, int]()
    for name, value in found.items():
        if name[0] in ("level", "length"):
            one = (*name[:2], 1, *name[3:])
            merged[one] = merged.get(one, 0) + value
        elif name[0] != "end":
            merged[name] = value
    last = {job.name: len(job.iterations) for job in plan.jobs}
    return merged | {("end", job, 1): found["end", job, n] for job, n in last.items()}


def renamings(instance: Instance) -> Iterator[dict[str, str]]:
    """Yield all ways to rename the GPUs of each server among themselves."""
    gpus = [[f"{server.name}/{k}" for k in range(server.gpus)] for server in instance.cluster.servers]
    for orders in product(*(permutations(names) for names in gpus)):
        yield {
            old: new for names, order in zip(gpus, orders, strict=True) for old, new in zip(names, order, strict=True)
        }


def broken(rows: PlanRows, instance: Instance, found: dict[Name, int]) -> list[object]:
    """Return the rows and variables that values break, links of a spread filled in."""
    numbers = [found.get(name, 0) for name in rows.names]
    place = {name: number for number, name in enumerate(rows.names)}
    for name in rows.names:
        if name[0] == "uses":
            # The second row of its equation says what it is.
            terms = next(
                t for t, _ in rows.rows if (-1, place[name]) in t and any(rows.names[v][0] == "spread" for _, v in t)
            )
            numbers[place[name]] = sum(numbers[v] for _, v in terms if v != place[name])
    limits = zip(rows.names, rows.low, numbers, rows.high, strict=True)
    wrong: list[object] = [name for name, low, value, high in limits if not low <= value <= high]
    for terms, side in rows.rows:
        if sum(a * numbers[v] for a, v in terms) > side:
            wrong.append([(a, rows.names[v]) for a, v in terms])
    return wrong


@pytest.mark.parametrize("number", [0, 2, 3, 6, 8, 11, 14, 18, 20, 22, 30, 34, 42, 44, 57, 66])
def test_rows_hold_for_the_best_plan(number: int) -> None:
    instance, plan = load(f"tiny/{number:03}"), best_plan(f"tiny/{number:03}")
    step, facts = ProofStep({}, "$"), Facts(instance)
    rows = plan_rows(step, facts, plan.objective)
    assert any(not broken(rows, instance, values(rows.names, instance, plan, each)) for each in renamings(instance))
    fewer = plan_rows(step, facts, plan.objective, together=True)
    found = (together(values(fewer.names, instance, plan, each), plan) for each in renamings(instance))
    assert any(not broken(fewer, instance, each) for each in found)


@pytest.mark.parametrize("number", [0, 4, 9, 13, 15, 21, 27, 34, 37, 58, 61, 70])
def test_the_optimum_is_proven_and_no_more(number: int) -> None:
    name = f"tiny/{number:03}"
    instance, known = load(name), best_known(name)
    assert known is not None
    assert prove_by_cases(instance, known.objective + 1, 100_000) is None
    argument = prove_by_cases(instance, known.objective)
    assert argument is not None
    assert proven(ProofStep(argument, "$"), Facts(instance)) == known.objective


@pytest.mark.parametrize("number", [0, 4, 13])
def test_a_changed_argument_proves_nothing_that_is_not_so(number: int) -> None:
    name = f"tiny/{number:03}"
    instance, known = load(name), best_known(name)
    argument = prove_by_cases(instance, known.objective if known else 0)
    refused = 0
    for path, changed in mutants(argument):
        try:
            # A changed tree may still be one of contradictions; then what it proves still holds.
            assert proven(ProofStep(changed, "$"), Facts(instance)) <= known.objective, path
        except ProofStepError:
            refused += 1
    assert refused > 0


def test_a_search_ends_where_it_is_stopped_and_where_work_runs_out() -> None:
    assert prove_by_cases(load("tiny/003"), 10589, 100) is None
    assert prove_by_cases(load("tiny/003"), 10589, stop=lambda: True) is None
