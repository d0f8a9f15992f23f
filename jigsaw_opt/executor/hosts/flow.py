"""Stages of an asynchronous pipeline: minibatches follow one another without a flush, with stashed weights.

PyTorch's runtime flushes after each step, so this is a small loop of our own. A process has one stage, and takes its
passes in the order of the plan's building block, which repeats itself a period later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from jigsaw_opt.errors import RunFailedError, UsageError
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.hosts.host import HostSetting, Turn, blamed
from jigsaw_opt.executor.hosts.stages import StagesHost
from jigsaw_opt.executor.processes import TIMEOUT
from jigsaw_opt.executor.schedules.order import RowStep


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A minibatch between its passes: the version of the weights, these, what came in, and what went out."""

    version: int
    weights: dict[str, Tensor]
    inputs: tuple[Tensor, ...]
    output: Tensor


class StashedStage:
    """A stage whose backward pass sees the weights that its forward pass saw, whatever was updated meanwhile.

    `module`: the stage; its parameters are the latest weights. `update`: takes the step with the gradients of the
    module's parameters. `is_first`: whether nobody wants the gradient of its input. `most_versions`: the most versions
    of the weights that were kept at once.
    """

    def __init__(self, module: nn.Module, update: Callable[[], None], is_first: bool) -> None:
        self._module, self._update, self._is_first = module, update, is_first
        self.version = self.most_versions = 0
        self._flying: dict[int, _InFlight] = {}

    def forward(self, number: int, inputs: tuple[Any, ...], loss: Callable[[Tensor], Tensor] | None) -> Tensor:
        """Run the forward pass of a minibatch with the latest weights, and keep them.

        The output of the stage; at the last stage the loss.

        `loss`: loss of its output, at the last stage; None elsewhere.
        """
        weights = next((flight.weights for flight in self._flying.values() if flight.version == self.version), None)
        if weights is None:
            named = self._module.named_parameters()
            weights = {name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in named}
        if not self._is_first:
            inputs = tuple(input_.detach().requires_grad_(input_.is_floating_point()) for input_ in inputs)
        output = functional_call(self._module, weights, inputs)
        if not isinstance(output, Tensor):
            raise UsageError(
                f"a stage hands on a tensor, not an object of type {type(output).__name__}", code="wrong-type"
            )
        output = output if loss is None else loss(output)
        self._flying[number] = _InFlight(self.version, weights, inputs, output)
        self.most_versions = max(self.most_versions, len({flight.version for flight in self._flying.values()}))
        return output

    def backward(self, number: int, gradient: Tensor | None) -> tuple[int, Tensor | None]:
        """Run the backward pass of a minibatch with the weights that were kept for it, and update the latest ones.

        How many updates the weights had that it was run with; The gradient of the stage's input; None at the first
        stage.

        `gradient`: gradient of the stage's output; None at the last stage.
        """
        kept = self._flying.pop(number)
        trained = [name for name, weight in kept.weights.items() if weight.requires_grad]
        wanted = [] if self._is_first else [kept.inputs[0]]
        found = torch.autograd.grad(
            kept.output, [*wanted, *(kept.weights[name] for name in trained)], gradient, allow_unused=True
        )
        parameters = dict(self._module.named_parameters())
        for name, own in zip(trained, found[len(wanted) :], strict=True):
            parameters[name].grad = own
        self._update()
        self.version += 1
        return kept.version, found[0] if wanted else None


Meta = tuple[tuple[int, ...], torch.dtype]


