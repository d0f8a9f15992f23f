"""Schedule a pipeline: a named schedule, PipeDream's steady state, or the best that a solver finds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import PROGRESS, Arguments
from jigsaw_opt.cli.common.options import effort, layer_graph
from jigsaw_opt.cli.common.output import emit, ended, note, print_json, print_table, require_output
from jigsaw_opt.cli.common.parser import option_of, range_of, require_none, size_of, whole_numbers
from jigsaw_opt.cli.common.progress import searched
from jigsaw_opt.errors import OutOfTimeError, UsageError, missing_option, not_together
from jigsaw_opt.text import counted, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from jigsaw_opt.planning.joint import CutPipeline
    from jigsaw_opt.planning.partition.result import Partition
    from jigsaw_opt.planning.pipeline.asynchronous import AsyncSchedule
    from jigsaw_opt.planning.pipeline.costs import PipelineCosts
    from jigsaw_opt.planning.pipeline.pipeline import PipelineDetails
    from jigsaw_opt.planning.pipeline.schedule import PipelineSchedule
    from jigsaw_opt.planning.planned import Planned
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.measured.layers import LayerGraph

_SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "v-half", "async", "search")
_STATED = ("schedule", "micro_batches", "backward", "first_stage", "gpus", "memory", "horizon", "stages",
           "virtual", "placement", "recompute", "batch", "bandwidth", "latency_us", "baseline", "iterations", "weight",
           "name")  # fmt: skip
"""Options that the library takes by these names."""
_LISTS = {
    "forward_us": "forward pass, as in 10,12,11,10",
    "backward_us": "backward pass; without its part for weights where --weight-us is given",
    "weight_us": "the part of the backward pass for the gradient of the weights, which can wait",
    "transfer_us": "delay between neighbours, both ways; one value fewer than stages",
    "transfer_bytes": "what neighbours send, in place of the delay; for --into",
    "static_bytes": "memory of a stage, held all the time",
    "activation_bytes": "memory that a micro-batch holds from its forward to its backward pass",
    "weight_bytes": "the part of these that the gradient of the weights needs",
}
"""What each list of costs is of, by the name of its argument."""
_COSTS: Arguments = {
    f"{option_of(name)} {'US' if name.endswith('_us') else 'BYTES'},…": text for name, text in _LISTS.items()
}
_UNKNOWN_INPUT = "bytes of the model's input are not known: a first stage that recomputes holds it, and none count"
"""What is said of a profile, or of a partition, where a stage may recompute."""
_CUTS: Arguments = {
    "--stages N": "cut PROFILE for so many devices",
    "--bandwidth RATE": {"help": "bytes per second between neighbours (default: no time to send)", "type": int},
    "--latency-us US": "microseconds of a message that do not depend on its size (default: 0)",
    "--batch N": "samples of a step, which its micro-batches share (default: as measured)",
    "--profile-batch N": "samples that were measured, where PROFILE does not say",
    "--virtual V": {"help": "stages of a device, also a range as in 1..3 (default: 1)", "type": range_of},
    "--placement loop|v|any": "where several stages of a device are; loop: in turn on all devices, as in interleaved"
    " schedules and Megatron-LM; v: there and back (default: any, whichever is best)",
    "--recompute none|all|auto": "stages that compute their activations again before their backward pass (default:"
    " none)",
    "--cuts FILE": "write the stages with their layers, as a partition",
    "--baseline slowest-stage|gpipe|1f1b|interleaved|zb-h1|zb-h2|v-half": "say what is gained over this schedule on"
    " the cut whose slowest stage is fastest; slowest-stage: over the best of them",
}
"""Arguments of a profile that is to be cut."""
_YES = {True: "yes", False: "no"}
ARGUMENTS: Arguments = {
    "[partition] FILE": {
        "help": "what `jigsaw partition -o` wrote, or a profile that --stages cuts; - reads standard input",
        "type": None,
    },
    "--schedule gpipe|1f1b|interleaved|zb-h1|zb-h2|v-half|async|search": "schedule (default: 1f1b)",
    "--micro-batches M": {
        "help": "micro-batches of an iteration; with --stages also a range, as in 8..32 (default: 4 times the stages)",
        "type": range_of,
    },
    "--backward combined|split": "split: the gradient of the input is sent on before the pass for the weights;"
    " combined: after the whole backward pass (default: split where the times of the second part are known)",
    "--first-stage whole|split": "where backward passes are split: whole: the first stage has its whole backward pass"
    " in W, as PyTorch carries it out; split: it has both parts (default: whole, and split where costs are"
    " options)",
    "--gpus N": "GPUs, each with as many stages (default: one a stage)",
    "--memory BYTES": {"help": "memory of a GPU, also as in 32GB (default: no limit)", "type": size_of},
    "--horizon finite|cyclic": "horizon of the instance written (default: finite)",
    "--name NAME = pipeline": "name of the instance; with --into, of the job",
    "cuts and schedule together:": _CUTS,
    "costs of each stage, in place of a partition; one value is for all:": _COSTS,
    "together with other jobs:": {
        "--into INSTANCE": "write this instance with the pipeline as one more job, which `jigsaw solve` orders; of"
        " --schedule, only which stages share a GPU counts then",
        "--gpu-type TYPE": "GPUs that the costs are of, where there are several types",
        "--iterations N": "iterations of the job (default: 1)",
        "--weight N": "weight of the job's completion time (default: 1)",
    },
    "search:": {
        "--time-limit SECONDS": "stop after so many seconds (default: 20)",
        "--work-limit UNITS": "stop after deterministic units of the engine",
        "--seed N = 0": "seed",
        "--threads N": "threads (default: all cores)",
    },
    "--json": "print the result as JSON",
    "-o, --output FILE": "write the instance",
    "--plan FILE": "write the schedule as a plan",
    **PROGRESS,
}


def run(arguments: argparse.Namespace) -> int:
    """Plan the pipeline, print what it takes, write instance and plan."""
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.planning.pipeline.pipeline import pipeline
    from jigsaw_opt.problem.measured.layers import LayerGraph

    written = (arguments.output, arguments.plan, arguments.cuts)
    for at, path in enumerate(written):
        require_output(path, arguments.partition, outputs=written[:at])
    if arguments.into is not None:
        require_none(arguments, "with --into, there is no plan before `jigsaw solve`", "plan")
        if arguments.output is None:
            raise missing_option("-o", "--into writes an instance: give -o FILE")
    source = _source(arguments)
    stated = {name: getattr(arguments, name) for name in _STATED}
    if not isinstance(source, LayerGraph):
        require_none(arguments, "only a profile is cut", "cuts", "profile_batch")
        stated["gpu_type"] = arguments.gpu_type
    limit = 20.0 if arguments.time_limit is None and arguments.work_limit is None else arguments.time_limit
    options = effort(arguments, time_limit=limit)
    into = None if arguments.into is None else instance_from(arguments.into)
    try:
        return searched(
            arguments,
            options,
            lambda report: pipeline(source, **stated, into=into, options=options, report=report),
            lambda found: _finish(arguments, found, options.cancel.is_set()),
        )
    except OutOfTimeError:
        if options.cancel.is_set():
            return ended(True, "no schedule was found so far")
        raise


def _finish(arguments: argparse.Namespace, found: Planned[PipelineDetails], interrupted: bool) -> int:
    """Write and print what was planned."""
    from jigsaw_opt.planning.joint import CutPipeline
    from jigsaw_opt.planning.pipeline.asynchronous import AsyncSchedule
    from jigsaw_opt.planning.pipeline.stages import PipelineProblem

    _write(arguments, found)
    details = found.details
    if isinstance(details, PipelineProblem):
        _print_jobs(found.instance, arguments.json)
    elif isinstance(details, CutPipeline):
        _print_cuts(found, details, arguments.baseline, arguments.json)
    elif isinstance(details, AsyncSchedule):
        _print(arguments, found, *_steady(details))
    else:
        _print(arguments, found, *_ordered(arguments, details))
    return ended(interrupted, "the best pipeline found so far, with its bound")


def _source(arguments: argparse.Namespace) -> LayerGraph | Partition | PipelineCosts:
    """Return what is to be planned: a profile, a partition, or costs that are options."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.recognising import likely_form
    from jigsaw_opt.planning.partition.result import decode_partition

    if arguments.partition is None:
        if arguments.forward_us is None or arguments.backward_us is None:
            raise missing_option("--forward-us", "give a profile or a partition, or --forward-us and --backward-us")
        return _costs_of_options(arguments)
    require_none(arguments, "a profile or a partition has costs of its own", *_LISTS)
    text = read_text("/dev/stdin" if arguments.partition == "-" else arguments.partition)
    if arguments.stages is None and likely_form(text) == "partition":
        partition = decode_partition(text, source=arguments.partition)
        if partition.stages[0].recompute and partition.stages[0].input_bytes is None:
            note(f"{arguments.partition}: {_UNKNOWN_INPUT}")
        return partition
    return _profile(arguments, text)


