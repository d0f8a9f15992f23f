"""Disjunctive or time-indexed: size, root bound and time to the proof of both programs on the same instances.

Jobs of one server with two GPUs, whose times are multiples of a step; the finer the step, the more moments
a time-indexed program has. Prints one row a resolution, means over some seeds:
``python benchmarks/ilp_time_indexed.py [--seeds 3] [--time-limit 30]``.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from statistics import fmean

from common import timed

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.ilp_timetable import build, objective_step, windows
from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.problem import (
    Cluster,
    Instance,
    Job,
    Model,
    OperationGraph,
    Operations,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem.critical import candidate_levels, tails_us
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.engines.highs import Setting, solve_program
from jigsaw_opt.solvers.engines.mip import Ending
from jigsaw_opt.solvers.greedy import greedy_timetable

TYPE = "v"


def instance(seed: int, finest: int) -> Instance:
    """Four jobs of one or two workers; the longest backward pass of a segment lasts `finest` steps of a microsecond."""
    source = random.Random(seed)
    models, jobs = {}, []
    for k in range(4):
        segments = tuple(
            Segment(f"g{n}", {TYPE: source.randint(1, finest // 2)}, {TYPE: source.randint(1, finest)}, 0, 0)
            for n in range(2)
        )
        models[f"m{k}"] = Model(segments)
        jobs.append(Job(f"j{k}", f"m{k}", 1 + k % 2, 2, weight=source.randint(1, 5), depth=StaircaseDepth()))
    cluster = Cluster((Server("s", TYPE, 2, 1, 1),))
    return Instance(f"grid-{seed}", cluster, models, tuple(jobs), "finite", "weighted_completion")


def disjunctive(operations: Operations, limit: int) -> AlgebraicModel:
    return build(operations, windows(operations, limit), 0, limit).program


def time_indexed(operations: Operations, limit: int) -> AlgebraicModel:
    """One 0-1 variable for each block, GPU, level and moment; exact here, where transfers take no time."""
    program, step = AlgebraicModel("time_indexed"), objective_step(operations)
    busy: dict[tuple[int, int], list[Expression]] = {}
    ends = []
    for number, (job, window) in enumerate(zip(operations.jobs, windows(operations, limit), strict=True)):
        moments = range(window.release, window.deadline + 1, step)
        ends.append(_add_job(program, number, job, moments, busy))
    for (gpu, moment), running in busy.items():
        program.add(program.total(running) <= 1, f"busy_{gpu}_{moment}")
    total = program.time("total", 0, limit)
    weighted = (job.weight * end for job, end in zip(operations.jobs, ends, strict=True))
    program.add(total == program.total(weighted), "total")
    program.minimize(total)
    return program


def _add_job(
    program: AlgebraicModel,
    number: int,
    job: OperationGraph,
    moments: range,
    busy: dict[tuple[int, int], list[Expression]],
) -> Expression:
    times, gpus = job.blocks[0].duration_us[TYPE], range(2)
    here = [program.binary(f"here_{number}_{g}") for g in gpus]
    program.add(program.total(here) == job.slots, f"slots_{number}")
    barrier: Expression = moments[0]
    for i in range(job.iterations):
        end = program.time(f"end_{number}_{i}", 0, moments[-1])
        chosen: dict[int, list[Expression]] = {}
        for g in gpus:
            starts = {
                (d, t): program.binary(f"start_{number}_{i}_{g}_{d}_{t}")
                for d in candidate_levels(job)
                for t in moments
                if t + times[d - 1] <= moments[-1]
            }
            row = f"{number}_{i}_{g}"
            program.add(program.total(starts.values()) == here[g], f"started_{row}")
            tails = tails_us(times, [0] * len(job.transfers))
            program.add(end >= program.total((t + tails[d - 1]) * x for (d, t), x in starts.items()), f"ended_{row}")
            begin = program.total(t * x for (_, t), x in starts.items())
            program.add(begin >= barrier - (1 - here[g]) * moments[-1], f"begun_{row}")
            for (d, t), x in starts.items():
                chosen.setdefault(d, []).append(x)
                for running in range(t, t + times[d - 1], moments.step):
                    busy.setdefault((g, running), []).append(x)
        for d, literals in chosen.items():
            program.add(program.total(literals) == (job.rule.multiset or ()).count(d), f"level_{number}_{i}_{d}")
        barrier = end
    return barrier


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured of one program."""

    columns: int
    root: float
    seconds: float
    objective: float
    proven: bool


def measure(model: AlgebraicModel, step: int, seconds: float) -> Row:
    scaled = ScaledProgram(model.program())
    limit: dict[str, Setting] = {"time_limit": seconds}
    root = solve_program(scaled.program, limit | {"solve_relaxation": True}).objective * scaled.objective
    exact: dict[str, Setting] = {"mip_rel_gap": 0.0, "mip_abs_gap": step / 2 / scaled.objective}
    found, spent = timed(lambda: solve_program(scaled.program, limit | exact))
    columns, proven = len(scaled.program.costs), found.ending is Ending.SOLVED
    return Row(columns, root, spent, found.objective * scaled.objective, proven)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=30.0)
    arguments = parser.parse_args()
    print(f"{'steps':>6}  {'program':<13} {'columns':>8} {'root/best':>9} {'CPU s':>8} {'proven':>7}")
    for finest in (4, 10, 30):
        rows: dict[str, list[Row]] = {"disjunctive": [], "time-indexed": []}
        for seed in range(arguments.seeds):
            operations = compile_instance(instance(seed, finest))
            warm = greedy_timetable(operations)
            if warm is None:
                raise SystemExit(f"no plan for seed {seed}")
            limit, step = objective_of(operations, warm.jobs), objective_step(operations)
            rows["disjunctive"].append(measure(disjunctive(operations, limit), step, arguments.time_limit))
            rows["time-indexed"].append(measure(time_indexed(operations, limit), step, arguments.time_limit))
        best = [min(pair, key=lambda row: row.objective).objective for pair in zip(*rows.values(), strict=True)]
        for name, measured in rows.items():
            root = fmean(row.root / value for row, value in zip(measured, best, strict=True))
            columns, seconds = fmean(row.columns for row in measured), fmean(row.seconds for row in measured)
            proofs = f"{sum(row.proven for row in measured)}/{len(measured)}"
            print(f"{finest:>6}  {name:<13} {columns:>8.0f} {root:>9.3f} {seconds:>8.2f} {proofs:>7}", flush=True)


if __name__ == "__main__":
    main()
