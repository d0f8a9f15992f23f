"""Stages that one process hosts, beside workers of other jobs or alone, and what they did when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist

from jigsaw_opt.errors import RunFailedError
from jigsaw_opt.executor.pipeline.stage_host import StageHost, blamed
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.records import StepRecord
from jigsaw_opt.executor.replay.request import ReplayRequest, StagedRun

Groups = Mapping[int, dist.ProcessGroup]
"""Groups in which stages exchange, by their number of processes."""


class HostedStages(StageHost):
    """Stages that take step after step; parameters and other fields as of the class that it extends.

    `job, name`: number and name of the job in the instance. `saved`: after how many steps it was last saved. `steps`:
    what was measured, one step behind the other. `block_bytes`: the most that its passes keep for backward passes, as
    far as it was counted in the warm-up.
    """

    def __init__(self, request: ReplayRequest, run: StagedRun, clock: ReplayClock, device: torch.device) -> None:
        super().__init__(request, run, clock, device)
        self.job, self.name = run.schedule.job, request.instance.jobs[run.schedule.job].name
        self.saved = self.block_bytes = 0
        self.steps: list[StepRecord] = []

    def warm_up(self, times: int) -> None:
        """Take steps that nobody measures, at least one, and find what passes keep for backward passes."""
        for turn in range(max(1, times)):
            self._log.counts_bytes = turn == 0 and self.device.type == "cpu"
            with blamed(f"rank {self.rank}, before the clock started"):
                self.run_passes()
                self.worker.end()
        self.block_bytes = self.saved_bytes()

    def run(self, iteration: int, passes: Iterator[tuple[str, int]]) -> None:
        """Take a step.

        `passes`: the actions of this process in the step, each with the moment before which it does not begin; asked
        for one when it is about to begin.
        """

        def reach(action: str) -> int:
            planned, start = next(passes)
            assert planned == action, f"the plan has {planned} where {action} begins"
            return start

        where = f"rank {self.rank}, iteration {iteration}"
        self._log.reach = reach
        with blamed(where):
            losses = self.run_passes()
        self._log.reach = lambda _: 0
        loss = sum(losses) / len(losses) if losses else None
        if loss is not None and not math.isfinite(loss):
            raise RunFailedError(f"{where}: the loss is {loss}")
        self.steps.append(StepRecord(iteration, *self._log.end(), loss))
        with blamed(where):
            self.worker.end()

    def run_passes(self) -> list[float]:
        """Run all passes of the next batch; return the losses of the parts of it that are here."""
        raise NotImplementedError

    def saved_bytes(self) -> int:
        """Return what forward passes save at most for backward passes, as far as it was counted."""
        return 0

    def wait(self) -> None:
        """Return when nothing of the last step is under way: its messages have ended with it."""

    def settle(self) -> None:
        """Return when the device has done all passes so far, so that their time is not that of what comes next."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def forget(self) -> None:
        """Forget what was measured, before another run."""
        self.steps = []

    def close(self) -> None:
        """Let go of what it needs beside memory: nothing."""

    def parameters_sha256(self) -> str:
        """Return digests of the trained parameters of its stages, in their order."""
        return "+".join(digest for _, digest in sorted(self.worker.digests().items()))
