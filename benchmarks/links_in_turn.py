"""Fair sharing, time shifts and plans in turn: ``python benchmarks/links_in_turn.py [--lengths own] [--cases 20]``.

A case has four jobs of two workers on three racks, whose uplinks meet in one core switch; each worker has a server of
its own in the rack that is drawn for it, so every method has the same placement. Iterations alone are 80 to 200 ms long
(`own`: multiples of 10 ms; `harmonic`: 60, 120 or 240 ms; `pair`: two jobs of 100 and 130 ms). Transfers, a bucket
ready before the block ends and one after it, have the whole uplink, and are so long that the fullest uplink is loaded
to the percentage given, were each job to keep its length. Each row is a mean over the cases of the mean over the jobs
of the time of an iteration over that alone. *In step* are time shifts where a job that is late by more than 5 % of its
iteration waits for its next moment.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from jigsaw_opt.planning.shifts.affinity import TimeShifts, time_shifts
from jigsaw_opt.planning.shifts.jobs import RepeatedJob, draw_placement, repeated_jobs
from jigsaw_opt.planning.shifts.link_rates import simulate_shared
from jigsaw_opt.planning.shifts.ratios import RatioResult, best_ratios
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.contention import Exclusive, LinkSharing
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.operations import compile_instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

RACKS, RATE, DRIFT = 3, 10**9, 0.05
LOADS = (50, 80, 100, 120)
LENGTHS_MS: dict[str, Sequence[int]] = {"own": range(80, 201, 10), "harmonic": (60, 120, 240), "pair": (100, 130)}


@dataclass(frozen=True)
class Drawn:
    """A job: length of its iteration, weight of its transfers, and the racks of its two workers."""

    length_us: int
    weight: float
    racks: tuple[int, int]


@dataclass(frozen=True)
class Row:
    """One case at one load."""

    shifts: TimeShifts
    fair: float
    first_come: float
    shifted: float
    in_step: float
    ratios: RatioResult


def draw(kind: str, seed: int) -> list[Drawn]:
    rng = random.Random(f"{kind}/{seed}")
    if kind == "pair":
        return [Drawn(1000 * length, 1.0, (0, 1)) for length in LENGTHS_MS[kind]]
    jobs = []
    for _ in range(4):
        first, second = rng.sample(range(RACKS), 2)
        jobs.append(Drawn(1000 * rng.choice(LENGTHS_MS[kind]), rng.uniform(0.5, 1.5), (first, second)))
    return jobs


def model(job: Drawn, share: float, gpu_type: str) -> Model:
    """A model whose iteration alone takes the length of the job, `share` of it on the link."""
    half = round(share * job.length_us / 2)
    stem = job.length_us // 5
    block = job.length_us - half - max(0, half - stem)
    forward = (block - stem) // 3
    head = block - stem - forward
    segments = (
        Segment("stem", {gpu_type: forward}, {gpu_type: stem}, half * RATE // 10**6, 1),
        Segment("head", {gpu_type: 0}, {gpu_type: head}, half * RATE // 10**6, 1),
    )
    return Model(segments)


def instance(jobs: Sequence[Drawn], load: int) -> Instance:
    weights = [sum(job.weight for job in jobs if rack in job.racks) for rack in range(RACKS)]
    scale = load / 100 / max(weights)
    servers, links, models = [], [Link(f"up{k}", (f"rack{k}", "core"), RATE) for k in range(RACKS)], {}
    for number, job in enumerate(jobs):
        models[f"m{number}"] = model(job, min(0.8, scale * job.weight), f"g{number}")
        for rack in job.racks:
            name = f"s{number}-{rack}"
            servers.append(Server(name, f"g{number}", 1, 10**13, 10**12))
            links.append(Link(name, (name, f"rack{rack}"), 100 * RATE))
    switches = (*(f"rack{k}" for k in range(RACKS)), "core")
    cluster = Cluster(tuple(servers), switches, tuple(links))
    whole = tuple(Job(f"j{k}", f"m{k}", 2, 1) for k in range(len(jobs)))
    return Instance("links-in-turn", cluster, models, whole, "cyclic", "period")


def measure(kind: str, seed: int, load: int, work: float, most: int) -> Row:
    made = instance(draw(kind, seed), load)
    operations = compile_instance(made)
    placement = draw_placement(operations, 0)
    plan = solve(made, "greedy").plan
    assert placement is not None and plan is not None
    jobs = repeated_jobs(operations, placement, plan)
    bandwidths = [link.bandwidth for link in made.cluster.links]
    shifts = time_shifts(jobs, bandwidths)
    rng = random.Random(seed)
    starts = [[rng.randrange(job.cycle_us) for job in jobs] for _ in range(5)]
    return Row(
        shifts,
        mean(slowdown(jobs, bandwidths, start) for start in starts),
        mean(slowdown(jobs, bandwidths, start, Exclusive()) for start in starts),
        slowdown(jobs, bandwidths, shifts.shifts_us),
        slowdown(jobs, bandwidths, shifts.shifts_us, drift=DRIFT),
        best_ratios(made, [job.cycle_us for job in jobs], Options(work_limit=work, threads=1), most),
    )


def slowdown(
    jobs: Sequence[RepeatedJob],
    bandwidths: Sequence[int],
    starts: Sequence[int],
    sharing: LinkSharing | None = None,
    drift: float | None = None,
) -> float:
    run = simulate_shared(jobs, bandwidths, starts, sharing=sharing, drift=drift)
    return mean(us / job.alone_us for us, job in zip(run.iteration_us, jobs, strict=True))


def tell(load: int, rows: Sequence[Row]) -> None:
    shown = [row for row in rows if not row.shifts.has_cycle]
    columns = (
        mean(row.fair for row in rows),
        mean(row.first_come for row in rows),
        mean(row.shifted for row in rows),
        mean(row.in_step for row in rows),
        mean(row.ratios.plain.value for row in rows),
        mean(row.ratios.plain_bound for row in rows),
        mean(row.ratios.best.value for row in rows),
        mean(row.ratios.bound for row in rows),
        mean(row.shifts.unshifted for row in rows),
        mean(row.shifts.mean for row in rows),
        mean(row.shifts.bound for row in rows),
    )
    print(f"| {load} % | " + " | ".join(f"{value:.3f}" for value in columns) + " |")
    counts = {
        "without cycle": len(shown),
        "shifts optimal": sum(row.shifts.status == "optimal" for row in rows),
        "cycles rounded": sum(row.shifts.rounded for row in rows),
        "ratios optimal": sum(row.ratios.status == "optimal" for row in rows),
        "ratios below shifted": sum(row.ratios.best.value < row.shifted - 1e-3 for row in rows),
        "shifted below ratios": sum(row.shifted < row.ratios.best.value - 1e-3 for row in rows),
    }
    print(f"  {len(rows)} cases: " + ", ".join(f"{name} {count}" for name, count in counts.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", choices=tuple(LENGTHS_MS), default="own")
    parser.add_argument("--loads", type=int, nargs="+", default=LOADS, help="of the fullest uplink, in per cent")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--work", type=float, default=1.0, help="deterministic units of the solves of a case at a load")
    parser.add_argument("--most", type=int, default=4, help="the largest ratio")
    arguments = parser.parse_args()
    shared, planned = ("load", "fair", "first come", "shifts", "in step"), ("period", "bound", "ratios", "bound")
    headers = (*shared, *planned, "compatibility", "shifted", "bound")
    print(f"| {' | '.join(headers)} |\n|{'---|' * len(headers)}")
    cases = 1 if arguments.lengths == "pair" else arguments.cases
    for load in arguments.loads:
        rows = [measure(arguments.lengths, s, load, arguments.work, arguments.most) for s in range(cases)]
        tell(load, rows)


if __name__ == "__main__":
    main()
