"""Batches of a loader of the user's own, pass behind pass, so that a run may go on from the middle of one."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import getclosurevars, isfunction
from itertools import chain, islice
from typing import Any

import torch

from jigsaw_opt.errors import UsageError, mismatch, unsupported
from jigsaw_opt.executor.randomness import generator_states, set_generators
from jigsaw_opt.executor.user_code.likeness import ANYTHING

_PARTS = ("sampler", "batch_sampler", "dataset")


class BatchSource:
    """The batches of a loader, which begins anew whenever it has no more.

    Its position is the state of all generators of random numbers at the begin of its pass, and how many batches were
    taken since. To return there, the pass begins again from that state and the batches are taken again.

    `loader`: any iterable that gives an iterator of its own each time, or a function that does. `device`: whose
    generator belongs to the state.
    """

    def __init__(self, loader: Any, device: torch.device) -> None:
        if isinstance(loader, Iterator):
            raise unsupported(
                "loader",
                "a loader is gone through again and again, which an iterator cannot: "
                "return what makes one, as a DataLoader or a generator function",
            )
        if not callable(loader) and not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
            given = f"of type {type(loader).__name__}"
            message = f"a loader is an iterable of batches or a function that gives one, not {given}"
            raise UsageError(message, code="wrong-type", path="loader")
        self._loader, self._device = loader, device
        self._generators = list(_generators(loader))
        self._batches: Iterator[Any] | None = None
        self._passes = self._taken = 0
        self._begin: dict[str, Any] | None = None

    def take(self) -> Any:
        """Return the next batch."""
        if self._batches is None:
            self._begin_pass()
        assert self._batches is not None
        for batch in self._batches:
            self._taken += 1
            return batch
        if not self._taken:
            raise UsageError("the loader gives no batch", code="empty", path="loader")
        self._passes += 1
        self._batches = None
        return self.take()

    def state(self) -> dict[str, Any]:
        """Return the position, as tensors and plain values."""
        own = [_state_of(generator) for generator in self._generators]
        return {"passes": self._passes, "taken": self._taken, "begin": self._begin, "generators": own}

    def likeness(self) -> dict[str, Any]:
        """Return what a state is like."""
        return {"passes": 0, "taken": 0, "begin": ANYTHING, "generators": [ANYTHING] * len(self._generators)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a position; the generators that all share are afterwards as they were."""
        self._batches, self._passes, self._taken = None, state["passes"], 0
        if state["begin"] is not None:
            before = generator_states(self._device)
            self._set(state["begin"]["own"])
            set_generators(state["begin"]["all"], self._device)
            self._begin_pass()
            assert self._batches is not None
            self._taken = sum(1 for _ in islice(self._batches, state["taken"]))
            set_generators(before, self._device)
            if self._taken < state["taken"]:
                raise mismatch("loader", f"the loader has {self._taken} batches in a pass; {state['taken']} were taken")
        self._begin = state["begin"]
        self._set(state["generators"])

    def _begin_pass(self) -> None:
        for part in (self._loader, *_parts(self._loader)):
            if hasattr(part, "set_epoch"):
                part.set_epoch(self._passes)
        self._begin = {
            "own": [_state_of(generator) for generator in self._generators],
            "all": generator_states(self._device),
        }
        self._taken = 0
        self._batches = one_pass(self._loader)

    def _set(self, states: list[Any]) -> None:
        for generator, state in zip(self._generators, states, strict=True):
            _return_to(generator, state)


def one_pass(loader: Any) -> Iterator[Any]:
    """Begin a pass over a loader: an iterable, or a function that gives one."""
    return iter(loader() if is_function(loader) else loader)


@contextmanager
def generators_kept(loader: Any) -> Iterator[None]:
    """Put the generators of random numbers that a loader holds back at the end of the block."""
    states = [(generator, _state_of(generator)) for generator in _generators(loader)]
    try:
        yield
    finally:
        for generator, state in states:
            _return_to(generator, state)


def is_function(loader: Any) -> bool:
    """Return whether a loader is a function that gives an iterable, not one itself."""
    return callable(loader) and not hasattr(loader, "__iter__")


def _parts(loader: Any) -> Iterator[Any]:
    """Yield what a loader is made of, as far as that is known."""
    for name in _PARTS:
        part = getattr(loader, name, None)
        if part is not None:
            yield part
            yield from _parts(part) if name == "batch_sampler" else ()


def _generators(loader: Any) -> Iterator[Any]:
    """Yield the generators of random numbers that the parts of a loader, or a function's closure, hold."""
    found: dict[int, Any] = {}
    cells = getclosurevars(loader).nonlocals.values() if isfunction(loader) else ()
    held = (vars(part).values() for part in (loader, *_parts(loader)) if hasattr(part, "__dict__"))
    for value in chain(chain.from_iterable(held), cells):
        if isinstance(value, (torch.Generator, random.Random)) or _is_of_numpy(value):
            found[id(value)] = value
    return iter(found.values())


def _is_of_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.random.Generator)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return generator.getstate() if isinstance(generator, random.Random) else _plain(generator.bit_generator.state)


def _return_to(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.bit_generator.state = state


def _plain(tree: Any) -> Any:
    """Return nested dictionaries with lists for numpy's arrays, and numbers for its scalars."""
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    return tree.tolist() if hasattr(tree, "tolist") else tree
