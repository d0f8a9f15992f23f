"""Plans and instances in the formats of other programs, by name: what shows, simulates, solves or carries them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict, Unpack

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.require import require_correct
from jigsaw_opt.errors import UsageError, argument, missing_option, not_together, require_at_least
from jigsaw_opt.planning.partition.result import Partition
from jigsaw_opt.planning.pipeline import model_parts, stated
from jigsaw_opt.planning.pipeline.torch_csv import KNOWN_TORCH, CsvFormat, torch_schedule
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.text import agreeing, counted, named, nearest


class Exported(NamedTuple):
    """What a format has of a plan or an instance.

    `files`: bytes by name of the file; those of a name that was given have it. `notes`: sentences on what the files do
    not say, or say otherwise.
    """

    files: dict[str, bytes]
    notes: tuple[str, ...] = ()


class ExportOptions(TypedDict, total=False):
    """Options of `export`; each goes with some formats."""

    replay: Replay | Path
    form: CsvFormat
    partition: Partition | Path
    layers: LayerGraph | Path
    batch: int
    csv: str
    layout_of: Sequence[tuple[str, str]]
    most_coefficients: int
    proof: BoundProof | Path
    beside: str
    at_most: int
    iterations: Literal["each", "together"]
    on_rows: Callable[[int, bool], None]


@typed
def export(
    instance: Instance, plan: Plan | None = None, to: str = "perfetto", **option: Unpack[ExportOptions]
) -> Exported:
    """Return a plan, or an instance, in the format of another program.

    Parameters
    ----------
    instance
        The instance.
    plan
        A correct plan; None for formats of the instance.
    to
        Of a plan, ``perfetto``, ``chakra``, or of a pipeline ``torch-csv``, ``torchtitan`` or ``megatron-layout``. Of
        an instance, its mixed-integer program as ``mps`` or ``lp``, ``jsplib``, or as ``opb`` whether a plan may be as
        good as a limit.
    **option
        ``replay`` (perfetto): a replay, traced beside the plan. ``form`` (torch-csv): ``compute_only``, or
        ``compute_comms`` with what ranks send and receive. ``partition`` and ``layers`` (torchtitan, megatron-layout):
        the partition that the pipeline was made of, and the layer profile where its layers name modules. ``batch`` and
        ``csv`` (torchtitan): samples of a step on a rank, and the name of the schedule beside the configuration.
        ``layout_of`` (megatron-layout): patterns of names of modules with their kinds. ``most_coefficients`` and
        ``on_rows`` (mps, lp): the size up to which a program is written, and a function that is called with the number
        of rows that are built, and whether these are all. ``at_most`` and ``iterations`` (opb): the limit, and whether
        the rows have ``each`` iteration or all of a job ``together``. ``proof`` and ``beside``: a proof, and the name
        of what shows it beside the file. For mps and lp, the program is of its inequalities between completion times,
        with its dual solution; for opb, the rows are those of its cases, with their refutation. Documents may be given
        as paths.

    Returns
    -------
    Exported
        The files, of which none is written.

    Raises
    ------
    UsageError
        There is no such format, an option does not go with it or is missing, or it cannot hold the plan.
    CheckFailedError
        The plan breaks a rule.
    InvalidInputError
        A document is not of this plan, or the plan is none of a pipeline.
    MissingEngineError
        The format needs a library that is not installed.
    """
    if to not in FORMATS:
        raise UsageError(f"no format {to!r}; {nearest(to, FORMATS)}", code="unknown-value", path="to")
    takes = signature(FORMATS[to]).parameters
    for name in option:
        if name not in takes:
            formats = [argument("to", other) for other in FORMATS if name in signature(FORMATS[other]).parameters]
            raise not_together(name, f"{argument(name)} goes with {' and '.join(formats)} only")
    if plan is None and "plan" in takes:
        raise missing_option("plan", f"{argument('to', to)} needs a plan")
    if plan is not None and "plan" not in takes:
        raise not_together("plan", f"{argument('to', to)} is of an instance alone; leave out the plan")
    for name, parameter in takes.items():
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is Parameter.empty and name not in option:
            raise missing_option(name, f"{argument('to', to)} needs {argument(name)}")
    if plan is None:
        return FORMATS[to](instance, **option)
    require_correct(instance, plan)
    return FORMATS[to](instance, plan, **option)


def _perfetto(instance: Instance, plan: Plan, *, replay: Replay | Path | None = None) -> Exported:
    from jigsaw_opt.views.perfetto import perfetto_trace
    from jigsaw_opt.views.replay import picture_of

    return Exported({"trace.json": perfetto_trace(picture_of(instance, plan, replay))})


def _chakra(instance: Instance, plan: Plan) -> Exported:
    """Return a trace for each GPU, in files whose names end in the rank."""
    from jigsaw_opt.documents.readers.chakra.trace import encode_trace
    from jigsaw_opt.planning.chakra import chakra_traces

    made = chakra_traces(instance, plan)
    notes = [f"rank {rank} is GPU {gpu}" for rank, gpu in enumerate(made.gpus)]
    if made.all_reduces:
        transfers = counted(made.all_reduces, "transfer")
        notes.append(f"written as all-reduces, as a plan times them: {transfers} among several GPUs")
    if made.unsaid:
        notes.append(f"not in the traces: {counted(made.unsaid, 'wait')} between GPUs that share no transfer")
    caps, shapes = instance.cluster.capacities, [job.shape for job in instance.task_graph_jobs]
    for count, what in ((sum(len(s.holds) for s in shapes), "memory interval"), (len(caps), "power cap")):
        notes += [f"not in the traces: {counted(count, what)}"] if count else []
    if made.turns:
        notes.append(f"not in the traces: that jobs take turns, as all of them exceed {named(list(made.turns))}")
    return Exported({f"plan.{rank}.et": encode_trace(nodes) for rank, nodes in enumerate(made.nodes)}, tuple(notes))


def _torch_csv(instance: Instance, plan: Plan, *, form: CsvFormat = "compute_only") -> Exported:
    found = torch_schedule(instance, plan, form)
    notes = _left_out(instance, found.job)
    if found.recomputed:
        notes.append(f"{_recomputing(found.recomputed)}, which the file has no word for: what runs it must see to it")
    notes.append(f"a schedule for torch.distributed.pipelining as PyTorch {KNOWN_TORCH} reads it, in the format {form}")
    return Exported({"pipeline.csv": found.csv.encode()}, tuple(notes))


def _torchtitan(
    instance: Instance,
    plan: Plan,
    *,
    partition: Partition | Path,
    layers: LayerGraph | Path | None = None,
    batch: int | None = None,
    csv: str = "pipeline.csv",
) -> Exported:
    """Return the configuration, and the schedule beside it."""
    found = torch_schedule(instance, plan)
    stages = found.layout.stages
    _, parts = model_parts.stated_parts(instance, found.job, stages, partition, layers)
    names = model_parts.torchtitan_names(parts)
    made = model_parts.torchtitan_configuration(names, found.layout, csv, batch, found.recomputed)
    notes = [*_left_out(instance, found.job), *_recomputed(found.recomputed, stages, "TorchTitan")]
    if batch is None:
        told = "says how many samples a step has; the configuration has one for each micro-batch"
        notes.append(f"{argument('batch')} {told}")
    version = model_parts.KNOWN_TORCHTITAN
    notes.append(f"a configuration for TorchTitan {version}; later versions take these values in ParallelismConfig")
    return Exported({"pipeline.toml": made.encode(), csv: found.csv.encode()}, tuple(notes))


def _megatron_layout(
    instance: Instance,
    plan: Plan,
    *,
    partition: Partition | Path,
    layers: LayerGraph | Path | None = None,
    layout_of: Sequence[tuple[str, str]] = (),
) -> Exported:
    """Return arguments of Megatron's command line."""
    from shlex import quote

    job, layout = stated.pipeline_of(instance, plan)
    _, parts = model_parts.stated_parts(instance, job, layout.stages, partition, layers)
    text = model_parts.megatron_layout(parts, layout, layout_of)
    recomputed = stated.recomputed_stages(instance.task_graph_of[job])
    again = f" {model_parts.MEGATRON_RECOMPUTES}" if recomputed else ""
    virtual = counted(layout.stages // layout.gpus, "virtual stage")
    notes = [*_left_out(instance, job), *_recomputed(recomputed, layout.stages, "Megatron")]
    notes.append(f"{virtual} a rank; Megatron orders passes itself, not as the plan does")
    line = f"--pipeline-model-parallel-size {layout.gpus} --pipeline-model-parallel-layout {quote(text)}{again}\n"
    return Exported({"arguments.txt": line.encode()}, tuple(notes))


def _left_out(instance: Instance, pipeline: int) -> list[str]:
    others = [job.name for number, job in enumerate(instance.jobs) if number != pipeline]
    jobs = agreeing(len(others), "job", "jobs")
    return [f"left out: {jobs} {', '.join(others)}; the file has the pipeline alone"] if others else []


def _recomputing(stages: Sequence[int]) -> str:
    """Return which stages compute activations again, as the beginning of a sentence."""
    count = len(stages)
    verb = agreeing(count, "recomputes", "recompute")
    return f"{agreeing(count, 'stage', 'stages')} {named(list(map(str, stages)), count)} {verb}"


def _recomputed(stages: Sequence[int], whole: int, framework: str) -> list[str]:
    """Return how far the setting of a framework for all stages is from what the plan has."""
    if not stages:
        return []
    others = "" if len(stages) == whole else "; the other stages, which the plan has without, will take longer"
    told = f"{_recomputing(stages)} activations: {framework} has one setting for all stages"
    return [f"{told}, and keeps the input of each layer, where the plan keeps that of a stage{others}"]


def _program(
    instance: Instance,
    *,
    kind: Literal["mps", "lp"],
    most_coefficients: int | None = None,
    on_rows: Callable[[int, bool], None] | None = None,
    proof: BoundProof | Path | None = None,
    beside: str = "dual.sol",
) -> Exported:
    if proof is not None:
        from jigsaw_opt.formulations.dual_programs import dual_program

        linear, solution = dual_program(instance, _loaded(proof))
        return Exported({f"program.{kind}": linear.document(kind), beside: solution})
    from jigsaw_opt.solvers.ilp import MOST_EXPORTED, model_document

    told = "the program has plans in which no job moves; where jobs have a restart_us, others may be better"
    most = MOST_EXPORTED if most_coefficients is None else most_coefficients
    document = model_document(instance, kind, most, on_rows)
    return Exported({f"program.{kind}": document}, (told,) if instance.moving_jobs else ())


def _opb(
    instance: Instance,
    *,
    at_most: int | None = None,
    iterations: Literal["each", "together"] | None = None,
    proof: BoundProof | Path | None = None,
    beside: str = "plan.pbp",
) -> Exported:
    from jigsaw_opt.formulations.pseudo_boolean import decision_problem

    if proof is not None:
        from jigsaw_opt.formulations.refutations import refutation

        if at_most is not None or iterations is not None:
            name = "at_most" if at_most is not None else "iterations"
            raise not_together(name, f"{argument('proof')} has its own limit and rows; leave out {argument(name)}")
        problem, steps = refutation(instance, _loaded(proof))
        return Exported({"plan.opb": problem, beside: steps})
    if at_most is None:
        raise missing_option("at_most", f"{argument('to', 'opb')} needs {argument('at_most')} or {argument('proof')}")
    require_at_least(0, at_most=at_most)
    decision = decision_problem(instance, at_most, iterations == "together")
    return Exported({"plan.opb": decision.document()}, tuple(decision.remarks[-2:]))


def _loaded(proof: BoundProof | Path) -> BoundProof:
    from jigsaw_opt.documents import load_proof

    return load_proof(proof) if isinstance(proof, Path) else proof


def _jsplib(instance: Instance) -> Exported:
    from jigsaw_opt.documents.job_shops import jsplib_text

    notes = list[str]()
    return Exported({"shop.txt": jsplib_text(instance, notes.append).encode()}, tuple(notes))


FORMATS: Mapping[str, Callable[..., Exported]] = {
    "perfetto": _perfetto,
    "chakra": _chakra,
    "mps": partial(_program, kind="mps"),
    "lp": partial(_program, kind="lp"),
    "opb": _opb,
    "jsplib": _jsplib,
    "torch-csv": _torch_csv,
    "torchtitan": _torchtitan,
    "megatron-layout": _megatron_layout,
}
"""By name of a format, what writes it; its keywords are the options that go with it."""