def _costs_of_options(arguments: argparse.Namespace) -> PipelineCosts:
    """Return the costs that the options state; a single value is for all stages."""
    from jigsaw_opt.planning.pipeline.costs import PipelineCosts

    given = {name: getattr(arguments, name) for name in _LISTS}
    values = {
        name: () if text is None else whole_numbers(option_of(name), text, "whole numbers, as in 10,12")
        for name, text in given.items()
    }
    stages = max(len(values["forward_us"]), len(values["backward_us"]))
    for name, own in values.items():
        count = stages - (name in ("transfer_us", "transfer_bytes"))
        if len(own) == 1:
            values[name] = own * count
    if not stages:
        raise UsageError("there are no stages", code="empty", path="--forward-us")
    return PipelineCosts(**values)


def _profile(arguments: argparse.Namespace, text: bytes) -> LayerGraph:
    """Return a profile with the number of samples that were measured."""
    from dataclasses import replace

    graph, stated = layer_graph(text, arguments.partition, arguments.gpu_type), arguments.profile_batch
    if arguments.recompute not in (None, "none") and not graph.knows_input:
        note(f"{arguments.partition}: {_UNKNOWN_INPUT}")
    if None not in (stated, graph.batch) and stated != graph.batch:
        told = f"{arguments.partition} says that {graph.batch} samples were measured; --batch says how many a step has"
        raise not_together("--profile-batch", f"--profile-batch {stated}: {told}")
    return graph if stated is None else replace(graph, batch=stated)


