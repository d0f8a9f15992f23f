"""Schedule a pipeline: a named schedule, PipeDream's steady state, or the best that a solver finds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.options import effort
from jigsaw_opt.cli.common.output import ended, note, print_json, print_table, require_output
from jigsaw_opt.cli.common.parser import add_threads, option_of, require_none
from jigsaw_opt.cli.common.progress import add_progress, progress
from jigsaw_opt.cli.training.pipeline_costs import LISTS, configure_costs, costs_of_options
from jigsaw_opt.cli.training.pipeline_cuts import (
    CHOICES,
    UNKNOWN_INPUT,
    configure_cuts,
    memory_of,
    numbers_of,
    run_cuts,
)
from jigsaw_opt.errors import UsageError, missing_option, not_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jigsaw_opt.planning.partition.result import Partition
    from jigsaw_opt.planning.pipeline.orders import Orders, PipelineLayout
    from jigsaw_opt.planning.pipeline.stages import PipelineProblem
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.plan import Plan
    from jigsaw_opt.solvers.result import Result

_SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "v-half", "async", "search")
_NOT_CUT = ("schedule", "gpus", "in_flight", "horizon", "into")
"""What is not said of a profile that is cut."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "partition",
        nargs="?",
        metavar="FILE",
        help="what `jigsaw partition -o` wrote, or a profile that --stages cuts; - reads standard input",
    )
    parser.add_argument("--schedule", choices=_SCHEDULES, help="schedule (default: 1f1b)")
    parser.add_argument(
        "--micro-batches",
        type=numbers_of,
        metavar="M",
        help="micro-batches of an iteration; with --stages also a range, as in 8..32 (default: 4 times the stages)",
    )
    parser.add_argument(
        "--backward",
        choices=("combined", "split"),
        help="split: the gradient of the input is sent on before the pass for the weights; combined: after the whole "
        "backward pass (default: split where the times of the second part are known)",
    )
    parser.add_argument(
        "--first-stage",
        choices=("whole", "split"),
        help="where backward passes are split: whole: the first stage has its whole backward pass in W, as PyTorch "
        "carries it out; split: it has both parts (default: whole, and split where costs are options)",
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs, each with as many stages (default: one a stage)")
    parser.add_argument(
        "--memory", type=memory_of, metavar="BYTES", help="memory of a GPU, also as in 32GB (default: no limit)"
    )
    parser.add_argument(
        "--in-flight",
        type=int,
        metavar="N",
        help="async: minibatches under way at most (default: as many as the least initiation interval takes)",
    )
    parser.add_argument(
        "--horizon", choices=("finite", "cyclic"), help="horizon of the instance written (default: finite)"
    )
    parser.add_argument(
        "--name", default="pipeline", help="name of the instance; with --into, of the job (default: pipeline)"
    )
    configure_cuts(parser.add_argument_group("cuts and schedule together"))
    configure_costs(parser.add_argument_group("costs of each stage, in place of a partition; one value is for all"))
    _configure_into(parser.add_argument_group("together with other jobs"))
    _configure_search(parser.add_argument_group("search"))
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the instance")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="write the schedule as a plan")
    add_progress(parser)


def _configure_into(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--into",
        metavar="INSTANCE",
        help="write this instance with the pipeline as one more job, which `jigsaw solve` orders; "
        "of --schedule, only which stages share a GPU counts then",
    )
    group.add_argument("--gpu-type", metavar="TYPE", help="GPUs that the costs are of, where there are several types")
    group.add_argument("--iterations", type=int, default=1, metavar="N", help="iterations of the job (default: 1)")
    group.add_argument(
        "--weight", type=int, default=1, metavar="N", help="weight of the job's completion time (default: 1)"
    )


def _configure_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--time-limit", type=float, metavar="SECONDS", help="stop after so many seconds (default: 20)")
    group.add_argument("--work-limit", type=float, metavar="UNITS", help="stop after deterministic units of the engine")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    add_threads(group, "threads (default: all cores)")


def run(arguments: argparse.Namespace) -> int:
    """Schedule the pipeline, print what it takes, write instance and plan."""
    require_output(arguments.output, arguments.partition)
    require_output(arguments.plan, arguments.partition, arguments.output)
    _require_job(arguments)
    if arguments.stages is not None:
        require_none(arguments, "with --stages, these are the profile's or are searched for", *_NOT_CUT, *LISTS)
        return run_cuts(arguments)
    require_none(arguments, "only a profile is cut, which takes --stages", *CHOICES)
    arguments.schedule = arguments.schedule or "1f1b"
    partition = _partition(arguments)
    if arguments.schedule == "async":
        return _run_async(arguments, partition)
    return _run_synchronous(arguments, partition)


def _require_job(arguments: argparse.Namespace) -> None:
    """Refuse what only makes sense beside other jobs, or only alone."""
    if arguments.into is None:
        of_type = arguments.gpu_type is not None and arguments.stages is None
        if of_type or arguments.iterations != 1 or arguments.weight != 1:
            raise missing_option("--into", "--gpu-type, --iterations and --weight are for --into")
        if arguments.transfer_bytes is not None:
            raise missing_option(
                "--transfer-bytes", "--transfer-bytes is for --into; alone, a pipeline has delays: --transfer-us"
            )
        return
    if arguments.schedule in ("async", "search"):
        raise not_together(
            "--schedule", f"with --into, `jigsaw solve` finds the order; leave out --schedule {arguments.schedule}"
        )
    for name in ("plan", "horizon", "memory"):
        if getattr(arguments, name) is not None:
            raise not_together(f"--{name}", f"the instance has horizon and memory, and no plan yet; leave out --{name}")
    if arguments.output is None:
        raise missing_option("-o", "--into writes an instance: give -o FILE")


def _partition(arguments: argparse.Namespace) -> Partition | None:
    """Return the partition, where one is given; no costs beside it."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.planning.partition.result import decode_partition

    given = [option_of(name) for name in LISTS if getattr(arguments, name) is not None]
    if arguments.partition is None:
        if arguments.forward_us is None or arguments.backward_us is None:
            raise missing_option("--forward-us", "give a partition, or --forward-us and --backward-us")
        return None
    if given:
        raise not_together(", ".join(given), f"a partition has costs of its own; leave out {', '.join(given)}")
    path = "/dev/stdin" if arguments.partition == "-" else arguments.partition
    return decode_partition(read_text(path), source=arguments.partition)


def _layout(arguments: argparse.Namespace, stages: int, split: bool) -> PipelineLayout:
    """Return GPUs of the stages: in turn, or there and back for V-shaped schedules."""
    from jigsaw_opt.planning.pipeline.orders import PipelineLayout

    gpus = stages if arguments.gpus is None else arguments.gpus
    batches, *more = (4 * stages,) if arguments.micro_batches is None else arguments.micro_batches
    if more:
        raise missing_option(
            "--micro-batches", "only with --stages is there a choice of micro-batches; give one number"
        )
    if batches < 1 or gpus < 1 or stages % gpus:
        raise UsageError(
            f"{stages} stages on {gpus} GPUs with {batches} micro-batches: each GPU has as many stages",
            code="contradiction",
            path="--gpus",
        )
    chunks, schedule = stages // gpus, arguments.schedule
    if schedule == "v-half" and chunks != 2:
        raise UsageError(
            "v-half has two stages a GPU: give twice as many stages as --gpus", code="contradiction", path="--gpus"
        )
    if schedule == "interleaved" and chunks < 2:
        raise missing_option("--gpus", "interleaved has several stages a GPU: give --gpus")
    if schedule not in ("v-half", "interleaved", "search") and chunks > 1:
        raise not_together("--gpus", f"{schedule} has one stage a GPU; leave out --gpus")
    there = tuple(range(gpus))
    return PipelineLayout(there + there[::-1] if schedule == "v-half" else there * chunks, batches, split)


def _run_synchronous(arguments: argparse.Namespace, partition: Partition | None) -> int:
    from jigsaw_opt.planning.pipeline.orders import ORDERS
    from jigsaw_opt.planning.pipeline.partition_costs import costs_of
    from jigsaw_opt.planning.pipeline.schedule import require_memory
    from jigsaw_opt.planning.pipeline.stages import PipelineProblem

    if arguments.in_flight is not None:
        raise missing_option("--in-flight", "--in-flight is for --schedule async")
    costs = costs_of_options(arguments) if partition is None else costs_of(partition)
    if partition is not None and partition.stages[0].recompute and partition.stages[0].input_bytes is None:
        note(f"{arguments.partition}: {UNKNOWN_INPUT}")
    if arguments.backward == "split" and not costs.weight_us:
        raise missing_option(
            "--weight-us", "--backward split: say by --weight-us how much of the backward pass is for the weights"
        )
    if arguments.backward == "combined":
        costs = costs.combined()
    if not costs.weight_us:
        require_none(arguments, "backward passes are not split", "first_stage")
    if (arguments.first_stage or ("split" if partition is None else "whole")) == "whole":
        costs = costs.first_whole()
    layout = _layout(arguments, len(costs.forward_us), bool(costs.weight_us))
    pipeline = PipelineProblem(costs, layout, arguments.memory)
    if arguments.into is not None:
        return _run_into(arguments, pipeline)
    if arguments.schedule == "search":
        return _run_search(arguments, pipeline)
    orders = ORDERS[arguments.schedule](pipeline.layout)
    require_memory(pipeline, orders, arguments.schedule)
    return _finish(arguments, pipeline, orders, None)


def _run_into(arguments: argparse.Namespace, pipeline: PipelineProblem) -> int:
    from jigsaw_opt.documents import save_instance
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.planning.pipeline.search import add_pipeline

    instance = add_pipeline(
        instance_from(arguments.into),
        pipeline,
        arguments.name,
        gpu_type=arguments.gpu_type,
        iterations=arguments.iterations,
        weight=arguments.weight,
    )
    save_instance(instance, arguments.output)
    if arguments.json:
        print_json({"instance": instance.name, "jobs": [job.name for job in instance.jobs]})
    note(f"wrote {arguments.output}, with jobs {', '.join(job.name for job in instance.jobs)}")
    return 0


def _run_search(arguments: argparse.Namespace, pipeline: PipelineProblem) -> int:
    from jigsaw_opt.planning.pipeline.search import search_schedule
    from jigsaw_opt.planning.pipeline.stated import orders_of
    from jigsaw_opt.solvers.stop import interruptible

    limit = 20.0 if arguments.time_limit is None and arguments.work_limit is None else arguments.time_limit
    options = effort(arguments, time_limit=limit)
    with interruptible(options), progress(arguments.quiet, arguments.verbose) as report:
        instance, result = search_schedule(pipeline, arguments.name, arguments.horizon or "finite", options, report)
    if result.plan is None:
        return _without_plan(arguments, result)
    return _finish(arguments, pipeline, orders_of(instance, result.plan), (instance, result))


def _without_plan(arguments: argparse.Namespace, result: Result) -> int:
    if arguments.json:
        print_json({"schedule": "search", "status": result.status, "bound": result.bound})
    note(f"{result.status}: {'; '.join(map(str, result.conflicts)) or 'no schedule was found in time'}")
    code = 4 if result.status == "infeasible" else 5
    return ended(result.stopped_by == "interrupt", "no schedule was found so far", code)


def _finish(
    arguments: argparse.Namespace, pipeline: PipelineProblem, orders: Orders, found: tuple[Instance, Result] | None
) -> int:
    """Print and write a synchronous schedule."""
    from jigsaw_opt.planning.pipeline.schedule import schedule_of

    schedule = schedule_of(pipeline, orders, arguments.name, arguments.schedule)
    written = schedule.cyclic if arguments.horizon == "cyclic" else schedule.finite
    measure = "period_us" if arguments.horizon == "cyclic" else "makespan_us"
    document = {
        "schedule": arguments.schedule,
        "backward": "split" if pipeline.layout.split else "combined",
        "makespan_us": schedule.makespan_us,
        "period_us": schedule.period_us,
        "bubble": schedule.bubble,
        "peak_bytes": list(schedule.peak_bytes),
        "bound_us": written[1].bound,
        "bound_of": measure,
        "status": written[1].status,
    }
    if found is not None and found[1].plan is not None:
        instance, result = found
        written = instance, found[1].plan
        document |= {measure: result.objective, "bound_us": result.bound, "status": str(result.status)}
    rows = [
        (gpu, work, f"{100 * (1 - work / document['period_us']):.1f} %", peak)
        for gpu, (work, peak) in enumerate(zip(pipeline.work_us, schedule.peak_bytes, strict=True))
    ]
    _write(arguments, *written)
    _print(arguments, document, ("GPU", "work us", "idle", "peak bytes"), rows)
    interrupted = found is not None and found[1].stopped_by == "interrupt"
    return ended(interrupted, "the best schedule found so far")


def _run_async(arguments: argparse.Namespace, partition: Partition | None) -> int:
    from jigsaw_opt.planning.pipeline.asynchronous import asynchronous
    from jigsaw_opt.planning.pipeline.partition_costs import async_stages, stages_of

    if arguments.horizon == "finite" or arguments.micro_batches is not None or arguments.gpus is not None:
        raise not_together(
            "--schedule", "async has no end, so it takes neither --horizon finite nor --micro-batches, nor --gpus"
        )
    require_none(arguments, "async has whole backward passes", "first_stage")
    if arguments.backward == "split":
        raise not_together("--backward", "async has whole backward passes; leave out --backward split")
    stages = stages_of(costs_of_options(arguments)) if partition is None else async_stages(partition)
    schedule = asynchronous(stages, arguments.name, arguments.in_flight, arguments.memory)
    work = sum(stage.forward_us + stage.backward_us for stage in stages)
    gpus = sum(stage.replicas for stage in stages)
    document = {
        "schedule": "async",
        "backward": "combined",
        "makespan_us": schedule.latency_us,
        "period_us": schedule.plan.objective,
        "minibatches": schedule.minibatches,
        "initiation_interval_us": schedule.initiation_interval_us,
        "bubble": 1 - work / (gpus * schedule.initiation_interval_us),
        "peak_bytes": list(schedule.peak_bytes),
        "noam": schedule.noam,
        "in_flight": schedule.in_flight,
        "weight_versions": list(schedule.weight_versions),
        "bound_us": schedule.plan.bound,
        "bound_of": "period_us",
        "status": schedule.plan.status,
    }
    _write(arguments, schedule.instance, schedule.plan)
    columns = zip(stages, schedule.weight_versions, schedule.peak_bytes, strict=True)
    rows = [(number, stage.replicas, versions, peak) for number, (stage, versions, peak) in enumerate(columns)]
    _print(arguments, document, ("stage", "GPUs", "weight versions", "peak bytes"), rows)
    return 0


def _write(arguments: argparse.Namespace, instance: Instance, plan: Plan) -> None:
    from jigsaw_opt.documents import save_instance, save_plan

    if arguments.output is not None:
        save_instance(instance, arguments.output)
    if arguments.plan is not None:
        save_plan(plan, arguments.plan)


def _print(
    arguments: argparse.Namespace, document: dict[str, Any], headers: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    if arguments.json:
        print_json(document)
        return
    print(f"{document['schedule']}: makespan {document['makespan_us']} us, period {document['period_us']} us", end="")
    print(f", bubble {100 * document['bubble']:.1f} %, {document['backward']} backward passes")
    if document["schedule"] == "async":
        print(f"a minibatch every {document['initiation_interval_us']} us, {document['in_flight']} in flight")
    measure = document["bound_of"].removesuffix("_us")
    print(f"{document['status']}: no {measure} is below {document['bound_us']} us\n")
    print_table(headers, rows, right=set(headers))
