"""Cut a profiled model into the stages of a pipeline."""

from __future__ import annotations

import argparse
from math import prod
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.options import layer_graph
from jigsaw_opt.cli.common.output import emit, print_json, print_table, require_output
from jigsaw_opt.cli.common.parser import size_of, whole_numbers
from jigsaw_opt.text import json_text

if TYPE_CHECKING:
    from jigsaw_opt.planning.partition.result import Partition


ARGUMENTS: Arguments = {
    "profile PROFILE": "layer profile, model of an instance, or profile graph of PipeDream or DAPPLE",
    "--gpu-type TYPE": "GPUs whose times count, of a model that has several types",
    "--machines COUNTS !": "GPUs of a server, servers of a rack, …, as in 8,2",
    "--bandwidth RATES !": "bytes per second on each level of machines, innermost first, as in 25000000000,3125000000",
    "--variant released|paper = released": "costs as in PipeDream's released code or its paper",
    "--activations": "outputs sent between stages are paid for",
    "--no-replication": "each stage has one GPU",
    "--memory BYTES": {"help": "memory of a GPU, also as in 32GB (default: no limit)", "type": size_of},
    "--json": "print the partition as JSON",
    "-o, --output FILE": "write the partition, as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Read the profile, cut it, print and write the stages."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.planning.partition.result import best_partition, partition_tree

    require_output(arguments.output, arguments.profile)
    wanted = "whole numbers above 0, as in 8,2"
    graph = layer_graph(read_text(arguments.profile), str(arguments.profile), arguments.gpu_type)
    found = best_partition(
        graph,
        whole_numbers("--machines", arguments.machines, wanted, least=1),
        whole_numbers("--bandwidth", arguments.bandwidth, wanted, least=1),
        variant=arguments.variant,
        activations=arguments.activations,
        replicate=not arguments.no_replication,
        memory=arguments.memory,
    )
    if arguments.output is not None:
        emit((json_text(partition_tree(found), indent=2) + "\n").encode(), arguments.output)
    if arguments.json:
        print_json(partition_tree(found))
    elif arguments.output is None:
        _print(found)
    return 0


def _print(found: Partition) -> None:
    rows = [
        (
            number,
            stage.nodes[0] if len(stage.nodes) == 1 else f"{stage.nodes[0]} … {stage.nodes[-1]} ({len(stage.nodes)})",
            stage.replicas,
            f"{stage.compute_s:.6f}",
            stage.parameter_bytes,
            stage.output_bytes,
            f"{stage.time_s:.6f}",
        )
        for number, stage in enumerate(found.stages, 1)
    ]
    headers = ("stage", "layers", "GPUs", "compute s", "parameter bytes", "output bytes", "s a minibatch")
    print_table(headers, rows, right={*headers} - {"layers"})
    scatter = found.time_range_s
    between = "" if scatter is None else f" ({scatter[0]:.6f} to {scatter[1]:.6f} s by the scatter of the layers)"
    least = found.single_worker_s / prod(level.machines for level in found.levels)
    print(f"\n{found.time_s:.6f} s a minibatch{between}; {found.noam} minibatches in flight")
    print(f"no partition takes less than {least:.6f} s, in which all GPUs compute all the time")
    print(f"speed-up {found.single_worker_s / found.time_s:.2f} over one GPU, ", end="")
    print(f"{found.data_parallel_s / found.time_s:.2f} over data parallelism ({found.data_parallel_s:.6f} s)")
    print(_reason(found))


def _reason(found: Partition) -> str:
    """Return which stage is slowest, and what of its time is not compute."""
    outer = [stage for stage in found.outer if stage.level == len(found.levels)]
    slowest = max(outer, key=lambda stage: stage.time_s)
    first, end = slowest.stages
    compute = max(stage.compute_s / stage.replicas for stage in found.stages[first:end])
    name = f"stage {first + 1}" if end == first + 1 else f"stages {first + 1} to {end}"
    share = 100 * (1 - compute / found.time_s)
    return f"slowest: {name}; {share:.1f} % of the time is gradients and outputs sent"