def _print_jobs(instance: Instance, as_json: bool) -> None:
    names = [job.name for job in instance.jobs]
    if as_json:
        print_json({"instance": instance.name, "jobs": names})
    note(f"the jobs are {named(names)}")


def _write(arguments: argparse.Namespace, found: Planned[Any]) -> None:
    from jigsaw_opt.documents import encode_instance, encode_plan
    from jigsaw_opt.planning.joint.comparison import partition_of
    from jigsaw_opt.planning.partition.result import partition_tree
    from jigsaw_opt.text import json_text

    made: dict[Path | None, Callable[[], bytes]] = {
        arguments.output: lambda: encode_instance(found.instance),
        arguments.cuts: lambda: (json_text(partition_tree(partition_of(found.details)), indent=2) + "\n").encode(),
    }
    if (plan := found.plan) is not None:
        made[arguments.plan] = lambda: encode_plan(plan)
    # All of them are made before one is written.
    for path, data in [(path, make()) for path, make in made.items() if path is not None]:
        emit(data, path)


Told = tuple[dict[str, Any], tuple[str, ...], list[tuple[Any, ...]]]
"""What is particular to a plan for JSON, and heads and rows of a table."""


def _ordered(arguments: argparse.Namespace, details: PipelineSchedule) -> Told:
    rows = [
        (gpu, work, f"{100 * (1 - work / details.period_us):.1f} %", peak)
        for gpu, (work, peak) in enumerate(zip(details.pipeline.work_us, details.peak_bytes, strict=True))
    ]
    told = {
        "schedule": arguments.schedule or "1f1b",
        "backward": "split" if details.pipeline.layout.split else "combined",
        **{name: getattr(details, name) for name in ("makespan_us", "period_us", "bubble", "peak_bytes")},
        "bound_of": "period_us" if arguments.horizon == "cyclic" else "makespan_us",
    }
    return told, ("GPU", "work us", "idle", "peak bytes"), rows


def _steady(details: AsyncSchedule) -> Told:
    names = ("minibatches", "initiation_interval_us", "bubble", "peak_bytes", "noam", "in_flight", "weight_versions")
    columns = zip(details.stages, details.weight_versions, details.peak_bytes, strict=True)
    rows = [(number, stage.replicas, versions, peak) for number, (stage, versions, peak) in enumerate(columns)]
    told = {
        "schedule": "async",
        "backward": "combined",
        "makespan_us": details.latency_us,
        "bound_of": "period_us",
        **{name: getattr(details, name) for name in names},
    }
    return told, ("stage", "GPUs", "weight versions", "peak bytes"), rows


