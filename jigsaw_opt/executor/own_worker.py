"""A worker of the user's own training, as its function returns it: any module, optimiser, schedule, loader, loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import mismatch
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
from jigsaw_opt.executor.worker import Worker
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


class OwnWorker(Worker):
    """A worker whose training is the user's own, built by the function that a document names, and that is trusted.

    All workers of the job are made at once. Generators of random numbers begin from seed and number, and go on from
    this worker's last draw, whoever else draws in this process; initial parameters and buffers are those of the first
    worker.

    `entry, place`: the `executor` entry of a model, and where it stands. `number, workers`: of how many it is which
    one. `group`: the group of all workers; None for one alone.
    """

    def __init__(
        self,
        entry: Mapping[str, Any],
        place: Place,
        number: int,
        workers: int,
        device: torch.device,
        group: dist.ProcessGroup | None,
        seed: int,
    ) -> None:
        name = entry["train"]
        given = {"rank": number, "world": workers, "device": device, **entry["arguments"]}
        function = own_function(name, given, place)
        with own_draws(draw_number(seed, number, 0)), blame_own_code(name):
            made = given_training(name, function(**given))
            module = made.model.to(device)
            loss = made.loss.to(device) if isinstance(made.loss, nn.Module) else made.loss
            source = BatchSource(made.loader, device)
            self._generators: Mapping[str, Any] = generator_states(device)
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
        known = set(model.parameters())
        if strange := sum(p not in known for group in made.optimiser.param_groups for p in group["params"]):
            raise mismatch("optimizer", f"{strange} parameters of the optimiser are neither the model's nor the loss's")
        super().__init__(number, model, made.optimiser, device, source, made.schedule)
        self._source, self.clip_grad_norm = source, made.clip_grad_norm

    def batch(self) -> Any:
        """Return the loader's next batch."""
        return moved(self._source.take(), self.device)

    @contextmanager
    def draws(self) -> Iterator[None]:
        """Have all that is drawn in the block go on from this worker's own last draw."""
        set_generators(self._generators, self.device)
        yield
        self._generators = generator_states(self.device)

    def update(self) -> None:
        """Clip gradients, take a step of the optimiser, and one of the schedule."""
        if self.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.module.parameters(), self.clip_grad_norm)
        super().update()

    def own_state(self) -> dict[str, Any]:
        """Return the states of the generators, and what the loss has."""
        loss = self.model.loss
        has_loss = isinstance(loss, nn.Module)
        return {"generators": self._generators, **({"loss": dict(loss.state_dict())} if has_loss else {})}

    def trained_state(self, iteration: int) -> dict[str, Any]:
        """Return what `state` gives after so many iterations, but for generators and the values of the tensors."""
        return super().trained_state(iteration) | {"generators": dict.fromkeys(self._generators, ANYTHING)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a `state`."""
        super().load(state)
        self._generators = state["generators"]
        with self.draws():  # says whether they can be set
            pass
        if isinstance(self.model.loss, nn.Module):
            self.model.loss.load_state_dict(state["loss"])


def parts_of(
    module: nn.Module, batch: Any, is_whole: bool, cuts: Sequence[str] | int, group: dist.ProcessGroup | None = None
) -> ModelParts:
    """Find the parts of a module in a forward pass over a batch, alike in all processes of a group.

    `is_whole`: whether the module takes all of the batch by name, and its outputs have the loss.
    """
    arguments, named = arguments_of(inputs_and_targets(batch, is_whole)[0])
    order = observe(module, arguments, named, is_timed=isinstance(cuts, int))
    return split(module, order, cuts) if group is None else split_alike(module, order, cuts, group)
