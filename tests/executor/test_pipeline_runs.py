"""Pipelines on PyTorch's runtime: gradients, orders, replays, checkpoints, and what ends a run."""

from __future__ import annotations

import copy
import json
import math
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import piped
import pytest
import torch
from pipelines_run import Case, case_of, is_as_planned, named_cases, on_processes
from replayed import run
from torch import distributed as dist
from torch import nn

from jigsaw_opt.documents import (
    instance_sha256,
    load_instance,
    load_plan,
    load_replay,
    save_instance,
    save_plan,
)
from jigsaw_opt.documents.replay import decode_replay, encode_replay, require_replay_of
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.executor.catalogue import stages_entry
from jigsaw_opt.executor.pipeline.agreement import compare_modules, compare_sent
from jigsaw_opt.executor.pipeline.own_stages import stage_modules
from jigsaw_opt.executor.pipeline.timed_stage import ActionLog, TimedStage, pipeline_runtime
from jigsaw_opt.executor.processes import run_group
from jigsaw_opt.executor.randomness import draw_number, own_draws
from jigsaw_opt.executor.replay.evaluation import replay_of
from jigsaw_opt.executor.run_plan import run_plan
from jigsaw_opt.executor.schedules.clock import ReplayClock
from jigsaw_opt.executor.schedules.records import Part, RankReport, RunRecord
from jigsaw_opt.executor.schedules.request import ReplayRequest, StagedRun
from jigsaw_opt.instances.catalogue import load, plan_path
from jigsaw_opt.planning.partition.costs import Level
from jigsaw_opt.planning.partition.result import OuterStage, Partition, Stage, decode_partition, partition_tree
from jigsaw_opt.planning.pipeline.asynchronous import asynchronous
from jigsaw_opt.planning.pipeline.costs import AsyncStage, PipelineCosts
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import schedule_of
from jigsaw_opt.planning.pipeline.search import add_pipeline
from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.planning.pipeline.torch_csv import torch_schedule
from jigsaw_opt.problem.measured.replay import KindError, Replay
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.replay import replay_picture
from tests.random_pipelines import random_orders, random_pipeline
from tests.refusals import ends, misuse, refused, refuses


@pytest.mark.slow
def test_gradients_are_those_of_the_whole_model_and_orders_those_of_the_plans() -> None:
    cases = list(named_cases(2, 4))
    seeds = (seed for seed in range(100) if random_pipeline(seed).layout.gpus == 2)
    for seed, _ in zip(seeds, range(6), strict=False):
        pipeline = random_pipeline(seed)
        cases.append(case_of(f"random {seed}", pipeline, random_orders(pipeline, seed)))
    assert any(case.layout.stages == 4 for case in cases) and len(cases) == 14
    for case, found in on_processes(cases):
        assert all(rank.largest > 1e-3 and rank.difference < 1e-6 for rank in found), case.name
        assert is_as_planned(case, found), case.name


