"""Plan a burst-parallel job: how many GPUs each layer gets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.output import note, print_json, print_table, require_output
from jigsaw_opt.cli.common.source import layer_graph
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, missing_option, not_together

if TYPE_CHECKING:
    from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts
    from jigsaw_opt.planning.burst import BurstPlan, BurstSetting

_VARIANTS = ("released", "exact", "budget")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "costs",
        nargs="+",
        type=Path,
        metavar="COSTS",
        help="costs of the layers by number of GPUs, a DeepPool profile, or layer profiles of several batch sizes",
    )
    parser.add_argument(
        "--variant",
        choices=_VARIANTS,
        default="exact",
        help="DeepPool's released recurrence, the fastest plan whose layers all keep the limit (default), or the "
        "fastest one whose GPU time as a whole keeps it (default: exact)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=2.0,
        metavar="A",
        help="limit of amplification, which is GPU time over time on one GPU (default: 2)",
    )
    profile = parser.add_argument_group("profiles, which do not state these")
    profile.add_argument("--gpus", type=int, metavar="N", help="GPUs that the job may use")
    profile.add_argument("--global-batch", type=int, metavar="N", help="samples of an iteration, on all GPUs together")
    profile.add_argument("--bandwidth", type=float, metavar="RATE", help="bytes per microsecond of a GPU's network")
    profile.add_argument("--released-costs", action="store_true", help="by the cost functions of DeepPool's planner")
    parser.add_argument(
        "--horizon",
        choices=("finite", "cyclic"),
        default="finite",
        help="horizon of the instance written (default: finite)",
    )
    parser.add_argument("--name", default="burst", help="name of the instance (default: burst)")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the instance")


def run(arguments: argparse.Namespace) -> int:
    """Plan the job, print the plan and write the instance."""
    from jigsaw_opt.documents import save_instance
    from jigsaw_opt.planning.burst import budget_plan, burst_instance, exact_plan, released_plan

    require_output(arguments.output, *arguments.costs)
    chosen = dict(zip(_VARIANTS, (released_plan, exact_plan, budget_plan), strict=True))[arguments.variant]
    plan = chosen(_costs(arguments), arguments.limit)
    document = _document(plan, arguments.variant, arguments.limit)
    if arguments.output is not None:
        save_instance(burst_instance(plan, arguments.name, arguments.horizon), arguments.output)
    if arguments.json:
        print_json(document)
    else:
        _print(plan, document)
    return 0


def _costs(arguments: argparse.Namespace) -> BurstCosts:
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.readers.profiles.burst_costs import read_burst_costs
    from jigsaw_opt.documents.readers.profiles.deeppool import read_deeppool_runs
    from jigsaw_opt.documents.recognising import likely_form
    from jigsaw_opt.planning.burst import profiled_costs

    source, data = str(arguments.costs[0]), read_text(arguments.costs[0])
    stated = (arguments.gpus, arguments.global_batch, arguments.bandwidth)
    if likely_form(data) in ("layers", "model", "pipedream"):
        return _measured_costs(arguments)
    if len(arguments.costs) > 1:
        raise UsageError(
            "only layer profiles, each of another batch size, are several files", code="unsupported", path="profile"
        )
    if data.lstrip().startswith(b"{"):
        if any(value is not None for value in stated) or arguments.released_costs:
            raise not_together("--gpus", "a document of costs states GPUs, batch and rates; leave these options out")
        return read_burst_costs(data, source=source)
    return profiled_costs(read_deeppool_runs(data, source=source), _setting(arguments))


def _setting(arguments: argparse.Namespace) -> BurstSetting:
    from jigsaw_opt.planning.burst import BurstSetting

    stated = (arguments.gpus, arguments.global_batch, arguments.bandwidth)
    if any(value is None for value in stated):
        raise missing_option("--gpus", "a profile needs --gpus, --global-batch and --bandwidth")
    return BurstSetting(*stated, arguments.released_costs)


def _measured_costs(arguments: argparse.Namespace) -> BurstCosts:
    """Return costs of layer profiles; every file's problems are collected."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.planning.burst import measured_costs

    setting, graphs, problems = _setting(arguments), [], list[Problem]()
    for path in arguments.costs:
        try:
            graphs.append(layer_graph(read_text(path), str(path), None))
        except InvalidInputError as error:
            problems.extend(error.problems)
    if problems:
        raise InvalidInputError(problems)
    costs = measured_costs(graphs, setting)
    counts = ", ".join(str(option.gpus) for option in costs.layers[0].options)
    note(f"layers may run on {counts} GPUs, as there are profiles of their samples")
    return costs


def _document(plan: BurstPlan, variant: str, limit: float) -> dict[str, Any]:
    from jigsaw_opt.planning.burst import widest_plan

    return {
        "variant": variant,
        "limit": limit,
        "iteration_ms": plan.iteration_us / 1e3,
        "gpu_ms": plan.gpu_us / 1e3,
        "job_amplification": plan.job_amplification,
        "idle_share": plan.idle_share,
        "single_gpu_ms": plan.costs.single_gpu_us / 1e3,
        "data_parallel_ms": widest_plan(plan.costs).iteration_us / 1e3,
        "gpus_per_layer": plan.gpus_per_layer,
        "layer_us": plan.layer_us,
        "amplification": plan.amplifications,
        "over_limit": plan.over(limit),
    }


def _print(plan: BurstPlan, document: dict[str, Any]) -> None:
    columns = zip(
        plan.costs.layers,
        document["gpus_per_layer"],
        document["layer_us"],
        document["amplification"],
        strict=True,
    )
    rows = [
        (at, layer.name, gpus, f"{time:.1f}", "-" if value is None else f"{value:.3f}")
        for at, (layer, gpus, time, value) in enumerate(columns)
    ]
    headers = ("layer", "kind", "GPUs", "us", "amplification")
    print_table(headers, rows, right={*headers} - {"kind"})
    print(f"\n{document['iteration_ms']:.3f} ms an iteration, {document['gpu_ms']:.3f} ms of GPU time; ", end="")
    print(f"{100 * document['idle_share']:.1f} % of {plan.costs.gpus} GPUs is left to other jobs")
    print(f"{document['single_gpu_ms']:.3f} ms on one GPU, ", end="")
    print(f"{document['data_parallel_ms']:.3f} ms with as many GPUs as there may be in every layer")
    over = ", ".join(map(str, document["over_limit"])) or "none"
    print(f"layers over the limit {document['limit']:g}: {over}")
