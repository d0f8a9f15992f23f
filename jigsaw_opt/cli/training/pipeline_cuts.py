"""Cut a profile into the stages of a pipeline, and order their passes, in one search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import print_json, print_table
from jigsaw_opt.cli.common.parser import range_of
from jigsaw_opt.text import counted

if TYPE_CHECKING:
    from jigsaw_opt.planning.joint import CutPipeline
    from jigsaw_opt.planning.planned import Planned

UNKNOWN_INPUT = "bytes of the model's input are not known: a first stage that recomputes holds it, and none count"
"""What is said of a profile, or of a partition, where a stage may recompute."""
CUTS: Arguments = {
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


def print_cuts(found: Planned[Any], details: CutPipeline, baseline: str | None, as_json: bool) -> None:
    """Print stages and schedules of a profile that was cut."""
    from jigsaw_opt.planning.joint.comparison import step_range_us

    scatter, other = step_range_us(details), details.baseline_us
    document = _document(found, details) | ({} if scatter is None else {"makespan_range_us": list(scatter)})
    if baseline is not None:
        document["baseline"] = {"name": baseline, "makespan_us": other}
    if as_json:
        print_json(document)
        return
    _print_tables(document)
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


def _document(found: Planned[Any], details: CutPipeline) -> dict[str, Any]:
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
