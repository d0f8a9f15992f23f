"""Annealing the operation sequence at a placement, beside the list schedule that it begins with and CP-SAT on all jobs.

Run it as ``python benchmarks/orders.py rack/oversubscribed rack/weighted --seconds 30``. Placement and list schedule
are those that greedy begins with; nobody moves a worker. Both may choose levels anew, orders only by trades.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial

from jigsaw_opt.instances import load
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.problem.timetable import Timetable, objective_of
from jigsaw_opt.solvers.assignments.layout import Layout, demands
from jigsaw_opt.solvers.greedy.evaluation import Evaluator
from jigsaw_opt.solvers.greedy.heuristic import placements
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.moves.repair_model import RepairModel
from jigsaw_opt.solvers.search.problem_data import ProblemData
from jigsaw_opt.solvers.search.sequence_search import SequenceSearch
from jigsaw_opt.solvers.solve_state import SolveState


def best_list_schedule(data: ProblemData) -> Timetable:
    """The best list schedule of greedy's placements."""
    evaluator, count = Evaluator(data.operations, data.layout), len(data.operations.jobs)
    outcomes = [evaluator.evaluate(p, [1.0] * count, [0] * count) for p in placements(data.operations, data.demands)]
    return evaluator.timetable(min(outcomes, key=lambda outcome: outcome.value))


def by_orders(data: ProblemData, plan: Timetable, steps: int, seed: int) -> Timetable:
    """Orders annealed for some steps."""
    sequencing = SequenceSearch(data, random.Random(seed))
    given = sequencing.given(plan)
    return sequencing.timetable(sequencing.anneal(given, given.assignments, steps, 0.003, lambda operations: False))


def by_cpsat(data: ProblemData, plan: Timetable, seconds: float, seed: int) -> Timetable:
    """All jobs timed anew by CP-SAT, again and again from the best plan."""
    options = Options(time_limit=seconds, threads=1, seed=seed)
    solve_state = SolveState("benchmark", data.operations, options, lambda event: None)
    solve_state.offer(plan)
    retiming = RepairModel(solve_state, data, Engine(Budget(solve_state)))
    while solve_state.reason() is None:
        better = retiming.improve(plan, range(len(plan.jobs)), seconds)
        if better is None:
            break
        plan = better
        solve_state.offer(plan)
    return plan


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("instances", nargs="+")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print("| instance | by | seed | objective | s |")
    print("|---|---|---|---|---|")
    for name in arguments.instances:
        operations = compile_instance(load(name))
        asked = demands(operations)
        assert asked is not None
        data = ProblemData(operations, Layout(operations), asked)
        plan = best_list_schedule(data)
        print(f"| {name} | list schedule | | {objective_of(operations, plan.jobs)} | |", flush=True)
        ways: dict[str, Callable[[int], Timetable]] = {
            f"orders, {steps} steps": partial(by_orders, data, plan, steps) for steps in (1_000, 10_000, 100_000)
        }
        ways["CP-SAT"] = partial(by_cpsat, data, plan, arguments.seconds)
        for way, find in ways.items():
            for seed in range(arguments.seeds):
                began = time.monotonic()
                found = find(seed)
                took = time.monotonic() - began
                print(f"| {name} | {way} | {seed} | {objective_of(operations, found.jobs)} | {took:.2f} |", flush=True)


if __name__ == "__main__":
    main()
