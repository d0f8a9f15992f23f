"""Plan a pipeline in one call: of a profile that is cut, of a partition, or of costs of stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from numbers import Integral
from typing import Any, Literal

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import (
    InfeasibleError,
    OutOfTimeError,
    Problem,
    UsageError,
    argument,
    missing_option,
    not_together,
    out_of_range,
    unsupported,
)
from jigsaw_opt.planning.joint.choices import FirstStage, PipelineChoices, Recompute, StagePlacement
from jigsaw_opt.planning.joint.comparison import baseline_us
from jigsaw_opt.planning.joint.planning import CutPipeline, plan_pipeline
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.planning.partition.result import Partition
from jigsaw_opt.planning.pipeline.asynchronous import AsyncSchedule, asynchronous
from jigsaw_opt.planning.pipeline.costs import PipelineCosts, async_stages, costs_of, stages_of
from jigsaw_opt.planning.pipeline.named import ORDERS
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import PipelineSchedule, require_memory, schedule_of
from jigsaw_opt.planning.pipeline.search import add_pipeline, search_schedule
from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.planning.pipeline.stated import orders_of
from jigsaw_opt.planning.planned import Planned
from jigsaw_opt.problem.instance import Horizon, Instance
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.problem.workload import LARGEST
from jigsaw_opt.solvers.bounds import Proof
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import require_options
from jigsaw_opt.solvers.result import Report

Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "v-half", "async", "search"]
Backward = Literal["combined", "split"]
Baseline = Literal["slowest-stage", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "v-half"]
PipelineDetails = CutPipeline | PipelineSchedule | AsyncSchedule | PipelineProblem
_MOST_NUMBER, _MOST_NUMBERS = 999_999, 10_000
"""Largest number of micro-batches and of stages a GPU, and how many such numbers there are to choose from at most."""
_SECONDS = 20.0
"""Limit of a search that nobody limits."""


@typed
def pipeline(
    source: LayerGraph | Partition | PipelineCosts | Planned[Any],
    *,
    stages: int | None = None,
    micro_batches: int | Iterable[int] | None = None,
    schedule: Schedule | None = None,
    backward: Backward | None = None,
    first_stage: FirstStage | None = None,
    gpus: int | None = None,
    memory: int | None = None,
    horizon: Horizon | None = None,
    virtual: int | Iterable[int] | None = None,
    placement: StagePlacement | None = None,
    recompute: Recompute | None = None,
    bandwidth: int | None = None,
    latency_us: int | None = None,
    batch: int | None = None,
    baseline: Baseline | None = None,
    into: Instance | None = None,
    gpu_type: str | None = None,
    iterations: int | None = None,
    weight: int | None = None,
    name: str = "pipeline",
    options: Options | None = None,
    report: Report | None = None,
) -> Planned[PipelineDetails]:
    """Plan a pipeline: cut a profile and order its passes, or order those of given stages.

    Parameters
    ----------
    source
        A profile, whose cuts and order are decided together; a partition, also as `partition` returns it; or costs of
        stages.
    stages
        How many devices a profile is cut for.
    micro_batches
        Micro-batches of an iteration; of a profile also several numbers to choose from. None for 4 times the stages.
    schedule
        Schedule of given stages; ``search`` for the best that a solver finds, ``async`` for PipeDream's steady state.
        None for ``1f1b``.
    backward
        ``split``: the gradient of the input is sent on before the pass for the weights; ``combined``: after the whole
        backward pass. None for split where times of the second part are known.
    first_stage
        Where that is split: whether the first stage has its whole backward pass in `W`, as PyTorch carries it out.
        None for ``whole``, and for ``split`` of costs.
    gpus
        GPUs of given stages, each with as many of them; None for one a stage.
    memory
        Bytes of a GPU; None for no limit.
    horizon
        Horizon of the instance of given stages; None for the finite one, and the cyclic one of ``async``.
    virtual, placement, recompute, batch
        Of a profile: stages of a device, one number or several; where these are; which stages compute activations
        again; and samples of a step. None for 1, ``any``, ``none``, and micro-batches as they were measured.
    bandwidth, latency_us
        Of a profile: bytes per second between neighbours, and microseconds of a message of any size; None for no time.
    baseline
        Of a profile: a schedule on the cut whose slowest stage is fastest, whose step is told besides.
    into
        An instance that given stages are one more job of, which `solve` orders: there is no plan yet. Of the schedule,
        only which stages share a GPU counts then.
    gpu_type, iterations, weight
        Of that job: the GPUs that its costs are of, iterations, and weight of its completion. None for those of the
        cluster where all are alike, and for 1.
    name
        Name of the instance, or of the job in another one.
    options
        Limits, seed and threads of a search; None for a limit of 20 seconds.
    report
        Receives the progress of a search.

    Returns
    -------
    Planned
        The instance of the pipeline, with a checked plan and a bound. Its details have the cut and the order of passes,
        the figures of a schedule, or those of the steady state; in another instance, the stages on their GPUs.

    Raises
    ------
    UsageError
        Options do not go together, or with the source.
    InfeasibleError
        It is proven that the memory does not suffice.
    OutOfTimeError
        Within the limits no plan was found.

    Examples
    --------
    >>> costs = PipelineCosts(forward_us=(10, 10), backward_us=(20, 20))
    >>> pipeline(costs, micro_batches=4, schedule="1f1b").objective
    150
    """
    options = Options(time_limit=_SECONDS) if options is None else options
    source = _stated(source)
    if into is None:
        told = "this is for a pipeline in another instance"
        _leave_out(told, {"gpu_type": gpu_type, "iterations": iterations, "weight": weight})
    of_cuts: dict[str, object] = {"stages": stages, "virtual": virtual, "placement": placement, "recompute": recompute}
    of_cuts |= {"batch": batch, "bandwidth": bandwidth, "latency_us": latency_us, "baseline": baseline}
    if isinstance(source, LayerGraph) or schedule != "search":
        require_options(Limits, options, "the planning of a pipeline")
    if isinstance(source, LayerGraph):
        told = "of a profile that is cut, these are the profile's or are searched for"
        _leave_out(told, {"schedule": schedule, "gpus": gpus, "into": into, "horizon": horizon})
        if stages is None:
            raise missing_option("stages", f"a profile is cut: {argument('stages')} says for how many devices")
        choices = PipelineChoices(
            stages,
            _numbers("micro_batches", micro_batches, 4 * stages),
            memory,
            _numbers("virtual", virtual, 1),
            recompute or "none",
            placement or "any",
            first_stage or "whole",
            bandwidth,
            latency_us or 0,
            batch,
        )
        if placement is not None and max(choices.virtual) == 1:
            raise missing_option(
                "placement", f"{argument('placement')} is of several stages a device: {argument('virtual')} says so"
            )
        graph = _whole_or_split(source, backward, first_stage, baseline)
        found = plan_pipeline(graph, choices, options, name=name, report=report)
        if baseline is None:
            return found
        return replace(found, details=replace(found.details, baseline_us=baseline_us(found.details, baseline)))
    if memory is not None and not 1 <= memory <= LARGEST:
        raise out_of_range("memory", f"{argument('memory')} is at least 1 and at most {LARGEST}, not {memory}")
    _leave_out("only a profile is cut", of_cuts)
    if into is not None:
        ordered = schedule if schedule in ("async", "search") else None
        stated = {"schedule": ordered, "memory": memory, "horizon": horizon}
        _leave_out("`solve` orders a pipeline in another instance", stated)
    elif isinstance(source, PipelineCosts) and source.transfer_bytes and not source.transfer_us:
        raise not_together(
            "transfer_bytes", f"alone, a pipeline has delays in place of bytes: {argument('transfer_us')}"
        )
    if schedule == "async":
        others: dict[str, object] = {"micro_batches": micro_batches, "gpus": gpus, "first_stage": first_stage}
        pairs = (("horizon", horizon), ("backward", backward))
        others |= {name: value for name, value in pairs if value in ("finite", "split")}
        _leave_out("async has no end, and whole backward passes", others)
        copies = stages_of(source) if isinstance(source, PipelineCosts) else async_stages(source)
        return asynchronous(copies, name, memory)
    order = schedule or "1f1b"
    problem = _problem(source, order, micro_batches, backward, first_stage, gpus, memory)
    if into is not None:
        gpu_type = _gpu_type(source, gpu_type)
        given = {key: value for key, value in (("iterations", iterations), ("weight", weight)) if value is not None}
        whole = add_pipeline(into, problem, name, gpu_type=gpu_type, **given)
        return Planned(whole, None, 0, Proof("nothing is proven before a solve"), problem)
    if schedule == "search":
        return _searched(problem, name, horizon or "finite", options, report)
    orders = ORDERS[order](problem.layout)
    require_memory(problem, orders, order)
    timed = schedule_of(problem, orders, name, order)
    written = timed.cyclic if horizon == "cyclic" else timed.finite
    return Planned(written.instance, written.plan, written.bound, written.proof, timed)


def _stated(source: LayerGraph | Partition | PipelineCosts | Planned[Any]) -> LayerGraph | Partition | PipelineCosts:
    """Return the source itself; of what `partition` returns, its stages."""
    if not isinstance(source, Planned):
        return source
    if not isinstance(source.details, Partition):
        told = "the stages of a pipeline are those of a profile, a partition or costs, not of another plan"
        raise UsageError(told, code="wrong-type", path="source")
    return source.details


def _gpu_type(source: Partition | PipelineCosts, wanted: str | None) -> str | None:
    """Return the type of GPU that costs hold for, where it is known."""
    known = source.gpu_type if isinstance(source, Partition) else None
    if wanted is not None and known not in (None, wanted):
        told = f"the times of the partition are of GPUs of type {known!r}, not {wanted!r}"
        raise UsageError(told, code="contradiction", path="gpu_type")
    return wanted or known


def _problem(
    source: Partition | PipelineCosts,
    schedule: Schedule,
    micro_batches: int | Iterable[int] | None,
    backward: Backward | None,
    first_stage: FirstStage | None,
    gpus: int | None,
    memory: int | None,
) -> PipelineProblem:
    """Return the stages of a pipeline on their GPUs, as `schedule` has them; their passes have no order yet."""
    costs = costs_of(source) if isinstance(source, Partition) else source
    if backward == "split" and not costs.weight_us:
        told = f"{argument('backward', 'split')} takes the part of the backward pass for the weights"
        raise missing_option("weight_us", f"{told}: {argument('weight_us')}")
    if backward == "combined":
        costs = costs.combined()
    if not costs.weight_us:
        _leave_out("backward passes are not split", {"first_stage": first_stage})
    if (first_stage or ("whole" if isinstance(source, Partition) else "split")) == "whole":
        costs = costs.first_whole()
    layout = _layout(schedule, len(costs.forward_us), gpus, micro_batches, bool(costs.weight_us))
    return PipelineProblem(costs, layout, memory)


def _leave_out(why: str, given: Mapping[str, object]) -> None:
    """Refuse options that say nothing here."""
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise UsageError.of(Problem(name, f"{why}; leave out {argument(name)}", code="not-together") for name in names)


def _numbers(name: str, given: int | Iterable[int] | None, default: int) -> tuple[int, ...]:
    """Return the numbers that an argument gives, none so large that listing passes takes hours."""
    asked: Any = (default,) if given is None else (given,) if isinstance(given, Integral) else given
    numbers = tuple(islice(map(int, asked), _MOST_NUMBERS + 1))
    if len(numbers) > _MOST_NUMBERS or max(numbers, default=0) > _MOST_NUMBER:
        shown = str(max(numbers)) if len(numbers) <= _MOST_NUMBERS else f"more than {_MOST_NUMBERS} of them"
        raise out_of_range(name, f"numbers of {name} are at most {_MOST_NUMBER}, not {shown}")
    return numbers or (0,)


def _layout(
    schedule: Schedule, stages: int, gpus: int | None, micro_batches: int | Iterable[int] | None, split: bool
) -> PipelineLayout:
    """Return GPUs of the stages: in turn, or there and back for V-shaped schedules."""
    count = stages if gpus is None else gpus
    batches, *more = _numbers("micro_batches", micro_batches, 4 * stages)
    if more:
        raise unsupported("micro_batches", "only of a profile there is a choice of micro-batches; give one number")
    if batches < 1 or count < 1 or stages % count:
        told = f"{stages} stages on {count} GPUs with {batches} micro-batches: each GPU has as many stages"
        raise UsageError(told, code="contradiction", path="gpus")
    chunks, there = stages // count, tuple(range(count))
    if schedule == "v-half" and chunks != 2:
        told = f"v-half has two stages a GPU: twice as many stages as {argument('gpus')}"
        raise UsageError(told, code="contradiction", path="gpus")
    if schedule == "interleaved" and chunks < 2:
        raise missing_option("gpus", f"interleaved has several stages a GPU: {argument('gpus')} says on how many")
    if schedule not in ("v-half", "interleaved", "search") and chunks > 1:
        raise not_together("gpus", f"{schedule} has one stage a GPU; leave out {argument('gpus')}")
    return PipelineLayout(there + there[::-1] if schedule == "v-half" else there * chunks, batches, split)


def _whole_or_split(
    graph: LayerGraph, backward: Backward | None, first_stage: FirstStage | None, baseline: Baseline | None
) -> LayerGraph:
    """Return a profile with whole backward passes where these are asked for, or refuse what takes split ones."""
    splitting = {"baseline": baseline if baseline in ("zb-h1", "zb-h2") else None, "first_stage": first_stage}
    if backward == "combined":
        _leave_out("backward passes are combined", splitting)
        return replace(graph, layers=tuple(replace(layer, weight_us=None) for layer in graph.layers))
    if any(layer.weight_us is None for layer in graph.layers):
        splitting["backward"] = backward
        for name in (name for name, value in splitting.items() if value is not None):
            told = f"{argument(name, splitting[name])} takes a profile whose layers have weight_us"
            raise UsageError(told, code="missing-field", path=name)
    return graph


def _searched(
    problem: PipelineProblem, name: str, horizon: Horizon, options: Options, report: Report | None
) -> Planned[PipelineSchedule]:
    """Return what a solver finds, with the figures of its order on both horizons."""
    instance, result = search_schedule(problem, name, horizon, options, report)
    if result.plan is None:
        if result.status == "infeasible":
            raise InfeasibleError("; ".join(map(str, result.conflicts)) or "no schedule fits into the memory")
        raise OutOfTimeError(f"no schedule was found in time; none is below {result.bound} us")
    timed = schedule_of(problem, orders_of(instance, result.plan), name, "search")
    return Planned(instance, result.plan, result.bound, result.proof, timed)
