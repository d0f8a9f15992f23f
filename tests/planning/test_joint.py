"""Cuts and schedules together: against brute force over all cuts, and what the bound promises of each."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.joint import PipelineChoices, plan_pipeline
from jigsaw_opt.planning.joint.chain_bound import ChainBound
from jigsaw_opt.planning.joint.choices import configurations
from jigsaw_opt.planning.joint.positions import positions_of
from jigsaw_opt.planning.joint.stage_table import Cut, StageTable, stage_table
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import makespan_us
from jigsaw_opt.planning.pipeline.stages import PipelineCosts, PipelineProblem, pipeline_instance
from jigsaw_opt.problem.layers import LayerGraph, MeasuredLayer
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

LIMITS = Options(work_limit=5, threads=1)


def chain(random: Random, size: int, split: bool) -> LayerGraph:
    """Random layers one behind the other."""
    layers = []
    for number in range(size):
        weight = random.randint(1, 5)
        whole = random.randint(1, 9) + (weight if split else 0)
        layers.append(
            MeasuredLayer(
                f"n{number}",
                random.randint(1, 9),
                whole,
                random.randint(0, 9),
                random.randint(1, 9),
                weight if split else None,
                random.randint(1, 4),
            )
        )
    return LayerGraph(tuple(layers), tuple((k, k + 1) for k in range(size - 1)))


def case(seed: int) -> tuple[LayerGraph, PipelineChoices]:
    """A small chain, and what may be chosen; every second one has little memory."""
    random = Random(f"joint/{seed}")
    graph = chain(random, random.randint(4, 5), split=seed % 4 >= 2)
    devices = random.randint(2, 3)
    memory = random.randint(30, 45) if seed % 2 else None
    return graph, PipelineChoices(devices, (random.randint(2, 3),), memory, bandwidth=random.choice((1e6, 5e5)))


def costs_of(graph: LayerGraph, ends: tuple[int, ...], rate: float) -> PipelineCosts:
    """Costs of the stages of a chain, written out."""
    parts = [graph.layers[a:b] for a, b in zip((0, *ends[:-1]), ends, strict=True)]
    split = graph.layers[0].weight_us is not None
    return PipelineCosts(
        tuple(sum(it.forward_us for it in part) for part in parts),
        tuple(sum(it.backward_us - (it.weight_us or 0) for it in part) for part in parts),
        tuple(sum(it.weight_us or 0 for it in part) for part in parts) if split else (),
        tuple(int(-(-part[-1].sent_bytes * 1e6 // rate)) for part in parts[:-1]),
        (),
        tuple(sum(it.parameter_bytes for it in part) for part in parts),
        tuple(sum(it.activation_bytes for it in part) for part in parts),
    )


def least_by_cut(graph: LayerGraph, choices: PipelineChoices) -> dict[tuple[int, ...], int]:
    """By cut, the shortest step that an exact method proves; without those that do not fit."""
    found = {}
    size, split = len(graph.layers), graph.layers[0].weight_us is not None
    layout = PipelineLayout(tuple(range(choices.devices)), choices.micro_batches[0], split)
    for inner in combinations(range(1, size), choices.devices - 1):
        ends = (*inner, size)
        problem = PipelineProblem(costs_of(graph, ends, choices.bandwidth or 1), layout, choices.memory)
        result = solve(pipeline_instance(problem, "cut", "finite"), "cpsat", Options(threads=1))
        if result.objective is not None:
            assert result.status == "optimal"
            found[ends] = result.objective
    return found


def table_of(graph: LayerGraph, choices: PipelineChoices) -> StageTable:
    return stage_table(positions_of(graph), choices, next(configurations(choices, graph)))


@pytest.mark.parametrize("seed", range(20))
def test_the_proven_optimum_is_that_of_all_cuts(seed: int) -> None:
    pytest.importorskip("ortools")
    graph, choices = case(seed)
    least = least_by_cut(graph, choices)
    bound = ChainBound(table_of(graph, choices))
    for ends, makespan in least.items():
        assert bound.bound_us(Cut(ends, (False,) * len(ends))) <= makespan
    if not least:
        with pytest.raises(InfeasibleError):
            plan_pipeline(graph, choices, LIMITS)
        return
    within = bound.least_us()
    assert within is not None
    assert within <= min(least.values())
    found = plan_pipeline(graph, choices, LIMITS)
    assert (found.makespan_us, found.bound_us) == (min(least.values()),) * 2
    assert check(found.instance, found.plan) == ()
    assert makespan_us(found.pipeline, found.orders) <= found.makespan_us
