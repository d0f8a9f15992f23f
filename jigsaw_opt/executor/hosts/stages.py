"""Stages that one process hosts, beside workers of other jobs or alone, and what they did when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch.distributed as dist

from jigsaw_opt.errors import RunFailedError
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.hosts.host import Host, HostSetting, Turn, blamed
from jigsaw_opt.executor.pipeline.agreement import require_same_batch
from jigsaw_opt.executor.pipeline.stage_worker import StageWorker
from jigsaw_opt.executor.pipeline.timed_stage import ActionLog
from jigsaw_opt.executor.processes import allow_children
from jigsaw_opt.executor.schedules.order import RowStep
from jigsaw_opt.executor.worker import parameters_sha256
from jigsaw_opt.problem.rules.report import Place


class StagesHost(Host):
    """Stages that take step after step; parameters and other fields as of the class that it extends.

    The process has the rank of their slot in the plan. `schedule`: the actions of all processes of the job. `parts`:
    stages of the partition, if there is one.
    """

    worker: StageWorker

    def __init__(self, setting: HostSetting, job: int, number: int, exchange: GradientExchange | None) -> None:
        super().__init__(setting, job, number, exchange)
        assert setting.stages is not None, "what is in stages is said"
        allow_children()
        self.schedule, entry = setting.stages
        self.rank = dist.get_rank()
        self._log = ActionLog(setting.clock, self.device)
        stages = self.schedule.stages_of(self.rank)
        place: Place = ((("$", "jobs"), job), "executor")
        settings, count = replace(setting.request, seed=setting.request.seed + job), self.schedule.processes
        self.worker = StageWorker(entry, place, self.rank, count, self.device, stages, self.schedule.stages, settings)
        self.modules = self.worker.model.own
        self.parts = entry.get("parts", ())
        self._is_first, self._is_last = 0 in stages, self.schedule.stages - 1 in stages
        self.notes += self.worker.notes
        before = self.worker.state()
        require_same_batch(*self.worker.begin(1), setting.groups[self.schedule.processes])
        self.worker.load(before)

    def prepare(self, times: int, levels: Sequence[tuple[int, ...]]) -> None:
        """Take steps that nobody measures, at least one."""
        for turn in range(max(1, times)):
            self._log.counts_bytes = turn == 0 and self.device.type == "cpu"
            with blamed(f"rank {self.rank}, before the clock started"):
                self.run_passes()
                self.worker.end()

    def run(self, step: RowStep, turn: Turn) -> None:
        """Take a whole step, whose actions here are asked for one by one when they are about to begin."""
        passes, iteration = turn.passes(step), step.iteration

        def reach(action: str) -> int:
            planned, start = next(passes)
            assert planned == action, f"the plan has {planned} where {action} begins"
            return start

        where = f"rank {self.rank}, iteration {iteration}"
        self._log.reach = reach
        with blamed(where):
            losses = self.run_passes()
        self._log.reach = lambda _: 0
        loss = sum(losses) / len(losses) if losses else math.nan
        if losses and not math.isfinite(loss):
            raise RunFailedError(f"{where}: the loss is {loss}")
        self.records += [r._replace(job=step.job, iteration=iteration, loss=loss) for r in self._log.end()]
        with blamed(where):
            self.worker.end()

    def run_passes(self) -> list[float]:
        """Run all passes of the next batch; return the losses of the parts of it that are here."""
        raise NotImplementedError

    def saved_bytes(self) -> int:
        """Return what forward passes save at most for backward passes, as far as it was counted."""
        return 0

    def needs(self) -> tuple[int, int]:
        """Return the bytes of its worker with those kept for backward passes, which stay there while others run."""
        return self.worker.held_bytes() + self.saved_bytes(), 0

    def parameters_sha256(self) -> str:
        """Return the digests of the trained parameters of its stages, in their order."""
        return "+".join(parameters_sha256(module) for _, module in sorted(self.modules.items()))
