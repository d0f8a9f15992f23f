"""Cuts and schedules together: against brute force over all cuts, and what the bound guarantees of each."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import InfeasibleError, UsageError
from jigsaw_opt.planning.joint import PipelineChoices, plan_pipeline
from jigsaw_opt.planning.joint.chain_bound import ChainBound
from jigsaw_opt.planning.joint.choices import FirstStage, Recompute, StagePlacement, configurations
from jigsaw_opt.planning.joint.comparison import partition_of, step_range_us
from jigsaw_opt.planning.joint.cut_bound import cut_bound_us
from jigsaw_opt.planning.joint.cut_search import search_cuts
from jigsaw_opt.planning.joint.stage_table import Cut, StageTable, stage_table
from jigsaw_opt.planning.joint.virtual_bound import VirtualBound
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.planning.partition.positions import positions_of
from jigsaw_opt.planning.partition.result import decode_partition, partition_tree
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.costs import costs_of as pipeline_costs
from jigsaw_opt.planning.pipeline.list_schedule import list_schedule, makespan_us, rules_of
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import schedule_of
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, peak_bytes, pipeline_instance
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.text import json_text
from tests.refusals import misuse

LIMITS = Options(work_limit=5, threads=1)


def chain(random: Random, size: int, split: bool) -> LayerGraph:
    """Random layers one behind the other."""
    layers = []
    for number in range(size):
        weight = random.randint(1, 5)
        there, back = random.randint(1, 9), random.randint(1, 9) + (weight if split else 0)
        memory = random.randint(0, 9), random.randint(1, 9), weight if split else None, random.randint(1, 4)
        layers.append(MeasuredLayer(f"n{number}", there, back, *memory))
    return LayerGraph(tuple(layers), chain_edges(size))


@pytest.mark.parametrize("split", [False, True])
def test_the_scatter_of_layers_is_carried_into_the_step(split: bool) -> None:
    """Whatever times of their ranges the layers take, the step of the plan is within its own."""
    random = Random("scatter")
    graph = chain(random, 6, split)
    assert step_range_us(plan_pipeline(graph, PipelineChoices(2, (4,)), LIMITS).details) is None
    ends = [((layer.forward_us - 1, layer.forward_us + 3), (layer.backward_us, layer.backward_us + 5))
            for layer in graph.layers]  # fmt: skip
    ranged = tuple(
        replace(layer, forward_range_us=there) if number % 2 else replace(layer, backward_range_us=back)
        for number, (layer, (there, back)) in enumerate(zip(graph.layers, ends, strict=True))
    )
    plan = plan_pipeline(replace(graph, layers=ranged), PipelineChoices(2, (4,)), LIMITS)
    low_us, high_us = step_range_us(plan.details)
    assert low_us < plan.objective < high_us
    for _ in range(20):
        layers = tuple(
            replace(layer, forward_us=random.randint(*there))
            if number % 2
            else replace(layer, backward_us=random.randint(*back))
            for number, (layer, (there, back)) in enumerate(zip(ranged, ends, strict=True))
        )
        table = stage_table(
            positions_of(replace(graph, layers=layers)), plan.details.table.choices, plan.details.table.configuration
        )
        assert low_us <= makespan_us(table.problem(plan.details.cut), plan.details.orders) <= high_us


def case(seed: int) -> tuple[LayerGraph, PipelineChoices]:
    """A small chain, and what may be chosen; every second one has little memory."""
    random = Random(f"joint/{seed}")
    graph = chain(random, random.randint(4, 5), split=seed % 4 >= 2)
    devices = random.randint(2, 3)
    memory = random.randint(30, 45) if seed % 2 else None
    numbers, rate = (random.randint(2, 3),), random.choice((1_000_000, 500_000))
    first: FirstStage = "whole" if seed % 3 else "split"
    return graph, PipelineChoices(devices, numbers, memory, bandwidth=rate, first_stage=first)


def costs_of(graph: LayerGraph, ends: tuple[int, ...], rate: int) -> PipelineCosts:
    """Costs of the stages of a chain, written out."""
    parts = [graph.layers[a:b] for a, b in zip((0, *ends[:-1]), ends, strict=True)]
    split = graph.layers[0].weight_us is not None
    return PipelineCosts(
        tuple(sum(each.forward_us for each in part) for part in parts),
        tuple(sum(each.backward_us - (each.weight_us or 0) for each in part) for part in parts),
        tuple(sum(each.weight_us or 0 for each in part) for part in parts) if split else (),
        tuple(-(-part[-1].sent_bytes * 10**6 // rate) for part in parts[:-1]),
        (),
        tuple(sum(each.parameter_bytes for each in part) for part in parts),
        tuple(sum(each.activation_bytes for each in part) for part in parts),
    )


def least_by_cut(graph: LayerGraph, choices: PipelineChoices, gpu_of: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """By cut, the shortest step that an exact method proves; without those that do not fit."""
    found = {}
    size, split = len(graph.layers), graph.layers[0].weight_us is not None
    layout = PipelineLayout(gpu_of, choices.micro_batches[0], split)
    for inner in combinations(range(1, size), layout.stages - 1):
        ends = (*inner, size)
        costs = costs_of(graph, ends, choices.bandwidth or 1)
        if choices.first_stage == "whole":
            costs = costs.first_whole()
        problem = PipelineProblem(costs, layout, choices.memory)
        result = solve(pipeline_instance(problem, "cut", "finite"), "cpsat", Options(threads=1))
        if result.objective is not None:
            assert result.status == "optimal"
            found[ends] = result.objective
    return found


def table_of(graph: LayerGraph, choices: PipelineChoices) -> StageTable:
    return stage_table(positions_of(graph), choices, next(configurations(choices, graph)))


@pytest.mark.parametrize("recompute", ["none", "all", "auto"])
@pytest.mark.parametrize("split", [False, True])
def test_list_schedules_keep_memory_and_the_bound(recompute: Recompute, split: bool) -> None:
    random = Random(f"lists/{recompute}/{split}")
    found = []
    for _ in range(8):
        graph = chain(random, random.randint(6, 9), split)
        choices = PipelineChoices(3, (5,), random.randint(40, 70), recompute=recompute, bandwidth=2_000_000)
        bound = ChainBound(table_of(graph, choices))
        bound.prove(LIMITS)
        least = bound.least_us
        for cut in (bound.open_cuts(2 * least, 100_000) or ())[:5] if least is not None else ():
            problem = bound.table.problem(cut)
            for rule in rules_of(problem):
                scheduled = list_schedule(problem, rule)
                if scheduled is None:
                    continue
                orders, end = scheduled
                found.append((problem, orders, end))
                assert max(peak_bytes(problem, orders)) <= problem.room
                assert makespan_us(problem, orders) == end
                assert least <= cut_bound_us(problem) <= end
    assert len(found) > 20
    for problem, orders, end in found[::20]:
        assert schedule_of(problem, orders, "list", "list").makespan_us == end


def test_a_plan_becomes_a_partition_with_the_same_costs() -> None:
    graph = chain(Random("partition"), 6, split=True)
    choices = PipelineChoices(3, (4,), 60, recompute="auto", bandwidth=2_000_000)
    found = plan_pipeline(graph, choices, LIMITS)
    written = json_text(partition_tree(partition_of(found.details)))
    assert pipeline_costs(decode_partition(written)).first_whole() == found.details.pipeline.costs
    assert found.details.pipeline.costs.backward_us[0] == 0
    apart = plan_pipeline(graph, replace(choices, first_stage="split"), LIMITS)
    assert (
        pipeline_costs(decode_partition(json_text(partition_tree(partition_of(apart.details)))))
        == apart.details.pipeline.costs
    )
    names = [name for stage in partition_of(found.details).stages for name in stage.nodes]
    assert names == [layer.name for layer in graph.layers]
    for rate in (2_000_000, None):
        late = plan_pipeline(graph, replace(choices, bandwidth=rate, latency_us=7), LIMITS)
        sent = [stage.output_bytes for stage in partition_of(late.details).stages[:-1]]
        delays = tuple(7 + (0 if rate is None else -(-transfer // 2)) for transfer in sent)
        assert late.details.pipeline.costs.transfer_us == delays
        read = decode_partition(json_text(partition_tree(partition_of(late.details))))
        assert pipeline_costs(read).first_whole() == late.details.pipeline.costs


def test_fewer_samples_a_micro_batch_take_less_time() -> None:
    graph = replace(chain(Random("samples"), 5, split=False), batch=4)
    found = plan_pipeline(graph, PipelineChoices(2, (2, 3, 4), batch=16), LIMITS)
    alone = plan_pipeline(graph, PipelineChoices(2, (4,), batch=16), LIMITS)
    assert found.details.pipeline.layout.micro_batches == 4  # 3 divides no 16, and 2 are of 8 samples each
    assert (found.objective, found.bound) == (alone.objective, alone.bound)
    for choices, told in (
        (PipelineChoices(2, (3,), batch=16), "no number of micro-batches divides"),
        (PipelineChoices(2, (2,), batch=16), "of how many samples"),
    ):
        with pytest.raises(UsageError, match=told):
            plan_pipeline(graph if choices.micro_batches == (3,) else replace(graph, batch=None), choices, LIMITS)


@pytest.mark.parametrize("seed", range(12))
def test_the_proven_optimum_is_that_of_all_cuts(seed: int) -> None:
    pytest.importorskip("ortools")
    graph, choices = case(seed)
    least = least_by_cut(graph, choices, tuple(range(choices.devices)))
    bound = ChainBound(table_of(graph, choices))
    bound.prove(LIMITS)
    for ends, makespan in least.items():
        assert cut_bound_us(bound.table.problem(Cut(ends, (False,) * len(ends)))) <= makespan
    if not least:
        with pytest.raises(InfeasibleError):
            plan_pipeline(graph, choices, LIMITS)
        return
    within = bound.least_us
    assert within <= min(least.values())
    found = plan_pipeline(graph, choices, LIMITS)
    assert (found.objective, found.bound) == (min(least.values()),) * 2
    assert check(found.instance, found.plan) == ()
    assert makespan_us(found.details.pipeline, found.details.orders) <= found.objective


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_the_proven_optimum_of_two_stages_a_device_is_that_of_all_cuts_and_placements(seed: int) -> None:
    pytest.importorskip("ortools")
    random = Random(f"virtual/{seed}")
    graph = chain(random, random.randint(5, 6), split=seed % 3 == 2)
    memory = random.randint(35, 60) if seed % 2 else None
    first: FirstStage = "whole" if seed % 2 else "split"
    choices = PipelineChoices(2, (2,), memory, virtual=(2,), bandwidth=1_000_000, first_stage=first)
    best: list[int] = []
    for configuration in configurations(choices, graph):
        least = least_by_cut(graph, choices, configuration.layout.gpu_of)
        bound = VirtualBound(stage_table(positions_of(graph), choices, configuration))
        bound.prove(LIMITS)
        best += least.values()
        assert bound.least_us is None or not least or bound.least_us <= min(least.values())
        assert bound.least_us is not None or not least
        for ends, makespan in least.items():
            assert cut_bound_us(bound.table.problem(Cut(ends, (False,) * 4))) <= makespan
    if not best:
        with pytest.raises(InfeasibleError):
            plan_pipeline(graph, choices, LIMITS)
        return
    found = plan_pipeline(graph, choices, LIMITS)
    assert (found.objective, found.bound) == (min(best), min(best))
    assert check(found.instance, found.plan) == ()


def test_with_a_limit_of_work_the_same_seed_gives_the_same_cuts() -> None:
    graph = chain(Random("work"), 20, split=True)
    table = table_of(graph, PipelineChoices(4, (8,), 160, recompute="auto", bandwidth=2_000_000))
    options = Options(work_limit=0.1, threads=1)
    bound = ChainBound(table)
    bound.prove(LIMITS)
    one, other = (search_cuts(bound, Limits(options), 0.0, 3) for _ in range(2))
    assert [(each.cut, each.orders) for each in one] == [(each.cut, each.orders) for each in other]
    assert len(one) > 1
    assert one[0].makespan_us < one[-1].makespan_us


def test_placements_are_those_that_are_allowed() -> None:
    graph = even(8)

    def found(**allowed: StagePlacement) -> list[tuple[int, ...]]:
        choices = PipelineChoices(2, (2,), virtual=(1, 2, 3), **allowed)
        return [configuration.layout.gpu_of for configuration in configurations(choices, graph)]

    loop = [(0, 1), (0, 1, 0, 1), (0, 1, 0, 1, 0, 1)]
    turning = [(0, 1), (0, 1, 1, 0), (0, 1, 1, 0, 0, 1)]
    assert found(placement="loop") == loop
    assert found(placement="v") == turning
    assert found() == [(0, 1), loop[1], turning[1], loop[2], turning[2]]
    with misuse("unknown-value placement"):
        PipelineChoices(2, (2,), placement="w")  # type: ignore[arg-type]


def test_the_least_limit_leaves_a_plan_and_a_bound_below_it() -> None:
    graph = chain(Random("least"), 20, split=True)
    choices = PipelineChoices(4, (8,), 120, virtual=(1, 2), bandwidth=2_000_000)
    work = -(-8 * sum(layer.time_us for layer in graph.layers) // 4)
    found, more = (plan_pipeline(graph, choices, Options(work_limit=units, threads=1)) for units in (1e-9, 0.3))
    assert check(found.instance, found.plan) == ()
    assert work <= found.bound <= more.bound <= more.objective < found.objective


def test_a_bound_that_is_out_of_time_is_one_and_goes_on() -> None:
    graph = chain(Random("bound"), 30, split=True)
    bound = ChainBound(table_of(graph, PipelineChoices(4, (8,), 200, bandwidth=2_000_000)))
    known = [bound.least_us]
    for limit in (0.0, None):
        bound.prove(Options(time_limit=limit))
        known.append(bound.least_us)
        assert bound.proven == (limit is None)
    assert bound.open_cuts(known[-1], 10**6)
    assert known == sorted(known)


def even(size: int, **amounts: int) -> LayerGraph:
    """A chain of equal layers."""
    stated = {"forward_us": 1, "backward_us": 1, "parameter_bytes": 0, "activation_bytes": 1, "output_bytes": 1}
    layers = tuple(MeasuredLayer(f"n{number}", **(stated | amounts)) for number in range(size))
    return LayerGraph(layers, tuple((k, k + 1) for k in range(size - 1)), batch=1)


def test_stages_that_fit_only_if_they_compute_again_are_found() -> None:
    pytest.importorskip("ortools")
    graph, choices = even(2, activation_bytes=10), PipelineChoices(1, (2,), 10, virtual=(2,), recompute="auto")
    found = plan_pipeline(graph, choices, LIMITS)
    assert found.details.cut.recomputes == (True, False)
    assert found.objective == found.bound == 10
    with pytest.raises(InfeasibleError):
        plan_pipeline(graph, replace(choices, memory=9), LIMITS)


@pytest.mark.parametrize(
    ("graph", "choices"),
    [
        (replace(even(2, parameter_bytes=2**40), state_factor=2**24), PipelineChoices(2, (1,), 100)),
        (even(2, forward_us=2**52), PipelineChoices(2, (1000,))),
        (even(4, output_bytes=2**52), PipelineChoices(2, (2,), bandwidth=1)),
        (even(3, forward_us=1000), PipelineChoices(2, (2,), batch=2**50)),
        (replace(even(3, forward_us=10**6), batch=2**50), PipelineChoices(2, (2,), batch=2**51 + 2)),
    ],
)
def test_costs_beyond_exact_integers_are_refused(graph: LayerGraph, choices: PipelineChoices) -> None:
    with pytest.raises(UsageError, match=str(2**53 - 1)):
        plan_pipeline(graph, choices, LIMITS)


def test_more_micro_batches_than_there_is_time_for_are_refused() -> None:
    graph = chain(Random(0), 4, split=False)
    wanted = ("8,000 micro-batches", "2 stages", "32,000 passes", "1 s", "2,500", "time_limit=6")
    with misuse("too-large micro_batches", naming=wanted):
        plan_pipeline(graph, PipelineChoices(2, (8000,)), Options(time_limit=1))
    with misuse("too-large micro_batches", naming=["1,667", "1,666", "time_limit=2"]):
        plan_pipeline(chain(Random(0), 4, split=True), PipelineChoices(2, (1667,)), Options(time_limit=1))


def test_a_stage_that_computes_again_holds_what_it_reads_of_the_input_of_the_model() -> None:
    graph = chain(Random("input"), 4, split=False)
    first, second, third, last = graph.layers
    graph = replace(graph, layers=(replace(first, input_bytes=50), second, replace(third, input_bytes=7), last))
    choices = PipelineChoices(2, (3,), recompute="all", bandwidth=1_000_000)
    assert graph.knows_input
    problem = table_of(graph, choices).problem(Cut((2, 4), (True, True)))
    assert problem.costs.activation_bytes == (50, second.sent_bytes + 7)
    plan = plan_pipeline(graph, choices, LIMITS)
    assert pipeline_costs(partition_of(plan.details)).activation_bytes == plan.details.pipeline.costs.activation_bytes
    tight = replace(choices, memory=max(peak_bytes(plan.details.pipeline, plan.details.orders)))
    assert plan_pipeline(graph, tight, LIMITS).bound <= plan.objective


@pytest.mark.parametrize("seed", range(6))
def test_the_proven_optimum_with_stages_that_recompute_is_that_of_all_cuts(seed: int) -> None:
    pytest.importorskip("ortools")
    random = Random(f"again/{seed}")
    graph = chain(random, 4, split=seed % 2 == 1)
    choices = PipelineChoices(2, (3,), random.randint(28, 40), recompute="auto", bandwidth=1_000_000)
    table, least = table_of(graph, choices), []
    for end, again in product(range(1, 4), product((False, True), repeat=2)):
        problem = table.problem(Cut((end, 4), again))
        result = solve(pipeline_instance(problem, "cut", "finite"), "cpsat", Options(threads=1))
        assert result.status in ("optimal", "infeasible")
        if result.objective is not None:
            least.append((result.objective, again))
            assert cut_bound_us(problem) <= result.objective
    found = plan_pipeline(graph, choices, LIMITS)
    assert (found.objective, found.bound) == (min(least)[0],) * 2
    assert (found.objective, found.details.cut.recomputes) in least
    assert any(found.details.cut.recomputes) == (seed in (3, 5)), "so that both kinds are there"
    assert max(peak_bytes(found.details.pipeline, found.details.orders)) <= found.details.pipeline.room
