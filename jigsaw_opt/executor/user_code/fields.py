"""Fields of what a function of the user's own returns, by our names: a training, or what is measured alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from io import BytesIO
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from jigsaw_opt.errors import Problem, UsageError
from jigsaw_opt.executor.models.model_call import is_wrapped, needs_closure
from jigsaw_opt.executor.user_code.likeness import UNREADABLE

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "model": ("model",),
    "optimiser": ("optimiser", "optimizer"),
    "loader": ("loader",),
    "loss": ("loss",),
    "schedule": ("schedule", "scheduler"),
    "clip_grad_norm": ("clip_grad_norm",),
}
_REQUIRED = ("model", "optimiser", "loader", "loss")


def fields_of(made: Any, spellings: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the fields that a mapping has as keys, or another object as attributes, by our names."""
    found: dict[str, Any] = {}
    for field, names in spellings.items():
        for name in names:
            if name in made if isinstance(made, Mapping) else hasattr(made, name):
                found[field] = made[name] if isinstance(made, Mapping) else getattr(made, name)
    return found


def unknown_keys(made: Any, spellings: Mapping[str, tuple[str, ...]]) -> list[Problem]:
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


def training_fields(name: str, made: Any) -> dict[str, Any]:
    """Return the fields of a training by our names, None for those that it may leave out."""
    return checked_fields(name, made, _SPELLINGS, _REQUIRED, _wrong)


def checked_fields(
    name: str,
    made: Any,
    spellings: Mapping[str, tuple[str, ...]],
    required: Iterable[str],
    wrong: Callable[[str, Any], Collection[str]],
) -> dict[str, Any]:
    """Return the fields of what a function returned by our names, None for those that it may leave out.

    `wrong`: what is wrong with the value of a field, without a subject.
    """
    found = fields_of(made, spellings)
    problems = unknown_keys(made, spellings)
    problems += [Problem(field, f"has no {field!r}", code="missing-field") for field in required if field not in found]
    problems += [Problem(field, told, code="wrong-type") for field in found for told in wrong(field, found[field])]
    if problems:
        raise UsageError.of(replace(problem, message=f"what {name} returns {problem.message}") for problem in problems)
    return dict.fromkeys(spellings) | found


def _wrong(field: str, value: Any) -> Collection[str]:
    """Return what is wrong with a field of a training."""
    kind = f"of type {type(value).__name__}"
    if field == "model":
        if not isinstance(value, nn.Module):
            return [f"has a model {kind}, not a torch.nn.Module"]
        if is_wrapped(value):
            return [f"has a model {kind}: return the plain module, the run exchanges its gradients"]
    if field == "optimiser" and not isinstance(value, Optimizer):
        return [f"has an optimiser {kind}, not a torch.optim.Optimizer"]
    if field == "optimiser" and needs_closure(value):
        return [f"has an optimiser {kind}, which takes a step only with a function of the loss"]
    if field == "loss" and value is not None and not callable(value):
        return [f"has a loss {kind}, neither a function of outputs and targets nor None"]
    if field == "schedule" and value is not None:
        if isinstance(value, ReduceLROnPlateau):
            return ["has the schedule ReduceLROnPlateau, which needs a measure of its own after each step"]
        if not all(callable(getattr(value, method, None)) for method in ("step", "state_dict", "load_state_dict")):
            return [f"has a schedule {kind}, without step, state_dict and load_state_dict"]
        if not _is_plain(value.state_dict()):
            return [f"has a schedule {kind} whose state is code, so that no checkpoint can hold it"]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if field == "clip_grad_norm" and value is not None and not (is_number and value > 0):
        return [f"has a clip_grad_norm that is no number above 0: {value!r}"]
    return []


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
