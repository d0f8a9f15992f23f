"""Starting a replay: in processes of this machine, or as one process of those that torchrun has started."""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

import torch
import torch.distributed as dist

from jigsaw_opt.errors import JigsawError, RunFailedError, UsageError
from jigsaw_opt.executor.processes import LostProcessError, run_group
from jigsaw_opt.executor.replay.baseline import baseline_plan
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.evaluation import replay_of
from jigsaw_opt.executor.replay.order import used_gpus
from jigsaw_opt.executor.replay.rank_process import TIMEOUT, run_rank
from jigsaw_opt.executor.replay.records import RankReport
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.replay import Replay
from jigsaw_opt.text import printable

__all__ = ["replay"]

_LOGGER = logging.getLogger(__name__)


def replay(request: ReplayRequest) -> Replay | None:
    """Carry a plan out.

    Returns
    -------
    Replay or None
        None in all processes but the first one, where torchrun has started them.

    Raises
    ------
    RunFailedError
        A process was killed, a model raised, or a loss is no number. No process is left.
    InvalidInputError, UsageError
        A model cannot be built, a checkpoint is not there, the processes do not fit the plan.
    """
    gpus = used_gpus(request.instance, request.plan)
    plans = [request.plan]
    if request.baseline is not None:
        plans.append(baseline_plan(request.instance, request.plan, request.baseline))
    if request.checkpoint is not None and int(os.environ.get("LOCAL_RANK", 0)) == 0:
        Checkpoint(request.checkpoint, request).open(request.resume)
    found = _joined(request, plans, gpus) if "TORCHELASTIC_RUN_ID" in os.environ else _started(request, plans, gpus)
    return None if found is None else replay_of(request, plans, found, _machine(request, len(gpus)))


def _started(request: ReplayRequest, plans: Sequence[Plan], gpus: Sequence[str]) -> list[RankReport]:
    if request.backend == "nccl" and torch.cuda.device_count() < len(gpus):
        raise UsageError(f"NCCL needs a device for each of {len(gpus)} processes; --backend gloo lets them share")
    try:
        found = run_group(run_rank, len(gpus), request, plans, backend=request.backend, timeout=TIMEOUT)[0]
    except LostProcessError as error:
        raise RunFailedError(f"the process of {gpus[error.rank]} {error.how}") from error
    assert found is not None
    return found


def _joined(request: ReplayRequest, plans: Sequence[Plan], gpus: Sequence[str]) -> list[RankReport] | None:
    count = int(os.environ["WORLD_SIZE"])
    if count != len(gpus):
        raise UsageError(f"the plan uses {len(gpus)} GPUs, one process each, but torchrun has started {count}")
    with _EndAtOnce():
        dist.init_process_group(request.backend, timeout=TIMEOUT)
        found = run_rank(request, plans)
        dist.destroy_process_group()
    return found


class _EndAtOnce(AbstractContextManager[None]):
    """After an error ends this process at once, as its threads may wait for others; torchrun then ends those."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            return
        code = error.exit_code if isinstance(error, JigsawError) else 130 if kind is KeyboardInterrupt else 1
        message = str(error) or type(error).__name__
        if isinstance(error, RuntimeError):  # as torch says it
            message = f"the connection to another process broke off: {message}"
        _LOGGER.error("%s", printable(message))
        logging.shutdown()
        os._exit(code)


def _machine(request: ReplayRequest, processes: int) -> dict[str, str | int]:
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
    }
