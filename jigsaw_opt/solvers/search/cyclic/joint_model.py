"""Jobs on whole servers timed together on a circle by CP-SAT, each server as if it were one machine."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.formulations import cpsat_circle
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.loads import Ground
from jigsaw_opt.solvers.search.state.calendar import union
from jigsaw_opt.solvers.search.state.insertion import Laid
from jigsaw_opt.solvers.search.state.partial_schedule import Board

__all__ = ["timed_together"]


def timed_together(
    board: Board, groups: Sequence[Sequence[PlacedJob]], engine: Engine, work: float
) -> list[list[Laid] | None]:
    """The jobs of each group laid around a circle; None for a group for which no timing was found.

    Groups do not see one another, only what is on the board, which does not change.

    Deep levels are at the fastest GPUs, and where GPUs are alike at the first servers of one job and the last of the
    next; all blocks of a job on a server begin together.

    Parameters
    ----------
    board
        The circle, with other jobs.
    groups
        Where the jobs of each group are.
    engine
        Solves the models.
    work
        Limit in the engine's deterministic seconds for each group.
    """
    ground = board.ground
    models: dict[int, cpsat_circle.Model] = {}
    levels: dict[int, list[list[list[int]]]] = {}
    for g, spots in enumerate(groups):
        rows = [_levels(ground, spot, turned=k % 2 == 1) for k, spot in enumerate(spots)]
        levels[g] = [row for row in rows if row is not None]
        if len(levels[g]) == len(spots):
            tasks = [_task(ground, spot, row) for spot, row in zip(spots, levels[g], strict=True)]
            models[g] = _model(board, tasks)
    found: list[list[Laid] | None] = [None] * len(groups)
    values = engine.solve_all([model.proto for model in models.values()], work)
    for (g, model), value in zip(models.items(), values, strict=True):
        if value is not None:
            found[g] = [_laid(ground, *each) for each in zip(groups[g], levels[g], model.plan(value), strict=True)]
    return found


def _model(board: Board, tasks: Sequence[cpsat_circle.Task]) -> cpsat_circle.Model:
    assert board.period is not None, "a circle has a period"
    machines = {machine for task in tasks for machine in task.machines}
    links = {link for task in tasks for link in task.links}
    inside = board.ground.layout.on_server
    servers = {s: union([board.gpus[gpu] for gpu in inside[s]], board.period) for s in machines}
    return cpsat_circle.build(
        tasks,
        board.period,
        {s: list(zip(timeline.starts, timeline.ends, strict=True)) for s, timeline in servers.items()},
        {k: list(zip(board.links[k].starts, board.links[k].ends, strict=True)) for k in links},
    )


def _levels(ground: Ground, spot: PlacedJob, turned: bool) -> list[list[int]] | None:
    """Levels by iteration and slot; None where memory does not admit them so."""
    if spot.plan.fixed:
        return [list(row) for row in spot.plan.rows]
    sign, server_of = -1 if turned else 1, ground.layout.server_of
    order = sorted(
        range(len(spot.gpus)), key=lambda slot: (spot.tables[slot][-1], sign * server_of[spot.gpus[slot]], slot)
    )
    rows = []
    for row in spot.plan.rows:
        levels = [0] * len(row)
        for slot, level in zip(order, row, strict=True):
            levels[slot] = level
        if spot.caps is not None and any(level > cap for level, cap in zip(levels, spot.caps, strict=True)):
            return None
        rows.append(levels)
    return rows


def _task(ground: Ground, spot: PlacedJob, rows: Sequence[Sequence[int]]) -> cpsat_circle.Task:
    slots_of = _slots_of(ground, spot)
    iterations = []
    for row, exchange in zip(rows, spot.exchange, strict=True):
        ready = [
            [
                max([spot.tables[slot][bucket] for slot in slots if row[slot] > bucket], default=0)
                for bucket in range(len(exchange))
            ]
            for slots in slots_of.values()
        ]
        sizes = [max(spot.tables[slot][row[slot] - 1] for slot in slots) for slots in slots_of.values()]
        iterations.append(cpsat_circle.Iteration(ready, sizes, exchange))
    return cpsat_circle.Task(list(slots_of), spot.links, iterations)


def _laid(ground: Ground, spot: PlacedJob, rows: list[list[int]], timing: cpsat_circle.Timing) -> Laid:
    place = {server: k for k, server in enumerate(_slots_of(ground, spot))}
    places = [place[ground.layout.server_of[gpu]] for gpu in spot.gpus]
    blocks = [[starts[k] for k in places] for starts in timing.blocks]
    return Laid(spot.job, spot, [tuple(row) for row in rows], blocks, timing.transfers, min(blocks[0]), timing.end)


def _slots_of(ground: Ground, spot: PlacedJob) -> dict[int, list[int]]:
    """Slots of a job by server."""
    found: dict[int, list[int]] = {}
    for slot, gpu in enumerate(spot.gpus):
        found.setdefault(ground.layout.server_of[gpu], []).append(slot)
    return found
