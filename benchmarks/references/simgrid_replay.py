"""Ends of transfers and of plans beside those of SimGrid, a network simulator that nobody here wrote.

Random transfers share random links by max-min fair rates, with the bounds of their rates alone. Jobs that repeat their
iterations do so as in `jigsaw shifts`. Activities of plans begin when the plan says so, or once all that they wait for
has ended: what meets on a GPU or a link would take longer in SimGrid. They are also carried out in the plan's order,
each as early as it may start, beside `ActivityNetwork.earliest`.
``JIGSAW_SIMGRID`` names the interpreter that has SimGrid, where that is another one (Debian: package python3-simgrid).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from jigsaw_opt.instances import load, names
from jigsaw_opt.planning.shifts.jobs import OwnIteration, RepeatedJob
from jigsaw_opt.planning.shifts.link_rates import simulate_shared
from jigsaw_opt.problem import Plan, compile_instance
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.network.contention import FairSharing
from jigsaw_opt.solvers.activities.flat import network_of
from jigsaw_opt.solvers.solve import solve

HEADS = ("cases", "number", "ends", "largest relative difference")
SETS = ("tiny", "server", "rack", "pod", "pipeline", "shop")
Case = dict[str, Any]
Flow = tuple[int, int, Channel]
"""Start in microseconds, bytes, and what the flow uses."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flow-sets", type=int, default=200, metavar="N", help="random sets of transfers (default: 200)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random sets (default: 0)")
    parser.add_argument("--sets", nargs="*", default=SETS, help="bundled sets: greedy's plans of the finite horizon")


def interpreter() -> str:
    return os.environ.get("JIGSAW_SIMGRID", sys.executable)


def answers(cases: Sequence[Case]) -> list[list[list[float]]]:
    """What SimGrid says of the cases: by case, task and part, the end in seconds."""
    program = [interpreter(), str(Path(__file__).with_name("simgrid_process.py"))]
    done = subprocess.run(program, input=json.dumps(cases), text=True, capture_output=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"SimGrid did not run ({' '.join(program)}): {done.stderr.strip()[-2000:]}")
    found: list[list[list[float]]] = json.loads(done.stdout)
    return found


