"""Parameters of the search as a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.errors import Code, InvalidInputError, Problem, wrong_input
from jigsaw_opt.solvers.params import SearchParams

T = TypeVar("T")
_TYPES: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}


def load_params(path: Path) -> SearchParams:
    """Read a TOML file."""
    return from_toml(read_text(path).decode(errors="replace"), str(path))


def from_toml(text: str, source: str = "parameters") -> SearchParams:
    """Return the parameters from the text of a TOML file; what it leaves out has its default."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise wrong_input(source, f"is not TOML: {error}", code="malformed") from error
    problems: list[Problem] = []
    params = _decoded(SearchParams, document, "$", problems)
    problems += _unknown_moves(params.without)
    if problems:
        raise InvalidInputError(problems)
    return params


def as_toml(params: SearchParams) -> str:
    """Return the parameters as a TOML file that says what each of them is."""
    return "\n".join(_lines(params))


def _unknown_moves(names: tuple[str, ...]) -> Iterator[Problem]:
    from jigsaw_opt.solvers.search.moves import names as registered
    from jigsaw_opt.text import nearest

    for number, name in enumerate(names):
        if name not in registered():
            yield Problem(f"$.without[{number}]", f"no move {name!r}", nearest(name, registered()), code="unknown-name")


def _decoded(kind: type[T], document: Mapping[str, Any], path: str, problems: list[Problem]) -> T:
    """Return an object of a parameter class; what is wrong is left at its default and noted as a problem."""
    from jigsaw_opt.text import nearest

    hints, known = get_type_hints(kind), {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    for name, value in document.items():
        place = f"{path}.{name}"
        if name not in known:
            problems.append(Problem(place, "no such parameter", nearest(name, known), code="unknown-field"))
        elif is_dataclass(hints[name]):
            if isinstance(value, dict):
                found[name] = _decoded(hints[name], value, place, problems)
            else:
                problems.append(Problem(place, "must be a table", code="wrong-type"))
        else:
            wrong = _wrong(value, hints[name], known[name].metadata)
            if wrong:
                code, message = wrong
                problems.append(Problem(place, message, code=code))
            else:
                found[name] = tuple(value) if isinstance(value, list) else value
    return kind(**found)


def _wrong(value: Any, hint: Any, metadata: Mapping[str, Any]) -> tuple[Code, str] | None:
    """Return what is wrong with a value: the code and the message; None where nothing is."""
    many = hint not in _TYPES
    types, what = _TYPES[hint.__args__[0] if many else hint]
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) is not many or any(
        isinstance(one, bool) or not isinstance(one, types) for one in values
    ):
        return "wrong-type", f"must be a list, each of it {what}" if many else f"must be {what}"
    if not metadata:
        return None
    least, most = metadata["least"], metadata["most"]
    if not values:
        return "empty", "must not be empty"
    if all(least <= one <= most for one in values):
        return None
    return "out-of-range", f"must be between {least:g} and {most:g}"


def _lines(params: SearchParams) -> Iterator[str]:
    yield "# Parameters of the search, with their defaults; leave out what you do not change."
    yield "# Moves that are left out, by name."
    yield f"without = {_written(params.without)}"
    for part in fields(params):
        value = getattr(params, part.name)
        if is_dataclass(value):
            yield f"\n[{part.name}]"
            yield f"# {(type(value).__doc__ or '').splitlines()[0]}"
            for each in fields(value):
                yield f"# {each.metadata['text']} Unit: {each.metadata['unit']}."
                yield f"{each.name} = {_written(getattr(value, each.name))}"


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
