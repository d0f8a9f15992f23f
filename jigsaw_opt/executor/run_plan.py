"""One call that carries a plan out and measures it."""

from __future__ import annotations

import logging

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import Problem, UsageError, argument
from jigsaw_opt.executor import require_torch
from jigsaw_opt.executor.catalogue import stages_entry
from jigsaw_opt.executor.schedules.request import ReplayRequest, StagedRun
from jigsaw_opt.instances.profiles import is_estimate
from jigsaw_opt.planning.burst.schedule import burst_schedule
from jigsaw_opt.planning.pipeline.model_parts import stated_parts
from jigsaw_opt.planning.pipeline.torch_csv import flow_schedule, torch_schedules
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.text import named

_LOGGER = logging.getLogger(__name__)


@typed
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
    InvalidInputError
        A task-graph job is no pipeline, or there are several; models do not say how they are built, or a checkpoint is
        not there; with every problem.
    MissingEngineError
        PyTorch is not installed.
    RunFailedError
        A process was killed, a model raised, or a loss is no number. No process is left.
    """
    stages = _stages(request)
    require_torch()
    _tell(request)
    from jigsaw_opt.executor.devices import device_of
    from jigsaw_opt.executor.replay.launch import replay

    device_of(request.device)  # refuses one that is not there
    return replay(request, stages)


def _tell(request: ReplayRequest) -> None:
    """Warn of times that nobody measured, and of settings of training that some jobs do not heed."""
    jobs = request.instance.jobs
    if estimated := sorted(filter(is_estimate, {job.model for job in jobs if job.model is not None})):
        _LOGGER.warning(
            "estimated, not measured, are the times of %s; jigsaw profile measures them", ", ".join(estimated)
        )
    models = request.instance.models
    entries = [job.executor if isinstance(job, TaskGraphJob) else models[job.model].executor for job in jobs]
    code = {value for entry in entries for value in (entry or {}).values() if isinstance(value, str)}
    unused = [name for name in request.trusted if name not in code]
    if unused and None not in entries:  # A job without an entry may take it.
        _LOGGER.warning("%s: no job names %s", argument("trusted"), named(unused))
    in_stages = [job.name for job in jobs if job.model is None]
    if request.averaging != "avg_w_count" and in_stages:
        _LOGGER.warning("%s: not for %s, which have stages", argument("averaging"), named(in_stages))
    given = " and ".join(map(argument, request.changed()))
    if given and in_stages:
        told = "%s: for %s only where the function returns no optimiser of its own"
        _LOGGER.warning(told, given, named(in_stages))
    if given and (own := [job.name for job in jobs if request.trains_itself(job)]):
        _LOGGER.warning("%s: not for %s, which train as their own code says", given, named(own))


def _stages(request: ReplayRequest) -> StagedRun | None:
    """Return what processes carry out of the job in stages; None where all jobs are data-parallel."""
    instance, partition = request.instance, request.partition
    entry = stages_entry(instance, request.trusted, partition is not None, request.dry)
    if entry is None and partition is None:
        return None
    # Only pipelines are made of a partition: any other job is refused as what it is.
    burst = burst_schedule(instance) if partition is None else None
    schedule = flow_schedule(instance) or burst or torch_schedules(instance, request.plan)
    assert entry is not None, "there is a pipeline"
    if partition is not None:
        cut = stated_parts(instance, schedule.job, schedule.stages, partition)[0].stages
        entry = {**entry, "cuts": [part.nodes[0] for part in cut[1:]], "parts": cut}
    found = StagedRun(schedule, entry)
    _require_of_stages(request, found.is_asynchronous)
    return found


def _require_of_stages(request: ReplayRequest, asynchronous: bool) -> None:
    """Refuse what is not for a job in stages, or not for an asynchronous one."""
    wrong = {}
    if request.baseline in ("fifo", "gang"):
        wrong["baseline"] = f"a baseline of {request.baseline} is for data-parallel jobs"
    if asynchronous and request.checkpoint is not None:
        wrong["checkpoint"] = "minibatches of an asynchronous pipeline are always under way, so it has no checkpoints"
    if request.device == "cuda" and request.backend != "nccl":
        told = "stages on CUDA send what they have by NCCL, with a device for each process"
        wrong["backend"] = f"{told}: {argument('backend', 'nccl')}"
    if wrong:
        raise UsageError.of(Problem(path, told, code="unsupported") for path, told in wrong.items())
