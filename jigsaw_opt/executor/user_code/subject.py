"""What a function of the user's own returns to be measured: a model, a batch or a loader, a loss, an optimiser."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from jigsaw_opt.errors import InvalidInputError, Problem, UsageError
from jigsaw_opt.executor.catalogue import check_trust
from jigsaw_opt.executor.randomness import own_draws
from jigsaw_opt.executor.user_code.fields import fields_of, training_fields, unknown_keys
from jigsaw_opt.executor.user_code.importing import blame_own_code, own_function
from jigsaw_opt.problem.rules.report import Report

_SPELLINGS = {
    "model": ("model",),
    "batch": ("batch", "loader"),
    "loss": ("loss",),
    "optimiser": ("optimiser", "optimizer"),
}
_OF_TRAININGS = ("schedule", "scheduler", "clip_grad_norm")


@dataclass(frozen=True)
class OwnSubject:
    """A subject to measure, as `profile` takes it, and whether the executor would take it as a training."""

    model: nn.Module
    batch: Any
    loss: Any
    optimiser: torch.optim.Optimizer | None
    is_training: bool = False


def call_own(
    name: str, arguments: Mapping[str, Any], device: torch.device, trusted: Collection[str], seed: int
) -> tuple[Any, bool]:
    """Call a function of the user's own; a function of rank, world and device is called as that of a worker alone."""
    report = Report()
    check_trust(name, trusted, ("$", "zoo"), report)
    report.raise_if_any()
    given = {"rank": 0, "world": 1, "device": device, **arguments}
    try:
        function, is_of_worker = own_function(name, given, "$"), True
    except InvalidInputError:
        given = dict(arguments)
        function, is_of_worker = own_function(name, given, "$"), False
    with own_draws(seed), blame_own_code(name):
        return function(**given), is_of_worker


def subject_of(name: str, made: Any, is_of_worker: bool) -> OwnSubject | None:
    """Return what is to be measured of what a function has returned; None where it is a network in units.

    `is_of_worker`: whether it takes rank, world and device, so that what has a loader and an optimiser is a training.
    """
    if isinstance(made, tuple) and len(made) == 3 and isinstance(made[0], nn.Sequential) and callable(made[1]):
        return None
    if isinstance(made, (tuple, list)):
        return OwnSubject(*made, *([None] * (4 - len(made)))) if len(made) in (3, 4) else _refused(made)
    found = fields_of(made, _SPELLINGS)
    if not {"model", "batch"} <= found.keys():
        return _refused(made)
    loader = fields_of(made, {"batch": ("loader",)})
    if isinstance(loader.get("batch"), (list, tuple)):
        found["batch"] = partial(iter, loader["batch"])  # a list would be taken for a batch
    if is_of_worker and loader:
        if _is_in_stages(found):
            return _whole(found)
        if found.get("optimiser") is not None:
            training_fields(name, made)
            return OwnSubject(**found, is_training=True)
    return OwnSubject(found["model"], found["batch"], found.get("loss"), found.get("optimiser"))


def _is_in_stages(found: Mapping[str, Any]) -> bool:
    """Return whether only a pipeline takes it: a list of stages, or an optimiser as a function of parameters."""
    optimiser = found.get("optimiser")
    is_function = callable(optimiser) and not isinstance(optimiser, torch.optim.Optimizer)
    return is_function or isinstance(found["model"], (list, tuple))


def _whole(found: Mapping[str, Any]) -> OwnSubject:
    """Return the stages of a pipeline as one model, whose modules they are, with an optimiser of all its parameters."""
    model, optimiser = found["model"], found.get("optimiser")
    if isinstance(model, (list, tuple)) and all(isinstance(stage, nn.Module) for stage in model):
        model = nn.Sequential(*model)
    if isinstance(model, nn.Module) and optimiser is not None and not isinstance(optimiser, torch.optim.Optimizer):
        optimiser = optimiser([p for p in model.parameters() if p.requires_grad])
    return OwnSubject(model, found["batch"], found.get("loss"), optimiser)


def _refused(made: Any) -> OwnSubject:
    told = (
        "a function of your own returns (model, batch or loader, loss) or a mapping of these names, perhaps with an "
        f"optimiser; or (torch.nn.Sequential, loss, batch source); not this, of type {type(made).__name__}"
    )
    unknown = unknown_keys(made, _SPELLINGS | {"": _OF_TRAININGS})
    raise UsageError.of(
        [
            Problem("", told, code="wrong-type"),
            *(replace(problem, message=f"it {problem.message}") for problem in unknown),
        ]
    )
