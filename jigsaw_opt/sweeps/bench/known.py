"""Measured runs beside the best known values of bundled instances, and beside each other: what contradicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jigsaw_opt.instances.catalogue import BEST_KNOWN, BestKnown, read_best_known


@dataclass(frozen=True, slots=True)
class Beyond:
    """A run whose value goes beyond the stored one.

    `instance, solver, seed`: name of the bundled instance, solver and seed of the run. `kind`: ``better``: its
    objective is below the best known one. ``contradiction``: its objective is below the proven bound, or its bound
    above the best known objective, so that one of the two is wrong. `found, stored`: value of the run, and the stored
    value; None where no plan was known.
    """

    instance: str
    solver: str
    seed: int | None
    kind: Literal["better", "contradiction"]
    found: int
    stored: int | None


def best_known_by_hash() -> dict[str, tuple[str, BestKnown]]:
    """Return name and best known values of each bundled instance, by the hash of the instance."""
    return {known.instance_sha256: (name, known) for name, known in read_best_known(BEST_KNOWN).items()}


def beats_known(sha256: str, objective: int | None) -> bool:
    """Return whether an objective is below the best known one of the bundled instance with that hash."""
    found = best_known_by_hash().get(sha256)
    return (
        objective is not None and found is not None and (found[1].objective is None or objective < found[1].objective)
    )


def better_plans(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the best plan that beats the stored value, as a document, by the name of the bundled instance.

    `rows`: rows of measured runs; those that beat a value hold their ``plan``.
    """
    known, found = best_known_by_hash(), dict[str, Mapping[str, Any]]()
    for row in rows:
        if row.get("plan") is not None and beats_known(row["instance_sha256"], row.get("objective")):
            name = known[row["instance_sha256"]][0]
            found[name] = min(found.get(name, row), row, key=lambda it: it["objective"])
    return {name: row["plan"] for name, row in found.items()}


def beyond_known(rows: Iterable[Mapping[str, Any]]) -> list[Beyond]:
    """Return the runs that beat or contradict the stored values, in the order of the rows.

    `rows`: rows of measured runs; those of instances without a record say nothing.
    """
    known, found = best_known_by_hash(), list[Beyond]()
    for row in rows:
        if row.get("instance_sha256") not in known:
            continue
        name, best = known[row["instance_sha256"]]
        run = name, row["solver"], row.get("seed")
        objective, bound = row.get("objective"), row.get("bound")
        if objective is not None and objective < best.bound:
            found.append(Beyond(*run, "contradiction", objective, best.bound))
        elif objective is not None and (best.objective is None or objective < best.objective):
            found.append(Beyond(*run, "better", objective, best.objective))
        if bound is not None and best.objective is not None and bound > best.objective:
            found.append(Beyond(*run, "contradiction", bound, best.objective))
    return found


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
