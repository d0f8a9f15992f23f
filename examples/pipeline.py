"""From a profile to a pipeline that shares its GPUs: cut a model, compare schedules, fill the bubbles with other jobs.

Run it as it stands: ``python examples/pipeline.py [TIMELINE.html]``. It writes the timeline there, or else to a
temporary file. The same by commands is in docs/pipelines.md, "Together".
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from jigsaw_opt.checking import check
from jigsaw_opt.documents import InstanceBuilder
from jigsaw_opt.documents.readers import read_layer_graph
from jigsaw_opt.planning.partition.result import Partition, best_partition
from jigsaw_opt.planning.pipeline.costs import costs_of
from jigsaw_opt.planning.pipeline.named import ORDERS
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import schedule_of
from jigsaw_opt.planning.pipeline.search import add_pipeline
from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.problem import Instance, Plan, Segment, StaircaseDepth
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.lanes import picture

GPUS, BYTES_PER_SECOND, MICRO_BATCHES = 3, 10**10, 4


def profile() -> str:
    """Return a chain of six equal layers as PipeDream's profiler writes it: milliseconds and bytes of a micro-batch."""
    cost = "forward_compute_time=2.0, backward_compute_time=4.0, activation_size=8000000, parameter_size=4000000"
    layers = [f"node{n} -- Linear({n}) -- {cost}" for n in range(6)]
    return "\n".join([*layers, *(f"\tnode{n} -- node{n + 1}" for n in range(5))]) + "\n"


def stages() -> Partition:
    """One stage for each GPU, the slowest as fast as possible."""
    graph = read_layer_graph(profile(), source="profile")
    return best_partition(graph, [GPUS], [BYTES_PER_SECOND], activations=True, replicate=False)


def others() -> Instance:
    """Return a server, and two data-parallel jobs whose workers backpropagate to different depths (SPB)."""
    builder = InstanceBuilder("together")
    builder.add_server(
        "s0", gpu_type="gpu", gpus=GPUS, gpu_memory=16 * 10**9, fabric_bandwidth=BYTES_PER_SECOND, fabric_latency_us=5
    )
    segments = [
        Segment(f"layer{n}", {"gpu": 1000}, {"gpu": 2000}, parameter_bytes=2 * 10**6, activation_bytes=10**7)
        for n in range(3)
    ]
    builder.add_model("net", segments)
    for name in ("a", "b"):
        builder.add_job(name, model="net", workers=2, iterations=1, depth=StaircaseDepth())
    return builder.build()


def together(pipeline: PipelineProblem) -> tuple[Instance, Plan]:
    """Return the pipeline as a third job, all of them scheduled by `auto` and checked."""
    instance = add_pipeline(others(), pipeline, "pipeline")
    result = solve(instance, "auto", Options(work_limit=5.0, threads=1))
    assert result.plan is not None
    assert not check(instance, result.plan)
    return instance, result.plan


def main(timeline: Path) -> None:
    """Print stages, schedules and what the jobs take together; draw it."""
    cut = stages()
    for number, stage in enumerate(cut.stages):
        print(f"stage {number}: {', '.join(stage.nodes)}; {stage.forward_us} + {stage.backward_us} us")
    pipeline = PipelineProblem(costs_of(cut), PipelineLayout(tuple(range(GPUS)), MICRO_BATCHES, False))
    for name in ("gpipe", "1f1b"):
        schedule = schedule_of(pipeline, ORDERS[name](pipeline.layout), "pipeline", name)
        print(f"{name}: {schedule.makespan_us} us, bubble {schedule.bubble:.1%}, {max(schedule.peak_bytes)} bytes")
    instance, plan = together(pipeline)
    print(f"together with two data-parallel jobs: {plan.objective} us, at least {plan.bound} us")
    timeline.write_text(timeline_html(picture(instance, plan)), encoding="utf-8")
    print(f"timeline in {timeline}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "together.html"))
