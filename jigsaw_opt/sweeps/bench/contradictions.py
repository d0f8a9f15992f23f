"""Runs that cannot all be right: a bound above the objective of a plan, or a proof of no plan beside one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["Contradiction", "contradictions"]


class Contradiction(NamedTuple):
    """A run that another one, or its own objective, shows to be wrong, unless that one is.

    `key`: what of it is contradicted: ``bound`` or ``status``.
    """

    place: str
    key: str
    told: str


def contradictions(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Contradiction]:
    """Return the runs whose bound, or proof that there is no plan, the best plan of the same instance refutes.

    `rows`: rows of runs, from any number of files, each with what its place is called.
    """
    rows, best = [*rows], dict[str, tuple[int, str]]()
    for place, row in rows:
        sha256, objective = row.get("instance_sha256"), row.get("objective")
        if sha256 is not None and objective is not None and (sha256 not in best or objective < best[sha256][0]):
            best[sha256] = objective, place
    found = list[Contradiction]()
    for place, row in rows:
        if row.get("instance_sha256") not in best:
            continue
        objective, shown = best[row["instance_sha256"]]
        where = "" if shown == place else f" of {shown}"
        if row.get("bound") is not None and row["bound"] > objective:
            found.append(
                Contradiction(place, "bound", f"bound {row['bound']} is above the objective {objective}{where}")
            )
        if row.get("status") == "infeasible":
            found.append(
                Contradiction(place, "status", f"no plan is said to exist, beside the objective {objective}{where}")
            )
    return found
