"""Plans whose jobs only sleep: every kind of job goes through its operations in the plan's order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from replayed import instance, run, written
from test_mixed_runs import mixed
from test_stages import costs

from jigsaw_opt.documents import load_instance, load_plan, load_replay
from jigsaw_opt.documents.replay import require_replay_of
from jigsaw_opt.executor.run_plan import _tell
from jigsaw_opt.executor.schedules.request import ReplayRequest
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.problem.measured.times import MeasuredStep
from jigsaw_opt.views.replay import picture_of
from tests.refusals import ends

SHAPE = ("--forward-us", "3000,3000,3000", "--backward-us", 5000, "--transfer-us", 500, "--micro-batches", 4)


def slept(folder: Path, *options: object) -> Replay:
    """What a dry run of a plan in a folder measures, which is the plan's."""
    files = folder / "instance.json", folder / "plan.json"
    output = folder / "replay.json"
    assert run("run", *files, "--dry", *options, "-o", output) == 0
    found = load_replay(output)
    require_replay_of(load_plan(files[1]), found, "replay")
    assert found.machine["dry"] is True and [gpu.memory_bytes for gpu in found.gpus] == [0] * len(found.gpus)
    return found


def require_edges(folder: Path, replay: Replay) -> None:
    """No operation of a step begins before what it takes is there, and each is at least as long as planned."""
    [job], [plan] = load_instance(folder / "instance.json").task_graph_jobs, load_plan(folder / "plan.json").jobs
    for number, step in enumerate(replay.timeline.jobs[0].iterations):
        assert isinstance(step, MeasuredStep)
        times = {each.name: (each.start_us, each.end_us) for each in (*step.blocks, *step.transfers)}
        for edge in job.shape.edges:
            assert edge.lag or times[edge.before][1] <= times[edge.after][0]
        planned = plan.iterations[number % len(plan.iterations)].blocks
        lengths = [(own.end_us - own.start_us, at.end_us - at.start_us) for own, at in zip(step.blocks, planned)]
        assert all(own >= least for own, least in lengths)


def test_jobs_sleep_in_the_order_of_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = instance()
    bare = type(problem.models["net"])(problem.models["net"].segments)  # nobody says how to build it
    written(tmp_path, type(problem)(problem.name, problem.cluster, {"net": bare}, problem.jobs))
    found = slept(tmp_path, "--iterations", 2, "--baseline", "gang", "--time-triggered")
    assert "A dry run" in capsys.readouterr().out
    plan = load_plan(tmp_path / "plan.json")
    assert dict(picture_of(problem, plan, found).facts)["carried out"].startswith("2 x, dry")
    assert found.baseline is not None and found.summary.measured_us and found.summary.block_bias >= 0
    assert {block.loss for job in found.timeline.jobs for i in job.iterations for block in i.blocks} == {0}


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "async"])
def test_a_pipeline_sleeps_and_its_messages_take_their_time(
    schedule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = SHAPE[:6] if schedule == "async" else SHAPE
    shape += ("--weight-us", "2000,2000,2000") if schedule == "zb-h1" else ()
    files = ("-o", tmp_path / "instance.json", "--plan", tmp_path / "plan.json")
    assert run("pipeline", *shape, "--schedule", schedule, *files, "-q") == 0
    require_edges(tmp_path, slept(tmp_path, "--iterations", 3))
    assert ("too short to measure its period" in capsys.readouterr().out) == (schedule == "async")


def test_a_burst_sleeps(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text(json.dumps(costs()))
    assert run("burst", tmp_path / "costs.json", "--limit", 100, "-o", tmp_path / "instance.json") == 0
    assert run("solve", tmp_path / "instance.json", "--solver", "greedy", "-o", tmp_path / "plan.json", "-q") == 0
    found = slept(tmp_path, "--iterations", 2)
    require_edges(tmp_path, found)
    assert set(found.kinds) == set("AFBSG")


def test_a_pipeline_sleeps_beside_other_jobs(tmp_path: Path) -> None:
    written(tmp_path, mixed(2))
    found = slept(tmp_path, "--iterations", 3)
    assert [len(job.iterations) for job in found.timeline.jobs] == [3, 3, 3] and set(found.cycles) == {
        "spb",
        "piece",
        "pipe",
    }


def test_what_only_training_heeds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = written(tmp_path, instance())
    told = "2: unsupported trusted; unsupported seed; unsupported checkpoint; malformed trusted"
    ends(told, "run", *files, "--dry", "--seed", 3, "--checkpoint", tmp_path, "--trust", "nope")
    capsys.readouterr()
    for option in (("--trust", "net:job", "--device", "cuda"), ("--checkpoint", tmp_path, "--checkpoint-every", 2)):
        assert run("run", *files, "--dry", *option) == 2
        told = capsys.readouterr().err
        assert all(f"{word}:" in told for word in option if str(word).startswith("--"))


def test_code_that_no_job_names_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, plan = written(tmp_path, instance())
    _tell(ReplayRequest(load_instance(source), load_plan(plan), trusted=("nope:f",)))
    assert "no job names nope:f" in caplog.text
