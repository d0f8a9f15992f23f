"""The bundled instances by name, and the best values known for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances.pipelines import PIPELINES
from jigsaw_opt.instances.recipes import FAMILIES
from jigsaw_opt.instances.shops import SHOPS
from jigsaw_opt.text import nearest, suggestion

if TYPE_CHECKING:
    from jigsaw_opt.problem.instance import Instance

__all__ = [
    "BEST_KNOWN",
    "DATA",
    "BestKnown",
    "best_known",
    "load",
    "names",
    "path_of",
    "read_best_known",
    "resolve",
    "sets",
]

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
class BestKnown:
    """The best objective and bound known for an instance, and the run that last improved one of them.

    Parameters
    ----------
    instance_sha256
        Hash of the instance that they belong to.
    objective
        Objective of a checked plan, or None where no plan is known.
    bound
        Proven lower bound.
    solver, date, seconds, hardware
        Name of the solver, day (ISO 8601), wall-clock seconds and machine.
    """

    instance_sha256: str
    objective: int | None
    bound: int
    solver: str
    date: str
    seconds: float
    hardware: str

    @property
    def optimal(self) -> bool:
        """Whether the objective is proven to be optimal."""
        return self.objective == self.bound


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
    """Return the name of a bundled instance as `names` has it, from ``tiny/042`` or ``tiny-042``.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    known = name if "/" in name else name.replace("-", "/", 1)
    if known not in names():
        raise UsageError(
            "; ".join(filter(None, (f"no bundled instance {name!r}", suggestion(known, names())))),
            code="unknown-name",
            path="name",
        )
    return known


def path_of(name: str) -> Path:
    """Return the file of a bundled instance.

    Raises
    ------
    UsageError
        For an unknown name.
    """
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
    return {name: BestKnown(**entry) for name, entry in json.loads(path.read_text("utf-8")).items()}
