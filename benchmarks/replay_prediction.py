"""Predicted against measured: models are profiled, a plan is found and carried out, all in one run on this machine.

Run it as ``python benchmarks/replay_prediction.py`` on a quiet machine with two cores. Two processes, a core each, are
two hosts with a link between them; three jobs share them. The table shows the makespan of the plan, of the best plan
at full depth, and of the same jobs one at a time, as predicted and as measured (median of the passes), with the
median error of blocks and transfers. Then what the staircase saves: in blocks and, as other jobs' blocks take the
place, in the makespan; and at four workers by the profile, for each model.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from jigsaw_opt.documents import save_instance, save_plan, write_atomically
from jigsaw_opt.documents.replay import encode_replay
from jigsaw_opt.executor.links import LinkFit, link_profile
from jigsaw_opt.executor.profiling import ModelProfile
from jigsaw_opt.executor.replay.baseline import at_full_depth
from jigsaw_opt.executor.replay.launch import replay
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.executor.side_by_side import profiles_side_by_side
from jigsaw_opt.executor.worker import TrainingRecipe
from jigsaw_opt.problem import Instance, Model
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.costs import staircase
from jigsaw_opt.problem.job import Job, StaircaseDepth
from jigsaw_opt.problem.replay import Policy, Replay, ReplaySummary
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

TYPE = "core"
LEVELS = 4


def entries(batch: int) -> dict[str, dict[str, object]]:
    """Four equal dense layers, whose backward pass takes about twice their forward pass, and a small decoder."""
    dense = {"inputs": 768, "hidden": [768, 768, 768], "classes": 768}
    decoder = {"layers": 4, "width": 64, "heads": 4, "rows": 64, "vocabulary": 256}
    return {
        "dense": {"zoo": "mlp", "arguments": dense, "batch_size": batch},
        "decoder": {"zoo": "gpt", "arguments": decoder, "batch_size": max(1, batch // 16)},
    }


def instance(models: dict[str, Model], link: LinkFit, iterations: int) -> Instance:
    """Two jobs with a worker on each host, and one with a single worker that fits into what they leave."""
    hosts = tuple(Server(name, TYPE, 1, 8 * 10**9, 10**10) for name in ("host0", "host1"))
    cable = Link("cable", ("host0", "host1"), link.bandwidth, round(link.latency_us))
    jobs = (
        Job("wide", "dense", 2, iterations, depth=StaircaseDepth()),
        Job("text", "decoder", 2, iterations, depth=StaircaseDepth()),
        Job("lone", "dense", 1, iterations),
    )
    return Instance("two cores", Cluster(hosts, (), (cable,)), models, jobs)


def saved_share(profile: ModelProfile, workers: int) -> float:
    """Share of the GPU-time of an iteration that the staircase saves, by the measured blocks."""
    blocks = [level.block.median for level in profile.levels]
    return 1 - fmean(blocks[level - 1] for level in staircase(len(blocks), workers)) / blocks[-1]


def row(title: str, values: Sequence[object]) -> None:
    print(f"{title:<34}" + "".join(f"{value!s:>14}" for value in values))


def report(title: str, summary: ReplaySummary) -> None:
    assert summary.measured_us is not None and summary.error is not None and summary.busy_measured is not None
    errors = [f"{error:+.1%}" for error in (summary.error, summary.block_error, summary.block_bias)]
    shares = [f"{share:.1%}" for share in (summary.busy_predicted, summary.busy_measured)]
    row(title, [summary.predicted_us, summary.measured_us, *errors, summary.transfer_error_us, *shares])


def block_us(found: Replay) -> int:
    """Time of all blocks in a pass."""
    iterations = [iteration for job in found.timeline.jobs for iteration in job.iterations]
    return round(sum(b.end_us - b.start_us for i in iterations for b in i.blocks) / found.timeline.passes)


def report_staircase(found: Replay, full: Replay) -> None:
    """What shallower levels save, and what becomes of it when both plans are as short as they can be."""
    row("blocks of a pass us, full depth", [block_us(full)])
    row("blocks of a pass us, staircase", [block_us(found), f"{block_us(found) / block_us(full) - 1:+.1%}"])
    assert found.summary.measured_us is not None and full.summary.measured_us is not None
    row("makespan, staircase to full", ["", f"{found.summary.measured_us / full.summary.measured_us - 1:+.1%}"])


def carried_out(
    problem: Instance, recipe: TrainingRecipe, asked: argparse.Namespace, baseline: Policy | None
) -> Replay:
    result = solve(problem, "auto", Options(time_limit=asked.seconds, threads=1))
    assert result.plan is not None and result.gap is not None
    print(f"plan of {problem.name}: {result.objective} us, gap {result.gap:.2%}")
    found = replay(
        ReplayRequest(
            problem,
            result.plan,
            passes=asked.passes,
            baseline=baseline,
            options=recipe.options,
            time_triggered=asked.time_triggered,
        )
    )
    assert found is not None
    if asked.folder:
        name = problem.name.replace(" ", "-")
        save_instance(problem, asked.folder / f"{name}.json")
        save_plan(result.plan, asked.folder / f"{name}.plan.json")
        write_atomically(asked.folder / f"{name}.replay.json", encode_replay(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1024, help="samples of the dense network")
    parser.add_argument("--iterations", type=int, default=3, help="of each job")
    parser.add_argument("--passes", type=int, default=5, help="times that each plan is carried out")
    parser.add_argument("--repeats", type=int, default=15, help="rounds of the profile")
    parser.add_argument("--baseline", choices=("gang", "fifo"), default="gang")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each plan")
    parser.add_argument("--time-triggered", action="store_true", help="start nothing before its planned start")
    parser.add_argument("--folder", type=Path, help="keep instances, plans and replays here")
    asked = parser.parse_args()
    recipe = TrainingRecipe("sgd", {"lr": 1e-3, "momentum": 0.9})
    chosen = entries(asked.batch)
    profiles = profiles_side_by_side(list(chosen.values()), LEVELS, 2, recipe, 3, asked.repeats)
    models = {name: found.model(TYPE, entry) for (name, entry), found in zip(chosen.items(), profiles, strict=True)}
    sizes = sorted({size for model in models.values() for size in model.bucket_bytes()})
    fit = link_profile(2, sizes, asked.repeats).fit
    print(f"link: {fit.bandwidth} bytes/s, {fit.latency_us:.0f} us a step")
    problem = instance(models, fit, asked.iterations)
    found = carried_out(problem, recipe, asked, asked.baseline)
    full = carried_out(replace(at_full_depth(problem), name=f"{problem.name}, full depth"), recipe, asked, None)
    row("\n", ["predicted us", "measured us", "error", "block error", "bias", "transfers us", "busy", "measured"])
    report("plan", found.summary)
    report("plan, full depth", full.summary)
    assert found.baseline is not None
    report(f"{asked.baseline}, full depth", found.baseline.summary)
    predicted, measured = found.speed_up() or (0.0, None)
    assert measured is not None
    row(
        f"speed-up over {asked.baseline}",
        [f"{predicted:.3f}", f"{measured:.3f}", f"{100 * (measured - predicted):+.1f} pt"],
    )
    report_staircase(found, full)
    row("\n", [*(f"level {d}" for d in range(1, LEVELS + 1)), "back/forward", "4 workers save"])
    for (name, model), profile in zip(models.items(), profiles, strict=True):
        ratio = sum(s.backward_us[TYPE] for s in model.segments) / sum(s.forward_us[TYPE] for s in model.segments)
        row(f"block us, {name}", [*model.block_us(TYPE), f"{ratio:.2f}", f"{saved_share(profile, 4):.1%}"])


if __name__ == "__main__":
    main()
