"""One worker of a job: its model, its optimiser, its data, and the two things that it does, blocks and transfers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from jigsaw_opt.executor.exchange.buckets import GradientBuckets, Ready
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.exchange.transfer_stream import transfer_stream
from jigsaw_opt.executor.models.building import Replica
from jigsaw_opt.executor.models.leveled_model import LeveledModel, saved_by_segment
from jigsaw_opt.executor.models.zoo.network import moved
from jigsaw_opt.executor.user_code.batch_source import BatchSource
from jigsaw_opt.executor.user_code.likeness import ANYTHING

OPTIMISERS: Mapping[str, type[torch.optim.Optimizer]] = MappingProxyType(
    {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
)

_HOW = frozenset({"fused", "foreach", "capturable"})


@dataclass(frozen=True)
class TrainingRecipe:
    """The recipe by which a job of the zoo trains.

    Parameters
    ----------
    optimiser
        A name in `OPTIMISERS`.
    options
        Options of the optimiser, as in ``{"lr": 0.1, "momentum": 0.9}``.
    seed
        Seed of the data; initial parameters have their own.
    """

    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    options: Mapping[str, Any] = field(default_factory=lambda: {"lr": 0.01, "momentum": 0.9})
    seed: int = 0

    def optimiser_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return a new optimiser of the model's parameters."""
        return OPTIMISERS[self.optimiser](model.parameters(), **self.options)


class Trainer:
    """What one process trains of a job, and what a checkpoint holds of it.

    `number`: which of the job's workers or processes it is, from 0. `model, optimiser`: on the device. `source,
    schedule`: where its batches come from, and what goes on after each step; None where there is none to be kept.
    `iteration`: iterations run so far.
    """

    def __init__(
        self,
        number: int,
        model: Any,
        optimiser: torch.optim.Optimizer,
        device: torch.device,
        source: BatchSource | None = None,
        schedule: Any = None,
    ) -> None:
        self.number, self.model, self.optimiser, self.device = number, model, optimiser, device
        self.source, self.schedule, self.iteration = source, schedule, 0

    def update(self) -> None:
        """Take a step of the optimiser, and one of the schedule."""
        self.optimiser.step()
        if self.schedule is not None:
            self.schedule.step()

    def state(self) -> dict[str, Any]:
        """Return all that training depends on, copied to the CPU: parameters, buffers, optimiser, iterations run.

        Of code of the user's own also its schedule, random generators and the position in its data.
        """
        whole = {
            "iteration": self.iteration,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            **({} if self.schedule is None else {"schedule": deepcopy(self.schedule.state_dict())}),
            **({} if self.source is None else {"loader": self.source.state()}),
            **self.own_state(),
        }
        copies: dict[tuple[object, ...], Tensor] = {}
        return {name: copied(part, copies) for name, part in whole.items()}

    def own_state(self) -> dict[str, Any]:
        """Return what the state of this kind has beside that of all."""
        return {}

    def trained_state(self, iteration: int) -> dict[str, Any]:
        """Return what `state` gives after so many iterations, at least one, but for the values of the tensors."""
        return {
            "iteration": iteration,
            "model": dict(self.model.state_dict()),
            "optimiser": self.trained_optimiser(),
            **({} if self.schedule is None else {"schedule": ANYTHING}),
            **({} if self.source is None else {"loader": self.source.likeness()}),
            **self.own_state(),
        }

    def trained_optimiser(self) -> dict[str, Any]:
        """Return what the state of the optimiser is like after a step; of one of the user's own only its keys."""
        return dict.fromkeys(self.optimiser.state_dict(), ANYTHING)

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a `state`, of this trainer or of one like it; `trained_state` tells what that looks like."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(deepcopy(state["optimiser"]))
        if self.schedule is not None:
            self.schedule.load_state_dict(deepcopy(state["schedule"]))
        if self.source is not None:
            self.source.load(state["loader"])
        self.iteration = state["iteration"]

    def held_bytes(self) -> int:
        """Return the bytes that stay on the device between iterations: weights, gradients and the optimiser's state.

        Frozen weights and buffers count, the optimiser's counters of steps do not.
        """
        state = [t for own in self.kept_state().values() for t in own.values() if isinstance(t, Tensor) and t.dim()]
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        return sum(t.nbytes for t in (*self.model.parameters(), *self.model.buffers(), *gradients, *state))

    def kept_state(self) -> Mapping[Any, Any]:
        """Return what the optimiser keeps of each parameter now."""
        return dict(self.optimiser.state_dict()["state"])


