"""Cut a profiled model into the stages of a pipeline, or place the operators of a workload on devices."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.effort import effort
from jigsaw_opt.cli.parser import add_threads, require_none

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from jigsaw_opt.planning.partition import Level, Partition

_CONTIGUOUS_SHARE = 0.5
"""Share of the time limit for the contiguous placement that a search with --non-contiguous begins with."""
HELP = "cut a profiled model into the stages of a pipeline"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "profile",
        type=Path,
        metavar="PROFILE",
        help="layer profile, model of an instance, profile graph of PipeDream or DAPPLE, or workload of "
        "dnn-partitioning or Piper",
    )
    parser.add_argument("--gpu-type", metavar="TYPE", help="GPUs whose times count, of a model that has several types")
    parser.add_argument("--machines", metavar="COUNTS", help="GPUs of a server, servers of a rack, …, as in 8,2")
    parser.add_argument(
        "--bandwidth",
        metavar="RATES",
        help="bytes per second on each level of machines, innermost first, as in 25000000000,3125000000",
    )
    parser.add_argument(
        "--variant",
        choices=("released", "paper"),
        default="released",
        help="costs as in PipeDream's released code or its paper (default: released)",
    )
    parser.add_argument("--activations", action="store_true", help="outputs sent between stages are paid for")
    parser.add_argument("--no-replication", action="store_true", help="each stage has one GPU")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="memory of a GPU (default: no limit)")
    piper = parser.add_argument_group("workloads of Piper, which have these, --memory and --bandwidth of their own")
    piper.add_argument("--devices", type=int, metavar="N", help="devices")
    piper.add_argument("--micro-batches", type=int, metavar="N", help="micro-batches of a batch")
    workload = parser.add_argument_group("workloads of dnn-partitioning, which state their devices")
    workload.add_argument("--non-contiguous", action="store_true", help="a device may have any operators, by CP-SAT")
    workload.add_argument(
        "--time-limit", type=float, default=60.0, metavar="SECONDS", help="limit with --non-contiguous (default: 60)"
    )
    add_threads(workload, "threads with --non-contiguous (default: all cores)")
    workload.add_argument("--seed", type=int, default=0, metavar="N", help="seed with --non-contiguous (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the partition as JSON")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the partition, as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read the profile, cut it, print and write the stages."""
    from jigsaw_opt.cli.output import require_output
    from jigsaw_opt.documents.file_bytes import read_text

    require_output(arguments.output, arguments.profile)
    data = read_text(arguments.profile)
    keys = _keys(data)
    if {"maxDevices", "maxMemoryPerDevice", "mbsInBatch"} & keys:
        return _run_piper(arguments, data)
    if {"maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes"} & keys:
        return _run_workload(arguments, data)
    return _run_profile(arguments, data)


def _keys(data: bytes) -> Set[str]:
    """Return the keys that tell workloads apart; none of a text that is no object."""
    import json

    try:
        tree = json.loads(data) if data.lstrip().startswith(b"{") else None
    except (ValueError, RecursionError):
        tree = None  # which the reader has more to say of
    return tree.keys() if isinstance(tree, dict) else frozenset()


def _run_profile(arguments: argparse.Namespace, data: bytes) -> int:
    from jigsaw_opt.cli.source import layer_graph
    from jigsaw_opt.planning.partition import partition
    from jigsaw_opt.planning.partition.document import partition_tree

    require_none(arguments, "a profile of layers has none of these", "non_contiguous", "devices", "micro_batches")
    levels = _levels(arguments)
    found = partition(
        layer_graph(data, str(arguments.profile), arguments.gpu_type),
        levels,
        variant=arguments.variant,
        activations=arguments.activations,
        replicate=not arguments.no_replication,
        memory=arguments.memory,
    )
    _hand_over(arguments, partition_tree(found), lambda: _print(found))
    return 0


