"""What each process of a pipeline does, from building its stages to handing over what it found."""

from __future__ import annotations

import logging
import math
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from jigsaw_opt.errors import JigsawError, RunFailedError, UsageError
from jigsaw_opt.executor.own_code import told
from jigsaw_opt.executor.pipeline.own_stages import own_stages
from jigsaw_opt.executor.pipeline.records import StageReport, StepRecord
from jigsaw_opt.executor.pipeline.stage_worker import StageWorker
from jigsaw_opt.executor.pipeline.timed_stage import ActionLog, TimedStage, pipeline_runtime
from jigsaw_opt.executor.processes import allow_children, report_so_far
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.rank_process import TIMEOUT, device_of_process
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule, TorchSchedule, planned_times
from jigsaw_opt.problem.rules.report import Place

__all__ = ["PipelineProcess", "StageProcess", "SteppingProcess", "blamed", "run_stages"]


def run_stages(request: ReplayRequest, schedule: TorchSchedule, entry: Mapping[str, Any]) -> list[StageReport] | None:
    """Do the part of this process, which has joined the default process group.

    Parameters
    ----------
    request
        What to do.
    schedule
        The actions of all processes, with sends and receives.
    entry
        How the stages are built.

    Returns
    -------
    list of StageReport or None
        In the first process, what each one found.
    """
    own = StageProcess(request, schedule, entry)
    return own.hand_over(own.replay())


class PipelineProcess:
    """One process of a pipeline: its stages, their data, and the clock that all have.

    Parameters
    ----------
    request, schedule, entry
        As in `run_stages`.

    Attributes
    ----------
    modules : mapping
        Its stages by number.
    """

    def __init__(self, request: ReplayRequest, schedule: StageSchedule, entry: Mapping[str, Any]) -> None:
        allow_children()
        self.request, self.schedule, self.rank = request, schedule, dist.get_rank()
        self._device = device_of_process(request, int(os.environ.get("LOCAL_RANK", self.rank)))
        self.control = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._clock = ReplayClock(self.control)
        self._log = ActionLog(self._clock, self._device)
        stages = schedule.stages_of(self.rank)
        place: Place = ((("$", "jobs"), schedule.job), "executor")
        given = {"rank": self.rank, "world": schedule.processes, "device": self._device}
        own = own_stages(entry, place, given, stages, schedule.stages, request)
        self.modules = own.modules
        self._worker = StageWorker(self.rank, own, request.seed, self._device)
        self._is_first, self._is_last = 0 in stages, schedule.stages - 1 in stages
        self._begin = 0

    def hand_over(self, report: StageReport) -> list[StageReport] | None:
        """What each process found, in the first one."""
        found: list[StageReport] | None = [report] * dist.get_world_size() if self.rank == 0 else None
        dist.gather_object(report, found, 0, self.control)
        dist.barrier(self.control)  # nobody leaves while another may still need the store
        return found

    def memory_bytes(self, held: int) -> int:
        """The most that the device held by torch's allocator; on a CPU what was counted."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else held

    def begin(self) -> None:
        """Wait for all processes, and have the run begin."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self._begin = self._clock.meet()


