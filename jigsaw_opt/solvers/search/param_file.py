"""Parameters of the search as a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from jigsaw_opt.documents.decoding import made
from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.errors import wrong_input
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.rules.structure import compiled
from jigsaw_opt.solvers.params import SearchParams


def load_params(path: Path) -> SearchParams:
    """Read a TOML file."""
    return from_toml(read_text(path).decode(errors="replace"), str(path))


def from_toml(text: str, source: str = "parameters") -> SearchParams:
    """Return the parameters from the text of a TOML file; what it leaves out has its default."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise wrong_input(source, f"is not TOML: {error}", code="malformed") from error
    report = Report()
    compiled(_table(SearchParams), {})(document, "$", report)
    report.raise_if_any()
    params: SearchParams = made(SearchParams, document)
    return params


def as_toml(params: SearchParams) -> str:
    """Return the parameters as a TOML file that says what each of them is."""
    return "\n".join(_lines(params))


def _table(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a table that has some of the fields of a parameter class."""
    hints = get_type_hints(kind)
    values = {each.name: _value(hints[each.name], each.metadata) for each in fields(kind)}
    return {"type": "object", "properties": values, "additionalProperties": False}


def _value(hint: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of what stands in a field: a table, the names of moves, or numbers with their limits."""
    from jigsaw_opt.solvers.search.moves import names

    if is_dataclass(hint):
        return _table(hint)
    if not metadata:
        return {"type": "array", "items": {"enum": names()}}
    own = (*get_args(hint), hint)[0]
    limits = {"minimum": metadata["least"], "maximum": metadata["most"]}
    number = {"type": "integer" if own is int else "number", **limits}
    return number if own is hint else {"type": "array", "minItems": 1, "items": number}


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
