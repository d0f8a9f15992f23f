"""``jigsaw pipeline``, alone and behind ``jigsaw partition``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance, save_instance
from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Model
from tests.cli.test_planning_commands import MACHINES, PARTITIONED
from tests.pages import ROOT
from tests.refusals import ends

COSTS = ["--forward-us", "2,2,2", "--backward-us", "2", "--weight-us", "2", "--activation-bytes", "10"]


def with_type(model: Model, gpu_type: str) -> Model:
    """The model on one more type of GPU, with the times of another."""
    segments = [
        replace(
            segment,
            forward_us={**segment.forward_us, gpu_type: next(iter(segment.forward_us.values()))},
            backward_us={**segment.backward_us, gpu_type: next(iter(segment.backward_us.values()))},
        )
        for segment in model.segments
    ]
    return replace(model, segments=tuple(segments))


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    profile, path = tmp_path / "small.graph.txt", tmp_path / "small.partition.json"
    profile.write_text(PARTITIONED)
    assert main(["partition", str(profile), *MACHINES, "-o", str(path)]) == 0
    return path


@pytest.fixture
def two_stages(tmp_path: Path) -> Path:
    profile, path = tmp_path / "small.graph.txt", tmp_path / "two.partition.json"
    profile.write_text(PARTITIONED)
    assert main(["partition", str(profile), "--machines", "2", *MACHINES[2:], "--no-replication", "-o", str(path)]) == 0
    return path


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_what_is_written_is_correct(horizon: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    arguments = ["--schedule", "zb-h1", "--micro-batches", "6", "--horizon", horizon, "--json"]
    assert main(["pipeline", *COSTS, *arguments, "-o", str(instance), "--plan", str(plan)]) == 0
    found = printed(capsys)
    assert found["period_us"] == 2 * (3 * 6 + 2)
    assert found["bubble"] == pytest.approx(1 - 18 / 20)
    assert found["peak_bytes"] == [30, 30, 30]
    assert main(["check", str(instance), str(plan)]) == 0
    key = {"finite": "makespan_us", "cyclic": "period_us"}[horizon]
    assert json.loads(plan.read_text())["objective"] == found[key]


def test_copies_of_a_stage_take_turns(
    partition: Path, two_stages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    written = ["-o", str(instance), "--plan", str(plan)]
    assert main(["pipeline", str(partition), "--schedule", "async", "--json", *written]) == 0
    found = printed(capsys)
    assert found["minibatches"] == 3
    ends("2: unsupported source", "pipeline", partition, "--schedule", "gpipe")
    for schedule in ("zb-h1", "zb-h2"):
        ends("2: missing-option weight_us", "pipeline", two_stages, "--schedule", schedule)
    assert found["initiation_interval_us"] == pytest.approx(1e6 * json.loads(partition.read_text())["time_s"], abs=1)
    assert main(["check", str(instance), str(plan)]) == 0


def test_a_search_is_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--micro-batches 2 --memory 20 --schedule search --work-limit 5 --threads 1 --json"
    assert main(["pipeline", *COSTS, *arguments.split()]) == 0
    found = printed(capsys)
    assert found["status"] == "optimal"
    assert found["makespan_us"] == found["bound_us"] and found["bound_of"] == "makespan_us"
    assert max(found["peak_bytes"]) <= 20


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "2: missing-option --forward-us"),
        (["--forward-us", "1,x", "--backward-us", "1"], "2: malformed --forward-us"),
        ([*COSTS, "--schedule", "async", "--micro-batches", "3"], "2: not-together micro_batches"),
        ([*COSTS, "--schedule", "gpipe", "--memory", "20"], "4: InfeasibleError"),
        (["--forward-us", "1", "--backward-us", "1", "none.json"], "2: not-together --forward-us, --backward-us"),
        (["none.json"], "3: unreadable none.json"),
        ([*COSTS, "--memory", "0"], "2: out-of-range memory"),
        ([*COSTS, "--schedule", "async", "--memory", "0"], "2: out-of-range memory"),
        ([*COSTS, "--iterations", "2"], "2: not-together iterations"),
        ([*COSTS, "--transfer-bytes", "2"], "2: not-together transfer_bytes"),
        ([*COSTS, "--into", "server/plain", "--schedule", "search", "-o", "never.json"], "2: not-together schedule"),
        ([*COSTS, "--into", "pair/plain"], "2: missing-option -o"),
        ([*COSTS, "--cuts", "never.json", "--profile-batch", "2"], "2: not-together --cuts, --profile-batch"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], told: str) -> None:
    ends(told, "pipeline", *arguments)


def added(tmp_path: Path, *arguments: str, into: str = "server/plain") -> Path:
    path = tmp_path / "together.json"
    assert main(["pipeline", *arguments, "--into", into, "--micro-batches", "3", "-o", str(path)]) == 0
    return path


def test_a_partition_sends_its_real_bytes_in_another_cluster(tmp_path: Path, two_stages: Path) -> None:
    instance = load_instance(added(tmp_path, str(two_stages), "--name", "new", "--iterations", "2", "--weight", "3"))
    base = load("server/plain")
    assert instance.cluster == base.cluster
    assert instance.jobs[:-1] == base.jobs
    job = instance.task_graph_jobs[-1]
    assert (job.name, job.iterations, job.weight, job.shape.barrier) == ("new", 2, 3, "slot")
    assert {transfer.bytes for transfer in job.shape.transfers} == {800}
    assert {kind for block in job.shape.blocks for kind in block.duration_us} == {base.cluster.servers[0].gpu_type}


def test_pipelines_and_other_jobs_are_solved_together(tmp_path: Path, two_stages: Path) -> None:
    instance, plan = added(tmp_path, str(two_stages)), tmp_path / "plan.json"
    again = ["--forward-us", "5,5", "--backward-us", "9", "--transfer-bytes", "70", "--name", "second"]
    # The instance that is added to may be replaced.
    added(tmp_path, *again, into=str(instance))
    assert [job.name for job in load_instance(instance).task_graph_jobs] == ["pipeline", "second"]
    assert main(["solve", str(instance), "-o", str(plan), "--solver", "greedy", "-q"]) == 0
    assert main(["check", str(instance), str(plan)]) == 0


def test_gpus_of_the_right_type_must_suffice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, mixed = load("server/plain"), tmp_path / "mixed.json"
    other = replace(base.cluster.servers[0], name="other", gpu_type="other", gpus=2)
    models = {name: with_type(each, "other") for name, each in base.models.items()}
    cluster = replace(base.cluster, servers=(*base.cluster.servers, other))
    save_instance(replace(base, cluster=cluster, models=models), mixed)
    arguments = ["pipeline", *COSTS, "--into", str(mixed), "-o", str(tmp_path / "never.json")]
    for given, message in (
        ([], "say which one the costs are of"),
        (["--gpu-type", "none"], "no GPU of type 'none'"),
        (["--gpu-type", "other"], "takes 3 GPUs of type 'other', and there are 2"),
    ):
        assert main([*arguments, *given]) == 2
        assert message in capsys.readouterr().err
    own = ("--transfer-us", "7", "--gpu-type", base.cluster.servers[0].gpu_type)
    ends("2: not-together transfer_us", *arguments, *own)


@pytest.mark.slow
def test_the_page_goes_from_a_profile_to_a_picture(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text()
    (block,) = [each for each in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) if "--into" in each]
    (tmp_path / "small.graph.txt").write_text(PARTITIONED)
    (tmp_path / "jigsaw").write_text(f'#!/bin/sh\nexec {sys.executable} -m jigsaw_opt "$@"\n')
    (tmp_path / "jigsaw").chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    done = subprocess.run(block, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "<html" in (tmp_path / "together.html").read_text()


def test_cuts_and_schedule_of_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, instance, plan = tmp_path / "small.graph.txt", tmp_path / "instance.json", tmp_path / "plan.json"
    profile.write_text(PARTITIONED)
    given = ["pipeline", str(profile), "--stages", "2", "--micro-batches", "3", "--work-limit", "1", "--threads", "1"]
    assert main([*given, "--memory", "2GB", "--baseline", "1f1b", "-o", str(instance), "--plan", str(plan)]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^found +\d+ .* yes *$", told, re.MULTILINE)
    assert re.search(r"shorter than with 1f1b", told)
    assert main(["check", str(instance), str(plan)]) == 0
    capsys.readouterr()
    assert main([*given, "--memory", "90010", "--baseline", "gpipe"]) == 0
    assert re.search(r"^gpipe .* memory", capsys.readouterr().out, re.MULTILINE)
    assert main([*given, "--json"]) == 0
    document = printed(capsys)
    assert document["bound_us"] <= document["makespan_us"] == document["schedules"][-1]["makespan_us"]
    assert [stage["device"] for stage in document["stages"]] == [0, 1]
    assert [stage["layers"] for stage in document["stages"]] == [["node2"], ["node3"]]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--stages", "2", "--schedule", "1f1b"], "2: not-together schedule"),
        (["--bandwidth", "5"], "2: missing-option stages"),
        (["--into", "server/plain", "-o", "never.json"], "2: not-together into"),
        (["--stages", "2", "--micro-batches", "2..3"], "2: missing-option batch"),
    ],
)
def test_what_makes_no_sense_with_cuts_is_refused(given: list[str], told: str, tmp_path: Path) -> None:
    profile = tmp_path / "small.graph.txt"
    profile.write_text(PARTITIONED)
    ends(told.format(profile), "pipeline", profile, *given)


def test_no_file_is_written_where_one_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = tmp_path / "small.graph.txt"
    profile.write_text(PARTITIONED)

    def refuse(_: object) -> bytes:
        raise UsageError("no")

    monkeypatch.setattr("jigsaw_opt.documents.encode_plan", refuse)
    outputs = [word for name in ("--cuts", "-o", "--plan") for word in (name, str(tmp_path / f"{name}.json"))]
    given = ["pipeline", str(profile), "--stages", "2", "--micro-batches", "1", "--work-limit", "1", "--threads", "1"]
    assert main([*given, *outputs]) == 2
    assert list(tmp_path.iterdir()) == [profile]