def _hand_over(arguments: argparse.Namespace, document: dict[str, Any], show: Callable[[], None]) -> None:
    """Write and print a result."""
    from jigsaw_opt.cli.output import emit, print_json
    from jigsaw_opt.text import json_text

    if arguments.output is not None:
        emit((json_text(document, indent=2) + "\n").encode(), arguments.output)
    if arguments.json:
        print_json(document)
    elif arguments.output is None:
        show()


def _run_piper(arguments: argparse.Namespace, data: bytes) -> int:
    """Run Piper's optimiser: stages with degrees of data and tensor parallelism; return the exit code."""
    from dataclasses import asdict

    from jigsaw_opt.documents.readers.piper import read_piper
    from jigsaw_opt.errors import UsageError
    from jigsaw_opt.planning.piper import piper_plan

    require_none(arguments, "a workload of Piper has --devices", "machines", "non_contiguous", "gpu_type")
    rates = [None] if arguments.bandwidth is None else _positive("--bandwidth", arguments.bandwidth)
    if len(rates) > 1:
        raise UsageError("a workload of Piper has one --bandwidth", code="wrong-count", path="--bandwidth")
    for name in ("devices", "micro_batches", "memory"):
        value = getattr(arguments, name)
        if value is not None and not 1 <= value < 2**53:
            raise UsageError(
                f"--{name.replace('_', '-')} is at least 1, not {value}",
                code="out-of-range",
                path=f"--{name.replace('_', '-')}",
            )
    own = {
        "devices": arguments.devices,
        "micro_batches": arguments.micro_batches,
        "memory": arguments.memory,
        "bandwidth": rates[0],
    }
    graph = read_piper(data, source=str(arguments.profile))
    document = asdict(piper_plan(replace(graph, **{name: value for name, value in own.items() if value is not None})))
    _hand_over(arguments, document, lambda: _print_piper(document))
    return 0


def _print_piper(document: dict[str, Any]) -> None:
    from jigsaw_opt.cli.output import print_table

    rows = [
        (number, len(stage["nodes"]), stage["data_parallel"], stage["tensor_parallel"], f"{stage['time']:.6g}")
        for number, stage in enumerate(document["stages"], 1)
    ]
    headers = ("stage", "nodes", "data-parallel", "tensor-parallel", "time")
    print_table(headers, rows, right=set(headers))
    print(f"\n{document['time_per_sample']:.10g} a micro-batch, in the unit of the workload")


def _run_workload(arguments: argparse.Namespace, data: bytes) -> int:
    """Place operators on the devices of a workload."""
    from jigsaw_opt.cli.output import ended
    from jigsaw_opt.documents.readers.dnn_partitioning import read_dnn_partitioning
    from jigsaw_opt.errors import InfeasibleError, OutOfTimeError, UsageError
    from jigsaw_opt.planning.placement import contiguous_placement, exact_placement, groups_of, ordered_groups
    from jigsaw_opt.problem import clock

    names = ("machines", "bandwidth", "memory", "devices", "micro_batches", "gpu_type")
    require_none(arguments, "a workload states its devices", *names)
    graph, options = read_dnn_partitioning(data, source=str(arguments.profile)), effort(arguments, work_limit=None)
    started, found = time.monotonic(), None
    limit = _CONTIGUOUS_SHARE * arguments.time_limit if arguments.non_contiguous else None
    try:
        with clock.limited(clock.Clock(limit, options.cancel)):
            found = contiguous_placement(ordered_groups(graph))
    except (InfeasibleError, OutOfTimeError, UsageError):
        if not arguments.non_contiguous:
            raise
    if arguments.non_contiguous or found is None:
        left = max(0.0, arguments.time_limit - (time.monotonic() - started))
        found = exact_placement(groups_of(graph), found, replace(options, time_limit=left))
    document = {
        "contiguous": not arguments.non_contiguous,
        "max_load_ms": found.max_load_ns / 1e6,
        "bound_ms": found.bound_ns / 1e6,
        "devices": [
            {"kind": device.kind, "load_ms": device.load_ns / 1e6, "nodes": list(device.nodes)}
            for device in found.devices
        ],
    }
    _hand_over(arguments, document, lambda: _print_devices(document))
    return ended(options.cancel.is_set(), "the best placement found so far, with its bound")


