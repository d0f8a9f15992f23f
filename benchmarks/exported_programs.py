"""Exported programs in HiGHS against brute force: random finite instances with deadlines, policies, long durations.

Run ``PYTHONPATH=. python benchmarks/exported_programs.py [--count 200] [--seed 0]``. A row for each size of durations:
files solved (each instance as MPS and as LP), files infeasible, how many objectives are ours to half a microsecond, the
largest relative error of the others, and how many plans read back from the solutions have our objective. HiGHS runs
with ``mip_rel_gap`` 0, everything else as it is by default. Exit code 1 where feasibility differs, an objective is off
by more than 1e-6, or a plan that is read back breaks a rule.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from common import line

from jigsaw_opt.checking import check
from jigsaw_opt.documents.readers.solutions import read_solution
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.formulations.program_files import FileKind
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.solvers.ilp import model_document
from jigsaw_opt.solvers.ilp.solution import plan_of_solution
from tests.oracle import optimum
from tests.random_instances import random_instance, with_guarantees, with_route_policies

KINDS: tuple[FileKind, ...] = ("mps", "lp")
TOLERANCES = ("primal_feasibility_tolerance", "dual_feasibility_tolerance", "mip_feasibility_tolerance")
FACTORS = (1, 10**4, 10**8, 10**10)
MOST_ERROR = 1e-6
OBJECTIVES: tuple[Objective, ...] = ("makespan", "weighted_completion")


@dataclass(slots=True)
class Tally:
    """What the files of one size of durations came to."""

    counts: Counter[str] = field(default_factory=Counter)
    error: float = 0.0
    wrong: list[str] = field(default_factory=list)


def longer(instance: Instance, factor: int, random: Random) -> Instance:
    """The instance with times about `factor` times as long, most of them without a common divisor."""

    def time(short: int) -> int:
        return short * factor + (random.randint(0, factor // 2) if short and random.random() < 0.7 else 0)

    models = {
        name: replace(
            model,
            segments=tuple(
                replace(
                    segment,
                    forward_us={kind: time(short) for kind, short in segment.forward_us.items()},
                    backward_us={kind: time(short) for kind, short in segment.backward_us.items()},
                    parameter_bytes=segment.parameter_bytes * factor,
                )
                for segment in model.segments
            ),
        )
        for name, model in instance.models.items()
    }
    servers = tuple(replace(server, gpu_memory=server.gpu_memory * factor) for server in instance.cluster.servers)
    jobs = tuple(replace(job, release_us=time(job.release_us)) for job in instance.data_parallel)
    return replace(instance, cluster=replace(instance.cluster, servers=servers), models=models, jobs=jobs)


def instances(count: int, factor: int, seed: int) -> Iterator[tuple[Instance, int | None]]:
    """Instances with their optima; None where there is no plan. Half have deadlines, some at the very optimum."""
    found = 0
    while found < count:
        seed += 1
        random = Random(seed)
        instance = random_instance(seed, "finite", random.choice(OBJECTIVES), operations=7)
        if instance.cluster.links and random.random() < 0.4:
            instance = with_route_policies(instance, random)
        instance = longer(instance, factor, random)
        about = optimum(replace(instance, objective="makespan"))
        if about is not None:
            instance = with_guarantees(instance, random, about)
            tight = random.choice((None, about, about - 1))
            if tight:
                jobs = (replace(job, deadline_us=tight if job.deadline_us else None) for job in instance.jobs)
                instance = replace(instance, jobs=tuple(jobs))
        found += 1
        yield instance, optimum(instance)


def judge(instance: Instance, best: int | None, folder: Path, tally: Tally, tolerance: float | None = None) -> None:
    """Solve both files of an instance, with all tolerances as they are or the same, and compare."""
    import highspy

    for kind in KINDS:
        program, path = folder / f"program.{kind}", folder / "x.sol"
        program.write_bytes(model_document(instance, kind))
        engine = highspy.Highs()
        engine.setOptionValue("output_flag", False)
        engine.setOptionValue("mip_rel_gap", 0.0)
        for name in TOLERANCES if tolerance is not None else ():
            engine.setOptionValue(name, tolerance)
        engine.readModel(str(program))
        engine.run()
        engine.writeSolution(str(path), 0)
        tally.counts["files"] += 1
        try:
            solution = read_solution(path.read_bytes())
        except InvalidInputError:
            tally.counts["infeasible"] += best is None
            tally.wrong += [f"{instance.name}.{kind}: infeasible, not {best}"] if best is not None else []
            continue
        if best is None or solution.objective is None:
            tally.wrong.append(f"{instance.name}.{kind}: {solution.objective}, not {best}")
            continue
        error = abs(solution.objective - best)
        tally.counts["exact"] += error <= 0.5
        tally.error = max(tally.error, error / best if error > 0.5 else 0.0)
        plan = plan_of_solution(instance, solution)
        tally.counts["plans"] += plan.objective == best
        if check(instance, plan) or error > MOST_ERROR * best:
            tally.wrong.append(f"{instance.name}.{kind}: objective {solution.objective} for {best}, or a wrong plan")


def main() -> int:
    """Print a table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--factors", type=int, nargs="+", default=FACTORS, help="what durations are multiplied by")
    parser.add_argument("--tolerance", type=float, help="all of HiGHS's tolerances (left as they are)")
    arguments = parser.parse_args()
    wrong: list[str] = []
    print(line(("durations times", "files", "infeasible", "exact objective", "largest error", "exact plan", "wrong")))
    print(line(["---:"] * 7))
    for factor in arguments.factors:
        tally = Tally()
        with TemporaryDirectory() as folder:
            for instance, best in instances(arguments.count, factor, arguments.seed):
                judge(instance, best, Path(folder), tally, arguments.tolerance)
        counts = (tally.counts[name] for name in ("files", "infeasible", "exact"))
        row = (f"{factor:,}", *counts, f"{tally.error:.1e}", tally.counts["plans"], len(tally.wrong))
        print(line(row), flush=True)
        wrong += tally.wrong
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
