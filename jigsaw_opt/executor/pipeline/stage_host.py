"""What one process has of a job whose model is in stages: its stages, their data, and what notes when they run."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from jigsaw_opt.errors import JigsawError, RunFailedError
from jigsaw_opt.executor.pipeline.agreement import require_same_batch
from jigsaw_opt.executor.pipeline.own_stages import own_stages
from jigsaw_opt.executor.pipeline.stage_worker import StageWorker
from jigsaw_opt.executor.pipeline.timed_stage import ActionLog
from jigsaw_opt.executor.processes import allow_children
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.request import ReplayRequest, StagedRun
from jigsaw_opt.executor.user_code.importing import told
from jigsaw_opt.problem.rules.report import Place


class StageHost:
    """The stages of one process, which has the rank of their slot in the plan.

    `schedule`: the actions of all processes of the job. `clock, device`: the clock and the device of this process.
    `parts`: stages of the partition, if there is one. `notes`: what is to be told of them.
    """

    def __init__(self, request: ReplayRequest, run: StagedRun, clock: ReplayClock, device: torch.device) -> None:
        allow_children()
        schedule, entry = run
        self.request, self.schedule, self.rank, self.device = request, schedule, dist.get_rank(), device
        self._log = ActionLog(clock, device)
        stages = schedule.stages_of(self.rank)
        place: Place = ((("$", "jobs"), schedule.job), "executor")
        given = {"rank": self.rank, "world": schedule.processes, "device": device}
        settings = replace(request, seed=request.seed + schedule.job)
        own = own_stages(entry, place, given, stages, schedule.stages, settings)
        self.modules = own.modules
        self.worker = StageWorker(self.rank, own, settings.seed, device)
        self.parts, self.notes = entry.get("parts", ()), list(own.notes)
        self._is_first, self._is_last = 0 in stages, schedule.stages - 1 in stages

    def require_same_batches(self, group: dist.ProcessGroup | None) -> None:
        """Raise `UsageError` where the first batch is another one in some process of a group."""
        before = self.worker.state()
        require_same_batch(*self.worker.begin(1), group)
        self.worker.load(before)


_TALKING = (Path(str(dist.__file__)).parent, Path(__file__).parents[1])


def _is_of_a_message(error: BaseException) -> bool:
    """Return whether the innermost line that raised an error is one that talks to other processes."""
    innermost = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return error.__cause__ is None and any(innermost.is_relative_to(folder) for folder in _TALKING)


@contextmanager
def blamed(where: str) -> Iterator[None]:
    """Say of what the user's code raises in the block where it happened; PyTorch wraps errors of stages."""
    try:
        yield
    except JigsawError:
        raise
    except (Exception, SystemExit) as error:
        if _is_of_a_message(error):
            raise  # another process is gone, and is told
        cause = error.__cause__ if error.__cause__ is not None else error
        raise RunFailedError(f"{where}: {told(cause)}") from error
