"""Steps of a proof, the table of their kinds, and what the specification says of single durations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from types import UnionType
from typing import Any

Document = dict[str, Any]


class UnprovenError(Exception):
    """A step of a proof that is wrong."""


KINDS: dict[str, tuple[dict[str, Any], Callable[[Document, Document], int]]] = {}
"""By kind of argument, the types of its fields and the function that says what it proves of an instance."""


def need(right: bool, fault: str) -> None:
    """Raise unless a step is right."""
    if not right:
        raise UnprovenError(fault)


def fields(value: Any, types: dict[str, Any], what: str) -> None:
    """Raise unless a value has these fields and types, where `str | None` may be left out; a boolean is no integer."""
    needed = {name for name, kind in types.items() if not isinstance(kind, UnionType)}
    need(type(value) is dict and needed <= value.keys() <= types.keys(), f"{what} has not the fields {list(types)}")
    for name in value:
        kind = getattr(types[name], "__args__", [types[name]])[0]
        need(kind in (object, type(value[name])), f"{name} of {what} is no {kind.__name__}")


def different(names: Any, known: Iterable[str], what: str) -> None:
    """Raise unless names are a list of different known strings."""
    need(type(names) is list and all(type(name) is str for name in names), f"{what} are no list of names")
    need(len(set(names)) == len(names) and set(names) <= set(known), f"{what} are not different or not known")


def kind(name: str, **types: Any) -> Callable[..., Callable[[Document, Document], int]]:
    """Add to the table what an argument of a kind proves of an instance with all defaults written out."""

    def add(function: Callable[[Document, Document], int]) -> Callable[[Document, Document], int]:
        KINDS[name] = ({"kind": str, **types}, function)
        return function

    return add


def proven(instance: Document, argument: Any) -> int:
    """Return what an argument proves of an instance, or raise where it is wrong."""
    need(type(argument) is dict and type(argument.get("kind")) is str, "an argument has no kind")
    need(instance.get("depth", 0) <= 20, "more than 20 arguments about some jobs are inside one another")
    need(argument["kind"] in KINDS, f"there is no kind {argument['kind']}")
    types, function = KINDS[argument["kind"]]
    fields(argument, types, argument["kind"])
    return function(instance, argument)


def spend(instance: Document, what: str, amount: int, most: int) -> None:
    """Count what a whole proof asks for, and raise where that is too much (docs/proofs.md: limits)."""
    spent = instance.setdefault("spent", {})
    spent[what] = spent.get(what, 0) + amount
    need(spent[what] <= most, f"there are more than {most} {what}")


def with_jobs(instance: Document, names: Any) -> Document:
    """Return the instance that has the named jobs alone, in their order."""
    depth = instance.get("depth", 0) + 1
    different(names, [job["name"] for job in instance["jobs"]], "jobs")
    need(bool(names), "there are no jobs")
    return {**instance, "depth": depth, "jobs": [job for job in instance["jobs"] if job["name"] in names]}


def shown(number: int) -> str:
    """Return a number as text; of one of very many digits, how long it is."""
    return str(number) if number.bit_length() < 1000 else f"{number.bit_length()} bits"


def fraction(value: int | str) -> Fraction:
    """Return the exact value of an integer or of `digits/digits`."""
    return Fraction(value)


def up(value: Fraction | int) -> int:
    """Round up."""
    return -(-value.numerator // value.denominator)


def runs_on(model: Document, gpu_type: str) -> bool:
    """Return whether every segment knows the type."""
    return all(
        gpu_type in segment["forward_us"] and gpu_type in segment["backward_us"] for segment in model["segments"]
    )


def block_us(job: Document, model: Document, gpu_type: str, level: int) -> int:
    """Return the duration of a block (specification: block, exchange)."""

    def once(depth: int) -> int:
        forward = sum(segment["forward_us"][gpu_type] for segment in model["segments"])
        return forward + sum(segment["backward_us"][gpu_type] for segment in model["segments"][-depth:])

    every = job.get("exchange", {}).get("every", 1)
    return (every - 1) * once(model["levels"][-1]) + once(model["levels"][level - 1])


def transfer_us(job: Document, model: Document, bucket: int, contributors: int, rate: int, latency: int) -> int:
    """Return the duration of a transfer (specification: transfer, exchange)."""
    w, c = job["workers"], contributors
    first, last = ([0, *model["levels"]][bucket - 1], model["levels"][bucket - 1])
    segments = model["segments"][len(model["segments"]) - last : len(model["segments"]) - first]
    size = sum(segment["parameter_bytes"] for segment in segments)
    size = up(fraction(job.get("exchange", {}).get("bytes", 1)) * size)
    return up(Fraction(size * ((c - 1) * w + (w - 1) * c) * 10**6, c * w * rate)) + (c + w - 2) * latency


def memory(model: Document, level: int) -> int:
    """Return state and activations of one worker whose largest level this is (specification: memory)."""
    sizes = [segment["activation_bytes"] for segment in model["segments"]]
    at = len(sizes) - model["levels"][level - 1]
    parameters = sum(segment["parameter_bytes"] for segment in model["segments"])
    return model["state_factor"] * parameters + sum(sizes[at:]) + max(sizes[:at], default=0)


def parts(nodes: Iterable[str], links: Iterable[Document]) -> list[set[str]]:
    """Return the connected parts that links join nodes to, in order of their first node."""
    part = {node: {node} for node in nodes}
    for link in links:
        one, other = (part[end] for end in link["ends"])
        if one is not other:
            one |= other
            part.update(dict.fromkeys(other, one))
    return list({id(one): one for one in part.values()}.values())
