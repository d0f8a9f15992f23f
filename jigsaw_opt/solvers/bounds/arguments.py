"""Arguments that several bounds make, for a program to check (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jigsaw_opt.problem.bound_proof import Argument

NO_ARGUMENT: Argument = {"kind": "none"}
"""The argument that proves 0."""


def some_jobs(names: Iterable[str], argument: Argument | None) -> Argument | None:
    """Return the argument that what is proven of some jobs holds of all."""
    return None if argument is None else {"kind": "some jobs", "jobs": list(names), "argument": argument}


def sum_argument(parts: Sequence[tuple[Iterable[str], Argument | None]]) -> Argument | None:
    """Return the argument that weighted ends of parts of the jobs add up; None where a part has no argument."""
    found = [{"jobs": list(names), "argument": argument} for names, argument in parts if argument is not None]
    return {"kind": "sum", "parts": found} if len(found) == len(parts) else None


def alike_jobs(facts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return facts of jobs as an argument has them, by name: those with the same facts stand together."""
    alike: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for name, own in facts.items():
        alike.setdefault(str(own), ([], own))[0].append(name)
    return [{"names": names, **own} for names, own in alike.values()]


def completion_argument(own: Mapping[str, int], denominator: int = 1, rows: Sequence[Argument] = ()) -> Argument:
    """Return an argument of least completion times by job, and rows with multipliers over a denominator."""
    least = alike_jobs({name: {"completion": completion} for name, completion in own.items()})
    return {"kind": "completions", "denominator": denominator, "completions": least, "rows": [*rows]}
