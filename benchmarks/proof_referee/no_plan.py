"""Arguments that there is no plan (docs/proofs.md), which stand for a whole document."""

from __future__ import annotations

from .common import Document, fields, need, proven, runs_on, transfer_us, with_jobs
from .facts import JobFacts
from .task_graphs import transfer_us as task_graph_transfer_us


def check_no_plan(instance: Document, argument: Document) -> None:
    """Raise unless an argument shows that some jobs have no correct plan."""
    fields(argument, {"kind": str, "jobs": list, "upper_bound": int, "argument": dict}, "an argument without a bound")
    need(argument["kind"] == "no plan", "only no plan is without a bound")
    some = with_jobs(instance, argument["jobs"])
    if some["horizon"] == "finite":
        some["objective"] = "makespan"
    upper = _upper_bound(some)
    need(argument["upper_bound"] == upper, f"the upper bound is {upper}")
    value = proven(some, argument["argument"])
    need(value > upper, f"the argument proves no more than {upper}")


def _upper_bound(instance: Document) -> int | None:
    """Return what the objective of some plan does not exceed, if there is a plan; None where this is not known."""
    jobs = instance["jobs"]
    work = sum(job["iterations"] * _one_after_the_other(instance, job) for job in jobs)
    if instance["horizon"] == "cyclic":
        paces = [job["pace_us"] * job["iterations"] for job in jobs if "pace_us" in job]
        return min([*paces, max(1, work)])
    limits = [max(job["deadline_us"] for job in jobs)] if all("deadline_us" in job for job in jobs) else []
    if not any("restart_us" in job for job in jobs):
        limits.append(max(1, max(job["release_us"] for job in jobs) + work))
    return min(limits, default=None)


def _one_after_the_other(instance: Document, job: Document) -> int:
    """Return the largest time of all operations of an iteration, one after the other."""
    servers, links = instance["cluster"]["servers"], instance["cluster"]["links"]
    rate = min([link["bandwidth"] for link in links] + [server["fabric_bandwidth"] for server in servers])
    latency = max([link["latency_us"] for link in links] + [server["fabric_latency_us"] for server in servers])
    if "shape" in job:
        blocks = sum(max(block["duration_us"].values()) for block in job["shape"]["blocks"])
        return blocks + sum(task_graph_transfer_us(one, rate, latency) for one in job["shape"]["transfers"])
    facts = JobFacts(instance, job)
    types = {server["gpu_type"] for server in servers}
    block = max((facts.p(t, facts.D) for t in types if runs_on(facts.model, t)), default=0)
    buckets = range(1, facts.D + 1) if facts.w > 1 else []
    return facts.w * block + sum(transfer_us(job, facts.model, b, facts.w, rate, latency) for b in buckets)
