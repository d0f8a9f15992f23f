"""Neighbourhoods of placements whose loads CP-SAT evens out, and the move that makes them."""

from __future__ import annotations

from dataclasses import replace

from jigsaw_opt import solve
from jigsaw_opt.formulations.cpsat_loads import Neighbourhood, Placed, build
from jigsaw_opt.instances import generate
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.engines.cpsat import new_solver
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.search.moves import names


def roomy(family: str, number: int) -> Instance:
    """An instance whose memory admits every placement."""
    instance = generate(family, number)
    servers = tuple(replace(server, gpu_memory=2**50) for server in instance.cluster.servers)
    return replace(instance, cluster=replace(instance.cluster, servers=servers))


def on_first_gpus(operations: Operations) -> list[Placed]:
    """All jobs at their deepest level on the first GPUs, which gives those the most work that there can be."""
    return [{gpu: {job.levels: job.iterations} for gpu in range(job.slots)} for job in operations.jobs]


def test_only_free_jobs_move_and_only_within_their_servers_if_at_all() -> None:
    operations = compile_instance(roomy("rack", 3))
    placed, gpus = on_first_gpus(operations), operations.cluster.gpus
    servers = frozenset(gpus.server_of[gpu] for gpu in range(max(job.slots for job in operations.jobs))) | {1}
    free = frozenset(range(0, len(operations.jobs), 2))
    most = sum(
        job.iterations * max(job.blocks[0].duration_us[kind]) for job in operations.jobs for kind in job.gpu_types
    )
    part = Neighbourhood(servers, free, placed, still={0})
    loads = build(operations, 0, 2 * most, (), all_present=True, part=part)
    loads.hint(placed)
    solver = new_solver()
    solver.parameters.max_deterministic_time = 1.0
    solver.solve(loads.model)
    found = loads.placed(solver.value)
    assert found.keys() == free
    for index, at in found.items():
        job = operations.jobs[index]
        assert len(at) == job.slots
        assert {gpus.server_of[gpu] for gpu in at} <= servers
        assert all(sum(levels.values()) == job.iterations for levels in at.values())
    assert {index for index in free if found[index].keys() != placed[index].keys()} - {0}
    assert found[0].keys() == placed[0].keys()


def test_the_move_makes_plans_better() -> None:
    others = tuple(name for name in names() if name != "even_loads")
    without, alone = (
        solve(roomy("server", 2), "search", work_limit=1.0, params=SearchParams(without=left_out))
        for left_out in ((*others, "even_loads"), others)
    )
    assert alone.objective is not None and without.objective is not None
    assert alone.objective < without.objective
    assert [move.name for move in alone.moves if move.successes and move.name != "opening"] == ["even_loads"]
