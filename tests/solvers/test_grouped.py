"""Jobs laid around a circle group by group, and groups that exchange jobs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.pieces import cut
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.engines import compiled
from jigsaw_opt.solvers.greedy.layout import Layout, demands
from jigsaw_opt.solvers.kernels.assignment_annealing import anneal_assignment, reassign_pairs
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.cyclic import hierarchy as nesting_module
from jigsaw_opt.solvers.search.cyclic.candidate_table import Catalogue
from jigsaw_opt.solvers.search.cyclic.group_insertion import Company, Grouped
from jigsaw_opt.solvers.search.cyclic.hierarchy import COLD, HOT, Nesting
from jigsaw_opt.solvers.search.cyclic.joint_model import timed_together
from jigsaw_opt.solvers.search.cyclic.server_groups import groups_of
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.loads import Ground
from jigsaw_opt.solvers.search.state.partial_schedule import Board


def ignore(event: Event) -> None:
    """Progress is of no interest here."""


def ground_of(instance: Instance) -> Ground:
    pieces = cut(instance)
    asked = demands(pieces)
    assert asked is not None
    return Ground(pieces, Layout(pieces), asked)


def nested(
    ground: Ground, steps: int = 60_000, threads: int = 1, count: Callable[[int], object] = lambda steps: None
) -> Nesting:
    least = lower_bound(ground.pieces).value
    nesting = Nesting(Catalogue(ground), least, least * 11 // 10, Random(1), threads, count)
    nesting.anneal(range(len(ground.pieces.jobs)), range(len(nesting.groups)), steps, HOT, COLD)
    return nesting


def lay(
    ground: Ground, nesting: Nesting, period: int, patience: int, untimed: dict[Company, int] | None = None
) -> Plan | None:
    control = Control("grouped", ground.pieces, Options(workers=1), ignore)
    known = {} if untimed is None else untimed
    weights = [float(nesting.berth(index).length) for index in range(len(ground.pieces.jobs))]
    grouped = Grouped(
        Catalogue(ground), nesting, period, Random(1), Engine(Budget(control)), weights, lambda: False, known
    )
    timetable = grouped.lay(patience)
    if timetable is None:
        return None
    control.offer(timetable)
    return control.result(StoppedBy.COMPLETED).plan


CROWDED = generate("cluster", 13, servers=24, load=400, objective="period", releases=False)


@pytest.mark.parametrize(
    ("family", "seed", "sizes"),
    [("cluster", 3, {8}), ("pod", 3, {4}), ("rack", 7, {2, 4, 8}), ("server", 15, {1, 2, 4})],
)
def test_every_server_is_in_one_group_with_room_for_the_widest_job(family: str, seed: int, sizes: set[int]) -> None:
    ground = ground_of(generate(family, seed, objective="period", releases=False))
    groups = groups_of(ground)
    assert sorted(server for group in groups for server in group) == list(range(len(ground.layout.servers)))
    widest = max(job.slots for job in ground.pieces.jobs)
    inside = ground.layout.on_server
    assert all(sum(len(inside[server]) for server in group) >= widest for group in groups)
    assert {len(group) for group in groups} <= sizes


def test_nesting_evens_loads_and_keeps_blocks_within_groups() -> None:
    ground = ground_of(CROWDED)
    groups = range(len(groups_of(ground)))
    before = nested(ground, 0)
    after = nested(ground)
    assert len(groups) == 3
    assert after.fullest(groups) < before.fullest(groups)
    for index, job in enumerate(ground.pieces.jobs):
        servers = after.berth(index).servers
        home = after.group(index)
        assert home is not None
        assert set(servers) <= set(after.groups[home])
        assert sum(len(ground.layout.on_server[server]) for server in servers) >= job.slots


def test_loads_are_those_of_the_berths_and_come_back() -> None:
    ground = ground_of(CROWDED)
    nesting = nested(ground, 3_000)
    links: dict[int, int] = {}
    for index in range(len(ground.pieces.jobs)):
        berth = nesting.berth(index)
        for link in berth.alone.links:
            links[link] = links.get(link, 0) + berth.exchange
    groups = range(len(nesting.groups))
    assert nesting.fullest(groups) * nesting.target == pytest.approx(max(links.values()))
    jobs = range(len(ground.pieces.jobs))
    numbers, fullest = nesting.numbers(jobs), nesting.fullest(groups)
    nesting.anneal(jobs, groups, 500, HOT, HOT)
    assert nesting.numbers(jobs) != numbers
    nesting.restore(jobs, numbers)
    assert nesting.numbers(jobs) == numbers
    assert nesting.fullest(groups) == pytest.approx(fullest)


@pytest.mark.parametrize(
    ("family", "seed", "changes"),
    [("cluster", 3, {"servers": 16}), ("rack", 7, {"load": 150}), ("server", 15, {}), ("pod", 4, {"servers": 8})],
)
def test_what_is_laid_in_groups_keeps_every_rule(family: str, seed: int, changes: dict[str, int]) -> None:
    instance = generate(family, seed, objective="period", releases=False, **changes)
    ground = ground_of(instance)
    least = lower_bound(ground.pieces).value
    plan = lay(ground, nested(ground), 2 * least, 5)
    assert plan is not None
    assert plan.period_us is not None
    assert plan.period_us <= 2 * least
    assert not check(instance, plan)
    assert lay(ground, nested(ground), least - 1, 1) is None


def test_groups_exchange_jobs_until_all_have_room() -> None:
    ground = ground_of(CROWDED)
    period = lower_bound(ground.pieces).value * 105 // 100
    assert lay(ground, nested(ground), period, 0) is None
    plan = lay(ground, nested(ground), period, 40)
    assert plan is not None
    assert not check(CROWDED, plan)


@pytest.mark.parametrize("threads", [1, 2])
def test_mending_makes_loads_even_and_keeps_count_of_them(threads: int) -> None:
    ground = ground_of(CROWDED)
    jobs, most = range(len(ground.pieces.jobs)), 1.02

    def excess(nesting: Nesting) -> float:
        loads: dict[int, int] = {}
        for index in jobs:
            for link in nesting.berth(index).alone.links:
                loads[link] = loads.get(link, 0) + nesting.berth(index).exchange
        assert nesting.fullest(range(3)) * nesting.target == pytest.approx(max(loads.values()))
        return sum(max(0.0, load / nesting.target - most) ** 2 for load in loads.values())

    steps: list[int] = []
    first, second = (nested(ground, 1_000, threads, steps.append) for _ in range(2))
    before = excess(first)
    for _ in range(20):
        assert first.mend(most) == second.mend(most)
    assert 0 <= excess(first) < before
    assert first.numbers(jobs) == second.numbers(jobs)
    assert steps[:2] == [1_000, 1_000]
    assert sum(steps) > 2_000
    alone = ground_of(generate("cluster", 13, servers=4, objective="period", releases=False))
    assert len(groups_of(alone)) == 1
    assert not nested(alone, 0, threads).mend(1.0)


class Everyone(dict[Company, int]):
    """Knows of all companies that they were not timed at any period."""

    def get(self, company: Company, default: int = 0) -> int:  # type: ignore[override]
        return 2**60


def test_companies_that_were_not_timed_are_not_tried_again() -> None:
    ground = ground_of(CROWDED)
    least = lower_bound(ground.pieces).value
    untimed: dict[Company, int] = {}
    assert lay(ground, nested(ground), least * 1005 // 1000, 1, untimed) is None
    assert set(untimed.values()) == {least * 1005 // 1000}
    assert lay(ground, nested(ground), least * 105 // 100, 4, Everyone()) is None


def test_jobs_timed_together_leave_what_is_taken_to_others() -> None:
    ground = ground_of(CROWDED)
    nesting = nested(ground)
    period = 2 * lower_bound(ground.pieces).value
    engine = Engine(Budget(Control("together", ground.pieces, Options(workers=1), ignore)))
    wide = [k for k in range(len(ground.pieces.jobs)) if nesting.berth(k).alone.links and nesting.group(k) == 0]
    board = Board(ground, period)
    for some in (wide[:3], wide[3:6]):
        (laid,) = timed_together(board, [[nesting.berth(index).alone for index in some]], engine, 1.0)
        assert laid is not None
        assert all(map(board.admits, laid))
        for index, it in zip(some, laid, strict=True):
            board.put(index, it)
    assert engine.budget.work > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_functions_move_jobs_as_they_do_uncompiled(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    pytest.importorskip("numba")
    compiled.prepare(None)
    assert compiled.compiled(anneal_assignment) not in (None, anneal_assignment)
    assert compiled.compiled(reassign_pairs) not in (None, reassign_pairs)
    ground = ground_of(CROWDED)
    jobs = range(len(ground.pieces.jobs))

    def moved() -> tuple[list[int], list[int], float]:
        nesting = nested(ground, 5_000, threads)
        shuffled = nesting.numbers(jobs)
        assert nesting.mend(1.0)
        return shuffled, nesting.numbers(jobs), nesting.fullest(range(3))

    fast = moved()
    monkeypatch.setattr(nesting_module, "compiled", lambda function: None)
    assert moved() == fast
    assert fast[0] != fast[1]
    assert fast[0] != nested(ground, 0).numbers(jobs)
