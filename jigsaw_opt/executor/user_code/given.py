"""What a function of the user's own returns: a training, the stages of a pipeline, or what is measured alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from io import BytesIO
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from jigsaw_opt.errors import InvalidInputError, Problem, UsageError
from jigsaw_opt.executor.catalogue import check_trust
from jigsaw_opt.executor.models.importing import blame_own_code, own_function
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.randomness import own_draws
from jigsaw_opt.executor.user_code.likeness import UNREADABLE
from jigsaw_opt.problem.rules.report import Report


@dataclass(frozen=True)
class Given:
    """A training as the user gives it, by our names; None for what may be left out.

    `model`: a module, or the stages of a pipeline. `loader`: gives batches; of what is measured alone, it may be a
    single one. `optimiser`: of stages it may be a function of parameters that makes one.
    """

    model: Any
    optimiser: Any
    loader: Any
    loss: Any
    schedule: Any = None
    clip_grad_norm: float | None = None


_SPELLINGS = {field.name: (field.name,) for field in fields(Given)} | {
    "optimiser": ("optimiser", "optimizer"),
    "schedule": ("schedule", "scheduler"),
}
_OF_STAGES = {field: _SPELLINGS[field] for field in ("model", "loader", "loss", "optimiser", "schedule")}
_MEASURED = {field: _SPELLINGS[field] for field in ("model", "loss", "optimiser")} | {"loader": ("batch", "loader")}


def given_training(name: str, made: Any) -> Given:
    """Return the training that a function has returned; raise `UsageError` that lists all that is wrong with it."""
    return _checked(name, made, _SPELLINGS, ("model", "optimiser", "loader", "loss"), wrong_of_training)


def given_stages(name: str, made: Any) -> Given:
    """Return the stages that a function has returned; raise `UsageError` that lists all that is wrong with them."""
    return _checked(name, made, _OF_STAGES, ("model", "loader", "loss"), _wrong_of_stages)


def given_subject(name: str, made: Any, is_of_worker: bool) -> tuple[Given, bool] | None:
    """Return what is to be measured of what a function has returned, and whether the executor takes it as a training.

    None where it is a network in units.

    `is_of_worker`: whether it takes rank, world and device, so that what has a loader and an optimiser is a training.
    """
    if isinstance(made, tuple) and len(made) == 3 and isinstance(made[0], nn.Sequential) and callable(made[1]):
        return None
    if isinstance(made, (tuple, list)) and len(made) in (3, 4):
        model, loader, loss, optimiser = (*made, None)[:4]
        return Given(model, optimiser, loader, loss), False
    found = {} if isinstance(made, (tuple, list)) else _fields_of(made, _MEASURED)
    if not {"model", "loader"} <= found.keys():
        raise _refused(made)
    is_loader = "loader" in _fields_of(made, _SPELLINGS)
    if is_loader and isinstance(found["loader"], (list, tuple)):
        found["loader"] = partial(iter, found["loader"])  # a list would be taken for a batch
    subject = Given(**dict.fromkeys(("optimiser", "loss")) | found)
    if not is_of_worker or not is_loader:
        return subject, False
    optimiser = subject.optimiser
    is_function = callable(optimiser) and not isinstance(optimiser, Optimizer)
    if is_function or isinstance(subject.model, (list, tuple)):  # only a pipeline takes it
        return _whole(subject), False
    if optimiser is not None:
        given_training(name, made)
    return subject, optimiser is not None


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


def _fields_of(made: Any, spellings: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the fields that a mapping has as keys, or another object as attributes, by our names."""
    found: dict[str, Any] = {}
    for field, names in spellings.items():
        for name in names:
            if name in made if isinstance(made, Mapping) else hasattr(made, name):
                found[field] = made[name] if isinstance(made, Mapping) else getattr(made, name)
    return found


def _unknown_keys(made: Any, spellings: Mapping[str, tuple[str, ...]]) -> list[Problem]:
    """Return what is wrong with keys of a mapping that are none of the `spellings`.

    One for each unknown key, with the nearest known one; its message lacks a subject.
    """
    known = [name for names in spellings.values() for name in names]
    wrong = []
    for key in made if isinstance(made, Mapping) else ():
        if key not in known:
            near = get_close_matches(str(key), known, 1)
            told = f"has {key!r}, which no training has" + (f"; is {near[0]!r} meant?" if near else "")
            wrong.append(Problem(str(key), told, code="unknown-field"))
    return wrong