def random_flows(rng: random.Random) -> tuple[list[int], list[Flow]]:
    """Bandwidths of some links, and flows over some of them."""
    bandwidths = [
        rng.choice((rng.randint(1, 100) * 10**8, 10**9, rng.randint(10**8, 10**10))) for _ in range(rng.randint(1, 8))
    ]
    flows = []
    for _ in range(rng.randint(1, 12)):
        links = tuple(sorted(rng.sample(range(len(bandwidths)), rng.randint(1, min(4, len(bandwidths))))))
        rate = min(bandwidths[k] for k in links)
        rate = rng.choice((rate, rate, rng.randint(rate // 20, rate)))  # GPUs may be slower than the links
        flows.append((rng.choice((0, 0, rng.randint(0, 10**6))), rng.randint(1, 10**9), Channel(links, rate, 0)))
    return bandwidths, flows


def fair_ends(bandwidths: Sequence[int], flows: Sequence[Flow]) -> list[Fraction]:
    """Ends of the flows in seconds, exactly: rates change where a flow begins or ends."""
    left = [Fraction(size) for _, size, _ in flows]
    ends: dict[int, Fraction] = {}
    now = Fraction(0)
    while len(ends) < len(flows):
        sending = [k for k, (start, _, _) in enumerate(flows) if Fraction(start, 10**6) <= now and k not in ends]
        rates = FairSharing().rates([flows[k][2] for k in sending], bandwidths)
        moments = [now + left[k] / rate for k, rate in zip(sending, rates)]
        following = min([*moments, *(t for start, _, _ in flows if (t := Fraction(start, 10**6)) > now)])
        for k, rate in zip(sending, rates):
            left[k] -= rate * (following - now)
            if not left[k]:
                ends[k] = following
        now = following
    return [ends[k] for k in range(len(flows))]


def flow_case(bandwidths: Sequence[int], flows: Sequence[Flow]) -> Case:
    tasks = [
        {"release": start / 10**6, "after": [], "links": flow.links, "bytes": size, "rate": flow.rate}
        for start, size, flow in flows
    ]
    return {"bandwidths": bandwidths, "tasks": tasks}


def plan_network(instance: Instance, plan: Plan) -> tuple[ActivityNetwork, list[int]]:
    """The activities of a plan, jobs with a task graph last, and the start of each in the plan."""
    operations = compile_instance(instance)
    place = operations.cluster.gpus.place_of
    of = {job.name: job for job in plan.jobs}
    jobs = [of[job.name] for job in operations.jobs] + [of[graph.job.name] for graph in operations.task_graphs]
    levels = [[[block.level for block in row.blocks] for row in job.iterations] for job in jobs[: len(operations.jobs)]]
    network = network_of(operations, [[place[name] for name in job.gpus] for job in jobs], levels, within_slots=True)
    starts = [block.start_us for job in jobs for row in job.iterations for block in (*row.blocks, *row.transfers)]
    return network, starts


def plan_case(network: ActivityNetwork, starts: Sequence[int], in_turn: bool) -> tuple[Case, list[list[int]]]:
    """A plan, and by activity its tasks: one for each GPU of a block.

    GPUs and links take activities in turn as early as they may, or everything begins when the plan says so.
    """
    cuts: list[set[int]] = [{activity.duration_us} for activity in network.activities]
    for before, _, periods, offset in network.waits:
        if periods == 0 and offset is not None:
            cuts[before].add(offset)
    parts = [sorted(own) for own in cuts]
    tasks: list[Case] = []
    of: list[list[int]] = []
    for each, own, start in zip(network.activities, parts, starts):
        seconds = [(b - a) / 10**6 for a, b in zip((0, *own), own)]
        common = {"release": (each.release_us if in_turn else start) / 10**6}
        if each.gpus:
            new = [{**common, "after": [], "gpu": "/".join(map(str, gpu)), "parts": seconds} for gpu in each.gpus]
        else:
            rate = min([network.routes.cluster.links[k].bandwidth for k in each.links], default=10**9)
            size = each.duration_us * rate
            new = [{**common, "after": [], "links": each.links, "bytes": size // 10**6, "rate": rate}]
        of.append(list(range(len(tasks), len(tasks) + len(new))))
        tasks += new
    waits = [
        (before, after, -1 if offset is None else parts[before].index(offset))
        for before, after, periods, offset in network.waits
        if periods == 0
    ]
    last: dict[object, int] = {}
    for number in in_order(starts):
        each = network.activities[number]
        for used in (*each.gpus, *each.links) if each.duration_us and in_turn else ():
            if used in last:
                waits.append((last[used], number, -1))
            last[used] = number
    for before, after, part in waits:
        ends = [[task, len(tasks[task].get("parts", (0,))) - 1 if part < 0 else part] for task in of[before]]
        for task in of[after]:
            tasks[task]["after"] += ends
    return {"bandwidths": [link.bandwidth for link in network.routes.cluster.links], "tasks": tasks}, of


def in_order(starts: Sequence[int]) -> list[int]:
    return sorted(range(len(starts)), key=lambda k: (starts[k], k))


def difference(found: float, exact: Fraction | float) -> float:
    """The relative difference of two ends."""
    return abs(found - float(exact)) / float(exact) if exact else abs(found)


def worst(pairs: Sequence[tuple[float, Fraction | float]]) -> str:
    return f"{max(difference(*pair) for pair in pairs):.0e}"


def flow_row(number: int, seed: int) -> Sequence[object]:
    drawn = [random_flows(random.Random(f"{seed}/{k}")) for k in range(number)]
    found = answers([flow_case(*flows) for flows in drawn])
    pairs = [
        (end, exact)
        for flows, tasks in zip(drawn, found)
        for (end,), exact in zip(tasks, fair_ends(*flows), strict=True)
    ]
    return "transfers that share links", number, len(pairs), worst(pairs)


def repeated_case(rng: random.Random) -> tuple[Case, list[tuple[list[list[int]], float]]]:
    """Jobs that `simulate_shared` repeats under ``fair``, and of each when its last iteration ends."""
    bandwidths = [rng.randint(1, 100) * 10**8 for _ in range(3)]
    jobs, shifts = [], []
    for number in range(rng.randint(2, 5)):
        ready = tuple(sorted(rng.sample(range(1, 200_000), rng.randint(1, 4))))
        own = OwnIteration(ready[-1] + rng.randint(0, 10**5), ready, tuple(rng.randint(1, 10**5) for _ in ready))
        links = tuple(sorted(rng.sample(range(3), rng.randint(1, 3))))
        jobs.append(RepeatedJob(f"j{number}", Channel(links, min(bandwidths[k] for k in links), 0), (own,)))
        shifts.append(rng.randint(0, 10**6))
    ours = simulate_shared(jobs, bandwidths, shifts, iterations=8, warm_up=0)
    tasks: list[Case] = []
    last = []
    for number, (job, shift, finished, mean) in enumerate(zip(jobs, shifts, ours.iterations, ours.iteration_us)):
        (own,), after = job.iterations, []
        cuts = sorted({*own.ready_us, own.compute_us})
        parts = [(b - a) / 10**6 for a, b in zip((0, *cuts), cuts)]
        for iteration in range(finished + 1):  # the one under way at the end uses links, too
            block = len(tasks)
            tasks.append({"release": shift / 10**6, "after": after, "gpu": number, "parts": parts})
            after = [[block, len(parts) - 1]]
            for k, (ready, length) in enumerate(zip(own.ready_us, own.exchange_us)):
                waits = [[block, cuts.index(ready)], *([[len(tasks) - 1, 0]] if k else [])]
                size = length * job.channel.rate // 10**6  # exact: rates are whole bytes a microsecond
                sent = {"links": job.channel.links, "bytes": size, "rate": job.channel.rate}
                tasks.append({"release": 0, "after": waits, **sent})
            after.append([len(tasks) - 1, 0])
            if iteration == finished - 1:
                last.append((after, (shift + mean * finished) / 10**6))
    return {"bandwidths": bandwidths, "tasks": tasks}, last


def repeated_row(number: int, seed: int) -> Sequence[object]:
    cases = [repeated_case(random.Random(f"repeated/{seed}/{k}")) for k in range(number)]
    pairs = []
    for (_, last), tasks in zip(cases, answers([case for case, _ in cases])):
        pairs += [(max(tasks[task][part] for task, part in after), ours) for after, ours in last]
    return "jobs that repeat and share links", number, len(pairs), worst(pairs)


def plan_row(group: str, in_turn: bool) -> Sequence[object]:
    """Greedy's plans of a bundled set, for greedy leaves gaps in some of them."""
    found = (load(name) for name in names() if name.startswith(f"{group}/"))
    instances = [instance for instance in found if instance.horizon == "finite"]
    plans = [(instance, plan) for instance in instances if (plan := solve(instance, "greedy").plan) is not None]
    networks = [plan_network(*each) for each in plans]
    cases = [plan_case(*each, in_turn) for each in networks]
    pairs = []
    for (network, starts), (_, of), tasks in zip(networks, cases, answers([case for case, _ in cases])):
        ours = network.earliest(in_order(starts)) if in_turn else starts
        ends = [(start + each.duration_us) / 10**6 for start, each in zip(ours, network.activities)]
        pairs += [(tasks[task][-1], end) for own, end in zip(of, ends) for task in own]
    how = "in their order" if in_turn else "at their starts"
    return f"plans of `{group}`, {how}", len(plans), len(pairs), worst(pairs)


def rows(asked: argparse.Namespace) -> Iterator[Sequence[object]]:
    if asked.flow_sets:
        yield flow_row(asked.flow_sets, asked.seed)
        yield repeated_row(asked.flow_sets // 4, asked.seed)
    for group in asked.sets:
        yield from (plan_row(group, in_turn) for in_turn in (False, True))
