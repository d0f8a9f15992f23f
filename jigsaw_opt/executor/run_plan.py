"""One call that carries a plan out and measures it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from jigsaw_opt.checking.require import require_correct
from jigsaw_opt.errors import Problem, UsageError, argument, require_a
from jigsaw_opt.executor import require_torch
from jigsaw_opt.executor.catalogue import stages_entry
from jigsaw_opt.executor.replay.baseline import foreground_of
from jigsaw_opt.executor.replay.request import ReplayRequest, StagedRun
from jigsaw_opt.instances.profiles import is_estimate
from jigsaw_opt.planning.burst.schedule import burst_schedule
from jigsaw_opt.planning.pipeline.model_parts import stated_parts
from jigsaw_opt.planning.pipeline.stated import pipeline_of
from jigsaw_opt.planning.pipeline.torch_csv import flow_schedule, torch_schedules
from jigsaw_opt.problem.job import Job
from jigsaw_opt.text import named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jigsaw_opt.planning.partition.result import Partition, Stage
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.measured.replay import Replay
    from jigsaw_opt.problem.plan import Plan

_LOGGER = logging.getLogger(__name__)


def run_plan(request: ReplayRequest) -> Replay | None:
    """Carry a plan out with PyTorch, one process a GPU: groups side by side, each phase after the one before it.

    Ctrl-C ends it with `KeyboardInterrupt`; no process is left.

    Parameters
    ----------
    request
        The plan, and how.

    Returns
    -------
    Replay or None
        What was measured; None in all processes but the first one, where torchrun has started them.

    Raises
    ------
    UsageError
        Something is not for a job in stages, or this machine has no such device.
    CheckFailedError
        The plan breaks a rule.
    InvalidInputError
        A task-graph job is no pipeline, or there are several; models do not say how they are built, a job of the
        foreground or a checkpoint is not there; with every problem.
    MissingEngineError
        PyTorch is not installed.
    RunFailedError
        A process was killed, a model raised, or a loss is no number. No process is left.
    """
    require_a(ReplayRequest, request, "request")
    require_correct(request.instance, request.plan)
    parts = _parts(request.partition, request.instance, request.plan)
    entry = stages_entry(request.instance, request.trusted, [part.nodes[0] for part in parts[1:]])
    stages = None if entry is None else _stages(request, {**entry, "parts": parts})
    if request.baseline == "alone":
        foreground_of(request)
    require_torch()
    _tell(request)
    from jigsaw_opt.executor.devices import device_of
    from jigsaw_opt.executor.replay.launch import replay, replay_flow

    device_of(request.device)  # refuses one that is not there
    if stages is not None and flow_schedule(request.instance) is not None:
        return replay_flow(request, stages)
    return replay(request, stages)


def _parts(partition: Partition | Path | None, instance: Instance, plan: Plan) -> tuple[Stage, ...]:
    """Return the stages of the partition that a pipeline was made of."""
    if partition is None:
        return ()
    flow = flow_schedule(instance)
    job, layout = pipeline_of(instance, plan) if flow is None else (flow.job, flow.layout)
    return stated_parts(instance, job, layout.stages, partition)[0].stages


def _tell(request: ReplayRequest) -> None:
    """Warn of times that nobody measured, and of settings of training that some jobs do not heed."""
    jobs = request.instance.jobs
    if estimated := sorted(filter(is_estimate, {job.model for job in jobs if isinstance(job, Job)})):
        _LOGGER.warning(
            "estimated, not measured, are the times of %s; jigsaw profile measures them", ", ".join(estimated)
        )
    in_stages = [job.name for job in jobs if not isinstance(job, Job)]
    if request.averaging != "avg_w_count" and in_stages:
        _LOGGER.warning("%s: not for %s, which have stages", argument("averaging"), named(in_stages))
    given = " and ".join(map(argument, request.changed()))
    if given and in_stages:
        told = "%s: for %s only where the function returns no optimiser of its own"
        _LOGGER.warning(told, given, named(in_stages))
    if given and (own := [job.name for job in jobs if request.trains_itself(job)]):
        _LOGGER.warning("%s: not for %s, which train as their own code says", given, named(own))


def _stages(request: ReplayRequest, entry: Mapping[str, Any]) -> StagedRun:
    """Return what processes carry out of the job in stages."""
    _require_of_stages(request)
    flow, burst = flow_schedule(request.instance), burst_schedule(request.instance)
    if flow is not None:
        return StagedRun(flow, entry)
    return StagedRun(burst or torch_schedules(request.instance, request.plan), entry)


def _require_of_stages(request: ReplayRequest) -> None:
    """Refuse what is not for a job in stages, or not for an asynchronous one."""
    wrong = {}
    if request.baseline in ("fifo", "gang"):
        wrong["baseline"] = f"a baseline of {request.baseline} is for data-parallel jobs"
    if flow_schedule(request.instance) is not None:
        if request.minutes is not None:
            told = "an asynchronous pipeline is carried out for a number of minibatches, not for some minutes"
            wrong["minutes"] = told
        if request.checkpoint is not None:
            told = "minibatches of an asynchronous pipeline are always under way, so it has no checkpoints"
            wrong["checkpoint"] = told
    if request.device == "cuda" and request.backend != "nccl":
        told = "stages on CUDA send what they have by NCCL, with a device for each process"
        wrong["backend"] = f"{told}: {argument('backend', 'nccl')}"
    if wrong:
        raise UsageError.of(Problem(path, told, code="unsupported") for path, told in wrong.items())
