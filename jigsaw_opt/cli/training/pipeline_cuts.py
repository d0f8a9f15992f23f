"""Cut a profile into the stages of a pipeline, and order their passes, in one search."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.options import effort
from jigsaw_opt.cli.common.output import emit, ended, note, print_json, print_table, require_output
from jigsaw_opt.cli.common.progress import progress
from jigsaw_opt.cli.common.source import layer_graph
from jigsaw_opt.errors import UsageError, missing_option, not_together
from jigsaw_opt.text import counted, json_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from jigsaw_opt.planning.joint import JointPlan, PipelineChoices
    from jigsaw_opt.problem.measured.layers import LayerGraph

CHOICES = ("bandwidth", "latency_us", "virtual", "placement", "recompute", "batch", "profile_batch", "cuts", "baseline")
"""What is said only of a profile that is cut."""

UNKNOWN_INPUT = "bytes of the model's input are not known: a first stage that recomputes holds it, and none count"
"""What is said of a profile, or of a partition, where a stage may recompute."""
_YES = {True: "yes", False: "no"}
_BASELINES = ("slowest-stage", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "v-half")
_UNITS = {"": 1, "B": 1, **{f"{prefix}B": 1000**k for k, prefix in enumerate("KMGT", 1)}}
_UNITS |= {f"{prefix}iB": 1024**k for k, prefix in enumerate("KMGT", 1)}
_SIZE = re.compile(rf"([0-9]+(?:\.[0-9]+)?) ?({'|'.join(_UNITS)})", re.ASCII)


def configure_cuts(group: argparse._ArgumentGroup) -> None:
    """Add the arguments of a profile that is to be cut."""
    group.add_argument("--stages", type=int, metavar="N", help="cut PROFILE for so many devices")
    group.add_argument(
        "--bandwidth", type=int, metavar="RATE", help="bytes per second between neighbours (default: no time to send)"
    )
    group.add_argument(
        "--latency-us",
        type=int,
        metavar="US",
        help="part of the time of a message that does not depend on its size, in microseconds (default: 0)",
    )
    group.add_argument(
        "--virtual", type=numbers_of, metavar="V", help="stages of a device, also a range as in 1..3 (default: 1)"
    )
    group.add_argument(
        "--placement",
        choices=("loop", "v", "any"),
        help="where several stages of a device are; loop: in turn on all devices, as in interleaved schedules and "
        "Megatron-LM; v: there and back (default: any, whichever is best)",
    )
    group.add_argument(
        "--recompute",
        choices=("none", "all", "auto"),
        help="stages that compute their activations again before their backward pass (default: none)",
    )
    group.add_argument(
        "--batch", type=int, metavar="N", help="samples of a step, which its micro-batches share (default: as measured)"
    )
    group.add_argument(
        "--profile-batch",
        type=int,
        metavar="N",
        help="samples that were measured, where PROFILE does not say",
    )
    group.add_argument("--cuts", type=Path, metavar="FILE", help="write the stages with their layers, as a partition")
    group.add_argument(
        "--baseline",
        choices=_BASELINES,
        help="say what is gained over this schedule on the cut whose slowest stage is fastest; "
        "slowest-stage: over the best of them",
    )


def memory_of(text: str) -> int:
    """Read a size: a whole number of bytes, or a number with a unit."""
    found = _SIZE.fullmatch(text)
    size = float(found[1]) * _UNITS[found[2]] if found else 0
    exact = int(text) if text.isascii() and text.isdigit() else int(size)
    if not 1 <= exact < 2**53:
        raise argparse.ArgumentTypeError(f"a size is at least 1 byte, as in 32GB or 34359738368, not {text!r}")
    return exact


def numbers_of(text: str) -> tuple[int, ...]:
    """Read whole numbers from 1 on: one, or a range as in 8..32."""
    found = re.fullmatch(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?", text, re.ASCII)
    numbers = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not numbers or numbers[0] < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 or a range of them, as in 8..32, not {text!r}")
    return tuple(numbers)


def run_cuts(arguments: argparse.Namespace) -> int:
    """Read a profile, search, print what was found, write instance and plan."""
    from dataclasses import replace

    from jigsaw_opt.documents import encode_instance, encode_plan
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.planning.joint import plan_pipeline
    from jigsaw_opt.planning.joint.comparison import partition_of, step_range_us
    from jigsaw_opt.planning.partition.result import partition_tree
    from jigsaw_opt.solvers.stop import interruptible

    require_output(arguments.cuts, arguments.partition, arguments.output, arguments.plan)
    if arguments.partition is None:
        raise missing_option("--stages", "--stages cuts a profile: give its file")
    source = "/dev/stdin" if arguments.partition == "-" else arguments.partition
    graph, choices = layer_graph(read_text(source), arguments.partition, arguments.gpu_type), _choices(arguments)
    if arguments.profile_batch is not None:
        if graph.batch not in (None, arguments.profile_batch):
            raise not_together(
                "--profile-batch",
                f"--profile-batch {arguments.profile_batch}: {arguments.partition} says that {graph.batch} samples "
                "were measured; --batch says how many a step has",
            )
        graph = replace(graph, batch=arguments.profile_batch)
    if choices.recompute != "none" and not graph.knows_input:
        note(f"{arguments.partition}: {UNKNOWN_INPUT}")
    _require_split(arguments, graph)
    if arguments.backward == "combined":
        graph = replace(graph, layers=tuple(replace(layer, weight_us=None) for layer in graph.layers))
    limit = 30.0 if arguments.time_limit is None and arguments.work_limit is None else arguments.time_limit
    options = effort(arguments, time_limit=limit)
    with interruptible(options), progress(arguments.quiet, arguments.verbose) as report:
        found = plan_pipeline(graph, choices, options, name=arguments.name, report=report)
    scatter = step_range_us(found)
    made: dict[Path | None, Callable[[], bytes]] = {
        arguments.output: lambda: encode_instance(found.instance),
        arguments.plan: lambda: encode_plan(found.plan),
        arguments.cuts: lambda: (json_text(partition_tree(partition_of(found)), indent=2) + "\n").encode(),
    }
    # All of them are made before one is written.
    for path, data in [(path, make()) for path, make in made.items() if path is not None]:
        emit(data, path)
    _print(arguments, found, scatter)
    return ended(options.cancel.is_set(), "the best pipeline found so far, with its bound")


def _require_split(arguments: argparse.Namespace, graph: LayerGraph) -> None:
    """Refuse what says nothing of whole backward passes, where the profile is too coarse for others."""
    if arguments.backward == "combined":
        if arguments.first_stage is not None or arguments.baseline in ("zb-h1", "zb-h2"):
            raise not_together(
                "--backward", "with --backward combined, leave out --first-stage, and baselines that split it"
            )
        return
    if all(layer.weight_us is not None for layer in graph.layers):
        return
    splitting = {
        "--backward split": arguments.backward == "split",
        f"--baseline {arguments.baseline}": arguments.baseline in ("zb-h1", "zb-h2"),
        "--first-stage": arguments.first_stage is not None,
    }
    for words, given in splitting.items():
        if given:
            told = f"{words} takes a profile whose layers have weight_us"
            raise UsageError(told, code="missing-field", path=words.partition(" ")[0])


def _choices(arguments: argparse.Namespace) -> PipelineChoices:
    from jigsaw_opt.planning.joint import PipelineChoices

    if arguments.placement is not None and max(arguments.virtual or (1,)) == 1:
        raise missing_option(
            "--placement", "--placement is of several stages a device: say how many there may be (--virtual)"
        )
    return PipelineChoices(
        arguments.stages,
        arguments.micro_batches or (4 * arguments.stages,),
        memory=arguments.memory,
        virtual=arguments.virtual or (1,),
        recompute=arguments.recompute or "none",
        placement=arguments.placement or "any",
        first_stage=arguments.first_stage or "whole",
        bandwidth=arguments.bandwidth,
        latency_us=arguments.latency_us or 0,
        batch=arguments.batch,
    )


def _print(arguments: argparse.Namespace, found: JointPlan, scatter: tuple[int, int] | None) -> None:
    from jigsaw_opt.planning.joint.comparison import baseline_us

    document = _document(found) | ({} if scatter is None else {"makespan_range_us": list(scatter)})
    other = None
    if arguments.baseline is not None:
        other = baseline_us(found, arguments.baseline)
        document["baseline"] = {"name": arguments.baseline, "makespan_us": other}
    if arguments.json:
        print_json(document)
        return
    _print_tables(document)
    between = "" if scatter is None else f" ({scatter[0]} to {scatter[1]} us by the scatter of the layers)"
    print(
        f"\n{found.makespan_us} us a step{between}, {counted(document['micro_batches'], 'micro-batch', 'es')}", end=""
    )
    print(f"; no pipeline that was allowed is below {found.bound_us} us (gap {100 * found.gap:.1f} %)")
    if other is not None:
        # The baseline has a layout of its own, which may not have been allowed.
        share = 1 - found.makespan_us / other
        gained = f"{100 * abs(share):.1f} % {'shorter' if share >= 0 else 'longer'}"
        print(f"the step is {gained} than with {arguments.baseline} on the balanced cut, which takes {other} us")
    elif arguments.baseline is not None:
        print(f"{arguments.baseline} on the balanced cut does not fit into the memory")


def _document(found: JointPlan) -> dict[str, Any]:
    """Return everything about a plan, as what JSON is made of."""
    from dataclasses import asdict

    from jigsaw_opt.planning.joint.comparison import rows_of

    costs, layout, positions = found.pipeline.costs, found.pipeline.layout, found.table.positions
    columns = zip(found.cut.spans, layout.gpu_of, found.cut.recomputes, strict=True)
    stages = [
        {
            "device": device,
            "layers": list(positions.names(*span)),
            "recompute": again,
            "forward_us": costs.forward_us[number],
            "backward_us": costs.backward_us[number],
            "weight_us": costs.weight_us[number] if costs.weight_us else None,
            "static_bytes": costs.static_bytes[number],
            "activation_bytes": costs.activation_bytes[number],
        }
        for number, (span, device, again) in enumerate(columns)
    ]
    return {
        "status": "optimal" if found.bound_us == found.makespan_us else "feasible",
        "makespan_us": found.makespan_us,
        "bound_us": found.bound_us,
        "gap": found.gap,
        "micro_batches": layout.micro_batches,
        "backward": "split" if layout.split else "combined",
        "stages": stages,
        "schedules": [asdict(row) for row in rows_of(found)],
    }


def _print_tables(document: dict[str, Any]) -> None:
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
            schedule["name"],
            schedule["makespan_us"],
            f"{100 * schedule['bubble']:.1f} %",
            max(schedule["peak_bytes"]),
            _YES[schedule["fits"]],
        )
        for schedule in document["schedules"]
    ]
    print_table(
        ("schedule", "step us", "bubble", "peak bytes", "fits"), schedules, right={"step us", "bubble", "peak bytes"}
    )
