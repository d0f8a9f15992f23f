"""The kind of argument `shared work` (docs/proofs.md), for jobs of both kinds."""

from __future__ import annotations

from fractions import Fraction

from .common import Document, kind, need, up, with_jobs
from .facts import JobFacts, counted


@kind("shared work", cap=str | None, head=int, jobs=dict)
def _shared_work(instance: Document, argument: Document) -> int:
    need(instance["objective"] != "weighted_completion", "shared work bounds no weighted_completion")
    cap, cluster = None, instance["cluster"]
    if "cap" in argument:
        caps = {one["name"]: one for one in cluster.get("power_caps", [])}
        need(argument["cap"] in caps, "there is no such power cap")
        cap = caps[argument["cap"]]
    works = argument["jobs"]
    jobs = with_jobs(instance, list(works))["jobs"]
    for job in jobs:
        work = _of_task_graph(cluster, job, cap) if "shape" in job else _of_workers(instance, job, cap)
        need(type(works[job["name"]]) is int and works[job["name"]] == work, f"the work of {job['name']} is {work}")
    head = min(job["release_us"] for job in jobs)
    need(argument["head"] == head, f"the head is {head}")
    capacity = sum(counted(instance).values()) if cap is None else cap["watts"]
    return head + up(Fraction(sum(works.values()), capacity))


def _of_workers(instance: Document, job: Document, cap: Document | None) -> int:
    facts = JobFacts(instance, job)
    need(facts.known, f"{job['name']} has a depth rule of its own")
    if cap is not None and not facts.usable.keys() <= set(cap["servers"]):
        return 0
    watts = {t: 1 if cap is None else facts.model.get("power_w", {}).get(t, 0) for t, _ in facts.kinds}
    levels = range(1, facts.D + 1)
    return facts.least_work([min((watts[t] * facts.p(t, d) for t, _ in facts.taking(d)), default=0) for d in levels])


def _of_task_graph(cluster: Document, job: Document, cap: Document | None) -> int:
    blocks, work = job["shape"]["blocks"], 0
    slots = {block["name"]: [block["slot"]] if "slot" in block else block["slots"] for block in blocks}
    for block in blocks:
        for slot in slots[block["name"]]:
            if cap is None:
                work += min(block["duration_us"].values())
                continue
            of_slot = [one["duration_us"] for one in blocks if slot in slots[one["name"]]]
            draws = [
                block.get("power_w", {}).get(t, 0) * block["duration_us"][t] if server["name"] in cap["servers"] else 0
                for server in cluster["servers"]
                for t in [server["gpu_type"]]
                if all(t in durations for durations in of_slot)
            ]
            work += min(draws, default=0)
    return int(job["iterations"] * work)