def test_pytorch_does_nothing_in_the_first_stage_before_its_pass_for_weights(tmp_path: Path) -> None:
    # So it is planned (`PipelineCosts.first_whole`).
    under_way, seen = [""], set()

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        under_way.append(name)
        with ActionLog.action(log, name):
            yield
        under_way.pop()

    def watch(stage: int, output: torch.Tensor) -> None:
        output.register_hook(lambda _: seen.add((stage, under_way[-1])))

    modules = [nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)) for _ in range(2)]
    for number, module in enumerate(modules):
        module[0].register_forward_hook(lambda _, __, output, stage=number: watch(stage, output))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        log = ActionLog(ReplayClock(dist.group.WORLD), torch.device("cpu"))
        log.action = noted  # type: ignore[method-assign]
        csv = tmp_path / "schedule.csv"
        csv.write_text("0F0,1F0,1I0,0I0,0W0,1W0\n")
        stages = [TimedStage(module, at, 2, torch.device("cpu"), log) for at, module in enumerate(modules)]
        runtime = pipeline_runtime(stages, PipelineLayout((0, 0), 1, True), nn.functional.mse_loss, log)
        runtime._load_csv(str(csv), format="compute_comms")
        runtime.step(torch.ones(2, 4), target=torch.zeros(2, 4))
    finally:
        dist.destroy_process_group()
    assert {(0, "0W0"), (1, "1I0")} <= seen
    assert (0, "0I0") not in seen


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A pipeline of two stages with its entry, and a plan for it."""
    folder = tmp_path_factory.mktemp("pipeline")
    instance, plan = folder / "instance.json", folder / "plan.json"
    options = ("--forward-us", "900,900", "--backward-us", "1,900", "--weight-us", "1700,900", "--transfer-us", 100)
    assert run("pipeline", *options, "--micro-batches", 3, "--schedule", "zb-h1", "-q",
               "-o", instance, "--plan", plan) == 0  # fmt: skip
    return instance, plan


def with_entry(files: tuple[Path, Path], folder: Path, **arguments: Any) -> tuple[Path, Path]:
    """The instance with an entry, and its plan, in a folder."""
    entry = {"train": "piped:net", "arguments": arguments, "cuts": ["2"]}
    before, paths = load_instance(files[0]), (folder / "instance.json", folder / "plan.json")
    [job] = before.jobs
    assert isinstance(job, TaskGraphJob)
    instance = replace(before, jobs=(replace(job, executor=entry),))
    save_instance(instance, paths[0])
    save_plan(replace(load_plan(files[1]), instance_sha256=instance_sha256(instance)), paths[1])
    return paths


@pytest.mark.slow
def test_a_run_is_measured_and_goes_on_from_a_checkpoint(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, replays = with_entry(files, tmp_path), [tmp_path / f"{name}.json" for name in ("whole", "rest")]
    common = (*own, "--trust", "piped:net", "--warm-up", 1)
    assert run("run", *common, "--iterations", 4, "--time-triggered", "-o", replays[0]) == 0
    told = capsys.readouterr().out
    assert all(kind in told for kind in ("F ", "B ", "W ", "makespan"))
    saved = tmp_path / "saved"
    assert run("run", *common, "--iterations", 2, "--checkpoint", saved, "--checkpoint-every", 1) == 0
    assert run("run", *common, "--iterations", 4, "--checkpoint", saved, "--resume", "-o", replays[1]) == 0
    whole, rest = (load_replay(path) for path in replays)
    [job], [later] = whole.timeline.jobs, rest.timeline.jobs
    assert (len(job.iterations), later.first_iteration, len(later.iterations)) == (4, 2, 2)
    assert len(set(job.parameters_sha256)) == 2 and later.parameters_sha256 == job.parameters_sha256
    assert [step.loss for _, step in later.steps()] == [step.loss for _, step in job.steps()][2:]
    names = torch.load(saved / "job0-worker1-iteration4.pt", weights_only=True)["model"].keys()
    assert names == {"3.weight", "3.bias"}
    planned = load_plan(own[1]).jobs[0].iterations[0].blocks
    for origin, (_, step) in zip(whole.timeline.origins_us, job.steps(), strict=True):
        assert all(found.start_us >= origin + each.start_us for found, each in zip(step.blocks, planned, strict=True))


@pytest.mark.slow
def test_a_bundled_pipeline_is_carried_out(tmp_path: Path) -> None:
    replay = tmp_path / "replay.json"
    files = ("pipeline/two-servers", plan_path("pipeline/two-servers"))
    assert run("run", *files, "--trust", "piped:net", "--warm-up", 1, "--iterations", 1, "-o", replay) == 0
    [(_, step)] = load_replay(replay).timeline.jobs[0].steps()
    assert len(step.blocks) == 32


@pytest.mark.slow
def test_asynchronous_minibatches_see_the_weights_that_were_kept_for_them() -> None:
    count, stages = 12, [AsyncStage(300, 500, transfer_us=50) for _ in range(3)]
    found = asynchronous(stages, "flow")
    request = ReplayRequest(instance=found.instance, plan=found.plan, passes=count)
    entry = {"train": "piped:chain", "arguments": {}, "cuts": []}
    ran = run_group(piped.flow, 3, request, entry)
    blocks = found.plan.jobs[0].iterations[0].blocks
    names = [block.name for block in found.instance.jobs[0].shape.blocks]  # type: ignore[union-attr]
    start = {name: block.start_us for name, block in zip(names, blocks, strict=True)}
    period = found.plan.period_us or 0
    with own_draws(draw_number(0, 0, 0)):
        made = piped.chain(0, 3, torch.device("cpu"))
    optimisers = [piped.sgd(list(stage.parameters())) for stage in made["model"]]
    weights = [[copy.deepcopy(stage)] for stage in made["model"]]
    for number in range(count):
        seen = [
            sum(start[f"B0.{s}"] + other * period < start[f"F0.{s}"] + number * period for other in range(count))
            for s in range(3)
        ]
        assert seen == [versions[number] for _, versions, _ in ran]
        kept = [weights[s][seen[s]] for s in range(3)]
        inputs, targets = made["loader"][number % 5]
        for stage in kept:
            stage.zero_grad()
        made["loss"](nn.Sequential(*kept)(inputs), targets).backward()
        for stage, old, optimiser, own in zip(made["model"], kept, optimisers, weights, strict=True):
            for new, before in zip(stage.parameters(), old.parameters(), strict=True):
                new.grad = before.grad
            optimiser.step()
            own.append(copy.deepcopy(stage))
    assert [most for _, _, most in ran] == list(found.details.weight_versions)
    assert found.details.weight_versions[0] > 1
    for (state, _, _), stage in zip(ran, made["model"], strict=True):
        assert all(torch.allclose(state[name], value, atol=1e-6) for name, value in stage.state_dict().items())


def partition_of(file: Path, nodes: list[list[str]], sent: int) -> Path:
    """A partition of two stages that take as long as those of the fixture `files`."""
    stages = [
        Stage(tuple(own), 1, 1e-3, 900, 1701 if k == 0 else 1800, 288, 1, (1 - k) * sent, 1e-3)
        for k, own in enumerate(nodes)
    ]
    outer = (OuterStage(1, (0, 1), 1, 1e-3), OuterStage(1, (1, 2), 1, 1e-3))
    found = Partition("released", True, (Level(2, 10**9),), 1.0, 1.0, 1.0, tuple(stages), outer, 2, 4)
    file.write_text(json.dumps(partition_tree(found)))
    return file


def test_a_model_is_compared_with_the_partition(tmp_path: Path) -> None:
    def parts_of(nodes: list[list[str]]) -> tuple[Stage, ...]:
        return decode_partition(partition_of(tmp_path / "cut.json", nodes, 128).read_bytes()).stages

    modules, _ = stage_modules("own:net", piped.net(0, 2, torch.device("cpu"))["model"], ["2"], 2)
    right = parts_of([["0", "1"], ["2", "3"]])
    for parts in (right, parts_of([["0-1"], ["2-3"]])):
        assert compare_modules("own:net", modules, parts) == []
    assert compare_sent(0, 128, right) == []
    small = nn.Sequential(OrderedDict({"0": nn.Linear(2, 2), "1": nn.Tanh()}))
    told = compare_modules("own:net", [small, modules[1]], right)
    [of_parameters], [of_sent] = told, compare_sent(0, 256, right)
    assert re.findall(r"\d+", of_parameters) == ["0", "24", "288"]
    assert re.findall(r"\d+", of_sent) == ["0", "256", "128"]
    with refuses("mismatch the partition: $.stages[1].nodes"):
        compare_modules("own:net", modules, parts_of([["0"], ["2", "4", "5"]]))


@pytest.mark.slow
def test_a_whole_module_is_cut_by_qualified_names_and_trains_as_a_sequential(
    files: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    digests = []
    for function, nodes in (
        ("net", [["0", "1"], ["2", "3"]]),
        ("whole", [["first", "layers.0"], ["layers.1", "layers.2"]]),
    ):
        cuts, output = partition_of(tmp_path / f"{function}.json", nodes, 64), tmp_path / f"{function}.replay.json"
        words = ("--trust", f"piped:{function}", "--partition", cuts, "--iterations", 3, "-o", output)
        assert run("run", *files, *words) == 0
        digests.append(load_replay(output).timeline.jobs[0].parameters_sha256)
        told = capfd.readouterr().err
        [line] = [line for line in told.splitlines() if line.startswith("warning: ")]
        assert re.findall(r"\d+", line) == ["0", "128", "64"] and "UserWarning" not in told
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_an_asynchronous_pipeline_is_measured_and_batches_are_the_same_in_all_processes(
    files: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flow, replay = (tmp_path / "flow.json", tmp_path / "flow.plan.json"), tmp_path / "replay.json"
    options = ("--forward-us", "300,300,300", "--backward-us", 500, "--transfer-us", 50, "--schedule", "async", "-q")
    assert run("pipeline", *options, "-o", flow[0], "--plan", flow[1]) == 0
    ends("2: mismatch batch", "run", *flow, "--trust", "piped:apart")
    asked = ("--trust", "piped:chain", "--checkpoint", tmp_path / "saved")
    ends("2: unsupported checkpoint", "run", *flow, *asked)
    assert run("run", *flow, "--trust", "piped:chain", "--iterations", 8, "-o", replay) == 0
    found = load_replay(replay)
    require_replay_of(load_plan(flow[1]), found, "replay")
    assert found.summary.objective == "period" and len(found.timeline.jobs[0].iterations) == 8
    assert {"B", "F"} <= set(found.kinds)
    cuts = partition_of(tmp_path / "cut.json", [["0", "1"], ["2", "3"]], 64)
    ends("2: mismatch batch", "run", *files, "--trust", "piped:uneven", "--partition", cuts)
    told = capfd.readouterr().err
    assert " 3 samples" in told and " 6" in told


def replay_from(of: Case, found: list[RankReport], machine: dict[str, str | int], passes: int | None = 1) -> Replay:
    """The replay of what processes report."""
    stages = StagedRun(torch_schedule(of.instance, of.plan, "compute_comms"), {})
    replay = replay_of(of.request(passes=passes), None, stages, found, machine)
    assert replay is not None
    return replay


def case() -> Case:
    """Two GPUs, two micro-batches, split backward passes and transfers."""
    problem = PipelineProblem(
        PipelineCosts((100, 100), (1, 100), (200, 100), (50,), (), (7, 7), (20, 10)), PipelineLayout((0, 1), 2, True)
    )
    orders = random_orders(problem, 3)
    return case_of("small", problem, orders)


def reports(of: Case, iterations: int, late: int) -> list[RankReport]:
    """What processes would report that do everything as planned, each pass so much longer, each send with a wait."""
    schedule = torch_schedule(of.instance, of.plan, "compute_comms")
    shape, [job] = of.instance.task_graph_of[schedule.job], of.plan.jobs
    planned = {name: (at.start_us, at.end_us) for name, at in zip(shape.operations, job.iterations[0].operations)}
    times = {action: planned[name] for action, name in schedule.planned.items()}
    found = []
    for rank, actions in enumerate(schedule.ranks):
        records, origins = list[RunRecord](), []
        for number in range(iterations):
            zero = 10_000 * number
            own = [action for action in actions if action in times]
            loss = 0.5 if rank == 1 else math.nan
            for each in own:
                start, end = zero + times[each][0], zero + times[each][1] + late
                records.append(RunRecord("action", 0, number, each, start, end, loss=loss))
                if each[:2] in {"0I", "0B", "1F"}:
                    records.append(RunRecord("receipt", 0, number, each, start - 60, start, loss=loss))
            origins.append(zero)
        part = Part(records, origins, iterations)
        found.append(RankReport([part], {(0, rank): f"digest{rank}"}, 10 + rank, [0]))
    return found


def test_a_replay_compares_passes_by_kind_and_comes_back_from_its_document() -> None:
    of, late = case(), 30
    replay = replay_from(of, reports(of, 3, late), {"kind": "cpu"})
    assert replay.summary.predicted_us == of.plan.objective
    assert replay.summary.measured_us == of.plan.objective + late
    # Both parts of the backward pass of stage 0 are one, as PyTorch does all of it in the second.
    assert replay.kinds["F"] == KindError(12, 100, 130, 0.3)
    assert replay.kinds["B"] == KindError(6, 100, 130, 0.3)
    assert replay.kinds["W"] == KindError(12, 150, 196, 0.2993)
    assert replay.kinds["sent"].count == 12 and replay.kinds["sent"].planned_us == 50
    assert [gpu.memory_bytes for gpu in replay.gpus] == [10, 11]
    assert replay.gpus[0].planned_memory_bytes >= 7 + 20 and replay.gpus[1].planned_memory_bytes >= 7 + 10
    again = decode_replay(encode_replay(replay))
    assert again == replay
    require_replay_of(of.plan, again, "replay")
    shorter = replace(again.timeline.jobs[0].iterations[0], blocks=())
    broken = replace(again.timeline.jobs[0], iterations=(shorter, *again.timeline.jobs[0].iterations[1:]))
    phases = (replace(again.phases[0], timeline=replace(again.timeline, jobs=(broken,))),)
    with refuses("wrong-count replay.timeline.jobs[0].iterations[0].blocks"):
        require_replay_of(of.plan, replace(again, phases=phases), "replay")


def test_a_replay_is_drawn_below_its_plan() -> None:
    of = case()
    replay = replay_from(of, reports(of, 2, 0), {})
    drawn = replay_picture(of.instance, of.plan, replay)
    lanes = {lane.name: lane for lane in drawn.lanes}
    for gpu in ("server/0", "server/1"):
        planned, measured = lanes[gpu].intervals, lanes[f"{gpu} measured"].intervals
        assert [each.number for each in measured] == [each.number for each in planned] and len(planned) == 12
        assert [each.start_us for each in measured] == [each.start_us for each in planned]
    assert ("F off by", "0.0 %") in drawn.facts
    assert timeline_html(drawn).count("measured")


def test_an_interrupted_replay_has_the_steps_that_all_have_taken() -> None:
    of = case()
    found = [replace(report, parameters={}) for report in reports(of, 3, 0)]
    ended = [record for record in found[1].parts[0].records if record.iteration < 2]
    found[1] = replace(found[1], parts=[replace(found[1].parts[0], records=ended)])
    replay = replay_from(of, found, {})
    assert len(replay.timeline.jobs[0].iterations) == 2 and replay.parameters_sha256 == {}
    require_replay_of(of.plan, replay, "replay")


def test_periods_are_mean_distances_of_ends() -> None:
    problem = PipelineProblem(PipelineCosts((100, 100), (100, 100), (), (50,)), PipelineLayout((0, 1), 2, False))
    found = schedule_of(problem, random_orders(problem, 3), "pipeline", "random").cyclic
    of = Case("cyclic", found.instance, found.plan)
    found = reports(of, 8, 0)
    for report in found:
        report.parts[0].origins_us.clear()
    replay = replay_from(of, found, {}, 8)
    assert (replay.summary.objective, replay.summary.measured_us) == ("period", 10_000)


@pytest.mark.parametrize(
    ("model", "cuts", "told"),
    [
        (nn.Sequential(nn.ReLU(), nn.ReLU()), [], "mismatch model"),
        (nn.ReLU(), [], "mismatch model"),
        (nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU()), ["1"], "wrong-type cuts"),
        (nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU()), ["2", "1"], "wrong-type cuts"),
        (nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU()), ["0", "1"], "wrong-type cuts"),
        (nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU()), ["1", "3"], "wrong-type cuts"),
        ([nn.ReLU()] * 3, ["1", "2"], "wrong-type cuts"),
        ([nn.Linear(1, 1)] * 3, [], "duplicate-name model"),
    ],
)
def test_models_that_are_not_in_stages_are_refused(model: Any, cuts: list[str], told: str) -> None:
    with misuse(told):
        stage_modules("own:net", model, cuts, 3)


def test_parts_keep_the_names_of_the_whole_and_begin_with_any_module_of_a_run() -> None:
    whole = nn.Sequential(OrderedDict(a=nn.Linear(1, 1), b=nn.ReLU(), c=nn.Linear(1, 1)))
    for cuts in (["c"], []):
        model = whole if cuts else nn.Sequential(OrderedDict(a=whole.a, c=whole.c))
        modules, names = stage_modules("own:net", model, cuts, 2)
        found = [name + key for name, module in zip(names, modules, strict=True) for key in module.state_dict()]
        assert found == ["a.weight", "a.bias", "c.weight", "c.bias"]
    row = nn.Sequential(*(nn.Linear(1, 1) for _ in range(4)))
    for cuts in (["1", "3"], ["1-2", "3"]):
        assert [len(list(module.children())) for module in stage_modules("own:net", row, cuts, 3)[0]] == [1, 2, 1]


def test_the_function_is_named_by_the_job_or_trusted_alone() -> None:
    instance = case().instance
    assert stages_entry(instance, ["own:net"]) == {"train": "own:net", "arguments": {}, "cuts": []}
    assert stages_entry(load("server/plain"), ["own:net"]) is None
    for trusted in ([], ["own:net", "own:other"]):
        with refuses("missing-field $.jobs[0]"):
            stages_entry(instance, trusted)
    named = replace(instance.jobs[0], executor={"train": "my:net", "arguments": {"rank": 1}, "cuts": []})
    with pytest.raises(InvalidInputError) as error:
        stages_entry(replace(instance, jobs=(named,)), ["own:net"], is_cut=True)
    assert [problem.path for problem in error.value.problems] == [
        "$.jobs[0].executor.train",
        "$.jobs[0].executor.arguments.rank",
        "$.jobs[0].executor",
    ]


def test_what_is_not_carried_out_is_refused_with_all_of_it() -> None:
    problem = PipelineProblem(PipelineCosts((5, 5), (5, 5), (), (), (4,)), PipelineLayout((0, 1), 2, False))
    two = add_pipeline(add_pipeline(load("server/plain"), problem, "mine"), problem, "other")
    [flow] = asynchronous([AsyncStage(300, 500), AsyncStage(300, 500)], "flow").instance.jobs
    assert isinstance(flow, TaskGraphJob)
    on_type = {next(iter(two.cluster.servers)).gpu_type: 300}
    blocks = tuple(replace(block, duration_us=on_type) for block in flow.shape.blocks)
    beside = replace(flow, shape=replace(flow.shape, blocks=blocks))
    with pytest.raises(InvalidInputError) as error:
        models = {name: replace(model, executor=None) for name, model in two.models.items()}
        stages_entry(replace(two, jobs=(*two.jobs, beside), models=models), ["own:net"])
    of_models = [f'missing-field $.models["{name}"]' for name in sorted(models)]
    assert refused(error.value) == [*of_models, f"unsupported $.jobs[{len(two.jobs)}]", "ambiguous $.jobs"]
    assert all(name in str(error.value) for name in ("'mine'", "'other'", "'pipeline'"))
    copies = asynchronous([AsyncStage(300, 500, replicas=2), AsyncStage(10, 10)], "flow").instance
    for strange in (load("shop/job-6x4"), copies):
        with refuses("unsupported $.jobs[0]"):
            stages_entry(strange, ["own:net"])


def test_what_only_data_parallel_jobs_have_is_refused() -> None:
    with misuse("unsupported baseline"):
        run_plan(case().request(trusted=("own:net",), baseline="gang"))
    with misuse("unsupported backend"):
        run_plan(case().request(trusted=("own:net",), device="cuda"))
