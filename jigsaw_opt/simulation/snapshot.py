"""Putting a simulation aside and going on with it later.

A snapshot is a header line, a JSON object that names the inputs, and then the state as Python pickles it, read back
with nothing but classes of this package, of registered policies and a few of the standard library. The setting is
not in it but given again, so that the state fits the inputs it came from.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from importlib.metadata import entry_points
from typing import Any

from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.policy import GROUP, Setting

__all__ = ["restore", "snapshot"]

_FORMAT = "jigsaw-snapshot/1"
_SETTING, _PERFORMANCE = "setting", "performance"
_HARMLESS = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "range"),
    ("collections", "Counter"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("fractions", "Fraction"),
    ("random", "Random"),
}
_UNREADABLE = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)
"""What reading the state raises where another version of this package wrote it, or nobody."""


def snapshot(simulation: Simulation, inputs: str) -> bytes:
    """The state of a simulation.

    Parameters
    ----------
    simulation
        Between two calls of ``run``.
    inputs
        What it was started with, as text that tells equal inputs from others.
    """
    stream = io.BytesIO()
    _Pickler(stream, simulation.setting).dump(simulation)
    state = stream.getvalue()
    header = {
        "format": _FORMAT,
        "inputs": _digest(inputs.encode()),
        "state": _digest(state),
        "time_us": simulation.now_us,
        "ended": simulation.ended,
    }
    return json.dumps(header).encode() + b"\n" + state


def restore(data: bytes, setting: Setting, inputs: str, source: str) -> Simulation:
    """The simulation of a snapshot.

    Parameters
    ----------
    data
        The snapshot.
    setting, inputs
        As it was started with.
    source
        What problems call it.

    Raises
    ------
    InvalidInputError
        It is no snapshot, one of other inputs, or one that holds what no snapshot does.
    """
    first, _, state = data.partition(b"\n")
    try:
        header = json.loads(first)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise InvalidInputError([Problem(source, "is not a snapshot of a simulation")])
    if header.get("inputs") != _digest(inputs.encode()):
        hint = "it goes on only with the inputs, policy and options that it was started with"
        raise InvalidInputError([Problem(source, "is a snapshot of other inputs", hint)])
    if header.get("state") != _digest(state):
        raise InvalidInputError([Problem(source, "is damaged: what it holds is not what was written")])
    try:
        simulation = _Unpickler(io.BytesIO(state), setting).load()
    except _UNREADABLE as error:
        raise InvalidInputError([Problem(source, f"is damaged: {error}")]) from error
    if not isinstance(simulation, Simulation):
        raise InvalidInputError([Problem(source, "is not a snapshot of a simulation")])
    return simulation


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Pickler(pickle.Pickler):
    """Leaves the setting and its performance model out, whose caches are large and can be worked out again."""

    def __init__(self, stream: io.BytesIO, setting: Setting) -> None:
        super().__init__(stream)
        self._setting = setting

    def persistent_id(self, value: Any) -> str | None:
        if value is self._setting:
            return _SETTING
        return _PERFORMANCE if value is self._setting.performance else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, setting: Setting) -> None:
        super().__init__(stream)
        self._known = {_SETTING: setting, _PERFORMANCE: setting.performance}
        self._trusted = {point.module.partition(".")[0] for point in entry_points(group=GROUP)} | {"jigsaw_opt"}

    def find_class(self, module: str, name: str) -> Any:
        """A class; never a function, which a forged snapshot could have called, nor what a module merely imports."""
        if module.partition(".")[0] in self._trusted or (module, name) in _HARMLESS:
            found = super().find_class(module, name)
            if isinstance(found, type) and (found.__module__, found.__qualname__) == (module, name):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a snapshot")

    def persistent_load(self, name: str) -> object:
        return self._known[name]
