"""A pipeline whose holes are filled, carried out: the foreground's slow-down and what the background gets.

``python benchmarks/filled_run.py`` measures a pipeline of two stages and a network that an SPB job of two workers
trains, fits the link, fills, and carries the plan out on two processes, and the pipeline alone. Run it on a quiet
machine with two cores.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from fractions import Fraction

from pipelines_run import Measured, measured

from jigsaw_opt.executor.links import LinkFit, link_profile
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.executor.run_plan import run_plan
from jigsaw_opt.executor.side_by_side import profiles_side_by_side
from jigsaw_opt.executor.worker import TrainingRecipe
from jigsaw_opt.planning.fill import FillResult, fill
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.stages import PipelineCosts, PipelineProblem
from jigsaw_opt.planning.pipeline.together import add_pipeline
from jigsaw_opt.problem import Instance, Model
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.job import Job, StaircaseDepth
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.options import Options

TYPE = "core"
TRAIN = "pipelines_run:dense"


def instance(model: Model, link: LinkFit, costs: Measured, asked: argparse.Namespace) -> Instance:
    """The pipeline and the SPB job on two hosts with a link between them."""
    hosts = tuple(Server(name, TYPE, 1, 8 * 10**9, 10**10) for name in ("host0", "host1"))
    cable = Link("cable", ("host0", "host1"), link.bandwidth, round(link.latency_us))
    spb = Job("spb", "dense", 2, 1, depth=StaircaseDepth())
    alone = Instance("filled", Cluster(hosts, (), (cable,)), {"dense": model}, (spb,), "cyclic", "period")
    sent = (4 * asked.samples * asked.width,)
    stages = PipelineCosts(costs.forward, costs.backward, (), (), sent)
    whole = add_pipeline(alone, PipelineProblem(stages, PipelineLayout((0, 1), asked.micro_batches, False)), "pipe")
    pipe = whole.jobs[-1]
    assert isinstance(pipe, TaskGraphJob)
    arguments = {"count": 2, "width": asked.width, "samples": asked.samples * asked.micro_batches}
    return replace(whole, jobs=(spb, replace(pipe, executor={"train": TRAIN, "arguments": arguments, "cuts": []})))


def report(filled: FillResult, asked: argparse.Namespace) -> None:
    """Carry the plan out, and print planned and measured times and rates."""
    settings = {"trusted": (TRAIN,), "options": {"lr": 1e-4, "momentum": 0.9}, "passes": asked.passes}
    found = run_plan(ReplayRequest(filled.instance, filled.plan, baseline="alone", **settings))
    assert found is not None and found.baseline is not None and found.baseline.together is not None
    together, alone, slow_down = found.baseline.together, found.baseline.summary, found.slow_down()
    assert slow_down is not None and slow_down[1] is not None
    print(f"period alone us     planned {alone.predicted_us:9}  measured {alone.measured_us:9}")
    print(f"period together us  planned {together.planned_us:9}  measured {together.measured_us:9}")
    print(f"slow-down           planned {slow_down[0]:9.3f}  measured {slow_down[1]:9.3f}")
    for name in filled.iterations:
        planned, took = found.cycles[name].rates()
        print(f"{name} a second        planned {planned:9.2f}  measured {took or 0:9.2f}")


def main() -> None:
    """Measure, fill, carry out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024, help="width of the stages' matrices (default: 1024)")
    parser.add_argument("--samples", type=int, default=256, help="rows of a micro-batch (default: 256)")
    parser.add_argument("--micro-batches", type=int, default=4, help="micro-batches of a step (default: 4)")
    parser.add_argument("--batch", type=int, default=256, help="samples of the SPB job's batch (default: 256)")
    parser.add_argument("--rounds", type=int, default=10, help="times that each pass is measured (default: 10)")
    parser.add_argument("--passes", type=int, default=20, help="periods that are carried out (default: 20)")
    allowed = [Fraction("1.1"), Fraction("1.3")]
    parser.add_argument("--slowdowns", type=Fraction, nargs="+", default=allowed, help="allowed (default: 1.1 1.3)")
    parser.add_argument("--work-limit", type=float, default=5.0, help="of each filling (default: 5)")
    asked = parser.parse_args()
    costs = measured(2, asked.width, asked.samples, asked.rounds)
    entry = {
        "zoo": "mlp",
        "arguments": {"inputs": 768, "hidden": [768, 768], "classes": 768},
        "batch_size": asked.batch,
    }
    recipe = TrainingRecipe("sgd", {"lr": 1e-4, "momentum": 0.9})
    [profile] = profiles_side_by_side([entry], 3, 2, recipe, 3, asked.rounds)
    model = profile.model(TYPE, entry)
    link = link_profile(2, sorted({*model.bucket_bytes(), 4 * asked.samples * asked.width}), asked.rounds).fit
    print(f"load: {os.getloadavg()[0]:.2f}; stages {costs}")
    print(f"link: {link.bandwidth} bytes/s, {link.latency_us:.0f} us a step; block us {model.block_us(TYPE)}")
    whole = instance(model, link, costs, asked)
    for slowdown in asked.slowdowns:
        filled = fill(whole, ["pipe"], Options(work_limit=asked.work_limit, threads=1), slowdown=slowdown)
        print(f"\nslow-down of {float(slowdown):g} allowed; iterations a period: {dict(filled.iterations)}")
        if any(filled.iterations.values()):
            report(filled, asked)


if __name__ == "__main__":
    main()
