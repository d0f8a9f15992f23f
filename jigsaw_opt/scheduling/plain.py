"""Plain values, of which a snapshot is made: numbers, texts, lists and objects of JSON, and the shapes that they have.

A shape is an operation of JSON Schema and is checked as documents are, with every problem and its path. So whoever puts
something aside states in one line what it looks like, and reads it back only when it looks like that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

from jigsaw_opt.documents.decoding import field_values
from jigsaw_opt.errors import UsageError, wrong_input
from jigsaw_opt.problem.rules.keyed import plain
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.rules.schemas import shipped
from jigsaw_opt.problem.rules.structure import compiled

Plain = Any
"""None, a truth value, a number, a text, or a list or object of such."""

Shape = Mapping[str, Any]

MOST = 10**40
"""No time in microseconds, work in units or sum of them comes near it, and what is below fits a float by far."""

ANYTHING: Shape = {}
TRUTH: Shape = {"type": "boolean"}
TEXT: Shape = {"type": "string"}
DEPTH: Shape = {"$ref": "#/$defs/depth"}
"""A depth rule, as in an instance."""


def check_arguments(**given: tuple[object, Shape]) -> None:
    """Refuse arguments of a caller that have not their shape."""
    report = Report()
    for name, (value, shape) in given.items():
        conforms(value, shape, name, report)
    if report.problems:
        raise UsageError(*report.problems)


def whole(high: int = MOST, low: int = 0) -> Shape:
    """Return the shape of an integer between two bounds."""
    return {"type": "integer", "minimum": low, "maximum": high}


def number(low: float, high: float) -> Shape:
    """Return the shape of a number between two bounds."""
    return {"type": "number", "minimum": low, "maximum": high}


def optional(shape: Shape) -> Shape:
    """Return the shape of a value that may also be null."""
    return {**shape, "type": [shape["type"], "null"]}


def listed(of: Shape, least: int = 0, most: int | None = None) -> Shape:
    """Return the shape of a list whose values have one shape."""
    return {"type": "array", "items": of, "minItems": least} | ({} if most is None else {"maxItems": most})


def rows(columns: int, of: Shape) -> Shape:
    """Return the shape of a list of rows."""
    return listed(listed(of, columns, columns))


def fields(**shapes: Shape) -> Shape:
    """Return an object of exactly these keys."""
    return {"type": "object", "additionalProperties": False, "required": list(shapes), "properties": shapes}


def keyed(record: object, *names: str) -> dict[str, Plain]:
    """Return attributes of a record by their names."""
    return {name: getattr(record, name) for name in names}


def conforms(value: Plain, shape: Shape, place: Place, report: Report) -> None:
    """Report where a value does not have a shape."""
    compiled(shape, _definitions())(value, place, report)


def checked(value: Plain, shape: Shape, place: Place = "$") -> Plain:
    """Return the value, which stands at `place`, if it has the shape."""
    report = Report()
    conforms(value, shape, place, report)
    report.raise_if_any()
    return value


def require_newest(tree: Plain, newest: str, path: str) -> None:
    """Refuse a document that says of itself that it is of another version of a format than the newest."""
    given = tree.get("format") if isinstance(tree, dict) else None
    if isinstance(given, str) and given != newest and given.startswith(newest.partition("/")[0] + "/"):
        told = f"is a document {given!r}; only {newest!r} is read"
        raise wrong_input(path, told, "start anew", code="outdated")


@cache
def _definitions() -> Mapping[str, Any]:
    """Return where references lead: the definitions of instances."""
    return shipped("instance")


@dataclass(frozen=True, slots=True)
class NumberLimits:
    """Limits of the numbers in the state of a simulation.

    `jobs, gpus`: how many the workload and the cluster have. `rounds`: how often the policy was asked.
    """

    jobs: int
    gpus: int
    now_us: int
    rounds: int

    @property
    def job(self) -> Shape:
        """Number of a job."""
        return whole(self.jobs - 1)

    @property
    def gpu(self) -> Shape:
        """Number of a GPU."""
        return whole(self.gpus - 1)

    @property
    def time(self) -> Shape:
        """A time that is not after now."""
        return whole(self.now_us)

    @property
    def service(self) -> Shape:
        """GPU time up to now."""
        return whole(self.gpus * self.now_us)


class Kept:
    """An object of a dataclass; a snapshot keeps what its `shape` names, and calls its `index` ``job``."""

    __slots__ = ()
    shape: ClassVar[Callable[..., Shape]]

    def plain(self) -> Plain:
        """Return what a snapshot keeps of it, as values of JSON."""
        kind: Any = type(self)
        return {key: _kept_value(getattr(self, name)) for key, name in _kept(kind).items()}

    @classmethod
    def restored(cls, tree: Plain, **others: Any) -> Self:
        """Return the object that `plain` gave.

        `**others`: its values that a snapshot does not keep.
        """
        kind: Any = cls
        names = _kept(kind)
        return cls(**field_values(cls, {names[key]: value for key, value in tree.items() if key in names}), **others)


@cache
def _kept(kind: type[Kept]) -> Mapping[str, str]:
    """Return by its key in a snapshot each attribute that is kept."""
    keys = kind.shape(NumberLimits(1, 1, 0, 0))["properties"]
    return {key: "index" if key == "job" and hasattr(kind, "index") else key for key in keys}


def _kept_value(value: Any) -> Plain:
    return value.plain() if isinstance(value, Kept) else plain(value, flat=True)
