"""Seconds of failure reports, repairs beside new solves, costs of ``--survivable``: ``python benchmarks/failures.py``.

Reports are of every link, switch and server alone. A few failures of each instance are then repaired without a limit,
and the instance that is left is solved from scratch until its plan is no worse than the repair.

Each server of the bundled instances has one uplink. In rows named *twice* each has a second one of half the bandwidth,
to switches of their own. So it is for ``--survivable``, and each job has a deadline: its end in a plain plan and a
share more.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import replace

from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.problem.timetable import job_end
from jigsaw_opt.solvers.failure_repair import repaired
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failed_parts import FailedPart, parts_of
from jigsaw_opt.solvers.resolve.failures import FailureEffect, FailureEffects, each_failure
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder
from jigsaw_opt.solvers.resolve.phase_failures import effects_on
from jigsaw_opt.solvers.solve import solve

INSTANCES = ("rack/tree", "rack/tree-link-bound", "pod/plain", "pod:0:load=800")
GUARDED = ("rack/plain", "rack/oversubscribed", "rack/weighted", "rack/tree", "rack/tree-link-bound")


def planned(instance: Instance, options: Options) -> Plan:
    plan = solve(instance, "auto", options).plan
    assert plan is not None
    return plan


def report(instance: Instance, plan: Plan) -> list[FailureEffect]:
    started, cpu = time.monotonic(), time.process_time()
    effects = list(each_failure(effects_on(instance, plan)))
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    stopping = sum(bool(effect.stopped) for effect in effects)
    rerouting = sum(bool(effect.rerouted) for effect in effects)
    size = f"{instance.cluster.gpu_count:>5}{len(instance.jobs):>6}{len(effects):>9}{stopping:>9}{rerouting:>10}"
    print(f"{instance.name:<22}{size}{seconds:>8.2f}{cpu:>8.2f}", flush=True)
    return effects


def repair(instance: Instance, plan: Plan, part: FailedPart, options: Options, limit: float) -> float | None:
    """A row; returns seconds from scratch over those of the repair."""
    effects = FailureEffects(KeptOrder.of(instance, plan))
    started = time.monotonic()
    found = repaired(instance, plan, effects, effects.of((part,)), options)
    seconds = time.monotonic() - started
    title = f"{instance.name:<22}{part.kind + ' ' + part.name:<14}"
    if found.objective is None:
        print(f"{title}{'no plan':>12}{'':>8}{seconds:>7.2f}", flush=True)
        return None
    gap = (found.objective - found.bound) / found.objective
    started = time.monotonic()
    scratch = solve(found.instance, "auto", replace(options, time_limit=limit, target=found.objective))
    anew = time.monotonic() - started
    mark = "" if scratch.objective is not None and scratch.objective <= found.objective else ">"
    both = f"{found.objective:>12}{gap:>8.2%}{seconds:>7.2f}{scratch.objective or '-':>12}"
    before = {job.name: job.gpus for job in plan.jobs}
    moved = "-" if scratch.plan is None else sum(job.gpus != before[job.name] for job in scratch.plan.jobs)
    print(f"{title}{both}{mark:>3}{anew:>6.2f}{anew / seconds:>7.1f}{len(found.moved):>7}{moved:>7}", flush=True)
    return anew / seconds


def two_uplinks(instance: Instance) -> Instance:
    """A second switch beside each switch, with slower links."""
    cluster, switches = instance.cluster, set(instance.cluster.switches)

    def other(name: str) -> str:
        return f"{name}-2" if name in switches else name

    second = [
        replace(
            link, name=f"{link.name}-2", ends=(other(link.ends[0]), other(link.ends[1])), bandwidth=link.bandwidth // 2
        )
        for link in cluster.links
    ]
    both = (*cluster.switches, *(f"{name}-2" for name in cluster.switches))
    cluster = replace(cluster, switches=both, links=(*cluster.links, *second))
    return replace(instance, name=f"{instance.name} twice", cluster=cluster)


def guaranteed_jobs(instance: Instance, plan: Plan, slack: float) -> Instance:
    """Deadlines some time behind the ends of a plan."""
    ends = {job.name: job_end(job) for job in plan.jobs}
    jobs = tuple(replace(job, deadline_us=math.ceil(slack * ends[job.name])) for job in instance.jobs)
    return replace(instance, jobs=jobs)


def survivable(name: str, slack: float, options: Options) -> None:
    bundled = instance_from(name)
    instance = two_uplinks(guaranteed_jobs(bundled, planned(bundled, options), slack))
    plain, kept = solve(instance, "auto", options), solve(instance, "auto", options, survivable=True)
    title = f"{name:<22}{slack:>6.2f}{plain.objective or '-':>12}"
    if plain.objective is None or kept.objective is None:
        print(f"{title}{'-':>12}  {kept.status}", flush=True)
        return
    assert plain.plan is not None
    breaking = sum(
        bool(each.stopped or each.broken) for each in each_failure(effects_on(instance, plain.plan), ("link",))
    )
    cost = kept.objective / plain.objective - 1
    print(f"{title}{kept.objective:>12}{cost:>9.1%}{kept.bound:>12}{breaking:>10}", flush=True)


def repairs(found: Sequence[tuple[Instance, Plan]], options: Options, limit: float) -> None:
    print(f"\n{'':<36}{'repaired':>12}{'gap':>8}{'s':>7}{'scratch':>12}{'s':>9}{'ratio':>7}{'moved':>7}{'moved':>7}")
    ratios = []
    for instance, plan in found:
        for kind in ("server", "switch", "link"):
            parts = parts_of(instance.cluster, (kind,))
            if parts and len(instance.cluster.servers) > 1:
                ratios.append(repair(instance, plan, parts[len(parts) // 3], options, limit))
    known = [ratio for ratio in ratios if ratio is not None]
    print(f"geometric mean of the ratios: {math.exp(sum(map(math.log, known)) / len(known)):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("instances", nargs="*", default=INSTANCES)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each plan, with and without --survivable")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for each solve from scratch")
    parser.add_argument("--slack", type=float, nargs="+", default=[1.3, 1.8, 2.2], help="deadlines over ends")
    asked = parser.parse_args()
    options = Options(asked.seconds, threads=2)
    instances = [instance_from(name) for name in asked.instances]
    found = [(instance, planned(instance, options)) for instance in instances]
    print(f"{'':<22}{'GPUs':>5}{'jobs':>6}{'failures':>9}{'stopping':>9}{'rerouting':>10}{'s':>8}{'CPU s':>8}")
    for instance, plan in found:
        report(instance, plan)
        twice = two_uplinks(instance)
        report(twice, planned(twice, options))
    repairs(found, Options(threads=2), asked.limit)
    print(f"\n{'':<22}{'slack':>6}{'plain':>12}{'survivable':>12}{'cost':>9}{'bound':>12}{'breaking':>10}")
    for name in GUARDED:
        for slack in asked.slack:
            survivable(name, slack, options)


if __name__ == "__main__":
    main()
