"""One argument of a proof as it is read: each field once, of the type that its kind asks for, and no other fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from jigsaw_opt.problem import clock

Value = TypeVar("Value")


class ProofStepError(Exception):
    """A step of a proof fails.

    `path`: where it stands in the document, as in ``$.argument.jobs[0]``.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path, self.message = path, message


class ProofStep:
    """A JSON object of a proof, with its path."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, Mapping):
            raise ProofStepError(path, "is not an object")
        self._fields, self._read = dict(value), set[str]()

    def fail(self, message: str, field: str = "") -> ProofStepError:
        """Return the error that this step, or a field of it, is wrong."""
        return ProofStepError(f"{self.path}.{field}" if field else self.path, message)

    def require(self, holds: bool, message: str, field: str = "") -> None:
        """Fail unless something holds."""
        if not holds:
            raise self.fail(message, field)

    def required(self, value: Value | None, message: str, field: str = "") -> Value:
        """Return a value, or fail where there is none."""
        if value is None:
            raise self.fail(message, field)
        return value

    def has(self, field: str) -> bool:
        """Return whether there is such a field."""
        return field in self._fields

    def value(self, field: str) -> Any:
        """Return a field as it stands, unless the time of the solve at hand is over."""
        clock.check_deadline()
        self._read.add(field)
        if field not in self._fields:
            raise self.fail(f"has no {field!r}")
        return self._fields[field]

    def integer(self, field: str, least: int | None = 0) -> int:
        """Return an integer of at least `least`; None for any."""
        return integer(self.value(field), f"{self.path}.{field}", least)

    def equal(self, field: str, own: int, what: str) -> int:
        """Return an integer that has to be what the checker works out itself."""
        claimed = self.integer(field, None)
        self.require(claimed == own, f"{what} is {shown(own)}, not {shown(claimed)}", field)
        return own

    def text(self, field: str) -> str:
        """Return a string."""
        return text(self.value(field), f"{self.path}.{field}")

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of different strings."""
        found = tuple(text(one, path) for one, path in self.items(field))
        self.require(len(set(found)) == len(found), "names something twice", field)
        return found

    def named(self, field: str, known: Mapping[str, Value], what: str) -> Value:
        """Return what the name in a field stands for; `what` says what it has to name."""
        name = self.text(field)
        return self.required(known.get(name), f"{name!r} is no {what}", field)

    def all_named(self, field: str, known: Mapping[str, Value], what: str) -> list[Value]:
        """Return what the different names in a list stand for."""
        return [self.required(known.get(name), f"{name!r} is no {what}", field) for name in self.texts(field)]

    def integers(self, field: str, least: int | None = 0) -> tuple[int, ...]:
        """Return a list of integers."""
        return tuple(integer(one, path, least) for one, path in self.items(field))

    def fours(self, field: str, what: str) -> Iterator[tuple[tuple[int, int, int, int], str]]:
        """Yield the entries of a list, each of four integers of at least 0, with its path."""
        for one, path in self.items(field):
            if not isinstance(one, Sequence) or len(one) != 4:
                raise ProofStepError(path, f"is not {what}")
            first, second, third, fourth = (integer(number, path) for number in one)
            yield (first, second, third, fourth), path

    def items(self, field: str) -> Iterator[tuple[Any, str]]:
        """Yield the entries of a list, each with its path."""
        found = self.value(field)
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise self.fail("is not a list", field)
        for number, one in clock.checking_deadline(enumerate(found)):
            yield one, f"{self.path}.{field}[{number}]"

    def step(self, field: str) -> ProofStep:
        """Return an object."""
        return ProofStep(self.value(field), f"{self.path}.{field}")

    def steps(self, field: str) -> list[ProofStep]:
        """Return a list of objects."""
        return [ProofStep(one, path) for one, path in self.items(field)]

    def named_steps(self, field: str) -> dict[str, ProofStep]:
        """Return the objects of an object, by name."""
        inner = self.step(field)
        return {name: inner.step(name) for name in inner._fields}

    def named_integers(self, field: str, least: int | None = 0) -> dict[str, int]:
        """Return the integers of an object, by name."""
        inner = self.step(field)
        return {name: inner.integer(name, least) for name in inner._fields}

    def done(self) -> None:
        """Fail where a field was not read: what nobody checks proves nothing."""
        unknown = sorted(self._fields.keys() - self._read)
        self.require(not unknown, f"has {', '.join(map(repr, unknown))}, which this kind of argument does not know")


def shown(number: int) -> str:
    """Return a number as messages show it: of a long one, which Python may refuse to write, the length."""
    return str(number) if number.bit_length() < 1000 else f"a number of {number.bit_length()} bits"


def integer(value: object, path: str, least: int | None = 0) -> int:
    """Return an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProofStepError(path, "is not an integer")
    if least is not None and value < least:
        raise ProofStepError(path, f"is less than {least}")
    return value


def text(value: object, path: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise ProofStepError(path, "is not a string")
    return value
