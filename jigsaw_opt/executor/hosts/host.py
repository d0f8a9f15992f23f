"""What one process has of a job: the same few abilities, whatever the job is and however it is carried out."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from jigsaw_opt.errors import JigsawError, RunFailedError
from jigsaw_opt.executor.devices import TorchSettings
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.models.importing import told
from jigsaw_opt.executor.schedules.clock import ReplayClock
from jigsaw_opt.executor.schedules.link_order import LinkOrder, TCPStore
from jigsaw_opt.executor.schedules.order import ReplayOrder, RowStep
from jigsaw_opt.executor.schedules.records import RunRecord
from jigsaw_opt.executor.schedules.request import ReplayRequest, StagedRun
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule

_TALKING = (Path(str(dist.__file__)).parent, Path(__file__).parents[1])


@dataclass(frozen=True)
class HostSetting:
    """The process in which a host is: what is replayed, its device and clock, and the job in stages.

    `connect`: returns a new connection to the store that all processes share; each is for one thread, as waiting blocks
    it. `groups`: those in which stages exchange, by their number of processes.
    """

    request: ReplayRequest
    device: torch.device
    clock: ReplayClock
    connect: Callable[[], TCPStore] | None = None
    stages: StagedRun | None = None
    groups: Mapping[int, dist.ProcessGroup] = field(default_factory=dict)

    def schedule_of(self, job: int) -> StageSchedule | None:
        """Return what the processes of a job in stages do; None of any other job."""
        return self.stages.schedule if self.stages is not None and self.stages.schedule.job == job else None


class HostWorker(Protocol):
    """What trains, and what a checkpoint holds of it."""

    number: int
    iteration: int

    def state(self) -> dict[str, Any]:
        """Return all that training depends on, copied to the CPU."""

    def trained_state(self, iteration: int) -> dict[str, Any]:
        """Return what `state` gives after so many iterations, but for the values of the tensors."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a `state`."""


class Turn(Protocol):
    """What a run tells a host whose turn it is."""

    clock: ReplayClock
    link_order: LinkOrder
    order: ReplayOrder

    def start(self, step: RowStep) -> int:
        """Return the moment before which a step does not begin."""

    def transfer_starts(self, step: RowStep) -> list[int]:
        """Return for each bucket the moment before which its transfer does not start."""

    def passes(self, first: RowStep) -> Iterator[tuple[str, int]]:
        """Yield the passes of an iteration with their earliest starts, each once what stands before it is done."""


class Host(ABC):
    """What a process has of a job; all of its processes make theirs together.

    `number, exchange`: which worker of the job is here, and the job's exchange; None of a job in stages. `job, name`:
    number and name of the job in the instance. `worker`: what trains; set by each kind. `settings`: those of torch that
    hold for its code. `saved`: after how many iterations it was last saved. `records`: what was measured, one
    behind the other. `notes`: what is to be told.
    """

    worker: HostWorker
    settings: TorchSettings

    def __init__(self, setting: HostSetting, job: int, number: int, exchange: GradientExchange | None) -> None:
        self.job, self.name, self.device = job, setting.request.instance.jobs[job].name, setting.device
        self.saved, self.notes = 0, list[str]()
        self._sent, self._ending = list[Future[None]](), ExitStack()
        self.forget()

    @classmethod
    @abstractmethod
    def takes(cls, setting: HostSetting, job: int) -> bool:
        """Return whether this kind is for a job."""

    @abstractmethod
    def prepare(self, times: int, levels: Sequence[tuple[int, ...]]) -> None:
        """Run iterations that nobody measures, so many of each kind, and find what a block keeps for its backward pass.

        `levels`: those of all workers that occur in an iteration, in a fixed order.
        """

    @abstractmethod
    def run(self, step: RowStep, turn: Turn) -> None:
        """Do a step, and all of its iteration that the host does with it."""

    @abstractmethod
    def needs(self) -> tuple[int, int]:
        """Return the bytes that it holds, and those that are there only while it computes."""

    @abstractmethod
    def parameters_sha256(self) -> str:
        """Return the digest of the trained parameters, after the optimiser's step of the last block."""

    def wait(self) -> None:
        """Return when all transfers of the last step have ended here."""
        for future in self._sent:
            future.result()
        self._sent.clear()

    def settle(self) -> None:
        """Return when the device has done all so far, so that its time is not that of what comes next."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def forget(self) -> None:
        """Forget what was measured, before another run."""
        self.records: list[RunRecord] = []

    def close(self) -> None:
        """Let go of what it needs beside memory, so that it takes none once nobody refers to it."""
        self._ending.close()


def _is_of_a_message(error: BaseException) -> bool:
    """Return whether the innermost line that raised an error is one that talks to other processes."""
    innermost = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return error.__cause__ is None and any(innermost.is_relative_to(folder) for folder in _TALKING)


@contextmanager
def blamed(where: str, in_stages: bool = True) -> Iterator[None]:
    """Say of what the user's code raises in the block where it happened.

    `in_stages`: whether it is code of stages, whose errors PyTorch wraps, and which talks to other processes.
    """
    try:
        yield
    except JigsawError:
        raise
    except (Exception, SystemExit) as error:
        if in_stages and _is_of_a_message(error):
            raise  # another process is gone, and is told
        cause = error.__cause__ if in_stages and error.__cause__ is not None else error
        raise RunFailedError(f"{where}: {told(cause)}") from error
