"""Starting a replay: in processes of this machine, or as one process of those that torchrun has started."""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain

import torch
import torch.distributed as dist

from jigsaw_opt.errors import InvalidInputError, RunFailedError, UsageError, mismatch
from jigsaw_opt.executor.processes import TIMEOUT, InterruptedGroupError, LostProcessError, run_group
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.evaluation import replay_of
from jigsaw_opt.executor.replay.rank_process import run_rank
from jigsaw_opt.executor.schedules.baseline import baseline_part
from jigsaw_opt.executor.schedules.presence import PhasePart, phases_of
from jigsaw_opt.executor.schedules.records import InterruptedRunError, Part, RankReport
from jigsaw_opt.executor.schedules.request import ReplayRequest, StagedRun
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.text import printable

Asked = tuple[ReplayRequest, PhasePart | None, StagedRun | None]
_LOGGER = logging.getLogger(__name__)


def replay(request: ReplayRequest, stages: StagedRun | None = None) -> Replay | None:
    """Carry a plan out.

    None in all processes but the first one, where torchrun has started them.

    `stages`: the job in stages; None where there is none.
    """
    gpus = phases_of(request.instance, request.plan).gpus
    usual = baseline_part(request)
    cut, machine = request.cut(), machine_of(request, len(gpus))
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    try:
        with _ended_at_once() if under_torchrun else nullcontext(), _checkpoint_of(cut):
            found = (_joined if under_torchrun else _started)(gpus, (cut, usual, stages))
    except InterruptedGroupError as error:
        reports = _answers(error, len(gpus), max(len(group.phases) for group in request.plan.groups))
        measured = None if reports is None else replay_of(request, usual, stages, _told(reports), machine)
        raise InterruptedRunError(measured, _saved(cut)) from error
    return None if found is None else replay_of(request, usual, stages, _told(found), machine)


def _told(found: list[RankReport]) -> list[RankReport]:
    """Tell what processes have noted, each thing once."""
    for note in dict.fromkeys(chain.from_iterable(report.notes for report in found)):
        _LOGGER.warning("%s", printable(note))
    return found


def _answers(error: InterruptedGroupError, processes: int, runs: int) -> list[RankReport] | None:
    """Return what all processes had measured when they were interrupted, with empty parts for runs that had not begun.

    None where some process did not answer, or nothing had been measured.
    """
    found: list[RankReport] = [report for report in error.found if report is not None]
    if len(found) < processes or not any(
        record.kind != "transfer" for report in found for part in report.parts for record in part.records
    ):
        return None
    empty = Part([], [])
    padded = ([*report.parts, *[empty] * (runs - len(report.parts))] for report in found)
    return [replace(report, parts=parts) for report, parts in zip(found, padded, strict=True)]


def _saved(request: ReplayRequest) -> dict[str, int] | None:
    """Return for each job after how many iterations all its workers are saved; None without a checkpoint."""
    if request.checkpoint is None:
        return None
    jobs = request.instance.jobs
    saved = Checkpoint(request.checkpoint, request).saved([job.workers for job in jobs])
    return {job.name: iteration for job, iteration in zip(jobs, saved, strict=True)}


@contextmanager
def _checkpoint_of(request: ReplayRequest) -> Iterator[None]:
    """Open the folder of checkpoints for the block; a run that is refused leaves none behind."""
    if request.checkpoint is None or int(os.environ.get("LOCAL_RANK", 0)):
        yield
        return
    checkpoint = Checkpoint(request.checkpoint, request)
    checkpoint.open(request.resume)
    try:
        yield
    except (InvalidInputError, UsageError):
        checkpoint.withdraw()
        raise


def _started(gpus: Sequence[str], asked: Asked) -> list[RankReport]:
    """Start a process for each GPU, and return what all of them have found."""
    request = asked[0]
    if request.backend == "nccl" and torch.cuda.device_count() < len(gpus):
        message = f"NCCL needs a device for each of {len(gpus)} processes; --backend gloo lets them share"
        raise UsageError(message, code="does-not-fit", path="backend")
    _LOGGER.info("%d processes start", len(gpus))
    try:
        found = run_group(run_rank, len(gpus), *asked, backend=request.backend, timeout=TIMEOUT)[0]
    except LostProcessError as error:
        raise RunFailedError(f"the process of {gpus[error.rank]} {error.how}") from error
    assert found is not None
    return found


def _joined(gpus: Sequence[str], asked: Asked) -> list[RankReport] | None:
    """Be one of the processes that torchrun has started; return what all have found, in the first one."""
    count = int(os.environ["WORLD_SIZE"])
    if count != len(gpus):
        raise mismatch("plan", f"the plan uses {len(gpus)} GPUs, one process each, but torchrun has started {count}")
    dist.init_process_group(asked[0].backend, timeout=TIMEOUT)
    found = run_rank(*asked)
    dist.destroy_process_group()
    return found


@contextmanager
def _ended_at_once() -> Iterator[None]:
    """After an error end this process at once, as its threads may wait for others; torchrun then ends those."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001  (whatever it is, no thread may keep this process)
        code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
        message = str(error) or type(error).__name__
        if isinstance(error, RuntimeError):  # as torch says it
            message = f"the connection to another process broke off: {message}"
        _LOGGER.error("%s", printable(message))
        logging.shutdown()
        os._exit(code)


def machine_of(request: ReplayRequest, processes: int) -> dict[str, str | int]:
    """Return what may explain the times of a run in so many processes."""
    cuda = request.device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
        "kind": request.device,
        "devices": torch.cuda.device_count() if cuda else os.cpu_count() or 1,
        "backend": request.backend,
        "processes": processes,
        "threads": request.threads,
        "torch": str(torch.__version__),
        "python": sys.version.split()[0],
        **({"dry": True} if request.dry else {}),
    }
