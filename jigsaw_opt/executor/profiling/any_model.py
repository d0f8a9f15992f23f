"""Profiles of any model: in a training loop of the user's own, or in units as a worker trains it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from jigsaw_opt.errors import Code, Problem, UsageError, mismatch
from jigsaw_opt.executor.devices import device_name
from jigsaw_opt.executor.models.building import Replica
from jigsaw_opt.executor.models.model_call import inputs_and_targets
from jigsaw_opt.executor.models.zoo.network import moved
from jigsaw_opt.executor.own_worker import OwnModel, parts_of
from jigsaw_opt.executor.partial.forward_order import eager
from jigsaw_opt.executor.partial.outputs import mapped, tensors
from jigsaw_opt.executor.partial.parts import are_cuts, require_modules
from jigsaw_opt.executor.profiling.efficiency import NoiseRun, fixed_share
from jigsaw_opt.executor.profiling.restoring import moved_to, restored
from jigsaw_opt.executor.profiling.results import ModelProfile
from jigsaw_opt.executor.profiling.rounds import measure, warm
from jigsaw_opt.executor.profiling.trainee import Trainee
from jigsaw_opt.executor.user_code.batch_source import BatchSource, generators_kept, is_function, one_pass
from jigsaw_opt.executor.user_code.given import Given, wrong_of_training
from jigsaw_opt.executor.worker import TrainingRecipe

_BATCHES = 8
"""How many batches of a loader are used, in turn."""
_RATE = 1e-6
"""Learning rate where no optimiser is given: steps so small keep the loss finite and take as long as others."""


def profile(
    model: nn.Module,
    batch: Any,
    loss: Callable[[Any, Any], Tensor] | None = None,
    cuts: Sequence[str] | int = 4,
    *,
    optimiser: torch.optim.Optimizer | None = None,
    gpu_type: str | None = None,
    device: torch.device | str | None = None,
    warm_up: int = 3,
    repeats: int = 15,
) -> ModelProfile:
    """Measure what a block of any model costs at each level, and what its segments cost (extra ``torch``).

    Real training steps are taken, and everything is put back afterwards: parameters, buffers, gradients, the
    optimiser's state, random generators, training mode. Denormal numbers are flushed meanwhile.

    Parameters
    ----------
    model
        Any module; it is measured in training mode.
    batch
        A pair of inputs and targets, or a ``DataLoader`` or generator function of such pairs, whose first 8 batches
        take turns. Inputs are a tensor, or a tuple or list of what the model takes by position, or a mapping of what
        it takes by name.
    loss
        Mean loss of outputs and targets. None takes ``loss`` of the outputs, as models of ``transformers`` have it;
        a batch is then a dictionary of what the model takes by name.
    cuts
        Names of modules at whose first calls segments begin, or how many cuts to find so that segments take about equal
        time, as for `PartialBackprop`.
    optimiser
        Takes the steps, at its own learning rate; None for SGD with momentum.
    gpu_type
        What an instance calls the device; None for its own name.
    device
        Where to measure; None for where the model is. A given optimiser stays where it is, and so does its model.
    warm_up, repeats
        Rounds before measuring, and rounds measured, at least 1; up to three times as many where times differ much.
        A round is one block at each level, and passes over the segments one by one.

    Returns
    -------
    ModelProfile
        Its ``model()`` is the model of an instance. Times are in microseconds: of the calling thread on a CPU with one
        thread, else of the clock. A block holds the copying of the batch, not its loading.

    Warns
    -----
    UserWarning
        The interquartile range of a block's times is over 20 % of their median.

    Raises
    ------
    UsageError
        An argument is wrong, the model cannot be cut so, or the loss is no number.
    """
    measured = measure_any(Given(model, optimiser, batch, loss), cuts, gpu_type, device, warm_up, repeats)
    if measured.wide_levels:
        warnings.warn(told_wide(measured), UserWarning, stacklevel=2)
    return measured


def told_wide(measured: ModelProfile) -> str:
    """Return what is to be said of levels whose times differ much."""
    return f"times of blocks at levels {', '.join(map(str, measured.wide_levels))} differ by over 20 %"


def measure_any(
    subject: Given,
    cuts: Sequence[str] | int,
    gpu_type: str | None,
    device: torch.device | str | None,
    warm_up: int,
    repeats: int,
    noise_run: NoiseRun | None = None,
) -> ModelProfile:
    """Measure a model as `profile` does, without a warning.

    `subject`: model, batch or loader, loss, None where the model returns it, and optimiser, None for SGD with momentum.
    `gpu_type`: name of the type in the profile; None for the name of the device. `device`: where it is measured; None
    for where the model is. `noise_run`: how gradient noise is measured, too; None for not at all.
    """
    model, batch, loss, optimiser = subject.model, subject.loader, subject.loss, subject.optimiser
    _require(model, batch, loss, cuts, optimiser, warm_up, repeats)
    home = next(p.device for p in model.parameters())
    place = home if device is None else torch.device(device)
    if optimiser is not None and place != home:
        raise mismatch("device", f"device is {place}, but the model is on {home}: move model and optimiser there first")
    held = nn.ModuleList([model, loss] if isinstance(loss, nn.Module) else [model])
    steps = optimiser or torch.optim.SGD([p for p in held.parameters() if p.requires_grad], lr=_RATE, momentum=0.9)
    with moved_to(place, held), generators_kept(batch), restored(held, steps) as reset:
        batches = _batches(batch, loss)

        def draw(turn: int, samples: int | None = None) -> Any:
            batch = batches[turn % len(batches)]
            if samples is not None:
                batch = mapped(batch, lambda tensor: tensor[:samples])
            # copied on a CPU too, for a model may change its inputs
            return moved(mapped(batch, lambda tensor: tensor.detach().to(place, copy=True)), place)

        parts = parts_of(model, draw(0), loss is None, cuts)
        trainee = Trainee(OwnModel(model, loss, parts), steps, draw, place, root=eager(model))
        if optimiser is None:
            warm(trainee, reset)
        samples = _samples(batches)
        found = measure(trainee, warm_up, repeats, gpu_type or device_name(place), samples)
        if noise_run is None:
            return found
        if not _is_loader(batch):
            raise mismatch("efficiency", "gradients of one batch have no noise: give a loader")
        share = fixed_share(trainee, partial(draw, samples=(samples or 0) // 2), samples, warm_up, repeats)
        reset()
        source = BatchSource(batch, place)  # of all batches, not only those that were timed
        noise = noise_run.measure(trainee.model, steps, lambda *_: moved(source.take(), place))
        return replace(found, noise=replace(noise, fixed_share=share))


def profile_replica(
    replica: Replica,
    recipe: TrainingRecipe,
    device: torch.device,
    warm_up: int,
    repeats: int,
    *,
    noise_run: NoiseRun | None = None,
) -> ModelProfile:
    """Measure a network in units as a worker trains it, with the drawing of the batch.

    Times in microseconds and bytes of each segment and each level.

    `warm_up, repeats`: rounds before measuring, and rounds measured; both at least 1. `noise_run`: how gradient
    noise is measured, too; None for not at all.
    """
    model = replica.model.to(device)

    def draw(turn: int, own: Replica = replica) -> Any:
        return moved(own.batch(recipe.seed, 0, turn), device)

    trainee = Trainee(model, recipe.optimiser_of(model), draw, device, keeps_gradients=True)
    with restored(model, trainee.optimiser) as reset:
        warm(trainee, reset)
        found = measure(trainee, warm_up, repeats, device_name(device), replica.batch_size)
        if noise_run is None:
            return found
        half = replace(replica, batch_size=replica.batch_size // 2)
        share = fixed_share(trainee, partial(draw, own=half), replica.batch_size, warm_up, repeats)
    return replace(found, noise=replace(noise_run.of_replica(replica, recipe, device), fixed_share=share))


def _samples(batches: Sequence[Any]) -> int | None:
    """Return the first dimension that all tensors of all batches have; None where they differ."""
    sizes = {value.shape[0] if value.dim() else None for value in tensors(batches)}
    return sizes.pop() if len(sizes) == 1 else None


def _is_loader(batch: Any) -> bool:
    is_batch = isinstance(batch, (Tensor, tuple, list, Mapping, str))
    return is_function(batch) or (isinstance(batch, Iterable) and not is_batch)


def _batches(batch: Any, loss: object) -> list[Any]:
    """Return the batches that take turns."""
    found = list(islice(one_pass(batch), _BATCHES)) if _is_loader(batch) else [batch]
    if not found:
        raise UsageError("the loader has no batch", code="empty", path="loader")
    for each in found:
        inputs_and_targets(each, loss is None)
    return found


def _require(model: Any, batch: Any, loss: Any, cuts: Any, optimiser: Any, warm_up: int, repeats: int) -> None:
    """Raise one `UsageError` that lists all that is wrong."""
    if wrong := list(wrong_of_training("model", model)):
        raise UsageError(*wrong)
    if any(map(is_lazy, model.parameters())):
        wrong.append(Problem("model", "a lazy module has no parameters yet", "run it once", "unsupported"))
    elif not any(p.requires_grad for p in model.parameters()):
        wrong.append(Problem("model", "no parameter is trained", code="empty"))
    wrong += wrong_of_training("loss", loss)
    if isinstance(optimiser, torch.optim.Optimizer):
        stepped = {p for group in optimiser.param_groups for p in group["params"]}
        if stepped.isdisjoint(model.parameters()):
            wrong.append(Problem("optimiser", "steps no parameter of the model", code="mismatch"))
    if optimiser is not None:
        wrong += wrong_of_training("optimiser", optimiser)
    if isinstance(batch, Iterator):
        told = "is an iterator, which could not be put back"
        wrong.append(Problem("batch", told, "give the loader itself", "unsupported"))
    for name, value in (("warm_up", warm_up), ("repeats", repeats)):
        if not isinstance(value, int) or value < 1:
            code: Code = "out-of-range" if isinstance(value, int) else "wrong-type"
            wrong.append(Problem(name, f"must be a whole number of at least 1; is {value!r}", code=code))
    if not are_cuts(cuts):
        wrong.append(Problem("cuts", "must be a list of names, or a number of at least 0", code="wrong-type"))
    if wrong:
        raise UsageError(*wrong)
    if not isinstance(cuts, int):
        require_modules(model, cuts)