def _print_devices(document: dict[str, Any]) -> None:
    from jigsaw_opt.cli.output import print_table

    rows = [(device["kind"], f"{device['load_ms']:.4f}", len(device["nodes"])) for device in document["devices"]]
    print_table(("device", "load ms", "operators"), rows, right={"load ms", "operators"})
    print(f"\nlargest load {document['max_load_ms']:.4f} ms, bound {document['bound_ms']:.4f} ms")


def _levels(arguments: argparse.Namespace) -> list[Level]:
    from jigsaw_opt.errors import UsageError
    from jigsaw_opt.planning.partition import Level

    if arguments.machines is None or arguments.bandwidth is None:
        raise UsageError(
            "a profile of layers needs --machines and --bandwidth", code="missing-option", path="--machines"
        )
    machines = _positive("--machines", arguments.machines)
    rates = _positive("--bandwidth", arguments.bandwidth)
    if len(machines) != len(rates):
        raise UsageError(
            f"--machines has {len(machines)} levels and --bandwidth {len(rates)}", code="wrong-count", path="--machines"
        )
    if arguments.memory is not None and arguments.memory < 1:
        raise UsageError(f"--memory is at least 1, not {arguments.memory}", code="out-of-range", path="--memory")
    return [Level(count, rate) for count, rate in zip(machines, rates, strict=True)]


def _positive(option: str, text: str) -> list[int]:
    """Return whole numbers above 0, separated by commas."""
    from jigsaw_opt.errors import UsageError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 2**53 for part in parts):
        raise UsageError(
            f"{option} is a list of whole numbers above 0, as in 8,2, not {text!r}", code="malformed", path=option
        )
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
    scatter = found.time_range_s
    between = "" if scatter is None else f" ({scatter[0]:.6f} to {scatter[1]:.6f} s by the scatter of the layers)"
    print(f"\n{found.time_s:.6f} s a minibatch{between}; {found.noam} minibatches in flight")
    print(f"speed-up {found.single_worker_s / found.time_s:.2f} over one GPU, ", end="")
    print(f"{found.data_parallel_s / found.time_s:.2f} over data parallelism ({found.data_parallel_s:.6f} s)")
    print(_reason(found))


def _print_outer(found: Partition) -> None:
    from jigsaw_opt.cli.output import print_table

    print()
    rows = [
        (stage.level, f"{stage.stages[0] + 1}–{stage.stages[1]}", stage.replicas, f"{stage.time_s:.6f}")
        for stage in sorted(found.outer, key=lambda stage: -stage.level)
    ]
    headers = ("level", "stages", "machines", "s a minibatch")
    print_table(headers, rows, right=set(headers))


def _reason(found: Partition) -> str:
    """Return what bounds the throughput."""
    from jigsaw_opt.text import agreeing

    outer = [stage for stage in found.outer if stage.level == len(found.levels)]
    slowest = max(outer, key=lambda stage: stage.time_s)
    first, end = slowest.stages
    name = f"stage {first + 1}" if end == first + 1 else f"stages {first + 1} to {end}"
    compute = max(stage.compute_s / stage.replicas for stage in found.stages[first:end])
    if slowest.time_s < found.time_s * (1 - 1e-9):
        return "outputs sent between stages bound the throughput"
    rest = 1 - compute / slowest.time_s
    bounds = f"{name} {agreeing(end - first, 'bounds', 'bound')} the throughput"
    return f"{bounds}; {100 * rest:.1f} % of the time is gradients and outputs sent"
