"""Cut a profiled model into the stages of a pipeline, by PipeDream's dynamic program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt.planning.partition import Level, Partition

HELP = "cut a profiled model into the stages of a pipeline"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("profile", type=Path, metavar="PROFILE", help="profile graph of PipeDream or DAPPLE")
    parser.add_argument(
        "--machines", required=True, metavar="COUNTS", help="GPUs of a server, servers of a rack, …, as in 8,2"
    )
    parser.add_argument(
        "--bandwidth",
        required=True,
        metavar="RATES",
        help="bytes per second on each level of machines, innermost first, as in 25000000000,3125000000",
    )
    parser.add_argument(
        "--variant", choices=("released", "paper"), default="released", help="whose costs (default: released)"
    )
    parser.add_argument("--activations", action="store_true", help="outputs sent between stages are paid for")
    parser.add_argument("--no-replication", action="store_true", help="each stage has one GPU")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="of a GPU (default: no limit)")
    parser.add_argument("--json", action="store_true", help="print the partition as JSON")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the partition, as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read the profile, cut it, print and write the stages."""
    from jigsaw_opt.cli.output import emit, print_json, require_output
    from jigsaw_opt.documents.readers import read_layer_graph
    from jigsaw_opt.documents.reading import read_file
    from jigsaw_opt.planning.partition import partition
    from jigsaw_opt.planning.partition.document import partition_tree
    from jigsaw_opt.text import json_text

    require_output(arguments.output, arguments.profile)
    levels = _levels(arguments)
    found = partition(
        read_layer_graph(read_file(arguments.profile), source=str(arguments.profile)),
        levels,
        variant=arguments.variant,
        activations=arguments.activations,
        replicate=not arguments.no_replication,
        memory=arguments.memory,
    )
    document = partition_tree(found)
    if arguments.output is not None:
        emit((json_text(document, indent=2) + "\n").encode(), arguments.output)
    if arguments.json:
        print_json(document)
    elif arguments.output is None:
        _print(found)
    return 0


def _levels(arguments: argparse.Namespace) -> list[Level]:
    from jigsaw_opt.errors import UsageError
    from jigsaw_opt.planning.partition import Level

    machines = _positive("--machines", arguments.machines)
    rates = _positive("--bandwidth", arguments.bandwidth)
    if len(machines) != len(rates):
        raise UsageError(f"--machines has {len(machines)} levels and --bandwidth {len(rates)}")
    if arguments.memory is not None and arguments.memory < 1:
        raise UsageError(f"--memory is at least 1, not {arguments.memory}")
    return [Level(count, rate) for count, rate in zip(machines, rates, strict=True)]


def _positive(option: str, text: str) -> list[int]:
    """Whole numbers above 0, separated by commas."""
    from jigsaw_opt.errors import UsageError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 2**53 for part in parts):
        raise UsageError(f"{option} is a list of whole numbers above 0, as in 8,2, not {text!r}")
    return [int(part) for part in parts]


def _print(found: Partition) -> None:
    from jigsaw_opt.cli.output import print_table

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
    if len(found.levels) > 1:
        _print_outer(found)
    print(f"\n{found.time_s:.6f} s a minibatch; {found.noam} minibatches in flight")
    print(f"speed-up {found.single_worker_s / found.time_s:.2f} over one GPU, ", end="")
    print(f"{found.data_parallel_s / found.time_s:.2f} over data parallelism ({found.data_parallel_s:.6f} s)")
    print(_reason(found))


def _print_outer(found: Partition) -> None:
    from jigsaw_opt.cli.output import print_table

    print()
    rows = [
        (it.level, f"{it.stages[0] + 1}–{it.stages[1]}", it.replicas, f"{it.time_s:.6f}")
        for it in sorted(found.outer, key=lambda it: -it.level)
    ]
    headers = ("level", "stages", "machines", "s a minibatch")
    print_table(headers, rows, right=set(headers))


def _reason(found: Partition) -> str:
    """What bounds the pace."""
    outer = [it for it in found.outer if it.level == len(found.levels)]
    slowest = max(outer, key=lambda it: it.time_s)
    first, end = slowest.stages
    name = f"stage {first + 1}" if end == first + 1 else f"stages {first + 1} to {end}"
    compute = max(stage.compute_s / stage.replicas for stage in found.stages[first:end])
    if slowest.time_s < found.time_s * (1 - 1e-9):
        return "outputs sent between stages bound the pace"
    rest = 1 - compute / slowest.time_s
    return f"{name} bound{'s' * (end == first + 1)} the pace; {100 * rest:.1f} % of it is gradients and outputs sent"
