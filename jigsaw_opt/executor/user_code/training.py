"""A training of the user's own, as its function returns it: any module, optimiser, schedule, loader and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.models.importing import blame_own_code, own_function
from jigsaw_opt.executor.models.leveled_model import LeveledModel
from jigsaw_opt.executor.models.model_call import arguments_of, inputs_and_targets, loss_of
from jigsaw_opt.executor.models.zoo.network import moved
from jigsaw_opt.executor.partial.agreement import require_equal_shapes
from jigsaw_opt.executor.partial.averaging import broadcast
from jigsaw_opt.executor.partial.forward_order import eager, observe
from jigsaw_opt.executor.partial.parts import ModelParts, require_modules, split, split_alike
from jigsaw_opt.executor.randomness import draw_number, generator_states, own_draws, set_generators
from jigsaw_opt.executor.user_code.batch_source import BatchSource
from jigsaw_opt.executor.user_code.given import given_training
from jigsaw_opt.executor.user_code.likeness import ANYTHING
from jigsaw_opt.problem.rules.report import Place


class OwnModel(LeveledModel):
    """Any module and its loss, in the parts between its cuts.

    `loss`: loss of the module's outputs and the targets; None where the outputs have their own. `parts`: how the module
    is cut. Trained parameters of a loss belong to bucket 1.
    """

    def __init__(self, module: nn.Module, loss: Callable[[Any, Any], Tensor] | None, parts: ModelParts) -> None:
        super().__init__()
        self.module, self.loss = module, loss
        buckets: list[list[nn.Parameter]] = [[] for _ in range(parts.depth)]
        for parameter, bucket in parts.buckets.items():
            if parameter.requires_grad:
                buckets[bucket - 1].append(parameter)
        known = set(parts.buckets)
        own = loss.parameters() if isinstance(loss, nn.Module) else ()
        buckets[0] += [p for p in own if p.requires_grad and p not in known]
        self.buckets = tuple(map(tuple, buckets))
        self.names = ("the input" if "input" in parts.cuts else "input", *parts.cuts)
        self.starts = [eager(module).get_submodule(cut) for cut in parts.cuts]

    def loss_of(self, batch: Any) -> Tensor:
        """Return the mean loss of a batch."""
        return loss_of(self.module, *inputs_and_targets(batch, self.loss is None), self.loss)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's, under its own names."""
        return eager(self.module).state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load one of the module."""
        return eager(self.module).load_state_dict(*args, **kwargs)


@dataclass(frozen=True)
class OwnRecipe:
    """The steps of a training of the user's own.

    `optimiser, schedule`: as the function returned them; a schedule goes on after each step. `clip_grad_norm`: largest
    norm of all gradients; None for any. `seed`: the seed from which its generators began.
    """

    optimiser: Optimizer
    schedule: Any = None
    clip_grad_norm: float | None = None
    seed: int = 0

    def optimiser_of(self, model: nn.Module) -> Optimizer:
        """Return the optimiser."""
        return self.optimiser

    def step(self, model: OwnModel, optimiser: Optimizer) -> None:
        """Clip gradients, take a step of the optimiser, and one of the schedule."""
        if self.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.module.parameters(), self.clip_grad_norm)
        optimiser.step()
        if self.schedule is not None:
            self.schedule.step()

    def kept_state(self, model: nn.Module, optimiser: Optimizer) -> Mapping[Any, Any]:
        """Return what the optimiser keeps of each parameter now."""
        return dict(optimiser.state_dict()["state"])

    def likeness(self, model: nn.Module, optimiser: Optimizer) -> dict[str, Any]:
        """Return what a state of the optimiser and the schedule is like."""
        schedule = {} if self.schedule is None else {"schedule": ANYTHING}
        return {"optimiser": dict.fromkeys(optimiser.state_dict(), ANYTHING), **schedule}

    def state(self) -> dict[str, Any]:
        """Return the schedule's."""
        return {} if self.schedule is None else {"schedule": deepcopy(self.schedule.state_dict())}

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a state."""
        if self.schedule is not None:
            self.schedule.load_state_dict(deepcopy(state["schedule"]))


class OwnReplica:
    """A model of the user's own that trains, its data, and its generators of random numbers.

    `generators`: states from which its draws go on, whoever else draws in this process.
    """

    def __init__(
        self, model: OwnModel, source: BatchSource, generators: Mapping[str, Any], device: torch.device
    ) -> None:
        self.model, self._source, self._generators, self._device = model, source, generators, device

    def batch(self, seed: int, worker: int, iteration: int) -> Any:
        """Return the loader's next batch, whatever the numbers are."""
        return self._source.take()

    @contextmanager
    def draws(self) -> Iterator[None]:
        """Have all that is drawn in the block go on from this worker's own last draw."""
        set_generators(self._generators, self._device)
        yield
        self._generators = generator_states(self._device)

    def state(self) -> dict[str, Any]:
        """Return the loader's position, the states of the generators, and what the loss has."""
        own = {"generators": self._generators, "loader": self._source.state()}
        return own | {"loss": dict(loss.state_dict())} if isinstance(loss := self.model.loss, nn.Module) else own

    def likeness(self) -> dict[str, Any]:
        """Return what a state is like."""
        generators = dict.fromkeys(self._generators, ANYTHING)
        return self.state() | {"generators": generators, "loader": self._source.likeness()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a state."""
        self._generators = state["generators"]
        with self.draws():  # says whether they can be set
            pass
        self._source.load(state["loader"])
        if isinstance(self.model.loss, nn.Module):
            self.model.loss.load_state_dict(state["loss"])


@dataclass(frozen=True)
class WorkerPlace:
    """The place of a worker among those of its job.

    `rank, world`: number of the worker, and of how many. `group`: the group of all workers; None for one alone.
    """

    rank: int
    world: int
    device: torch.device
    group: dist.ProcessGroup | None


def own_training(
    entry: Mapping[str, Any], place: Place, worker: WorkerPlace, seed: int
) -> tuple[OwnReplica, OwnRecipe]:
    """Build a worker's training by the function that a document names, and that is trusted.

    All workers of the job do so at once. The generators of random numbers begin from seed and rank; initial parameters
    and buffers are those of the first worker.

    The model with its source of batches, and how it trains.

    `entry, place`: the `executor` entry of a model, and where it stands.
    """
    name = entry["train"]
    device, group = worker.device, worker.group
    given = {"rank": worker.rank, "world": worker.world, "device": device, **entry["arguments"]}
    function = own_function(name, given, place)
    with own_draws(draw_number(seed, worker.rank, 0)), blame_own_code(name):
        made = given_training(name, function(**given))
        recipe = OwnRecipe(made.optimiser, made.schedule, made.clip_grad_norm, seed)
        module = made.model.to(device)
        loss = made.loss.to(device) if isinstance(made.loss, nn.Module) else made.loss
        source = BatchSource(made.loader, device)
        generators = generator_states(device)
        if group is not None:
            require_equal_shapes(module, group)
            whole = [module, loss] if isinstance(loss, nn.Module) else [module]
            broadcast([tensor for part in whole for tensor in (*part.parameters(), *part.buffers())], group)
        require_modules(module, entry["cuts"])
        before = source.state()
        batch = moved(source.take(), device)
        source.load(before)
        parts = parts_of(module, batch, loss is None, entry["cuts"], group)
    model = OwnModel(module, loss, parts)
    _require_own_parameters(model, recipe.optimiser)
    return OwnReplica(model, source, generators, device), recipe


def parts_of(
    module: nn.Module, batch: Any, is_whole: bool, cuts: Sequence[str] | int, group: dist.ProcessGroup | None = None
) -> ModelParts:
    """Find the parts of a module in a forward pass over a batch, alike in all processes of a group.

    `is_whole`: whether the module takes all of the batch by name, and its outputs have the loss.
    """
    arguments, named = arguments_of(inputs_and_targets(batch, is_whole)[0])
    order = observe(module, arguments, named, is_timed=isinstance(cuts, int))
    return split(module, order, cuts) if group is None else split_alike(module, order, cuts, group)


def _require_own_parameters(model: OwnModel, optimiser: Optimizer) -> None:
    known = set(model.parameters())
    strange = sum(p not in known for group in optimiser.param_groups for p in group["params"])
    if strange:
        message = f"{strange} parameters of the optimiser are neither the model's nor the loss's"
        raise UsageError(message, code="mismatch", path="optimizer")