def _print(
    arguments: argparse.Namespace,
    found: Planned[Any],
    told: dict[str, Any],
    headers: tuple[str, ...],
    rows: list[tuple[Any, ...]],
) -> None:
    """Print a plan of given stages; what a search has proven or found goes before the figures of its order alone."""
    status = "optimal" if found.bound == found.objective else "feasible"
    document = told | {told["bound_of"]: found.objective, "bound_us": found.bound, "status": status}
    if arguments.json:
        print_json(document)
        return
    print(f"{document['schedule']}: makespan {document['makespan_us']} us, period {document['period_us']} us", end="")
    print(f", bubble {100 * document['bubble']:.1f} %, {document['backward']} backward passes")
    if document["schedule"] == "async":
        print(f"a minibatch every {document['initiation_interval_us']} us, {document['in_flight']} in flight")
    print(f"{status}: no {document['bound_of'].removesuffix('_us')} is below {document['bound_us']} us\n")
    print_table(headers, rows, right=set(headers))


def _print_cuts(found: Planned[Any], details: CutPipeline, baseline: str | None, as_json: bool) -> None:
    """Print stages and schedules of a profile that was cut."""
    from jigsaw_opt.planning.joint.comparison import step_range_us

    scatter, other = step_range_us(details), details.baseline_us
    document = _cuts_document(found, details) | ({} if scatter is None else {"makespan_range_us": list(scatter)})
    if baseline is not None:
        document["baseline"] = {"name": baseline, "makespan_us": other}
    if as_json:
        print_json(document)
        return
    _print_cuts_tables(document)
    between = "" if scatter is None else f" ({scatter[0]} to {scatter[1]} us by the scatter of the layers)"
    step, batches = document["makespan_us"], counted(document["micro_batches"], "micro-batch", "es")
    print(f"\n{step} us a step{between}, {batches}", end="")
    print(f"; no pipeline that was allowed is below {found.bound} us (gap {100 * document['gap']:.1f} %)")
    if other is not None:
        # The baseline has a layout of its own, which may not have been allowed.
        share = 1 - step / other
        gained = f"{100 * abs(share):.1f} % {'shorter' if share >= 0 else 'longer'}"
        print(f"the step is {gained} than with {baseline} on the balanced cut, which takes {other} us")
    elif baseline is not None:
        print(f"{baseline} on the balanced cut does not fit into the memory")


def _cuts_document(found: Planned[Any], details: CutPipeline) -> dict[str, Any]:
    """Return everything about a plan, as what JSON is made of."""
    from dataclasses import asdict

    from jigsaw_opt.planning.joint.comparison import rows_of

    cut, layout, costs = details.cut, details.pipeline.layout, asdict(details.pipeline.costs)
    stated = ("forward_us", "backward_us", "weight_us", "static_bytes", "activation_bytes")
    stages = [
        {
            "device": layout.gpu_of[number],
            "layers": list(details.table.positions.names(*span)),
            "recompute": cut.recomputes[number],
            **{name: costs[name][number] if costs[name] else None for name in stated},
        }
        for number, span in enumerate(cut.spans)
    ]
    return {
        "status": "optimal" if found.bound == found.objective else "feasible",
        "makespan_us": found.objective,
        "bound_us": found.bound,
        "gap": found.gap,
        "micro_batches": layout.micro_batches,
        "backward": "split" if layout.split else "combined",
        "stages": stages,
        "schedules": [asdict(row) for row in rows_of(details)],
    }


def _print_cuts_tables(document: dict[str, Any]) -> None:
    rows = []
    for number, stage in enumerate(document["stages"]):
        names, whole = stage["layers"], stage["backward_us"] + (stage["weight_us"] or 0)
        told = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"
        rows.append((number, stage["device"], told, stage["forward_us"], whole, _YES[stage["recompute"]]))
    heads = ("stage", "device", "layers", "forward us", "backward us", "recompute")
    print_table(heads, rows, right={"stage", "device", "forward us", "backward us"})
    print()
    schedules = [
        (
            each["name"],
            each["makespan_us"],
            f"{100 * each['bubble']:.1f} %",
            max(each["peak_bytes"]),
            _YES[each["fits"]],
        )
        for each in document["schedules"]
    ]
    heads_of_schedules = ("schedule", "step us", "bubble", "peak bytes", "fits")
    print_table(heads_of_schedules, schedules, right={"step us", "bubble", "peak bytes"})