class FlowHost(StagesHost):
    """One stage, each of whose passes is a step of the run; fields as of the class that it extends.

    `versions`: for each minibatch, how many updates the weights had that both of its passes saw.
    """

    def __init__(self, setting: HostSetting, job: int, number: int, exchange: GradientExchange | None) -> None:
        super().__init__(setting, job, number, exchange)
        self.stage = StashedStage(self.modules[self.rank], self.worker.end, self._is_first)
        self.versions, self._losses = list[int](), list[float]()
        self._posted: list[tuple[Any, Tensor]] = []
        # A group each way: NCCL takes what two processes exchange in a group in one order.
        self._control, *ways = (dist.new_group(backend=kind, timeout=TIMEOUT) for kind in ("gloo", None, None))
        self._ways = dict(zip("FB", ways, strict=True))

    @classmethod
    def takes(cls, setting: HostSetting, job: int) -> bool:
        """Return whether a job is an asynchronous pipeline."""
        return setting.schedule_of(job) is not None and setting.stages is not None and setting.stages.is_asynchronous

    def prepare(self, times: int, levels: Sequence[tuple[int, ...]]) -> None:
        """Find what is received, by a pass of the first batch without gradients; no other pass goes unmeasured."""
        self._received = self._metas()
        self._log.begin()

    def run(self, step: RowStep, turn: Turn) -> None:
        """Run a pass of a minibatch."""
        self._log.reach = lambda _: turn.start(step)
        with blamed(f"rank {self.rank}, minibatch {step.iteration}"):
            if "F" in step.action:
                self._losses.append(self._forward(step.iteration))
            else:
                self._backward(step.iteration)

    def settle(self) -> None:
        """Return when the last message has arrived, and note what was done of each minibatch."""
        for work, _ in self._posted:
            work.wait()
        noted = self._log.end()
        self.records = [
            # Under the name of its building block.
            record._replace(iteration=number, what=f"{self.rank}{kind}0", loss=loss)
            for number, loss in enumerate(self._losses)
            for kind in "FB"
            for record in noted
            if record.what == f"{self.rank}{kind}{number}"
        ]

    def saved_bytes(self) -> int:
        """Return the bytes of the versions of the weights that were kept beside the latest one."""
        weights = sum(parameter.nbytes for parameter in self.modules[self.rank].parameters())
        return max(0, self.stage.most_versions - 1) * weights

    def _forward(self, number: int) -> float:
        """Run a forward pass; return the loss, which is no number before the last stage."""
        inputs, targets = self.worker.begin(1, number)
        if not self._is_first:
            inputs = (self._receive("F", number, self.rank - 1, self._received[0]),)
        loss = self.worker.loss
        with self._log.action(f"{self.rank}F{number}"):
            output = self.stage.forward(number, inputs, (lambda out: loss(out, targets)) if self._is_last else None)
        if not self._is_last:
            self._send("F", output, self.rank + 1)
            return math.nan
        if not math.isfinite(value := float(output.detach())):
            raise RunFailedError(f"rank {self.rank}, minibatch {number}: the loss is {value}")
        return value

    def _backward(self, number: int) -> None:
        gradient = None
        if not self._is_last:
            gradient = self._receive("B", number, self.rank + 1, self._received[1])
        with self._log.action(f"{self.rank}B{number}"):
            version, back = self.stage.backward(number, gradient)
        self.versions.append(version)
        if back is not None:
            self._send("B", back, self.rank - 1)

    def _receive(self, kind: str, number: int, other: int, meta: Meta) -> Tensor:
        data = torch.empty(meta[0], dtype=meta[1], device=self.device)
        with self._log.receipt(f"{self.rank}{kind}{number}"):
            dist.recv(data, other, self._ways[kind])
        return data

    def _send(self, kind: str, data: Tensor, other: int) -> None:
        data = data.detach().contiguous()
        self._posted = [(work, kept) for work, kept in self._posted if not work.is_completed()]
        self._posted.append((dist.isend(data, other, self._ways[kind]), data))

    def _metas(self) -> tuple[Meta, Meta]:
        """Return shapes and types of inputs and outputs, by a pass of the first batch without gradients."""
        inputs, _ = self.worker.begin(1, 0)
        told: list[Any] = [None]
        if not self._is_first:
            dist.recv_object_list(told, self.rank - 1, self._control)
            inputs = (torch.zeros(told[0][0], dtype=told[0][1], device=self.device),)
        with torch.no_grad(), blamed(f"rank {self.rank}, before the clock started"):
            output = self.modules[self.rank](*inputs)
        meta = tuple(output.shape), output.dtype
        if not self._is_last:
            dist.send_object_list([meta], self.rank + 1, self._control)
        return told[0], meta
