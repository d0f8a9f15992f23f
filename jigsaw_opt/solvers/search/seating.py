"""Placements that CP-SAT finds without a timetable: memory, levels, and loads within a target."""

from __future__ import annotations

import random

from jigsaw_opt.formulations import cpsat_loads
from jigsaw_opt.solvers.bounds.server_partition import server_partitions
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.loads import Ground

__all__ = ["Seating"]

_WORK = 0.5
"""Deterministic seconds for one placement."""


class Seating:
    """Places all jobs at once.

    Parameters
    ----------
    ground
        The instance, for which `cpsat_loads.fits` holds; its objective is makespan or period.
    engine
        Solves the models.
    draw
        Source of chance.

    Attributes
    ----------
    failed
        Largest limit within which no placement was found; 0 before.
    """

    def __init__(self, ground: Ground, engine: Engine, draw: random.Random) -> None:
        self.ground, self.engine, self.draw = ground, engine, draw
        self.failed = 0
        self._places = [places for places in server_partitions(ground.pieces.cluster) if not places.shared]

    def within(self, limit: int) -> list[PlacedJob] | None:
        """A placement whose loads, and lengths without contention, are within a limit; None where none was found."""
        ground = self.ground
        model = cpsat_loads.build(ground.pieces, limit, self._places)
        value = self.engine.solve_all([model.model], _WORK)[0]
        if value is None:
            self.failed = max(self.failed, limit)
            return None
        placement = model.placement(value)
        spots = []
        for index, (gpus, caps) in enumerate(zip(placement, ground.caps(placement), strict=True)):
            shapes = list(ground.shapes(index))
            self.draw.shuffle(shapes)
            found = (ground.spot(index, demand, gpus, caps) for demand in shapes)
            spot = next((spot for spot in found if spot is not None), None)
            if spot is None:
                return None
            spots.append(spot)
        return spots
