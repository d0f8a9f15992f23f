"""Burst-parallel plans beside the answers of DeepPool's planner: ``python benchmarks/bursts.py``.

Costs and answers are read from the measured data (``JIGSAW_SHARED``). The released recurrence is held to the planner's
times, the exact plan to an exact search under the same costs. With ``--fill SECONDS``, how far jobs of one GPU fill
what a burst leaves of its period, each solved so long.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

from common import line, print_table, shared, timed

from jigsaw_opt.documents import add_job
from jigsaw_opt.documents.readers.burst_costs import BurstCosts, read_burst_costs
from jigsaw_opt.documents.readers.deeppool import read_deeppool_runs
from jigsaw_opt.planning.burst import (
    BurstPlan,
    BurstSetting,
    budget_plan,
    burst_instance,
    exact_plan,
    profiled_costs,
    released_plan,
    widest_plan,
)
from jigsaw_opt.problem.task_graph import Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

PIECE_US = 500
FILLER = TaskGraph((Slot("gpu"),), (TaskGraphBlock("piece", ("gpu",), {"gpu": PIECE_US}),))
ANSWER_HEADS = (
    *("model, batch", "GPUs", "bytes a us", "limit", "released ms", "exact ms"),
    *("released GPU ms", "exact GPU ms", "layers over the limit"),
)
PROFILE_HEADS = (
    *("model, batch", "GPUs", "bytes a us", "data parallel ms", "(amplified)", "exact ms", "(amplified)"),
    *("budget ms", "(amplified)", "CPU s"),
)
FILLED_HEADS = ("model, batch", "GPUs", "plan", "alone us", "filled us", "bound us", "busy alone", "busy filled")


def costs_of(answer: dict[str, Any]) -> BurstCosts:
    """Costs that an answer was worked out with; one GPU is in each of the documents."""
    gpus = max(2, answer["gpus"])
    rate = round(answer["net_bw_bytes_per_us"])
    name = f"costs_{answer['model']}_g{gpus}_b{answer['global_batch']}_bw{rate}.json"
    costs = read_burst_costs(shared("pipeline/deeppool", name).read_bytes(), source=name)
    return costs if answer["gpus"] > 1 else costs.limited(1)


def deviation(plan: BurstPlan, answer: dict[str, Any]) -> float:
    """The larger relative deviation of iteration time and GPU time."""
    pairs = ((plan.iteration_us, answer["iter_ms"]), (plan.gpu_us, answer["gpu_ms"]))
    return max(abs(own / 1e3 / other - 1) for own, other in pairs)


def row(answer: dict[str, Any], released: BurstPlan, exact: BurstPlan) -> Sequence[object]:
    """Both plans of a problem."""
    limit = answer["amp_limit"]
    return (
        f"{answer['model']} {answer['global_batch']}",
        answer["gpus"],
        round(answer["net_bw_bytes_per_us"]),
        limit,
        f"{released.iteration_us / 1e3:.3f}",
        f"{exact.iteration_us / 1e3:.3f}",
        f"{released.gpu_us / 1e3:.3f}",
        f"{exact.gpu_us / 1e3:.3f}",
        len(released.over(limit)),
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fill", type=float, metavar="SECONDS", help="only fill bursts with other jobs")
    arguments = parser.parse_args()
    shared("pipeline/deeppool")
    if arguments.fill is not None:
        print_table(FILLED_HEADS, filled(arguments.fill))
        return
    print_answers()
    print()
    print_table(PROFILE_HEADS, profiles())


def print_answers() -> None:
    """Print all plans beside the answers, and the largest deviations."""
    worst = {"released": 0.0, "exact": 0.0, "data_parallel": 0.0}
    counts = dict.fromkeys(worst, 0)
    print_table(ANSWER_HEADS, ())
    for answer in json.loads(shared("pipeline/reference_results.json").read_text(encoding="utf-8"))["deeppool"]:
        costs = costs_of(answer)
        if answer["mode"] == "data_parallel":
            found = [("data_parallel", widest_plan(costs), answer)]
        else:
            released, exact = (plan(costs, answer["amp_limit"]) for plan in (released_plan, exact_plan))
            found = [("released", released, answer)]
            if answer.get("exact_under_same_costs"):
                found.append(("exact", exact, answer["exact_under_same_costs"]))
            print(line(row(answer, released, exact)))
        for kind, plan, other in found:
            counts[kind] += 1
            worst[kind] = max(worst[kind], deviation(plan, other))
    print()
    for kind, count in counts.items():
        print(f"{kind}: {count} answers, largest relative deviation {worst[kind]:.1e}")


def plans_of(costs: BurstCosts) -> Sequence[BurstPlan]:
    """Data parallelism, and the plans with a limit of 2 for each layer, or for the job."""
    return widest_plan(costs), exact_plan(costs, 2.0), budget_plan(costs, 2.0)


def profiles() -> Iterator[Sequence[object]]:
    """Plans out of profiles on more GPUs, with a limit of 2 for each layer, or for the job."""
    for model, batch in (("vgg", 64), ("wrn", 32)):
        runs = read_deeppool_runs(shared("pipeline/deeppool", f"A100_{model}.prof").read_bytes())
        for rate, gpus in product((12500, 266000), (8, 16, 32, 64)):
            costs = profiled_costs(runs, BurstSetting(gpus, batch, rate))
            plans, spent = timed(partial(plans_of, costs))
            found = [
                cell for plan in plans for cell in (f"{plan.iteration_us / 1e3:.2f}", f"{plan.job_amplification:.2f}")
            ]
            yield (f"{model} {batch}", gpus, rate, *found, f"{spent:.2f}")


def filled(seconds: float) -> Iterator[Sequence[object]]:
    """Periods of bursts alone, and with jobs of one GPU in 90 % of the time in which no layer computes."""
    for model, batch, gpus, plan_of in (
        ("vgg", 64, 8, budget_plan),
        ("vgg", 64, 8, exact_plan),
        ("vgg", 64, 16, exact_plan),
        ("wrn", 32, 8, exact_plan),
    ):
        runs = read_deeppool_runs(shared("pipeline/deeppool", f"A100_{model}.prof").read_bytes())
        plan = plan_of(profiled_costs(runs, BurstSetting(gpus, batch, 266_000)), 2.0)
        options = Options(time_limit=seconds, threads=2)
        instance = burst_instance(plan, "burst", "cyclic")
        alone = solve(instance, options=options).objective
        assert alone is not None
        used = [sum(option.gpu_us for option in plan.options if option.gpus > gpu) for gpu in range(gpus)]
        pieces = [int(0.9 * (alone - busy) / PIECE_US) for busy in used]
        for gpu, count in enumerate(pieces):
            if count:
                instance = add_job(instance, TaskGraphJob(f"filler{gpu}", FILLER, count))
        filled = solve(instance, options=options)
        assert filled.objective is not None
        share = sum(used) / (gpus * alone), (sum(used) + PIECE_US * sum(pieces)) / (gpus * filled.objective)
        name = plan_of.__name__.removesuffix("_plan")
        yield (
            f"{model} {batch}",
            gpus,
            name,
            alone,
            filled.objective,
            filled.bound,
            *(f"{100 * each:.1f} %" for each in share),
        )


if __name__ == "__main__":
    main()
