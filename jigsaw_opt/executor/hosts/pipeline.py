"""A process of a pipeline, by PyTorch's runtime."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.hosts.host import HostSetting
from jigsaw_opt.executor.hosts.stages import StagesHost
from jigsaw_opt.executor.pipeline.agreement import compare_sent
from jigsaw_opt.executor.pipeline.timed_stage import TimedStage, pipeline_runtime
from jigsaw_opt.planning.pipeline.torch_csv import TorchSchedule


class PipelineHost(StagesHost):
    """Stages that PyTorch's runtime runs; fields as of the class that it extends."""

    def __init__(self, setting: HostSetting, job: int, number: int, exchange: GradientExchange | None) -> None:
        logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)  # errors are told once
        super().__init__(setting, job, number, exchange)
        schedule = self.schedule
        assert isinstance(schedule, TorchSchedule)
        self._file, self._orders = schedule, list[Any]()
        layout, log, group = schedule.layout, self._log, setting.groups[schedule.processes]
        self._stages = [
            TimedStage(module, stage, layout.stages, self.device, log, group, stage in schedule.recomputed)
            for stage, module in self.modules.items()
        ]
        self._runtime = pipeline_runtime(self._stages, layout, self.worker.loss, self._log)
        with TemporaryDirectory() as folder:
            path = Path(folder, "schedule.csv")
            for iteration in schedule.iterations:
                path.write_text(iteration.csv)
                self._runtime._load_csv(str(path), format="compute_comms")
                self._orders.append(self._runtime.pipeline_order_with_comms)

    @classmethod
    def takes(cls, setting: HostSetting, job: int) -> bool:
        """Return whether a job is a pipeline."""
        return isinstance(setting.schedule_of(job), TorchSchedule)

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

    def prepare(self, times: int, levels: Sequence[tuple[int, ...]]) -> None:
        """Take steps as the class that it extends does, and note where stages send other sizes than planned."""
        super().prepare(times, levels)
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
