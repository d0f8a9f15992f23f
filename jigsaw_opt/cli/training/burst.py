"""Plan a burst-parallel job: how many GPUs each layer gets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.options import layer_graph
from jigsaw_opt.cli.common.output import print_table, require_output, tell
from jigsaw_opt.errors import Problems, unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts
    from jigsaw_opt.documents.readers.profiles.deeppool import ProfiledLayer
    from jigsaw_opt.planning.burst.plan import BurstPlan
    from jigsaw_opt.problem.measured.layers import LayerGraph


ARGUMENTS: Arguments = {
    "costs COSTS ...": "costs of the layers by number of GPUs, a DeepPool profile, or layer profiles of several batch"
    " sizes",
    "--variant exact|budget = exact": "the fastest plan whose layers all keep the limit, or whose GPU time as a whole"
    " does",
    "--limit A = 2": {"help": "limit of amplification, which is GPU time over time on one GPU", "type": float},
    "profiles, which do not state these:": {
        "--gpus N": "GPUs that the job may use",
        "--global-batch N": "samples of an iteration, on all GPUs together",
        "--bandwidth RATE": {"help": "bytes per microsecond of a GPU's network", "type": float},
    },
    "--horizon finite|cyclic = finite": "horizon of the instance written",
    "--json": "print the plan as JSON",
    "-o, --output FILE": "write the instance",
}


def run(arguments: argparse.Namespace) -> int:
    """Plan the job, print the plan and write the instance."""
    from jigsaw_opt.documents import save_instance
    from jigsaw_opt.planning.burst.burst import burst

    require_output(arguments.output, *arguments.costs)
    names = ("gpus", "global_batch", "bandwidth", "limit", "variant", "horizon")
    found = burst(_source(arguments.costs), **{name: getattr(arguments, name) for name in names})
    if arguments.output is not None:
        save_instance(found.instance, arguments.output)
    document = _document(found.details, arguments.variant, arguments.limit)
    tell(arguments.json, document, lambda: _print(found.details, document))
    return 0


def _source(paths: list[Path]) -> BurstCosts | list[LayerGraph] | Mapping[int, Sequence[ProfiledLayer]]:
    """Return what files state; every problem of layer profiles is collected."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.readers.profiles.burst_costs import read_burst_costs
    from jigsaw_opt.documents.readers.profiles.deeppool import read_deeppool_runs
    from jigsaw_opt.documents.recognising import likely_form

    source, data = str(paths[0]), read_text(paths[0])
    if likely_form(data) in ("layers", "model", "pipedream"):
        graphs: list[LayerGraph] = []
        problems = Problems()
        for path in paths:
            with problems.of(str(path)):
                graphs.append(layer_graph(read_text(path), str(path), None))
        problems.tell()
        return graphs
    if len(paths) > 1:
        raise unsupported("profile", "only layer profiles, each of another batch size, are several files")
    reads = read_burst_costs if data.lstrip().startswith(b"{") else read_deeppool_runs
    return reads(data, source=source)


def _document(plan: BurstPlan, variant: str, limit: float) -> dict[str, Any]:
    from jigsaw_opt.planning.burst.plan import widest_plan

    names = ("job_amplification", "idle_share", "gpus_per_layer", "layer_us")
    return {
        "variant": variant,
        "limit": limit,
        "iteration_ms": plan.iteration_us / 1e3,
        "gpu_ms": plan.gpu_us / 1e3,
        "single_gpu_ms": plan.costs.single_gpu_us / 1e3,
        "data_parallel_ms": widest_plan(plan.costs).iteration_us / 1e3,
        **{name: getattr(plan, name) for name in names},
        "amplification": plan.amplifications,
        "over_limit": plan.over(limit),
    }


def _print(plan: BurstPlan, document: dict[str, Any]) -> None:
    columns = zip(plan.costs.layers, plan.gpus_per_layer, plan.layer_us, plan.amplifications, strict=True)
    rows = [
        (at, layer.name, gpus, f"{time:.1f}", None if value is None else f"{value:.3f}")
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
