"""Placements whose loads are annealed, and the move that makes plans of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt import solve
from jigsaw_opt.instances import generate
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.compiled.operations import OperationGraph, compile_instance
from jigsaw_opt.problem.instance import Instance, Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.solvers.engines import compiled
from jigsaw_opt.solvers.greedy.heuristic import placements
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.layout import Layout, demands
from jigsaw_opt.solvers.placement.levels import counts, dealt
from jigsaw_opt.solvers.search.load_search import LoadSearch, Placed
from jigsaw_opt.solvers.search.moves import names
from tests.extras import needs_fast
from tests.random_instances import random_instance


def roomy(family: str, number: int) -> Instance:
    """An instance whose memory admits every placement."""
    instance = generate(family, number)
    servers = tuple(replace(server, gpu_memory=2**50) for server in instance.cluster.servers)
    return replace(instance, cluster=replace(instance.cluster, servers=servers))


def begun(instance: Instance) -> tuple[ProblemData, list[Placed]] | None:
    """The heuristic's first placement, with levels dealt to the slots in turn where their order is open."""
    operations = compile_instance(instance)
    asked = demands(operations)
    assignments = None if asked is None else next(placements(operations, asked), None)
    if asked is None or assignments is None:
        return None
    return ProblemData(operations, asked), [placed(assignment) for assignment in assignments]


def placed(assignment: Assignment) -> Placed:
    rows = assignment.plan.rows
    if not assignment.plan.fixed and not assignment.caps:
        rows = tuple(row[turn % len(row) :] + row[: turn % len(row)] for turn, row in enumerate(rows))
    return counts(assignment.gpus, rows)


def assert_allowed(data: ProblemData, places: Sequence[Placed]) -> None:
    """Each worker has a GPU of its own that its job may use, the levels keep to the rule, and memory has room."""
    held: dict[int, list[tuple[OperationGraph, int]]] = {}
    for job, at in zip(data.operations.jobs, places, strict=True):
        assert len(at) == job.slots
        totals = Counter[int]()
        for gpu, levels in at.items():
            assert data.layout.type_of[gpu] in job.gpu_types
            assert sum(levels.values()) == job.iterations
            totals.update(levels)
            held.setdefault(gpu, []).append((job, max(levels)))
        if job.rule.multiset is not None:
            assert totals == {level: n * job.iterations for level, n in Counter(job.rule.multiset).items()}
        else:
            assert sum(level * n for level, n in totals.items()) >= job.rule.min_total
            sums = [sum(level * n for level, n in levels.items()) for levels in at.values()]
            assert job.rule.balance is None or max(sums) - min(sums) <= job.rule.balance
        deepest = dealt(job, list(at.values())).rows
        assert all(row.count(job.levels) >= job.rule.min_contributors for row in deepest)
    for gpu, own in held.items():
        used = sum(job.state_bytes for job, _ in own) + max(job.activation_bytes[level - 1] for job, level in own)
        assert used <= data.layout.memory[gpu]


def loads_of(data: ProblemData, places: Sequence[Placed]) -> list[int]:
    loads = [0] * len(data.layout.gpus)
    for job, at in zip(data.operations.jobs, places, strict=True):
        for gpu, levels in at.items():
            times = job.blocks[0].duration_us[data.layout.type_of[gpu]]
            loads[gpu] += sum(times[level - 1] * n for level, n in levels.items())
    return loads


def annealed(data: ProblemData, before: Sequence[Placed], seed: int, scope: int = 5) -> list[Placed]:
    target = max(loads_of(data, before)) // 2 + 1
    return LoadSearch(data, Random(seed)).annealed(before, 1000, 0.01, target, 0.01, scope, lambda steps: False)


@pytest.mark.parametrize("scope", [0, 3, 5])
def test_annealed_placements_are_allowed_and_no_fuller(scope: int) -> None:
    evener = found = 0
    instances = [random_instance(seed, operations=16) for seed in range(60)]
    for number, instance in enumerate([*instances, *(generate("crowded", seed) for seed in range(8))]):
        start = begun(instance)
        if start is None:
            continue
        data, before = start
        after = annealed(data, before, number, scope)
        assert_allowed(data, after)
        if scope == 0:
            assert [at.keys() for at in after] == [at.keys() for at in before]
        found, evener = found + 1, evener + (max(loads_of(data, after)) < max(loads_of(data, before)))
    assert found > 50
    assert evener > 5


def test_jobs_with_a_place_of_their_own_stay_there() -> None:
    operations = compile_instance(roomy("crowded", 3))
    asked, start = demands(operations), begun(roomy("crowded", 3))
    assert asked is not None
    assert start is not None
    before, held = start[1], {0: list(start[1][0]), 2: list(start[1][2])}
    data = ProblemData(operations, asked, Layout(operations, held=held))
    after = annealed(data, before, 1)
    assert {index for index in held if after[index].keys() == before[index].keys()} == held.keys()
    assert any(own.keys() != other.keys() for own, other in zip(after, before, strict=True))


def test_no_job_goes_where_no_path_leads() -> None:
    """The third server is too small for the wide job and has no link, so that none of its workers may go there."""
    model = Model((Segment("a", {"v": 50}, {"v": 70}, 50, 0), Segment("b", {"v": 60}, {"v": 90}, 50, 0)))
    servers = tuple(Server(f"s{k}", "v", 2, 10**9, 10**7) for k in range(3))
    cluster = Cluster(servers, (), (Link("l", ("s0", "s1"), 10**7),))
    jobs = (Job("wide", "m", 3, 4), *(Job(f"j{k}", "m", 1 + k % 2, 2 + k % 3) for k in range(9)))
    data, before = begun(Instance("apart", cluster, {"m": model}, jobs)) or pytest.fail("there is no placement")
    for seed in range(20):
        after = annealed(data, before, seed)
        assert after[0].keys() <= {0, 1, 2, 3}
        assert data.channel(data.operations.jobs[0], list(after[0])) is not None


@needs_fast
def test_the_compiled_function_gives_what_python_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        start = begun(roomy("server", number))
        assert start is not None
        fast = annealed(*start, seed=3)
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "compiled", lambda function: None)
            slow = annealed(*start, seed=3)
        assert fast == slow


def test_the_move_makes_plans_better() -> None:
    others = tuple(name for name in names() if name != "even_loads")
    without, alone = (
        solve(roomy("server", 2), "search", work_limit=1.0, params=SearchParams(without=left_out))
        for left_out in ((*others, "even_loads"), others)
    )
    assert alone.objective is not None and without.objective is not None
    assert alone.objective < without.objective
    assert [move.name for move in alone.moves if move.successes and move.name != "opening"] == ["even_loads"]