def _checked(
    name: str,
    made: Any,
    spellings: Mapping[str, tuple[str, ...]],
    required: Iterable[str],
    wrong: Callable[[str, Any], Iterable[Problem]],
) -> Given:
    """Return the fields of what a function returned.

    `wrong`: what is wrong with the value of a field, without a subject.
    """
    found = _fields_of(made, spellings)
    problems = _unknown_keys(made, spellings)
    problems += [Problem(field, f"has no {field!r}", code="missing-field") for field in required if field not in found]
    problems = [replace(problem, message=f"what {name} returns {problem.message}") for problem in problems]
    for problem in (problem for field, value in found.items() for problem in wrong(field, value)):
        problems.append(replace(problem, message=f"the {problem.path} that {name} returns {problem.message}"))
    if problems:
        raise UsageError.of(problems)
    return Given(**dict.fromkeys(_SPELLINGS) | found)


def _whole(stages: Given) -> Given:
    """Return the stages of a pipeline as one model, whose modules they are, with an optimiser of all its parameters."""
    model, optimiser = stages.model, stages.optimiser
    if isinstance(model, (list, tuple)) and all(isinstance(stage, nn.Module) for stage in model):
        model = nn.Sequential(*model)
    if isinstance(model, nn.Module) and optimiser is not None and not isinstance(optimiser, Optimizer):
        optimiser = optimiser([p for p in model.parameters() if p.requires_grad])
    return replace(stages, model=model, optimiser=optimiser)


def _refused(made: Any) -> UsageError:
    told = (
        "a function of your own returns (model, batch or loader, loss) or a mapping of these names, perhaps with an "
        f"optimiser; or (torch.nn.Sequential, loss, batch source); not this, of type {type(made).__name__}"
    )
    unknown = _unknown_keys(made, _SPELLINGS | {"batch": ("batch",)})
    return UsageError.of(
        [
            Problem("", told, code="wrong-type"),
            *(replace(problem, message=f"it {problem.message}") for problem in unknown),
        ]
    )


def _wrong_of_stages(field: str, value: Any) -> Iterator[Problem]:
    is_function = callable(value) or (field == "optimiser" and (value is None or isinstance(value, Optimizer)))
    if field in ("loss", "optimiser") and not is_function:
        yield Problem(field, "is no function", code="wrong-type")


def wrong_of_training(field: str, value: Any) -> Iterator[Problem]:
    """Yield what is wrong with a field of a training, without a subject."""
    kind, wrong = f"is of type {type(value).__name__}", ""
    if field == "model" and not isinstance(value, nn.Module):
        wrong = f"{kind}, not a torch.nn.Module"
    elif field == "model" and isinstance(value, (PartialBackprop, nn.parallel.DistributedDataParallel)):
        yield Problem(field, f"{kind}: give the plain module within it", code="unsupported")
    elif field == "optimiser" and not isinstance(value, Optimizer):
        wrong = f"{kind}, not a torch.optim.Optimizer"
    elif field == "optimiser":
        closure = signature(type(value).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:  # as `LBFGS`, which computes the loss itself
            yield Problem(field, f"{kind}, which takes a step only with a function of the loss", code="unsupported")
    elif field == "loss" and value is not None and not callable(value):
        wrong = f"{kind}, neither a function of outputs and targets nor None"
    elif field == "schedule" and value is not None:
        if isinstance(value, ReduceLROnPlateau):
            wrong = f"{kind}, which needs a measure of its own after each step"
        elif not all(callable(getattr(value, method, None)) for method in ("step", "state_dict", "load_state_dict")):
            wrong = f"{kind}, without step, state_dict and load_state_dict"
        elif not _is_plain(value.state_dict()):
            wrong = f"{kind}, and its state is code, so that no checkpoint can hold it"
    elif field == "clip_grad_norm" and value is not None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        wrong = "" if is_number and value > 0 else f"is no number above 0: {value!r}"
    if wrong:
        yield Problem(field, wrong, code="wrong-type")


def _is_plain(state: Any) -> bool:
    """Return whether a state is read back from a file without running code."""
    data = BytesIO()
    try:
        torch.save(state, data)
        data.seek(0)
        torch.load(data, weights_only=True)
    except UNREADABLE:
        return False
    return True
