"""Cuts and schedule decided together, beside the slowest-stage cut and then its best order.

Run it as ``PYTHONPATH=. python benchmarks/joint_pipelines.py [--devices 4,8] [--seconds 10]``. Profiles are PipeDream's
and DAPPLE's, and BERT of Piper, in the measured data (``JIGSAW_SHARED``). Neighbours send 12 GB a second, and there are
four micro-batches a device. The cut beside is that of `partition` without copies, and its order what `auto` finds from
the named schedules in half of the time. Tight memory is what 1F1B holds on that cut at most. ``--chains 100`` compares
proven optima of small chains with brute force over all cuts, and over both placements with two stages a device.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from common import print_table, shared, timed

from jigsaw_opt.documents.readers import read_layer_graph
from jigsaw_opt.documents.readers.piper import read_piper
from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.joint import PipelineChoices, plan_pipeline
from jigsaw_opt.planning.joint.choices import configurations
from jigsaw_opt.planning.partition import Level, partition
from jigsaw_opt.planning.pipeline.orders import ORDERS, PipelineLayout
from jigsaw_opt.planning.pipeline.partition_costs import costs_of
from jigsaw_opt.planning.pipeline.schedule import peak_bytes
from jigsaw_opt.planning.pipeline.search import search_schedule
from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.problem.layers import LayerGraph, MeasuredLayer
from jigsaw_opt.solvers.options import Options
from tests.planning.test_joint import case, least_by_cut

HEADS = ("profile", "devices", "memory", "cut, then order", "together", "shorter", "bound", "gap", "CPU s")
RATE = 12 * 10**9


def profiles() -> Iterator[tuple[str, LayerGraph]]:
    """All profiles by name."""
    for path in sorted([*shared("pipeline", "pipedream").glob("*.txt"), *shared("pipeline", "dapple").glob("*.txt")]):
        yield f"{path.parent.name}/{path.name.split('.')[0]}", read_layer_graph(path.read_bytes(), source=path.name)
    yield "piper/bert32a100", of_piper(shared("pipeline", "piper", "bert32a100.json"))


def of_piper(path: Path) -> LayerGraph:
    """A workload of Piper whose times are seconds, on one device a node; what is computed again is the forward pass."""
    graph = read_piper(path.read_bytes(), source=path.name)
    sent = [0.0] * len(graph.nodes)
    for edge in graph.edges:
        sent[edge.source] = max(sent[edge.source], edge.bytes)
    layers = []
    for node, output in zip(graph.nodes, sent, strict=True):
        plain, again = (
            next(option for option in node.options[1] if option.name.startswith(name)) for name in ("van", "act")
        )
        forward, whole = (round(1e6 * time) for time in (again.time - plain.time, plain.time))
        sizes = (int(plain.static_bytes), int(plain.flight_bytes))
        layers.append(MeasuredLayer(str(node.number), forward, whole - forward, *sizes, None, int(output)))
    return LayerGraph(tuple(layers), tuple((edge.source, edge.target) for edge in graph.edges))


def cut_then_order(graph: LayerGraph, devices: int, memory: int | None, seconds: float) -> tuple[int | None, int]:
    """The step of the slowest-stage cut with its best order, and what 1F1B holds on it at most."""
    found = partition(graph, [Level(devices, RATE)], replicate=False, activations=True)
    problem = PipelineProblem(costs_of(found), PipelineLayout(tuple(range(devices)), 4 * devices, False), memory)
    _, result = search_schedule(problem, "beside", "finite", Options(time_limit=seconds, threads=1))
    return result.objective, max(peak_bytes(problem, ORDERS["1f1b"](problem.layout)))


def rows(devices: Sequence[int], seconds: float) -> Iterator[Sequence[object]]:
    """Rows of the table, each once it is there."""
    for name, graph in profiles():
        for count in devices:
            beside, tight = cut_then_order(graph, count, None, seconds / 2)
            yield row(name, graph, count, None, beside, seconds)
            beside, _ = cut_then_order(graph, count, tight, seconds / 2)
            yield row(name, graph, count, tight, beside, seconds)


def row(
    name: str, graph: LayerGraph, devices: int, memory: int | None, beside: int | None, seconds: float
) -> Sequence[object]:
    """One comparison."""
    choices = PipelineChoices(devices, (4 * devices,), memory, bandwidth=RATE)
    found, spent = timed(lambda: plan_pipeline(graph, choices, Options(time_limit=seconds, threads=1)))
    told = "-" if memory is None else f"{memory / 1e9:.2f} GB"
    shorter = "-" if beside is None else f"{100 * (1 - found.makespan_us / beside):.1f} %"
    gap = f"{100 * found.gap:.1f} %"
    return (name, devices, told, beside, found.makespan_us, shorter, found.bound_us, gap, f"{spent:.1f}")


def compare_chains(count: int) -> None:
    """Proven optima of small chains against brute force; every third chain has two stages a device."""
    wrong = 0
    for seed in range(count):
        graph, choices = case(seed)
        if seed % 3 == 2 and len(graph.layers) > 4:
            choices = replace(choices, devices=2, micro_batches=(2,), virtual=(2,))
        least = [
            makespan
            for configuration in configurations(choices, graph)
            for makespan in least_by_cut(graph, choices, configuration.layout.gpu_of).values()
        ]
        try:
            found = plan_pipeline(graph, choices, Options(work_limit=20, threads=1))
        except InfeasibleError:
            wrong += bool(least)
            continue
        wrong += (found.makespan_us, found.bound_us) != (min(least, default=None),) * 2
    print(f"{count} chains, {wrong} differ from brute force over all cuts")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="4,8")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each joint search")
    parser.add_argument("--chains", type=int, metavar="N", help="compare so many small chains with brute force instead")
    arguments = parser.parse_args()
    if arguments.chains is not None:
        compare_chains(arguments.chains)
        return
    print_table(HEADS, rows([int(each) for each in arguments.devices.split(",")], arguments.seconds))


if __name__ == "__main__":
    main()
