"""The bundled instances by name, and the best values known for them with plans and proofs that show them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances.recipes import FAMILIES
from jigsaw_opt.instances.task_graph_sets import PIPELINES, SHOPS
from jigsaw_opt.text import nearest, suggestion

if TYPE_CHECKING:
    from jigsaw_opt.problem.bound_proof import BoundProof
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.plan import Plan

DATA = Path(__file__).parent / "data"
"""Directory of the bundled files, one directory a set."""
BEST_KNOWN = DATA / "best_known.json"
"""File of the best known values."""

_RECIPES: Mapping[str, tuple[str, ...]] = {
    **{family: tuple(recipe.name for recipe in recipes) for family, recipes in FAMILIES.items()},
    "pipeline": tuple(PIPELINES),
    "shop": tuple(SHOPS),
}
"""Names of the recipes of each set."""
_SEEDS: Mapping[str, int] = {"tiny": 72}
"""Number of bundled instances of a set that has more than one a recipe."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that found or proved a best known value; None stands for what nobody has written down.

    `solver, version`: name and version of the solver. `seed, threads`: seed and threads of the solve. `date`: day on
    which the value was stored (ISO 8601). `by`: who sent it in; None for the project itself.
    """

    solver: str
    version: str | None
    seed: int | None
    threads: int | None
    seconds: float | None
    date: str
    hardware: str | None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class BestKnown:
    """The best objective and bound known for an instance, and the runs that they come from.

    `instance_sha256`: hash of the instance that they belong to. `objective`: objective of a checked plan, or None where
    no plan is known. `bound`: proven lower bound; 0 where none is known. `bound_reason`: what proves the bound, in one
    sentence; empty where nobody has written it down. `found, proved`: the runs that found the objective and proved the
    bound; None where there is no such value. `certified_bound`: the largest bound of which a proof is stored that the
    checker finds right; 0 where there is none.
    """

    instance_sha256: str
    objective: int | None
    bound: int
    bound_reason: str
    found: RecordedRun | None
    proved: RecordedRun | None
    certified_bound: int = 0

    @property
    def optimal(self) -> bool:
        """Whether the objective is proven to be optimal."""
        return self.objective == self.bound

    @property
    def certified(self) -> bool:
        """Whether a proof of the bound is stored."""
        return self.certified_bound == self.bound

    def labelled(self, plan: Plan) -> Plan:
        """Return a plan of this objective with the proven bound, whatever the plan itself states."""
        return replace(plan, bound=self.bound, status="optimal" if self.optimal else "feasible")


def sets() -> tuple[str, ...]:
    """Return the names of the bundled sets: families, from small to large, then sets of task-graph jobs."""
    return tuple(_RECIPES)


def names(set_name: str | None = None) -> tuple[str, ...]:
    """Return the names of the instances of a set, or of all sets, in the order of their seeds.

    They are called after their recipe, such as ``server/link-bound``; those of ``tiny``, where a
    recipe has several seeds, after the seed: ``tiny/042``.

    Raises
    ------
    UsageError
        For an unknown set.
    """
    if set_name is None:
        return tuple(name for each in _RECIPES for name in names(each))
    if set_name not in _RECIPES:
        raise UsageError(f"no set {set_name!r}; {nearest(set_name, _RECIPES)}", code="unknown-name", path="set_name")
    if set_name in _SEEDS:
        return tuple(f"{set_name}/{seed:03}" for seed in range(_SEEDS[set_name]))
    return tuple(f"{set_name}/{recipe}" for recipe in _RECIPES[set_name])


def resolve(name: str) -> str:
    """Return the name of a bundled instance as `names` has it, from ``tiny/042`` or ``tiny-042``."""
    known = name if "/" in name else name.replace("-", "/", 1)
    if known not in names():
        raise UsageError(
            "; ".join(filter(None, (f"no bundled instance {name!r}", suggestion(known, names())))),
            code="unknown-name",
            path="name",
        )
    return known


def path_of(name: str) -> Path:
    """Return the file of a bundled instance."""
    return DATA / f"{resolve(name)}.json"


def load(name: str) -> Instance:
    """Return the bundled instance of that name, given as ``tiny/042`` or ``tiny-042``.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    from jigsaw_opt.documents import load_instance

    return load_instance(path_of(name))


def plan_path(name: str, folder: Path = DATA) -> Path:
    """Return the file of the best known plan of a bundled instance, which may not be there."""
    return folder / f"{resolve(name)}.plan.json.gz"


def proof_path(name: str, folder: Path = DATA) -> Path:
    """Return the file of the proof of the certified bound of a bundled instance, which may not be there."""
    return folder / f"{resolve(name)}.proof.json.gz"


def best_plan(name: str) -> Plan | None:
    """Return the best known plan of a bundled instance with the best known bound; None where none is bundled.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    from jigsaw_opt.documents import load_plan

    path, known = plan_path(name), best_known(name)
    if known is None or not path.exists():
        return None
    return known.labelled(load_plan(path))


def best_proof(name: str) -> BoundProof | None:
    """Return the proof of the certified bound of a bundled instance; None where none is bundled.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    from jigsaw_opt.documents import load_proof

    path = proof_path(name)
    return load_proof(path) if path.exists() else None


def best_known(name: str) -> BestKnown | None:
    """Return the best known values of a bundled instance, or None where none are recorded.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    return read_best_known(BEST_KNOWN).get(resolve(name))


def read_best_known(path: Path) -> dict[str, BestKnown]:
    """Return all recorded values by name; none if there is no file yet."""
    if not path.exists():
        return {}
    return {name: _best_known(entry) for name, entry in json.loads(path.read_text("utf-8")).items()}


def _best_known(entry: dict[str, Any]) -> BestKnown:
    runs = {key: None if entry[key] is None else RecordedRun(**entry[key]) for key in ("found", "proved")}
    return BestKnown(**{**entry, **runs})
