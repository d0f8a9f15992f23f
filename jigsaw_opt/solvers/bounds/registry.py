"""The relaxations there are, ours in the order in which they run, then third parties' by entry point."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, partial

from jigsaw_opt.errors import UsageError
from jigsaw_opt.solvers.bounds.relaxation import Relaxation
from jigsaw_opt.system.plugins import load, loadable, registered
from jigsaw_opt.text import nearest

GROUP = "jigsaw_opt.bounds"
"""Entry points of this group name a `Relaxation`. What it yields is taken as proven."""


def names() -> tuple[str, ...]:
    """Return the names of all relaxations, in their order."""
    return tuple(relaxation.name for relaxation in _everything())


def relaxations(without: Collection[str] = ()) -> tuple[Relaxation, ...]:
    """Return all relaxations except those of some names, in their order."""
    for name in without:
        if name not in names():
            raise UsageError(f"no bound {name!r}; {nearest(name, names())}", code="unknown-name", path="without_bounds")
    return tuple(relaxation for relaxation in _everything() if relaxation.name not in without)


def third_party(names: str) -> tuple[str, ...]:
    """Return those relaxations that other packages have registered, of the names that a proof has."""
    found = {relaxation.name: relaxation.bounds.__module__ for relaxation in _everything()}
    return tuple(name for name in names.split(" + ") if not found.get(name, "jigsaw_opt.").startswith("jigsaw_opt."))


@cache
def _everything() -> tuple[Relaxation, ...]:
    from jigsaw_opt.solvers.bounds.activities.held_time import HELD_TIME
    from jigsaw_opt.solvers.bounds.activities.partial_placements import MORE_PLACEMENTS, PARTIAL_PLACEMENTS
    from jigsaw_opt.solvers.bounds.activities.power_loads import MIXED_LOADS, MIXED_POWER, TASK_POWER
    from jigsaw_opt.solvers.bounds.activities.slot_loads import SLOT_LOADS
    from jigsaw_opt.solvers.bounds.combinatorial.critical_path import CRITICAL_PATH
    from jigsaw_opt.solvers.bounds.combinatorial.energy import HELD_UNITS, POWER_ENERGY
    from jigsaw_opt.solvers.bounds.combinatorial.gpu_work import GPU_WORK
    from jigsaw_opt.solvers.bounds.combinatorial.link_transfers import LINK_TRANSFERS
    from jigsaw_opt.solvers.bounds.completion.disjunctive import DISJUNCTIVE_SETS, JOB_PAIRS
    from jigsaw_opt.solvers.bounds.completion.energetic import ENERGETIC_INTERVALS
    from jigsaw_opt.solvers.bounds.completion.shared_program import MEAN_BUSY_TIMES
    from jigsaw_opt.solvers.bounds.packing.link_bins import LINK_BINS
    from jigsaw_opt.solvers.bounds.packing.placement_loads import PLACEMENT_LOADS
    from jigsaw_opt.solvers.bounds.packing.worker_packing import PRESENCE_PACKING, WORKER_PACKING

    own = (
        *(CRITICAL_PATH, GPU_WORK, LINK_TRANSFERS, POWER_ENERGY, HELD_UNITS, WORKER_PACKING, PRESENCE_PACKING),
        *(LINK_BINS, PLACEMENT_LOADS),
        *(JOB_PAIRS, ENERGETIC_INTERVALS, MEAN_BUSY_TIMES, DISJUNCTIVE_SETS),
        *(SLOT_LOADS, HELD_TIME, MIXED_LOADS, TASK_POWER, MIXED_POWER, PARTIAL_PLACEMENTS, MORE_PLACEMENTS),
    )
    return (*own, *loadable(partial(load, GROUP, "bound"), registered(GROUP)))
