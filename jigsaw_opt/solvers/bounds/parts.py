"""Arguments about some of the jobs, for a program to check (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jigsaw_opt.problem.bound_proof import Argument


def some_jobs(names: Iterable[str], argument: Argument | None) -> Argument | None:
    """Return the argument that what is proven of some jobs holds of all."""
    return None if argument is None else {"kind": "some jobs", "jobs": list(names), "argument": argument}


def sum_argument(parts: Sequence[tuple[Iterable[str], Argument | None]]) -> Argument | None:
    """Return the argument that weighted ends of parts of the jobs add up; None where a part has no argument."""
    found = [{"jobs": list(names), "argument": argument} for names, argument in parts if argument is not None]
    return {"kind": "sum", "parts": found} if len(found) == len(parts) else None
