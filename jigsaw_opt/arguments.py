"""Arguments of public functions: each is of the type that the function states, or all that are not are told at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cache, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from threading import Event
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from jigsaw_opt.errors import Problem, UsageError, argument, giver_of, kind_of, with_article
from jigsaw_opt.text import suggestion

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NUMBERS: Mapping[object, type] = {int: Integral, float: Real}
"""What else counts as a number, such as those of numpy."""
_WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    bool: ("true or false", "truth values"),
    NoneType: ("None", "None"),
}
"""Types in words: one value, and several."""


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def typed(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have a function refuse arguments of other types than it states, and options by keyword that it does not know."""
    own, hints_of = signature(function), cache(lambda: get_type_hints(function))
    rest = next((name for name, one in own.parameters.items() if one.kind is Parameter.VAR_KEYWORD), "")

    @wraps(function)
    def checked(*given: _P.args, **named: _P.kwargs) -> _R:
        values, types, wrong = own.bind(*given, **named).arguments, hints_of(), list[Problem]()
        if rest:
            (options,) = get_args(types[rest])
            known, asked = get_type_hints(options), values.pop(rest, {})
            hints = {name: suggestion(name, known) for name in asked if name not in known}
            wrong = [
                Problem(name, f"there is no option {name!r}" + (hint and f"; {hint}"), code="unknown-option")
                for name, hint in hints.items()
            ]
            values |= {name: value for name, value in asked.items() if name in known}
            types = {**types, **known}
        wrong += _wrongly_typed(types, values)
        if wrong:
            raise UsageError.of(wrong)
        return function(*given, **named)

    return checked


def require_fields(made: Any) -> None:
    """Refuse an object of a dataclass whose fields are of other types than the class states."""
    types = _hints(made.__class__)
    if wrong := [*_wrongly_typed(types, {name: getattr(made, name) for name in types})]:
        raise UsageError.of(wrong)


def _wrongly_typed(types: Mapping[str, Any], values: Mapping[str, object]) -> Iterator[Problem]:
    """Yield a problem for each value, or part of one, that is not of the type of its name."""
    for name, value in values.items():
        if name == "self":
            continue
        for path, part, expected in _wrong_parts(name, value, types[name]):
            told = f"{argument(name)}{path.removeprefix(name)} is {_in_words(expected)}, not {kind_of(part)}"
            kinds = (expected, *get_args(expected))
            is_word = isinstance(part, str) and any(get_origin(one) is Literal for one in kinds)
            giver = giver_of(expected)
            yield Problem(path, told + (giver and f"; {giver}"), code="unknown-value" if is_word else "wrong-type")


def _wrong_parts(path: str, value: object, expected: Any) -> Iterator[tuple[str, object, Any]]:
    """Yield the path, value and type of what is of another type: items of a list rather than the list."""
    if _fits(value, expected):
        return
    if get_origin(expected) in (Union, UnionType):
        kinds = [one for one in get_args(expected) if one is not NoneType]
        expected = kinds[0] if len(kinds) == 1 else expected
    kind, inner = get_origin(expected), get_args(expected)
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(kind, type) and isinstance(value, kind) and not isinstance(value, str):
        if isinstance(value, Mapping) and all(_fits(key, inner[0]) for key in value):
            parts = value.items()
        elif issubclass(kind, Iterable) and isinstance(value, Collection) and not isinstance(value, Mapping):
            parts = enumerate(value)
    found = [
        one
        for key, item in parts
        for one in _wrong_parts(f"{path}[{key!r}]", item, inner[-1 if isinstance(value, Mapping) else 0])
    ]
    yield from found or [(path, value, expected)]


def _fits(value: object, expected: Any) -> bool:
    """Say whether a value is of a type; items of an iterator are not looked at, as that would use them up."""
    origin, inner = get_origin(expected), get_args(expected)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if expected in _NUMBERS:
        return isinstance(value, _NUMBERS[expected]) and not isinstance(value, bool)
    kind = origin or expected
    if kind is Any or getattr(kind, "_is_protocol", False) > getattr(kind, "_is_runtime_protocol", False):
        return True
    if not isinstance(value, kind):
        return False
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(_fits(key, inner[0]) and _fits(item, inner[1]) for key, item in value.items())
    if issubclass(kind, Iterable) and inner:
        items = value if isinstance(value, Collection) else ()
        return not isinstance(value, str | bytes | Mapping) and all(_fits(item, inner[0]) for item in items)
    return True


def _in_words(expected: Any, several: bool = False) -> str:
    """Return what a value of a type is, in words; what stands for an argument that is left out is not told."""
    origin, inner = get_origin(expected), get_args(expected)
    if origin in (Union, UnionType):
        kinds = [one for one in inner if one is not NoneType and not (one is Fraction and float in inner)]
        told = dict.fromkeys(_in_words(one, several) for one in kinds)
        *first, last = told
        return f"{', '.join(first)} or {last}" if first else last
    if origin is Literal:
        return f"{'words out of' if several else 'one of'} {', '.join(inner)}"
    if expected in _WORDS:
        return _WORDS[expected][several]
    kind = origin or expected
    if kind is Callable:
        return "functions" if several else "a function"
    if issubclass(kind, Mapping):
        return f"a mapping from {_in_words(inner[0], True)} to {_in_words(inner[1], True)}"
    if issubclass(kind, Iterable) and inner:
        return f"a list of {_in_words(inner[0], True)}"
    name = "threading.Event" if kind is Event else kind.__name__  # `Event` is one of solvers, too
    return f"{name}s" if several else with_article(name)
