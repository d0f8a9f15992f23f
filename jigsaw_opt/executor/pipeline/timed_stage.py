"""PyTorch's stages and runtime of pipelines, which note when each action begins and ends.

The runtime is private to PyTorch: it was tried with the version that `KNOWN_TORCH` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import get_device_states, set_device_states

from jigsaw_opt.errors import MissingEngineError, RunFailedError
from jigsaw_opt.executor.models.leveled_model import saved_by_segment
from jigsaw_opt.executor.schedules.clock import ReplayClock
from jigsaw_opt.executor.schedules.records import Kind, RunRecord
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.torch_csv import KNOWN_TORCH


class _Saved:
    """A tensor that autograd saves; it is there from the second forward pass on."""

    __slots__ = ("shape", "tensor")

    def __init__(self, shape: torch.Size) -> None:
        self.shape = shape
        self.tensor: Tensor | None = None


def recomputed(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Run a forward pass whose saved tensors are computed again when a backward pass asks for the first of them.

    The second forward pass draws the same random numbers, and leaves buffers as they are. Each tensor is let go of with
    the node that saved it.
    """
    saved: list[_Saved] = []
    draws, devices = torch.get_rng_state(), get_device_states(*args)

    def pack(tensor: Tensor) -> _Saved:
        saved.append(_Saved(tensor.shape))
        return saved[-1]

    def again() -> None:
        found: list[Tensor] = []

        def keep(tensor: Tensor) -> None:
            found.append(tensor.detach())

        buffers = [each.clone() for each in module.buffers()]
        own = [
            value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value for value in args
        ]
        # The draws of what runs between the two passes go on as if there had been one.
        with torch.random.fork_rng(devices[0]), torch.enable_grad(), saved_tensors_hooks(keep, _refuse):
            torch.set_rng_state(draws)
            set_device_states(*devices)
            module(*own, **kwargs)
        with torch.no_grad():
            for buffer, value in zip(module.buffers(), buffers, strict=True):
                buffer.copy_(value)
        if [each.shape for each in found] != [each.shape for each in saved]:
            raise RunFailedError("a stage computes its activations again, and other tensors come of it than before")
        for old, tensor in zip(saved, found, strict=True):
            old.tensor = tensor
        saved.clear()

    def unpack(one: _Saved) -> Tensor:
        if one.tensor is None:
            again()
        assert one.tensor is not None, "the second pass has found it"
        return one.tensor

    with saved_tensors_hooks(pack, unpack):
        return module(*args, **kwargs)


def _refuse(_: object) -> Tensor:
    raise AssertionError("nothing goes backward through the second forward pass")


try:
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
except ImportError as error:
    raise MissingEngineError(f"the pipeline runtime of PyTorch {KNOWN_TORCH}", f"torch=={KNOWN_TORCH}.*") from error

_USED = ("_load_csv", "step")


