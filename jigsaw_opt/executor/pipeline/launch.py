"""Carrying out jobs whose model is in stages: in processes of this machine, or in those that torchrun has started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.burst.burst_process import run_burst
from jigsaw_opt.executor.pipeline.evaluation import pipeline_replay
from jigsaw_opt.executor.pipeline.flow_process import run_flow
from jigsaw_opt.executor.pipeline.rank_process import run_stages
from jigsaw_opt.executor.pipeline.records import StageReport
from jigsaw_opt.executor.processes import InterruptedGroupError
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.launch import in_processes, machine_of
from jigsaw_opt.executor.replay.records import InterruptedRunError
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.planning.burst.schedule import burst_schedule
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule, flow_schedule, torch_schedule
from jigsaw_opt.problem.replay import Replay

__all__ = ["replay_stages"]


def replay_stages(request: ReplayRequest, entry: Mapping[str, Any]) -> Replay | None:
    """Carry the plan of a pipeline out on PyTorch's runtime, or that of a burst.

    Parameters
    ----------
    request
        The plan of an instance with a pipeline or a burst alone, and how.
    entry
        How its stages are built.

    Returns
    -------
    Replay or None
        None in all processes but the first one, where torchrun has started them.

    Raises
    ------
    RunFailedError
        A process was killed, a stage raised, or a loss is no number. No process is left.
    InterruptedRunError
        A signal ended it; it has what was measured.
    InvalidInputError, UsageError
        The stages cannot be built, a checkpoint is not there, the processes do not fit the plan.
    MissingEngineError
        This version of PyTorch has another runtime.
    """
    schedule, function = _schedule(request)
    gpus = request.plan.jobs[schedule.job].gpus
    machine = machine_of(request, len(gpus))
    try:
        found = in_processes(function, gpus, request, schedule, entry)
    except InterruptedGroupError as error:
        told = [report for report in error.found if report is not None]
        whole = len(told) == len(gpus) and all(report.steps for report in told)
        measured = pipeline_replay(request, schedule, told, machine) if whole else None
        raise InterruptedRunError(measured, _saved(request, len(gpus))) from error
    return None if found is None else pipeline_replay(request, schedule, found, machine)


def _schedule(request: ReplayRequest) -> tuple[StageSchedule, Callable[..., list[StageReport] | None]]:
    """What processes carry out, and by which function."""
    flow, burst = flow_schedule(request.instance), burst_schedule(request.instance)
    if flow is not None:
        _require_of_flow(request)
        return flow, run_flow
    if burst is not None:
        return burst, run_burst
    return torch_schedule(request.instance, request.plan, "compute_comms"), run_stages


def _require_of_flow(request: ReplayRequest) -> None:
    """Refuse what an asynchronous pipeline does not do.

    Raises
    ------
    UsageError
        With all of it.
    """
    wrong = []
    if request.minutes is not None:
        wrong.append("an asynchronous pipeline is carried out for a number of minibatches, not for some minutes")
    if request.checkpoint is not None:
        wrong.append("minibatches of an asynchronous pipeline are always under way, so it has no checkpoints")
    if wrong:
        raise UsageError(*wrong)


def _saved(request: ReplayRequest, processes: int) -> dict[str, int] | None:
    """After how many iterations all processes are saved on this machine; None without a checkpoint."""
    if request.checkpoint is None:
        return None
    [job] = request.instance.jobs
    return {job.name: Checkpoint(request.checkpoint, request).saved([processes])[0]}
