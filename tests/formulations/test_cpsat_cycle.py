"""The cyclic models against brute force and against what can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest
from ortools.sat.python import cp_model

from jigsaw_opt.formulations.cpsat_retiming import RetimedTiming, RetimingTask, build
from jigsaw_opt.solvers.cpsat import search as cpsat_search
from jigsaw_opt.solvers.engines.cpsat import new_solver
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import random_instance

EXACT = Options(threads=1, work_limit=30)


@pytest.mark.parametrize("seed", range(24))
def test_agrees_with_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_instance(seed, "cyclic", "period", 6)
    if seed % 2:  # from the model alone, without the heuristic's plan
        monkeypatch.setattr(cpsat_search, "offer_greedy", lambda solve_state, operations, seed: False)
    result = solve(instance, "cpsat", EXACT)
    best = optimum(instance)
    assert result.objective == best
    assert result.status == (Status.INFEASIBLE if best is None else Status.OPTIMAL)


NOTHING: dict[int, list[tuple[int, int]]] = {}


def task_of(tables: list[tuple[int, int]], exchange: int) -> RetimingTask:
    """One iteration of full blocks on machines 0, 1, ...: bucket 1 ready and block done after so long, link 0."""
    return RetimingTask(range(len(tables)), tables, [[2] * len(tables)], [0], [[exchange, 0]])


def timings_of(
    tasks: list[RetimingTask],
    period: int,
    machines: dict[int, list[tuple[int, int]]] = NOTHING,
    links: dict[int, list[tuple[int, int]]] = NOTHING,
) -> list[RetimedTiming] | None:
    model = build(tasks, period, machines, links)
    solver = new_solver()
    solver.parameters.max_deterministic_time = 5
    status = solver.solve(model.proto)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE)
    return None if status == cp_model.INFEASIBLE else model.plan(solver.value)


def require_rules(tasks: list[RetimingTask], timings: list[RetimedTiming], period: int) -> None:
    taken: dict[tuple[str, int], list[int]] = {}

    def take(kind: str, number: int, start: int, size: int) -> None:
        taken.setdefault((kind, number), []).extend(moment % period for moment in range(start, start + size))

    for task, timing in zip(tasks, timings, strict=True):
        (blocks,), ((first, second),), ((duration, _),) = timing.blocks, timing.transfers, task.exchange
        for machine, block, (ready, size) in zip(task.machines, blocks, task.tables, strict=True):
            take("machine", machine, block, size)
            assert first >= block + ready
            assert second >= block + size
        take("link", 0, first, duration)
        assert first + duration <= second <= min(blocks) + period
    assert all(len(moments) == len(set(moments)) for moments in taken.values())


def pair(size: int, ready: int, exchange: int) -> list[RetimingTask]:
    return [task_of([(ready, size)], exchange)] * 2


def test_what_others_take_is_left_to_them() -> None:
    tasks = pair(2, 2, 6)
    for begin in range(14):
        end = begin + 2
        busy = [(begin, end)] if end <= 14 else [(begin, 14), (0, end - 14)]
        found = timings_of(tasks, 14, links={0: busy})
        assert found is not None
        require_rules(tasks, found, 14)
        inside = {moment % 14 for moment in range(begin, end)}
        used = {(move + k) % 14 for timing in found for move, _ in timing.transfers for k in range(6)}
        assert not inside & used
        assert timings_of(tasks, 13, links={0: [(b % 13, b % 13 + 1) for b in range(begin, end)]}) is None
    assert timings_of(pair(5, 3, 4), 10, machines={0: [(3, 4)]}) is None


def test_random_jobs_keep_every_rule_and_the_least_period_is_that_of_all_starts_tried() -> None:
    draw = Random(1)
    reached = 0
    for _ in range(12):
        tasks = []
        for _ in range(2):
            sizes = [draw.randint(1, 3) for _ in range(2)]
            tasks.append(task_of([(draw.randint(0, size), size) for size in sizes], draw.randint(1, 3)))
        period = next(t for t in range(1, 30) if timings_of(tasks, t) is not None)
        found = timings_of(tasks, period)
        assert found is not None
        require_rules(tasks, found, period)
        assert period == next(t for t in range(1, 30) if possible(tasks, t))
        reached += period > max(sum(task.tables[m][1] for task in tasks) for m in range(2))
    assert reached


def possible(tasks: list[RetimingTask], period: int) -> bool:
    """By trying all starts of two jobs of one iteration, two machines and one bucket."""
    first, second = (list(occupied(task, period)) for task in tasks)
    return any(
        not one & {(what, (moment + shift) % period) for what, moment in other}
        for one, other, shift in product(first, second, range(period))
    )


def occupied(task: RetimingTask, period: int) -> Iterator[set[tuple[str, int]]]:
    """What the job may take, by the moments of its blocks and its transfer from its beginning on."""
    ((exchange, _),) = task.exchange
    for a, b, move in product(range(period), repeat=3):
        starts = [(start, *table) for start, table in zip((a, b), task.tables, strict=True)]
        ends = (*(start + size for start, _, size in starts), move + exchange)
        if move >= max(start + ready for start, ready, _ in starts) and max(ends) <= period:
            yield {
                (what, moment)
                for what, start, end in zip(("a", "b", "link"), (a, b, move), ends, strict=True)
                for moment in range(start, end)
            }