class Worker(Trainer, ABC):
    """A worker with everything that stays on its device between blocks; a process may host many, of different jobs.

    Attributes
    ----------
    number : int
        Number of the worker in its job, from 0; decides its data.
    buckets : GradientBuckets
        Its gradients; transfers read and write ``buckets.of(b)``.
    iteration : int
        Blocks run so far.
    """

    def __init__(
        self, number: int, model: LeveledModel, optimiser: torch.optim.Optimizer, device: torch.device, *kept: Any
    ) -> None:
        super().__init__(number, model, optimiser, device, *kept)
        self.buckets, self._step_due = GradientBuckets(model), False
        self._lane = transfer_stream(device)

    @abstractmethod
    def batch(self) -> Any:
        """Return the batch of the next block, on the device; what is drawn from now on depends on the same numbers."""

    def draws(self) -> AbstractContextManager[None]:
        """Stand around a block, whose draws begin anew with its batch, so that nothing needs to be kept."""
        return nullcontext()

    def block(self, level: int, ready: Ready) -> Tensor:
        """Run the next iteration's block: the step with gradients exchanged before, forward, backward to `level`.

        Parameters
        ----------
        level
            1 to the model's depth.
        ready
            Called with buckets 1 to `level` as soon as each may be sent: in the thread of the backward pass,
            which goes on when it returns, so it should only hand the bucket to a thread of transfers.

        Returns
        -------
        Tensor
            The loss of this worker's batch, a scalar on its device.
        """
        with self.draws():
            batch = self.batch()
            self.step()
            self.buckets.begin(level, partial(self._announce, ready))
            loss: Tensor = self.model.backpropagate(batch, level)
            self.buckets.end()
        self.iteration += 1
        self._step_due = True
        return loss

    def step(self) -> None:
        """Take the optimiser's step with the gradients in the buckets, if that of the last iteration is still due.

        It is part of the next block (specification: block); only after the last one need it be called for itself.
        """
        if self._step_due:
            self.update()
            self._step_due = False

    def transfer(self, bucket: int, levels: Sequence[int], exchange: GradientExchange) -> None:
        """Take part in the transfer of `bucket`, and return when its result is in the gradients.

        Parameters
        ----------
        bucket
            1 to D, in this order in each iteration; one that `block` announces, only after that.
        levels
            The level of each worker of the job in this iteration.
        exchange
            The job's.
        """
        with self._lane.of(bucket):
            for gradients in self.buckets.of(bucket):
                exchange.run(bucket, levels, gradients)

    def state(self) -> dict[str, Any]:
        """Return all that training depends on; a step that is still due is taken, which changes nothing of the rest."""
        self.step()
        return super().state()

    def block_bytes(self, level: int) -> int:
        """Return the bytes that a block to `level` saves for its backward pass; takes a batch."""
        with self.draws():
            batch = self.batch()
            return sum(saved_by_segment(lambda _: self.model.partial_loss(batch, level), self.model.parameters(), 1))

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a `state`; no step is due then."""
        super().load(state)
        self._step_due = False

    def _announce(self, ready: Ready, bucket: int) -> None:
        self._lane.mark(bucket)
        ready(bucket)


class ZooWorker(Worker):
    """A worker whose network is in units, of the zoo or of the user's own, and whose batches are numbered.

    Parameters
    ----------
    number
        Number of the worker in its job, from 0; decides its data.
    replica
        Its own copy of the model, which it moves to `device`, and its data.
    recipe
        How it trains.
    device
        Where it lives.
    """

    def __init__(self, number: int, replica: Replica, recipe: TrainingRecipe, device: torch.device) -> None:
        model = replica.model.to(device)
        super().__init__(number, model, recipe.optimiser_of(model), device)
        self.replica, self.recipe = replica, recipe

    def batch(self) -> Any:
        """Return the batch of seed, worker and iteration; all generators of the process begin anew by these."""
        return moved(self.replica.batch(self.recipe.seed, self.number, self.iteration), self.device)

    def trained_optimiser(self) -> dict[str, Any]:
        """Return the state of the optimiser after a step, but for the values of the tensors."""
        return {**self.optimiser.state_dict(), "state": self.kept_state()}

    def kept_state(self) -> Mapping[Any, Any]:
        """Return what the optimiser keeps of each parameter after a step, found without memory or arithmetic.

        Options that only choose how a step is computed change nothing of it and need real devices.
        """
        options: dict[str, Any] = {key: False if key in _HOW else value for key, value in self.recipe.options.items()}
        ghosts = []
        for own in self.model.parameters():
            ghosts.append(torch.empty_like(own, device="meta", requires_grad=own.requires_grad))
            ghosts[-1].grad = None if own.grad is None else torch.empty_like(ghosts[-1])
        imagined = OPTIMISERS[self.recipe.optimiser](ghosts, **options)
        imagined.step()
        return dict(imagined.state_dict()["state"])


def copied(tree: Any, copies: dict[tuple[object, ...], Tensor]) -> Any:
    """Return a copy of nested lists and dictionaries with all tensors on the CPU.

    `copies`: copies made so far by storage, type, shape and strides: a tensor with several names is copied once.
    """
    if isinstance(tree, Tensor):
        key = (tree.data_ptr(), tree.dtype, *tree.shape, *tree.stride())
        if key not in copies:
            copies[key] = tree.detach().to("cpu", copy=True)
        return copies[key]
    if type(tree) in (dict, OrderedDict):
        return {key: copied(value, copies) for key, value in tree.items()}
    return [copied(item, copies) for item in tree] if isinstance(tree, list) else tree


def parameters_sha256(model: nn.Module) -> str:
    """Return the digest of the trained parameters."""
    digest = sha256()
    for parameter in model.parameters():
        if parameter.requires_grad:
            digest.update(parameter.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def block_and_send(worker: Worker, level: int, send: Ready) -> Tensor:
    """Run the next block of a worker and call `send` with all buckets in order, the announced ones as they get ready.

    Parameters
    ----------
    worker
        The worker of this process.
    level
        1 to the model's depth.
    send
        Hands a bucket to a thread of transfers, the job's own, so that buckets are sent in this order.

    Returns
    -------
    Tensor
        The loss of this worker's batch.
    """
    loss = worker.block(level, send)
    for bucket in range(level + 1, worker.model.depth + 1):
        send(bucket)  # takes part only to receive
    return loss