class ActionLog:
    """The log of this process: what it did in one step, and when.

    `device`: where the stages are. On CUDA a moment is an event of the current stream, so that nothing waits to tell
    it. `reach`: called with each action of a step before it waits for anything, to do what comes before it; returns the
    moment before which it does not begin. `counts_bytes`: whether stages count what their forward passes save.
    """

    def __init__(self, clock: ReplayClock, device: torch.device) -> None:
        self._clock, self._device = clock, device
        self.reach: Callable[[str], int] = lambda _: 0
        self.counts_bytes = False
        self._reached, self._start = "", 0
        self._begin: tuple[int, Any] = 0, None
        self._noted: list[list[Any]] = []

    def begin(self) -> None:
        """Forget what was before, and have moments count from now."""
        self._noted, self._reached = [], ""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self._begin = self._clock.now(), self._mark()

    def end(self) -> list[RunRecord]:
        """Return what was done and received, as of job and iteration 0 and without a loss."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return [
            RunRecord(kind, 0, 0, name, self._moment(start), self._moment(end))
            for kind, name, start, end in self._noted
        ]

    @contextmanager
    def action(self, name: str) -> Iterator[None]:
        """Note an action, which begins no earlier than it may."""
        self.arrive(name)
        self._clock.wait_until(self._start)
        with self._note("action", name):
            yield

    def arrive(self, name: str) -> None:
        """Do what comes before an action, once."""
        if name != self._reached:
            self._reached, self._start = name, self.reach(name)

    def receipt(self, name: str) -> AbstractContextManager[None]:
        """Note a wait for what another stage has sent."""
        return self._note("receipt", name)

    @contextmanager
    def _note(self, kind: Kind, name: str) -> Iterator[None]:
        start = self._mark()
        yield
        self._noted.append([kind, name, start, self._mark()])

    def with_loss(self, loss: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        """Return a loss whose time is part of the forward pass before it."""

        def timed(outputs: Any, targets: Any) -> Tensor:
            found = loss(outputs, targets)
            if self._noted:
                self._noted[-1][-1] = self._mark()
            return found

        return timed

    def _mark(self) -> Any:
        if self._device.type != "cuda":
            return self._clock.now()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _moment(self, mark: Any) -> int:
        if self._device.type != "cuda":
            return int(mark)
        begin_us, first = self._begin
        return begin_us + int(1000 * first.elapsed_time(mark))


class TimedStage(PipelineStage):
    """A stage of a pipeline that notes its actions.

    `index, stages`: number of the stage, and of how many. `group`: the processes of the pipeline, in its order; None
    for all. `recomputes`: whether it keeps its input alone, and computes its activations again before its backward
    pass. `saved_bytes`: the most that is saved for the backward pass of a micro-batch, where the log had it counted.
    `kept_bytes`: the part of it that is there from the forward pass on: all, or the input alone. `sent_bytes`: what a
    forward pass put out, where the log had it counted.
    """

    def __init__(
        self,
        module: nn.Module,
        index: int,
        stages: int,
        device: torch.device,
        log: ActionLog,
        group: dist.ProcessGroup | None = None,
        recomputes: bool = False,
    ) -> None:
        super().__init__(module, index, stages, device, group=group)
        self._log, self._recomputes = log, recomputes
        self.saved_bytes = self.kept_bytes = self.sent_bytes = 0

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run a forward pass."""
        if self._log.counts_bytes:
            return self._counted(fwd_chunk_id, *args, **kwargs)
        with self._log.action(f"{self.stage_index}F{fwd_chunk_id}"):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
        if self._log.counts_bytes:
            given = sum(value.nbytes for value in args if isinstance(value, Tensor))
            self.kept_bytes = max(self.kept_bytes, given)
        elif self._recomputes:
            return recomputed(self.submod, *args, **kwargs)
        return super().forward_maybe_with_nosync(*args, **kwargs)  # type: ignore[no-untyped-call]

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Run a backward pass, or its part for the gradient of the input, and note its time."""
        with self._log.action(f"{self.stage_index}{'B' if full_backward else 'I'}{bwd_chunk_id}"):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Run the part of a backward pass for the gradients of the weights, and note its time."""
        with self._log.action(f"{self.stage_index}W{bwd_chunk_id}"):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    def _counted(self, number: int, *args: Any, **kwargs: Any) -> Any:
        kept: list[Any] = []

        def forward(_: Callable[[int], None]) -> Tensor:
            kept.append(super(TimedStage, self).forward_one_chunk(number, *args, **kwargs))
            return kept[0]  # type: ignore[no-any-return]

        saved = max(saved_by_segment(forward, self.submod.parameters(), 1))
        self.saved_bytes = max(self.saved_bytes, saved + self.kept_bytes * self._recomputes)
        if not self._recomputes:
            self.kept_bytes = self.saved_bytes
        outputs = kept[0] if isinstance(kept[0], (tuple, list)) else kept
        self.sent_bytes = sum(output.nbytes for output in outputs)
        return kept[0]


class _Receipts(dict[tuple[int, int], list[Any]]):
    """Receipts of the runtime, by stage and micro-batch.

    The runtime waits for it before it calls the stage, so the pass begins here; the wait is noted under its name.
    """

    def __init__(self, log: ActionLog, kind: str) -> None:
        super().__init__()
        self._log, self._kind = log, kind

    def pop(self, key: tuple[int, int]) -> list[Any]:  # type: ignore[override]
        """Return what is to be waited for, and forget it."""
        stage, batch = key
        self._log.arrive(name := f"{stage}{self._kind}{batch}")
        works = super().pop(key)

        def wait() -> None:
            with self._log.receipt(name):
                for work in works:
                    work.wait()

        return [SimpleNamespace(wait=wait)]  # the messages that one pass waits for, as if they were one


def pipeline_runtime(
    stages: Sequence[TimedStage], layout: PipelineLayout, loss: Callable[[Any, Any], Tensor], log: ActionLog
) -> Any:
    """Return PyTorch's runtime for the stages of this process, which has yet to load a schedule."""
    if not all(hasattr(_PipelineScheduleRuntime, name) for name in _USED):
        raise MissingEngineError(f"the pipeline runtime of PyTorch {KNOWN_TORCH}", f"torch=={KNOWN_TORCH}.*")
    made: Any = _PipelineScheduleRuntime
    runtime = made(list(stages), n_microbatches=layout.micro_batches, loss_fn=log.with_loss(loss))
    runtime.fwd_recv_ops, runtime.bwd_recv_ops = _Receipts(log, "F"), _Receipts(log, "I" if layout.split else "B")
    return runtime
