"""Kinds of argument about data-parallel jobs: critical path, load, workers, completions (docs/proofs.md)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .common import Document, different, fields, kind, need, up
from .facts import JobFacts
from .resources import Demand, Resource


def facts_of(instance: Document, name: Any) -> JobFacts:
    """Return the facts of a data-parallel job that may be in proofs."""
    jobs = {job["name"]: job for job in instance["jobs"] if "model" in job}
    need(type(name) is str and name in jobs, f"there is no data-parallel job {name}")
    facts = JobFacts(instance, jobs[name])
    need(facts.known, f"{name} has a depth rule of its own")
    return facts


def of_jobs(instance: Document, stated: Any, types: dict[str, type]) -> list[tuple[JobFacts, Document]]:
    """Return the jobs of a list of objects with `names`, each with its object."""
    need(type(stated) is list, "facts of jobs are no list")
    found = []
    for some in stated:
        fields(some, {"names": list, **types}, "facts")
        need(bool(some["names"]), "a list of names is empty")
        found += [(facts_of(instance, name), some) for name in some["names"]]
    names = [job.job["name"] for job, _ in found]
    need(len(set(names)) == len(names), "a job is named twice")
    return found


def demands(instance: Document, resource: Resource, stated: Any, *facts: str, **more: type) -> list[Any]:
    """Return the demands of jobs on a resource, each with the object that states the named ones."""
    found: list[tuple[Demand, Document, JobFacts]] = []
    for job, some in of_jobs(instance, stated, {**dict.fromkeys(facts, int), **more}):
        demand = resource.demand(job)
        for name in facts:
            right = getattr(demand, name)
            need(some[name] == right, f"{name} of {job.job['name']} is another one")
        found.append((demand, some, job))
    resource.check_exclusion([job for *_, job in found])
    return found


def _last_end(instance: Document, name: str) -> bool:
    need(instance["objective"] != "weighted_completion", f"{name} bounds no weighted_completion")
    return bool(instance["objective"] == "period")


@kind("critical path", job=str, head=int | None, span=int)
def _critical_path(instance: Document, argument: Document) -> int:
    period, facts = _last_end(instance, "a critical path"), facts_of(instance, argument["job"])
    need(("head" in argument) != period, "the head is missing, or there is one with a period")
    need(argument["span"] == facts.span, f"the span is {facts.span}")
    need(period or argument["head"] == facts.release, f"the head is {facts.release}")
    return max(1, facts.span) if period else facts.completion


@kind("load", resource=dict, jobs=list)
def _load(instance: Document, argument: Document) -> int:
    period, resource = _last_end(instance, "a load"), Resource(instance, argument["resource"])
    found = demands(instance, resource, argument["jobs"], *(["work"] if period else ["head", "work", "tail"]))
    need(bool(found), "there are no jobs")
    work = up(Fraction(sum(demand.work for demand, *_ in found), resource.capacity))
    return work if period else work + min(d.head for d, *_ in found) + min(d.tail for d, *_ in found)


@kind("workers", resource=dict, jobs=list, bins=int)
def _workers(instance: Document, argument: Document) -> int:
    period, resource = _last_end(instance, "a number of workers"), Resource(instance, argument["resource"])
    need(resource.kind in ("gpus", "presences"), "the resource is no GPUs")
    need(set(resource.prices.values()) <= {1}, "a price is not 1")
    facts = [] if period else ["head", "tail"]
    found, loads = demands(instance, resource, argument["jobs"], *facts, workers=list), []
    for _, some, job in found:
        stated = []
        for worker in some["workers"]:
            fields(worker, {"load": int, "count": int}, "workers")
            need(1 <= worker["count"] <= job.w, "a count is wrong")
            stated += [worker["load"]] * worker["count"]
        right = _loads(resource, job)
        need(bool(stated) and stated == right[: len(stated)], f"the loads of {job.job['name']} are {right}")
        loads += stated
    g, m, N = argument["bins"], resource.capacity, len(loads)
    need(1 <= g <= min(m, N), "the number of bins is wrong")
    x = sum(sorted(loads)[: g * ((N - g) // m + 1)])
    return up(Fraction(x, g)) + (0 if period else min(d.head for d, *_ in found) + min(d.tail for d, *_ in found))


def _loads(resource: Resource, job: JobFacts) -> list[int]:
    if resource.kind == "presences":
        return [job.span] * job.w
    need(set(job.kinds) <= resource.prices.keys(), f"{job.job['name']} may be on kinds without a price")
    need("restart_us" not in job.job, f"{job.job['name']} may move")
    levels = job.least_levels if job.n == 1 else [min(job.least_levels)] * job.w
    return sorted((job.n * job.shortest(d) for d in levels), reverse=True)


ROWS: dict[str, Any] = {}
"""By kind of row, what gives its coefficients and its right side."""


@kind("completions", completions=list, denominator=int, rows=list)
def _completions(instance: Document, argument: Document) -> int:
    need(instance["objective"] == "weighted_completion", "completions bound weighted_completion alone")
    least, Q = {}, argument["denominator"]
    need(Q >= 1, "the denominator is below 1")
    for job, some in of_jobs(instance, argument["completions"], {"completion": int}):
        need(some["completion"] == job.completion, f"the completion of {job.job['name']} is {job.completion}")
        least[job.job["name"]] = job
    A, B = dict.fromkeys(least, 0), Fraction(0)
    for row in argument["rows"]:
        need(type(row) is dict and row.get("kind") in list(ROWS), "there is no such kind of row")
        coefficients, right = ROWS[row["kind"]](instance, row, least)
        need(coefficients.keys() <= least.keys(), "a job in a row has no completion")
        for name, a in coefficients.items():
            A[name] += a
        B += right
    over = {name: Q * job.job["weight"] - A[name] for name, job in least.items()}
    need(all(value >= 0 for value in over.values()), "the multipliers of a job are more than its weight")
    return up((B + sum(over[name] * job.completion for name, job in least.items())) / Q)


def _load_row(instance: Document, row: Document, _: object) -> tuple[dict[str, int], Fraction]:
    fields(row, {"kind": str, "resource": dict, "jobs": list, "chains": list}, "row")
    resource = Resource(instance, row["resource"])
    found = demands(instance, resource, row["jobs"], "head", "work", "offset")
    by_name = {job.job["name"]: demand for demand, _, job in found}
    coefficients, right, seen = dict.fromkeys(by_name, 0), Fraction(0), set()
    for chain in row["chains"]:
        fields(chain, {"sets": list}, "chain")
        names: list[str] = []
        for one in chain["sets"]:
            fields(one, {"more": list, "multiplier": int}, "set")
            need(bool(one["more"]) and one["multiplier"] >= 1, "a set adds no jobs, or its multiplier is below 1")
            names += one["more"]
            different(names, by_name, "jobs of a chain")
            demands_here, y = [by_name[name] for name in names], one["multiplier"]
            for name in names:
                coefficients[name] += y * by_name[name].work
            W = sum(demand.work for demand in demands_here)
            offsets = sum(demand.offset for demand in demands_here)
            head = min(demand.head for demand in demands_here)
            right += y * (W * head + Fraction(W * W, 2 * resource.capacity) + Fraction(offsets, 2))
        seen.update(names)
    need(seen == by_name.keys(), "a job is in no chain")
    return coefficients, right


ROWS["load"] = _load_row
