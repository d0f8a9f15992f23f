"""Burst-parallel plans beside the answers of DeepPool's planner: ``python benchmarks/bursts.py``.

Costs and answers are read from the measured data (``JIGSAW_SHARED``). The released recurrence is held to the planner's
times, the exact plan to an exact search under the same costs. With ``--fill SECONDS``, how far jobs of one GPU fill
what a burst leaves of its period, each solved so long.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

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
from jigsaw_opt.problem.shape import Shape, ShapedBlock, ShapedJob, Slot
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
FOLDER = SHARED / "data" / "pipeline"
PIECE_US = 500
FILLER = Shape((Slot("gpu"),), (ShapedBlock("piece", ("gpu",), {"gpu": PIECE_US}),))


def costs_of(answer: dict[str, Any]) -> BurstCosts:
    """Costs that an answer was worked out with; one GPU is in each of the documents."""
    gpus = max(2, answer["gpus"])
    rate = round(answer["net_bw_bytes_per_us"])
    name = f"costs_{answer['model']}_g{gpus}_b{answer['global_batch']}_bw{rate}.json"
    costs = read_burst_costs((FOLDER / "deeppool" / name).read_bytes(), source=name)
    return costs if answer["gpus"] > 1 else costs.limited(1)


def deviation(plan: BurstPlan, answer: dict[str, Any]) -> float:
    """The larger relative deviation of iteration time and GPU time."""
    pairs = ((plan.iteration_us, answer["iter_ms"]), (plan.gpu_us, answer["gpu_ms"]))
    return max(abs(own / 1e3 / other - 1) for own, other in pairs)


def row(answer: dict[str, Any], released: BurstPlan, exact: BurstPlan) -> str:
    """Both plans of a problem."""
    limit = answer["amp_limit"]
    cells = (
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
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fill", type=float, metavar="SECONDS", help="only fill bursts with other jobs")
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        print(f"no costs at {FOLDER}; JIGSAW_SHARED says where data/ is", file=sys.stderr)
        return 2
    if arguments.fill is not None:
        print_filled(arguments.fill)
        return 0
    print_answers()
    print_profiles()
    return 0


def print_answers() -> None:
    """Print all plans beside the answers, and the largest deviations."""
    worst = {"released": 0.0, "exact": 0.0, "data_parallel": 0.0}
    counts = dict.fromkeys(worst, 0)
    headers = ("model, batch", "GPUs", "bytes a us", "limit", "released ms", "exact ms", "released GPU ms")
    print(f"| {' | '.join((*headers, 'exact GPU ms', 'layers over the limit'))} |\n|{'---|' * 9}")
    for answer in json.loads((FOLDER / "reference_results.json").read_text(encoding="utf-8"))["deeppool"]:
        costs = costs_of(answer)
        if answer["mode"] == "data_parallel":
            found = [("data_parallel", widest_plan(costs), answer)]
        else:
            released, exact = (plan(costs, answer["amp_limit"]) for plan in (released_plan, exact_plan))
            found = [("released", released, answer)]
            if answer.get("exact_under_same_costs"):
                found.append(("exact", exact, answer["exact_under_same_costs"]))
            print(row(answer, released, exact))
        for kind, plan, other in found:
            counts[kind] += 1
            worst[kind] = max(worst[kind], deviation(plan, other))
    print()
    for kind, count in counts.items():
        print(f"{kind}: {count} answers, largest relative deviation {worst[kind]:.1e}")


def print_profiles() -> None:
    """Plans out of profiles on more GPUs, with a limit of 2 for each layer, or for the job."""
    headers = ("model, batch", "GPUs", "bytes a us", "data parallel ms", "(amplified)", "exact ms", "(amplified)")
    print(f"\n| {' | '.join((*headers, 'budget ms', '(amplified)', 'CPU s'))} |\n|{'---|' * 10}")
    for model, batch in (("vgg", 64), ("wrn", 32)):
        runs = read_deeppool_runs((FOLDER / "deeppool" / f"A100_{model}.prof").read_bytes())
        for rate, gpus in product((12500, 266000), (8, 16, 32, 64)):
            costs = profiled_costs(runs, BurstSetting(gpus, batch, rate))
            began = time.process_time()
            plans = widest_plan(costs), exact_plan(costs, 2.0), budget_plan(costs, 2.0)
            spent = time.process_time() - began
            found = [cell for it in plans for cell in (f"{it.iteration_us / 1e3:.2f}", f"{it.job_amplification:.2f}")]
            print(f"| {' | '.join((f'{model} {batch}', str(gpus), str(rate), *found, f'{spent:.2f}'))} |")


def print_filled(seconds: float) -> None:
    """Periods of bursts alone, and with jobs of one GPU in 90 % of the time in which no layer computes."""
    headers = ("model, batch", "GPUs", "plan", "alone us", "filled us", "bound us", "busy alone", "busy filled")
    print(f"| {' | '.join(headers)} |\n|{'---|' * len(headers)}")
    for model, batch, gpus, plan_of in (
        ("vgg", 64, 8, budget_plan),
        ("vgg", 64, 8, exact_plan),
        ("vgg", 64, 16, exact_plan),
        ("wrn", 32, 8, exact_plan),
    ):
        runs = read_deeppool_runs((FOLDER / "deeppool" / f"A100_{model}.prof").read_bytes())
        plan = plan_of(profiled_costs(runs, BurstSetting(gpus, batch, 266_000)), 2.0)
        options = Options(time_limit=seconds, workers=2)
        instance = burst_instance(plan, "burst", "cyclic")
        alone = solve(instance, options=options).objective
        assert alone is not None
        used = [sum(it.gpu_us for it in plan.options if it.gpus > gpu) for gpu in range(gpus)]
        pieces = [int(0.9 * (alone - busy) / PIECE_US) for busy in used]
        for gpu, count in enumerate(pieces):
            if count:
                instance = add_job(instance, ShapedJob(f"filler{gpu}", FILLER, count))
        filled = solve(instance, options=options)
        assert filled.objective is not None
        share = sum(used) / (gpus * alone), (sum(used) + PIECE_US * sum(pieces)) / (gpus * filled.objective)
        name = plan_of.__name__.removesuffix("_plan")
        cells = (
            f"{model} {batch}",
            gpus,
            name,
            alone,
            filled.objective,
            filled.bound,
            *(f"{100 * it:.1f} %" for it in share),
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
