"""A pipeline and data-parallel jobs that run together, each as it would without the others."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from replayed import run

from jigsaw_opt.checking import check
from jigsaw_opt.cli.training.run import print_replay
from jigsaw_opt.documents import (
    decode_instance,
    instance_sha256,
    load_replay,
    save_instance,
    save_plan,
)
from jigsaw_opt.documents.replay import decode_replay, encode_replay, require_replay_of
from jigsaw_opt.executor.schedules.baseline import alone_part
from jigsaw_opt.executor.schedules.order import ReplayExtent, ReplayOrder
from jigsaw_opt.executor.schedules.request import ReplayRequest, foreground_of
from jigsaw_opt.planning.fill import fill
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.search import add_pipeline
from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.planning.pipeline.torch_csv import torch_schedules
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.problem.measured.times import MeasuredIteration
from jigsaw_opt.problem.plan import TaskGraphIteration, TaskGraphJobPlan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.replay import replay_picture
from tests.refusals import ends, misuse, refuses

PASSES = 4
WORK = Options(work_limit=0.2, threads=1, seed=0)


def mixed(gpus: int, **entry: Any) -> Instance:
    """A job of two workers of different depths, one of a worker, and behind them a pipeline of two stages."""
    sizes = (("dense0", 4 * 65 * 64), ("dense1", 4 * 65 * 64), ("dense2", 4 * 65 * 10))
    segments = [
        {"name": name, "forward_us": {"box": 300}, "backward_us": {"box": 500}, "parameter_bytes": size}
        | {"activation_bytes": 4096}
        for name, size in sizes
    ]
    network = {"zoo": "mlp", "arguments": {"hidden": [64, 64]}, "batch_size": 4}
    server = {"name": "s", "gpu_type": "box", "gpus": gpus, "gpu_memory": 10**9, "fabric_bandwidth": 10**9}
    document = {
        "format": "jigsaw-instance/1",
        "name": "mixed",
        "cluster": {"servers": [server], "links": []},
        "models": {"net": {"segments": segments, "executor": network}},
        "jobs": [
            {"name": "spb", "model": "net", "workers": 2, "iterations": 1, "depth": {"rule": "staircase"}},
            {"name": "piece", "model": "net", "workers": 1, "iterations": 1},
        ],
        "horizon": "cyclic",
        "objective": "period",
    }
    costs = PipelineCosts((2000, 2000), (3000, 3000), (), (), (2 * 10**5,))
    problem = PipelineProblem(costs, PipelineLayout((0, 1), 3, False))
    whole = add_pipeline(decode_instance(json.dumps(document)), problem, "pipe")
    pipe = whole.jobs[-1]
    assert isinstance(pipe, TaskGraphJob)
    own = {"train": "piped:net", "arguments": entry, "cuts": ["2"]}
    return replace(whole, jobs=(*whole.jobs[:-1], replace(pipe, executor=own)))


def require_goes_on(folder: Path, of: tuple[Instance, Plan], whole: Replay) -> None:
    """A run that is resumed after two passes comes to the same parameters."""
    saving = ("--checkpoint", folder / "saved", "--checkpoint-every", 1)
    common = (*files(folder, of), "--trust", "piped:net", "--warm-up", 1)
    assert run("run", *common, "--iterations", 2, *saving) == 0
    rest = replayed(folder, of, *saving, "--resume")
    assert [job.first_iteration for job in rest.timeline.jobs] == [2 * len(job.iterations) for job in of[1].jobs]
    assert rest.parameters_sha256 == whole.parameters_sha256


@pytest.fixture(scope="module")
def filled() -> tuple[Instance, Plan]:
    """A pipeline whose holes are filled."""
    found = fill(mixed(2), ["pipe"], WORK)
    assert found.plan is not None and found.details.iterations == {"spb": 2, "piece": 1}
    return found.instance, found.plan


@pytest.fixture(scope="module")
def listed() -> tuple[Instance, Plan]:
    """The same jobs with the plan of a list schedule."""
    instance = mixed(2)
    plan = solve(instance, "greedy", WORK).plan
    assert plan is not None
    return instance, plan


def part(of: tuple[Instance, Plan], *names: str) -> tuple[Instance, Plan]:
    """Some jobs without the others, at the same times."""
    instance, plan = of
    own = altered(instance, jobs=tuple(job for job in instance.jobs if job.name in names))
    kept = plan.with_jobs(tuple(job for job in plan.jobs if job.name in names))
    return own, replace(kept, instance_sha256=instance_sha256(own))


def files(folder: Path, of: tuple[Instance, Plan]) -> tuple[Path, Path]:
    """An instance and its plan as files."""
    paths = folder / "instance.json", folder / "plan.json"
    save_instance(of[0], paths[0])
    save_plan(of[1], paths[1])
    return paths


def replayed(folder: Path, of: tuple[Instance, Plan], *options: object) -> Replay:
    """What a run measures."""
    output = folder / "replay.json"
    common = ("--trust", "piped:net", "--iterations", PASSES, "--warm-up", 1)
    assert run("run", *files(folder, of), *common, *options, "-o", output) == 0
    found = load_replay(output)
    require_replay_of(of[1], found, "replay")
    return found


def require_order(of: tuple[Instance, Plan], found: Replay) -> None:
    """Every GPU has done what the plan has there, in its order."""
    instance, plan = of
    schedule = torch_schedules(instance, plan)
    order, extent = ReplayOrder(instance, plan, schedule=schedule), ReplayExtent([0] * len(plan.jobs), PASSES)
    count = 0
    for rank in range(len(order.gpus)):
        times = []
        for step in (each for window in order.windows(extent) for each in order.steps(rank, window, extent)):
            done = found.timeline.jobs[step.job].iterations[step.iteration]
            if step.action:
                assert not isinstance(done, MeasuredIteration)
                name = schedule.planned_in(step.iteration)[step.action]
                times += [(block.start_us, block.end_us) for block in done.blocks if block.name == name]
            else:
                times.append((done.blocks[step.place].start_us, done.blocks[step.place].end_us))
        assert all(one[1] <= other[0] for one, other in pairwise(times)), "one behind the other"
        count += len(times)
    assert count == PASSES * sum(len(iteration.blocks) for job in plan.jobs for iteration in job.iterations)


@pytest.mark.slow
def test_every_job_of_a_filled_plan_trains_as_without_the_others(
    filled: tuple[Instance, Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    together = replayed(tmp_path, filled, "--baseline", "alone")
    printed = capsys.readouterr().out
    assert "pipe, period: " in printed and "slow-down" in printed
    digests = {job.name: job.parameters_sha256 for job in together.timeline.jobs}
    require_order(filled, together)
    assert run("plot", *files(tmp_path, filled), "--replay", tmp_path / "replay.json", "-o", tmp_path / "p.html") == 0
    # A pipeline that is the third job draws as one that is alone with a seed that is two larger.
    [pipe] = replayed(tmp_path, part(filled, "pipe"), "--seed", 2).timeline.jobs
    others = replayed(tmp_path, part(filled, "spb", "piece")).timeline.jobs
    assert digests == {job.name: job.parameters_sha256 for job in (*others, pipe)}
    losses = {job.name: [step.loss for _, step in job.steps()] for job in together.timeline.jobs}
    assert losses["pipe"] == [step.loss for _, step in pipe.steps()] and len(losses["pipe"]) == PASSES
    baseline = together.baseline
    assert baseline is not None and [job.name for job in baseline.timeline.jobs] == ["pipe"]
    assert [step.loss for _, step in baseline.timeline.jobs[0].steps()] == losses["pipe"]
    assert baseline.summary.measured_us and baseline.together is not None and baseline.together.measured_us
    planned, measured = together.slow_down() or (0, None)
    assert planned == filled[1].objective / baseline.summary.predicted_us
    assert measured == baseline.together.measured_us / baseline.summary.measured_us
    assert baseline.together.planned_us == filled[1].period_us == together.cycles["spb"].planned_us
    assert decode_replay(encode_replay(together)) == together
    capsys.readouterr()
    print_replay(together, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["slow_down"] == {"planned": planned, "measured": measured} and "spb" in told["rates_per_s"]
    assert told["baseline"]["together"]["measured_us"] == baseline.together.measured_us
    for text in (printed, dict(replay_picture(*filled, together).facts)["slow-down"]):
        assert f"{measured:.3f}" in text and f"{planned:.3f}" in text
    assert {name: cycle.iterations for name, cycle in together.cycles.items()} == {"spb": 2, "piece": 1, "pipe": 1}


@pytest.mark.slow
def test_a_finite_plan_is_carried_out_pass_behind_pass(tmp_path: Path) -> None:
    instance = altered(mixed(3), horizon="finite", objective="makespan")
    plan = solve(instance, "greedy", WORK).plan
    assert plan is not None and len({gpu for job in plan.jobs for gpu in job.gpus}) == 3
    whole = replayed(tmp_path, (instance, plan))
    require_order((instance, plan), whole)
    assert len(whole.timeline.origins_us) == PASSES
    require_goes_on(tmp_path, (instance, plan), whole)


@pytest.mark.slow
def test_iterations_of_a_pipeline_have_orders_of_their_own(tmp_path: Path) -> None:
    data_parallel = altered(mixed(2), jobs=mixed(2).jobs[:2])
    costs = PipelineCosts((400, 500, 450, 550), (600, 700, 650, 750), (600, 700, 650, 750), (), (10**5,) * 3)
    problem = PipelineProblem(costs, PipelineLayout((0, 1, 1, 0), 4, True))
    whole = add_pipeline(data_parallel, problem, "pipe", iterations=2)
    entry = {"train": "pipelines_run:stages", "arguments": {"count": 4, "width": 8, "samples": 8}, "cuts": []}
    instance = altered(whole, jobs=(*whole.jobs[:2], altered(whole.jobs[2], executor=entry)))
    plan = solve(instance, "greedy", WORK).plan
    assert plan is not None
    one, other = torch_schedules(instance, plan).iterations
    assert one.ranks != other.ranks, "the case is of use"
    trust = ("--trust", "pipelines_run:stages")
    together = replayed(tmp_path, (instance, plan), *trust)
    require_order((instance, plan), together)
    [pipe] = replayed(tmp_path, part((instance, plan), "pipe"), *trust, "--seed", 2).timeline.jobs
    assert together.parameters_sha256["pipe"] == pipe.parameters_sha256


@pytest.mark.slow
def test_what_code_of_one_job_sets_of_torch_is_not_for_the_others(
    listed: tuple[Instance, Plan], tmp_path: Path
) -> None:
    instance, plan = listed
    entry = {"train": "piped:careless", "arguments": {}, "cuts": ["1", "2"]}
    models = {"own": replace(instance.models["net"], executor=entry), **instance.models}
    changed = altered(
        instance, jobs=tuple(altered(job, model="own") if job.name == "piece" else job for job in instance.jobs)
    )
    changed = replace(changed, models=models)
    of = changed, replace(plan, instance_sha256=instance_sha256(changed))
    together, without = replayed(tmp_path, of, "--trust", "piped:careless"), replayed(tmp_path, listed)
    for job in ("spb", "pipe"):
        assert together.parameters_sha256[job] == without.parameters_sha256[job]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is of Linux")
def test_what_was_measured_is_told_where_no_file_can_hold_it(
    listed: tuple[Instance, Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = files(tmp_path, part(listed, "piece"))
    ends("1: JigsawError", "run", *own, "--iterations", 2, "--warm-up", 0, "-o", "/dev/full")
    printed = capsys.readouterr()
    assert "predicted" in printed.out and "/dev/full" in printed.err


@pytest.mark.slow
def test_whatever_ends_a_run_leaves_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], filled: tuple[Instance, Plan]
) -> None:
    instance, plan = filled
    for fault, told in {"kill": "was ended by SIGKILL", "raise": "ValueError: a fault on purpose"}.items():
        pipe = altered(
            instance.jobs[-1],
            executor={"train": "piped:net", "arguments": {"fault": fault, "after": 9}} | {"cuts": ["2"]},
        )
        broken = altered(instance, jobs=(*instance.jobs[:-1], pipe))
        own = files(tmp_path, (broken, replace(plan, instance_sha256=instance_sha256(broken))))
        assert run("run", *own, "--trust", "piped:net", "--iterations", 1_000, "--warm-up", 1) == 1
        lines = [line for line in capsys.readouterr().err.strip().splitlines() if "accuracy" not in line]
        assert len(lines) == 1 and told in lines[0]


def test_a_part_of_a_plan_alone_takes_the_least_period_of_its_order(listed: tuple[Instance, Plan]) -> None:
    instance, plan = listed
    found = alone_part(instance, plan, ["pipe"])
    assert [job.name for job in found.plan.jobs] == ["pipe"] and found.numbers == (2,)
    assert not check(found.instance, found.plan)
    assert found.plan.objective == 20_400, "three passes each way, and a message both ways"
    [pipe] = found.plan.jobs
    [step] = pipe.iterations
    assert isinstance(pipe, TaskGraphJobPlan) and isinstance(step, TaskGraphIteration)
    late = [tuple(replace(each, start_us=2 * each.start_us, end_us=each.start_us + each.end_us) for each in own)
            for own in (step.blocks, step.transfers)]  # fmt: skip
    slow = found.plan.with_jobs((replace(pipe, iterations=(TaskGraphIteration(*late),)),)).with_period(40_800)
    again = alone_part(found.instance, slow, ["pipe"])
    assert again.plan.period_us == 20_400 and not check(again.instance, again.plan)
    finite = altered(instance, horizon="finite", objective="makespan")
    found = alone_part(finite, plan.with_period(None), ["spb"])
    assert not check(found.instance, found.plan)
    assert all(block.start_us == 0 for block in found.plan.data_parallel[0].iterations[0].blocks)


def test_the_foreground_is_named_or_alone_has_a_cycle_time_limit(listed: tuple[Instance, Plan]) -> None:
    instance, plan = listed
    for names, told in {(): "missing-option foreground", ("spb", "piece", "pipe"): "contradiction foreground"}.items():
        with misuse(told):
            ReplayRequest(instance, plan, baseline="alone", foreground=names)
    with refuses("unknown-name $.jobs"):
        ReplayRequest(instance, plan, baseline="alone", foreground=("pip",))
    limited = altered(instance, jobs=(*instance.jobs[:2], altered(instance.jobs[2], pace_us=10**6)))
    assert foreground_of(limited, ()) == ("pipe",)
    least_rate = altered(limited, jobs=(*limited.jobs[:1], altered(limited.jobs[1], pace_us=10**6), limited.jobs[2]))
    with misuse("missing-option foreground", naming=["piece", "pipe"]):
        foreground_of(least_rate, ())
    with misuse("missing-option foreground"):
        ReplayRequest(instance, plan, foreground=("a",))
