"""Objects seen as documents have them, their values in the types of Python that documents have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any, ClassVar, TypeVar

KINDS: dict[str, list[str]] = {}
"""Names of the classes of a definition, in the order in which they were made."""
_FIELDS: dict[type[Keyed], dict[str, Any]] = {}
_SCALARS = frozenset({int, str, bool, float, type(None)})
_K = TypeVar("_K", bound="Keyed")


class Keyed:
    """An object of a dataclass that documents have a form for.

    Its values are settled when it is made: lists become tuples, what counts as an integer or a string becomes one, and
    mappings are copied.
    """

    __slots__ = ()
    definition: ClassVar[str]
    """Name under which the schema of instances defines it; ``#`` for an instance."""

    def __init_subclass__(cls, definition: str = "") -> None:
        if definition:
            cls.definition = definition
            KINDS.setdefault(definition, []).append(cls.__name__)

    def __post_init__(self) -> None:
        for name in _defaults(type(self)):
            value = getattr(self, name)
            if type(value) not in _SCALARS and not isinstance(value, Keyed):
                object.__setattr__(self, name, _settled(value))

    def keyed(self) -> Any:
        """Return its values by the keys of documents, its own parts left as they are.

        None is a key that is not there, where that is the default.
        """
        own = ((name, getattr(self, name), default) for name, default in _defaults(type(self)).items())
        return {name: value for name, value, default in own if value is not None or default is not None}


def trusted(kind: type[_K], /, **values: Any) -> _K:
    """Return an object of values that are settled and known to be right, which no check looks at again.

    `**values`: values of its fields; those that are left out have their defaults.
    """
    made, assign = object.__new__(kind), object.__setattr__
    for name, value in (_defaults(kind) | values).items():
        assign(made, name, value)
    return made


def altered(part: _K, **changes: Any) -> _K:
    """Return a copy with some other values, all of which are settled and known to be right; see `trusted`."""
    kind = type(part)
    return trusted(kind, **{name: getattr(part, name) for name in _defaults(kind)} | changes)


def hash_of(value: Any) -> int:
    """Return a hash that equal values share, also of objects that have mappings among their values."""
    if isinstance(value, Keyed):
        return hash(tuple(hash_of(getattr(value, name)) for name in _defaults(type(value))))
    if isinstance(value, Mapping):
        return hash(frozenset((key, hash_of(item)) for key, item in value.items()))
    return hash(tuple(map(hash_of, value)) if isinstance(value, list | tuple) else value)


class NoKey(str):
    """A stand-in for a key that is no string, which no document has."""


def plain(value: Any, flat: bool = False) -> Any:
    """Return a value as a parser of JSON would give it; what JSON has no form for stays as it is.

    `flat`: whether objects that documents have a form for take that form; otherwise they stay, too.
    """
    if type(value) in _SCALARS:
        return value
    if flat and isinstance(value, Keyed):
        value = value.keyed()
    if isinstance(value, list | tuple | range):
        return [plain(item, flat) for item in value]
    if isinstance(value, Mapping):
        return {_key(key): plain(item, flat) for key, item in value.items()}
    return _scalar(value)


def _settled(value: Any) -> Any:
    """Convert a value as `plain` does, but make lists that stand in no mapping tuples."""
    if isinstance(value, list | tuple | range):
        return tuple([item if isinstance(item, Keyed) else _settled(item) for item in value])
    return plain(value)


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    return str.__str__(key) if isinstance(key, str) else NoKey(repr(key))


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, Integral) else value


def _defaults(kind: type[Keyed]) -> dict[str, Any]:
    """Return each field of a class with its default, or ``dataclasses.MISSING``."""
    found = _FIELDS.get(kind)
    if found is None:
        found = _FIELDS[kind] = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    return found