class SteppingProcess(PipelineProcess):
    """A process that takes step after step; fields as of the class that it extends."""

    def __init__(self, request: ReplayRequest, schedule: StageSchedule, entry: Mapping[str, Any]) -> None:
        super().__init__(request, schedule, entry)
        self._times = planned_times(request.instance, request.plan, schedule)
        self._checkpoint = Checkpoint(request.checkpoint, request) if request.checkpoint is not None else None
        self._saved, self._report = 0, StageReport()
        report_so_far(lambda: replace(self._report, passes=None, steps=list(self._report.steps)))

    def replay(self) -> StageReport:
        """Carry the plan out."""
        if self._checkpoint is not None and self.request.resume:
            self._resume(self._checkpoint)
        held = self._warm_up()
        self._report = replace(self._report, memory_bytes=held)
        self.begin()
        count, first = len(self._times), self._worker.iteration
        while not self._is_over():
            zero = self._zero(first)
            for number in range(self._worker.iteration % count, count):
                self._step(zero, number)
                if self.request.every and self._worker.iteration % self.request.every == 0:
                    self._save()
        self._save()
        digests, memory = self._worker.digests(), self.memory_bytes(held)
        passes = self._worker.iteration // count
        self._report = replace(self._report, passes=passes, digests=digests, memory_bytes=memory)
        return self._report

    def _resume(self, checkpoint: Checkpoint) -> None:
        [done] = checkpoint.last_whole([range(self.schedule.processes)], self.control)
        if self.request.passes is not None and done >= self.request.passes * len(self._times):
            raise UsageError(
                f"the checkpoint has all of {self.request.passes} passes over the plan; --iterations takes more"
            )
        if done:
            checkpoint.load(self.schedule.job, self._worker, done)  # type: ignore[arg-type]
        self._saved = done

    def _warm_up(self) -> int:
        """Take steps that nobody measures, at least one, and go back; return the most bytes held on a CPU."""
        initial = self._worker.state()
        for turn in range(max(1, self.request.warm_up)):
            self._log.counts_bytes = turn == 0 and self._device.type == "cpu"
            with blamed(f"rank {self.rank}, before the clock started"):
                self.run_passes()
                self._worker.end()
        most = self.saved_bytes() + self._worker.held_bytes()
        self._worker.load(initial)
        return most

    def _is_over(self) -> bool:
        passes = self._worker.iteration // len(self._times)
        if self.request.minutes is None:
            return passes >= (self.request.passes or 0)
        late = torch.tensor(self._clock.now() - self._begin >= 60e6 * self.request.minutes and passes > 0)
        dist.broadcast(late, 0, self.control)
        return bool(late)

    def _zero(self, first: int) -> int:
        """Return the moment that planned times of the next pass count from."""
        turn, number = divmod(self._worker.iteration, len(self._times))
        left = min(start for own in self._times[number:] for start, _ in own.values())
        if self.request.plan.period_us is not None:
            return self._begin + (turn - first // len(self._times)) * self.request.plan.period_us - left
        origin = self._clock.meet()
        self._report.origins_us.append(origin - self._begin)
        return origin - (left if number else 0)

    def _step(self, zero: int, number: int) -> None:
        if self.request.pace:
            self._log.starts = {it: zero + start for it, (start, _) in self._times[number].items()}
        iteration = self._worker.iteration
        where = f"rank {self.rank}, iteration {iteration}"
        with blamed(where):
            losses = self.run_passes()
        actions, receipts = (
            [(name, a - self._begin, b - self._begin) for name, a, b in kept] for kept in self._log.end()
        )
        loss = sum(losses) / len(losses) if losses else None
        if loss is not None and not math.isfinite(loss):
            raise RunFailedError(f"{where}: the loss is {loss}")
        self._report.steps.append(StepRecord(iteration, actions, receipts, loss))
        with blamed(where):
            self._worker.end()

    def run_passes(self) -> list[float]:
        """Run all passes of the next batch; return the losses of the parts of it that are here."""
        raise NotImplementedError

    def saved_bytes(self) -> int:
        """What forward passes save at most for backward passes, as far as it was counted."""
        return 0

    def _save(self) -> None:
        if self._checkpoint is not None and self._worker.iteration > self._saved:
            start = self._clock.now() - self._begin
            self._checkpoint.save(self.schedule.job, self._worker)  # type: ignore[arg-type]
            self._report.saves.append((start, self._clock.now() - self._begin))
            self._saved = self._worker.iteration


class StageProcess(SteppingProcess):
    """A process that runs PyTorch's runtime; fields as of the class that it extends."""

    def __init__(self, request: ReplayRequest, schedule: TorchSchedule, entry: Mapping[str, Any]) -> None:
        super().__init__(request, schedule, entry)
        logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)  # errors are told once
        self._file = schedule
        own, layout, log = self._worker.own, schedule.layout, self._log
        self._stages = [TimedStage(it, s, layout.stages, self._device, log) for s, it in own.modules.items()]
        with TemporaryDirectory() as folder:
            path = Path(folder, "schedule.csv")
            path.write_text(schedule.csv)
            self._runtime = pipeline_runtime(self._stages, layout, own.loss, str(path), self._log)

    def run_passes(self) -> list[float]:
        """Run all passes of the next batch; return the losses of the micro-batches, if they are here."""
        inputs, targets = self._worker.begin(self._file.layout.micro_batches)
        losses: list[torch.Tensor] = []
        self._log.begin()
        self._runtime.step(
            *(inputs if self._is_first else ()),
            target=targets if self._is_last else None,
            losses=losses,
            return_outputs=False,
        )
        self._log.counts_bytes = False
        return [float(loss.detach()) for loss in losses]

    def saved_bytes(self) -> int:
        """What the forward passes in flight saved at most."""
        by_stage = {stage.stage_index: stage.saved_bytes for stage in self._stages}
        held = most = 0
        for action in self._file.ranks[self.rank]:
            if action in self._file.planned:
                kind = action.lstrip("0123456789")[0]
                saved = by_stage[int(action.partition(kind)[0])]
                held += {"F": saved, "I": 0, "B": -saved, "W": -saved}[kind]
                most = max(most, held)
        return most


_TALKING = (Path(str(dist.__file__)).parent, Path(__file__).parents[1])


def _is_of_a_message(error: Exception) -> bool:
    """Whether the innermost line that raised an error is one that talks to other processes."""
    innermost = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return error.__cause__ is None and any(innermost.is_relative_to(folder) for folder in _TALKING)


@contextmanager
def blamed(where: str) -> Iterator[None]:
    """Say of what the user's code raises in the block where it happened; PyTorch wraps errors of stages."""
    try:
        yield
    except JigsawError:
        raise
    except Exception as error:
        if _is_of_a_message(error):
            raise  # another process is gone, and is told
        cause = error.__cause__ if error.__cause__ is not None else error
        raise RunFailedError(f"{where}: {told(cause)}") from error
