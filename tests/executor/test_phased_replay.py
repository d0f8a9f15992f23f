"""A phased plan carried out: every job trains as it would alone, and ends are told where repetitions are left out."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from replayed import instance, run

from jigsaw_opt.documents import instance_sha256, load_document, save_instance, save_plan, schema
from jigsaw_opt.documents.replay import encode_replay
from jigsaw_opt.executor.exchange.by_bucket import Averaging
from jigsaw_opt.executor.models.building import build
from jigsaw_opt.executor.replay.evaluation import replay_of
from jigsaw_opt.executor.schedules.records import Part, RankReport, RunRecord
from jigsaw_opt.executor.schedules.request import ReplayRequest
from jigsaw_opt.executor.worker import TrainingRecipe, ZooWorker
from jigsaw_opt.problem import (
    Block,
    Instance,
    Iteration,
    JobPlan,
    Phase,
    PhaseGroup,
    Plan,
    Transfer,
)
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.checking.test_phased_plans import INSTANCE as SHAPED
from tests.checking.test_phased_plans import document
from tests.refusals import ends
from tests.views.test_views import embedded

CPU = torch.device("cpu")
SMALL = {"model": "net", "depth": {"rule": "staircase"}}
PAIR = [{"name": "a", **SMALL, "workers": 2, "iterations": 3}, {"name": "b", **SMALL, "workers": 2, "iterations": 7}]
ALONE = {"name": "c", **SMALL, "workers": 1, "iterations": 4}


def problem(*jobs: dict[str, Any], **changes: Any) -> Instance:
    """Two hosts with a cable, and a third one by itself."""
    host = {"gpu_type": "box", "gpus": 1, "gpu_memory": 10**9, "fabric_bandwidth": 10**9}
    hosts = ("h0", "h1", "h2")
    cable = {"name": "cable", "ends": hosts[:2], "bandwidth": 10**9, "latency_us": 50}
    cluster = {"servers": [{"name": name, **host} for name in hosts], "links": [cable]}
    return instance(cluster=cluster, jobs=jobs, **changes)


def planned(asked: Instance) -> Plan:
    plan = solve(asked, "phased", Options(threads=1)).plan
    assert plan is not None
    return plan


def written(folder: Path, asked: Instance, plan: Plan | None = None) -> list[object]:
    """Arguments that carry a phased plan for it out."""
    save_instance(asked, folder / "instance.json")
    save_plan(plan or planned(asked), folder / "plan.json")
    return ["run", folder / "instance.json", folder / "plan.json"]


def placed(name: str, *pairs: tuple[int, int]) -> JobPlan:
    """A job of two workers that goes to the level and ends at the moment of each pair."""
    level_us = (0, 1400, 1900, 2400)
    lengths = (103, 117, 59)
    blocks = tuple(Block(level, end - level_us[level], end) for level, end in pairs)
    moved, free = [], 0
    for bucket in (1, 2, 3):
        start = max(free, *(b.start_us + level_us[bucket] for b in blocks if b.level >= bucket))
        free = start + lengths[bucket - 1]
        moved.append(Transfer(bucket, start, free))
    return JobPlan(name, ("h0/0", "h1/0"), (Iteration(blocks, tuple(moved)),))


def by_hand(asked: Instance) -> Plan:
    """Jobs a and b in turn, then b alone; c beside them."""
    both = Phase(0, 4300, 3, (placed("a", (3, 2400), (2, 1900)), placed("b", (2, 4300), (3, 4300))))
    rest = Phase(13076, 2459, 4, (placed("b", (3, 2400), (2, 1900)),))
    one = Phase(0, 2400, 4, (JobPlan("c", ("h2/0",), (Iteration((Block(3, 0, 2400),), ()),)),))
    groups = (PhaseGroup((both, rest)), PhaseGroup((one,)))
    return Plan(asked.name, instance_sha256(asked), "feasible", rest.end_us, 0, groups)


def levels_of(plan: Plan, name: str, most: int) -> list[list[int]]:
    """Levels of a job in all of its iterations, of no more than `most` repetitions of each phase."""
    return [
        [block.level for block in iteration.blocks]
        for _, _, phase in plan.all_phases()
        for _ in range(min(phase.repeats, most))
        for job in phase.jobs
        if job.name == name
        for iteration in job.iterations
    ]


def trained_alone(asked: Instance, number: int, iterations: Sequence[Sequence[int]]) -> str:
    """Digest of the parameters of a job that trains by itself, its workers one after another in this process."""
    job = asked.data_parallel[number]
    recipe = TrainingRecipe("sgd", {"lr": 0.01, "momentum": 0.9}, number)
    replicas = [build(job.model, asked.models[job.model], seed=number) for _ in range(job.workers)]
    workers = [ZooWorker(k, replica, recipe, CPU) for k, replica in enumerate(replicas)]
    for levels in iterations:
        for worker, level in zip(workers, levels, strict=True):
            worker.block(level, lambda _: None)
        for bucket in range(1, workers[0].model.depth + 1) if len(workers) > 1 else ():
            own = [w.buckets.buffers[bucket - 1] for w, level in zip(workers, levels, strict=True) if level >= bucket]
            mean = sum(part / Averaging.AVG_W_COUNT.divisor(levels, bucket) for part in own)
            for worker in workers:
                worker.buckets.buffers[bucket - 1].copy_(mean)
    digest = sha256()
    workers[0].step()
    for part in workers[0].model.own_parameters():
        for parameter in part:
            digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def test_a_worker_that_is_let_go_takes_no_memory() -> None:
    asked = problem(ALONE)
    worker = ZooWorker(0, build("net", asked.models["net"], seed=0), TrainingRecipe("sgd", {"lr": 0.1}, 0), CPU)
    worker.block(3, lambda _: None)
    worker.block_bytes(3)
    left = [weakref.ref(worker.model), *map(weakref.ref, worker.model.parameters())]
    worker.buckets.close()
    del worker
    assert [each() for each in left] == [None] * len(left)


@pytest.mark.parametrize("most", [2, 100])
def test_every_job_trains_as_it_would_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str], most: int) -> None:
    asked = problem(*PAIR, ALONE)
    plan = by_hand(asked)
    output = tmp_path / "replay.json"
    assert run(*written(tmp_path, asked, plan), "--iterations", most, "--warm-up", 1, "--json", "-o", output) == 0
    told = json.loads(capsys.readouterr().out)
    for number, job in enumerate(asked.data_parallel):
        expected = trained_alone(asked, number, levels_of(plan, job.name, most))
        assert told["parameters_sha256"][job.name] == [expected] * job.workers
    phases = [phase for _, _, phase in plan.all_phases()]
    assert [phase["repeated"] for phase in told["phases"]] == [min(most, phase.repeats) for phase in phases]
    assert [phase["period"]["predicted_us"] for phase in told["phases"]] == [phase.period_us for phase in phases]
    assert [phase["predicted_end_us"] for phase in told["phases"]] == [phase.end_us for phase in phases]
    assert told["predicted_us"] == plan.objective and told["extrapolated"] is (most == 2)
    assert most == 2 or told["phases"][1]["measured_end_us"] > told["phases"][0]["measured_end_us"] > 0
    jsonschema.validate(json.loads(output.read_text()), schema("phased-replay"))
    replay = load_document(output)
    assert isinstance(replay, Replay) and replay.counts_repeats and encode_replay(replay) == output.read_bytes()
    assert [phase.timeline.passes for phase in replay.phases] == [phase["repeated"] for phase in told["phases"]]
    first, second, other = (phase["seam_us"] for phase in told["phases"])
    assert first is other is None and second > 0


def test_a_run_that_failed_goes_on_from_the_seam(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = {"forward_us": {"box": 300}, "backward_us": {"box": 500}, "activation_bytes": 4096}
    segments = [{"name": n, "parameter_bytes": size, **times} for n, size in (("0", 4 * 9 * 16), ("1-2", 4 * 17 * 3))]
    trigger = tmp_path / "trigger"
    entry = {"zoo": "faulty:net", "arguments": {"trigger": str(trigger)}, "batch_size": 4}
    command = written(tmp_path, problem(*PAIR, models={"net": {"segments": segments, "executor": entry}}))
    command += ["--trust", "faulty:net", "--warm-up", 0, "--json"]
    assert run(*command) == 0
    whole = json.loads(capsys.readouterr().out)
    trigger.write_text("raise 8")  # the first call finds what a block keeps
    saving = ["--checkpoint", tmp_path / "checkpoint"]
    ends("1: RunFailedError", *command, *saving)
    assert "faulty.py" in capsys.readouterr().err
    trigger.unlink()
    assert run(*command, *saving, "--resume", "--iterations", 1) == 3, "a run that is cut is another run"
    assert run(*command, *saving, "--resume") == 0
    rest = json.loads(capsys.readouterr().out)
    assert rest["parameters_sha256"] == whole["parameters_sha256"]
    assert rest["phases"][0]["period"] is None and rest["phases"][-1]["period"] is not None
    assert {phase["measured_end_us"] for phase in rest["phases"]} == {None} and rest["measured_us"] is None
    assert rest["phases"][1]["seam_us"] is None, "it begins where an earlier run ended"


def measured(asked: Instance, plan: Plan, block_us: int, done: int = 0, **settings: Any) -> Replay:
    """The replay of a job of one worker whose blocks take so long, one behind the other."""
    request = ReplayRequest(asked, plan, **settings)
    phases = [phase for _, _, phase in request.cut().plan.all_phases()]
    blocks = [RunRecord("block", 0, k, 0, k * block_us, (k + 1) * block_us, 3, 0.5) for k in range(phases[0].repeats)]
    parts = [Part(blocks[done : phase.repeats], [], phase.repeats) for phase in phases]
    return replay_of(request, None, None, [RankReport(parts, {(0, 0): ""}, 1, [done])], {})


def test_repetitions_that_are_left_out_count_with_the_measured_period() -> None:
    asked = problem({**ALONE, "iterations": 1000, "release_us": 50})
    plan = planned(asked)
    (phase,) = plan.groups[0].phases
    assert (phase.repeats, phase.period_us, phase.end_us) == (1000, 2400, 2_400_050)
    found = measured(asked, plan, 3000, passes=5)
    assert found.is_cut and found.phases[0].summary is not None
    assert (found.phases[0].summary.measured_us, found.predicted_us, found.measured_us) == (3000, 2_400_050, 3_000_050)
    assert measured(asked, plan, 3000, passes=2).measured_us is None, "too few to tell the period"
    assert measured(asked, plan, 3000, passes=5, done=1).measured_us is None, "an earlier run did some of it"
    group = replace(plan.groups[0], phases=(replace(phase, start_us=90),))
    later = replace(plan, status="feasible", objective=2_400_090, groups=(group,))
    assert measured(asked, later, 3000, passes=5, time_triggered=True).measured_us == 3_000_090


def test_a_trace_shows_the_phases_as_they_were_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = problem({**ALONE, "iterations": 1000, "release_us": 50})
    plan = planned(asked)
    written(tmp_path, asked, plan)
    replay, trace = tmp_path / "replay.json", tmp_path / "trace.json"
    replay.write_bytes(encode_replay(measured(asked, plan, 3000, passes=5)))
    export = ["export", tmp_path / "instance.json", tmp_path / "plan.json", "--to", "perfetto", "-o", trace]
    assert run(*export, "--replay", replay) == 0
    spans = [(e["tid"], e["ts"], e["dur"]) for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert spans == [(0, 50, 2_400_000), (1, 50, 3_000_000)]
    plot = ["plot", tmp_path / "instance.json", tmp_path / "plan.json", "--replay", replay]
    capsys.readouterr()
    assert run(*plot) == 0
    name = asked.jobs[0].name
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[0].strip() for line in lines[1:3]] == [name, f"{name} measured"]
    assert lines[1].count("A") < lines[2].count("A") and lines[3].endswith(" 3000050 us")
    assert run(*plot, "-o", tmp_path / "page.html") == run("validate", replay) == 0
    data = embedded((tmp_path / "page.html").read_text())
    assert [row["parts"] for row in data["rows"]] == [[[50, 2_400_050, 0]], [[50, 3_000_050, 0]]]
    assert [value for _, value in data["facts"]][1:] == ["3 s (+25.0 %)"]
    shorter = problem({**ALONE, "iterations": 999})
    replay.write_bytes(encode_replay(measured(shorter, planned(shorter), 3000, passes=5)))
    ends(f"3: mismatch {replay}", *export, "--replay", replay)
    ends(f"3: unknown-format {tmp_path / 'instance.json'}", *export, "--replay", tmp_path / "instance.json")


@pytest.mark.parametrize("options", [["--baseline", "gang"], ["--iterations", 0]])
def test_what_is_not_for_phased_plans_is_refused(tmp_path: Path, options: list[object]) -> None:
    assert run(*written(tmp_path, problem(ALONE)), *options) == 2


def test_jobs_with_a_task_graph_are_refused_by_name(tmp_path: Path) -> None:
    save_instance(SHAPED, tmp_path / "instance.json")
    (tmp_path / "plan.json").write_text(json.dumps(document()))
    models = "missing-field $.models.net; missing-field $.models.one"
    command = ("run", tmp_path / "instance.json", tmp_path / "plan.json")
    ends(f"3: {models}; unsupported $.jobs[3]; missing-field $.jobs[3]", *command)
