"""A process of a pipeline, by PyTorch's runtime."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from jigsaw_opt.executor.pipeline.agreement import compare_sent
from jigsaw_opt.executor.pipeline.hosted_stages import Groups, HostedStages
from jigsaw_opt.executor.pipeline.timed_stage import TimedStage, pipeline_runtime
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.request import ReplayRequest, StagedRun
from jigsaw_opt.planning.pipeline.torch_csv import TorchSchedule


class HostedPipeline(HostedStages):
    """Stages that PyTorch's runtime runs; fields as of the class that it extends."""

    def __init__(
        self, request: ReplayRequest, run: StagedRun, clock: ReplayClock, device: torch.device, groups: Groups
    ) -> None:
        super().__init__(request, run, clock, device)
        schedule = run.schedule
        assert isinstance(schedule, TorchSchedule)
        logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)  # errors are told once
        self.require_same_batches(groups[schedule.processes])
        self._file, self._orders = schedule, list[Any]()
        own, layout, log, group = self.worker.own, schedule.layout, self._log, groups[schedule.processes]
        self._stages = [
            TimedStage(module, stage, layout.stages, device, log, group, stage in schedule.recomputed)
            for stage, module in own.modules.items()
        ]
        self._runtime = pipeline_runtime(self._stages, layout, own.loss, self._log)
        with TemporaryDirectory() as folder:
            path = Path(folder, "schedule.csv")
            for iteration in schedule.iterations:
                path.write_text(iteration.csv)
                self._runtime._load_csv(str(path), format="compute_comms")
                self._orders.append(self._runtime.pipeline_order_with_comms)

    def run_passes(self) -> list[float]:
        """Run all passes of the next batch; return the losses of the micro-batches, if they are here."""
        inputs, targets = self.worker.begin(self._file.layout.micro_batches)
        losses: list[torch.Tensor] = []
        self._log.begin()
        self._runtime.pipeline_order_with_comms = self._orders[self.worker.iteration % len(self._orders)]
        self._runtime.step(
            *(inputs if self._is_first else ()),
            target=targets if self._is_last else None,
            losses=losses,
            return_outputs=False,
        )
        self._log.counts_bytes = False
        return [float(loss.detach()) for loss in losses]

    def warm_up(self, times: int) -> None:
        """Take steps as the class that it extends does, and note where stages send other sizes than planned."""
        super().warm_up(times)
        for stage in self._stages:
            if not stage.is_last:
                self.notes += compare_sent(stage.stage_index, stage.sent_bytes, self.parts)

    def saved_bytes(self) -> int:
        """Return what is saved at most for the micro-batches in flight."""
        kept, saved = (
            {each.stage_index: getattr(each, name) for each in self._stages} for name in ("kept_bytes", "saved_bytes")
        )
        most = 0
        for iteration in range(len(self._orders)):
            held = 0
            for action in self._file.actions_of(self.rank, iteration):
                kind = action.lstrip("0123456789")[0]
                stage = int(action.partition(kind)[0])
                held += {"F": kept[stage], "W": 0}.get(kind, saved[stage] - kept[stage])
                most = max(most, held)
                held -= saved[stage] if kind in "BW" else 0
        return most
