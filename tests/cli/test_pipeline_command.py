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
from jigsaw_opt.problem.task_graph import TaskGraphJob
from tests.cli.test_partition_command import MACHINES, PROFILE
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
    profile.write_text(PROFILE)
    assert main(["partition", str(profile), *MACHINES, "-o", str(path)]) == 0
    return path


@pytest.fixture
def two_stages(tmp_path: Path) -> Path:
    profile, path = tmp_path / "small.graph.txt", tmp_path / "two.partition.json"
    profile.write_text(PROFILE)
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


def test_the_first_stage_has_its_whole_backward_pass_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = tmp_path / "instance.json"
    given = ["pipeline", "--forward-us", "9,9", "--backward-us", "6,7", "--weight-us", "5,4", "--micro-batches", "1"]
    for first, times in (([], {"B": 6, "W": 5}), (["--first-stage", "whole"], {"B": 1, "W": 11})):
        assert main([*given, "--schedule", "zb-h1", *first, "-o", str(instance)]) == 0
        [job] = load_instance(instance).jobs
        assert isinstance(job, TaskGraphJob)
        lengths = {block.name: block.duration_us["gpu"] for block in job.shape.blocks}
        assert {kind: lengths[f"{kind}0.0"] for kind in "BW"} == times
    ends("2: not-together --first-stage", *given[:5], "--first-stage", "whole")


def test_the_table_names_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", *COSTS, "--micro-batches", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1f1b") and re.findall(r"[\d.]+ (?:us|%)", lines[0]) == ["44 us", "44 us", "18.2 %"]
    assert [line.split()[0] for line in lines[-3:]] == ["0", "1", "2"]


def test_copies_of_a_stage_take_turns(partition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    written = ["-o", str(instance), "--plan", str(plan)]
    assert main(["pipeline", str(partition), "--schedule", "async", "--json", *written]) == 0
    found = printed(capsys)
    assert found["minibatches"] == 3
    assert found["initiation_interval_us"] == pytest.approx(1e6 * json.loads(partition.read_text())["time_s"], abs=1)
    assert main(["check", str(instance), str(plan)]) == 0


def test_copies_of_a_stage_are_for_the_steady_state_alone(partition: Path) -> None:
    ends("2: unsupported partition", "pipeline", partition, "--schedule", "gpipe")


def test_a_search_is_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--micro-batches",
        "2",
        "--memory",
        "20",
        "--schedule",
        "search",
        "--work-limit",
        "5",
        "--threads",
        "1",
    ]
    assert main(["pipeline", *COSTS, *arguments, "--json"]) == 0
    found = printed(capsys)
    assert found["status"] == "optimal"
    assert found["makespan_us"] == found["bound_us"] and found["bound_of"] == "makespan_us"
    assert max(found["peak_bytes"]) <= 20


@pytest.mark.parametrize(("horizon", "measure"), [("finite", "makespan"), ("cyclic", "period")])
def test_a_bound_is_told_with_what_it_bounds(horizon: str, measure: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", *COSTS, "--horizon", horizon]) == 0
    [bound] = [line for line in capsys.readouterr().out.splitlines() if " below " in line]
    assert measure in bound and ("makespan" in bound) == (measure == "makespan")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "2: missing-option --forward-us"),
        (["--forward-us", "1,x", "--backward-us", "1"], "2: malformed --forward-us"),
        (["--forward-us", "1,2", "--backward-us", "1,2,3"], "2: wrong-count backward_us"),
        ([*COSTS, "--gpus", "2"], "2: contradiction --gpus"),
        ([*COSTS, "--schedule", "v-half"], "2: contradiction --gpus"),
        ([*COSTS, "--schedule", "interleaved"], "2: missing-option --gpus"),
        ([*COSTS, "--schedule", "async", "--micro-batches", "3"], "2: not-together --schedule"),
        ([*COSTS, "--schedule", "async", "--backward", "split"], "2: not-together --backward"),
        (["--forward-us", "1", "--backward-us", "1", "--backward", "split"], "2: missing-option --weight-us"),
        ([*COSTS, "--schedule", "zb-h1", "--backward", "combined"], "2: missing-option weight_us"),
        (["--forward-us", "1,1", "--backward-us", "1", "--schedule", "zb-h2"], "2: missing-option weight_us"),
        ([*COSTS, "--in-flight", "3"], "2: missing-option --in-flight"),
        ([*COSTS, "--schedule", "gpipe", "--memory", "20"], "4: InfeasibleError"),
        (["--forward-us", "1", "--backward-us", "1", "none.json"], "2: not-together --forward-us, --backward-us"),
        (["none.json"], "3: unreadable none.json"),
        ([*COSTS, "--iterations", "2"], "2: missing-option --into"),
        ([*COSTS, "--transfer-bytes", "2"], "2: missing-option --transfer-bytes"),
        ([*COSTS, "--into", "pair/plain", "--schedule", "search"], "2: not-together --schedule"),
        ([*COSTS, "--into", "pair/plain", "--memory", "9"], "2: not-together --memory"),
        ([*COSTS, "--into", "pair/plain"], "2: missing-option -o"),
        ([*COSTS, "--into", "no-such", "-o", "never.json"], "3: unreadable no-such"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], told: str) -> None:
    ends(told, "pipeline", *arguments)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
def test_a_partition_does_not_split_the_backward_pass(
    schedule: str, two_stages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", str(two_stages), "--schedule", schedule]) == 2
    assert "--weight-us" in capsys.readouterr().err


def test_a_gradient_is_sent_before_or_after_the_pass_for_the_weights(capsys: pytest.CaptureFixture[str]) -> None:
    costs = ["--forward-us", "2,2", "--backward-us", "3", "--weight-us", "4", "--transfer-us", "5"]
    one = ["pipeline", *costs, "--micro-batches", "1", "--json"]
    for given, backward, makespan in (
        ([], "split", 2 + 5 + 2 + 3 + 5 + 3 + 4),
        (["--backward", "split"], "split", 2 + 5 + 2 + 3 + 5 + 3 + 4),
        (["--backward", "combined"], "combined", 2 + 5 + 2 + 7 + 5 + 7),
    ):
        assert main([*one, *given]) == 0
        found = printed(capsys)
        assert (found["backward"], found["makespan_us"]) == (backward, makespan)


def test_a_broken_partition_lists_every_problem(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = json.loads(partition.read_text())
    tree["noam"], tree["stages"][0]["replicas"] = 0, "2"
    partition.write_text(json.dumps(tree))
    assert main(["pipeline", str(partition)]) == 3
    told = capsys.readouterr().err
    assert "$.noam" in told
    assert "$.stages[0].replicas" in told


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


def test_a_time_is_a_size_where_a_byte_takes_a_microsecond(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = ["--forward-us", "5,5", "--backward-us", "9", "--transfer-us", "7"]
    alone = tmp_path / "alone.json"
    assert main(["pipeline", *costs, "-o", str(alone)]) == 0
    both = load_instance(added(tmp_path, *costs, "--name", "second", into=str(alone)))
    assert {transfer.bytes for job in both.task_graph_jobs for transfer in job.shape.transfers} == {7}
    arguments = ["--into", "server/plain", "-o", str(tmp_path / "never.json")]
    ends("2: not-together transfer_us", "pipeline", *costs, *arguments)


def test_gpus_of_the_right_type_must_suffice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, mixed = load("server/plain"), tmp_path / "mixed.json"
    other = replace(base.cluster.servers[0], name="other", gpu_type="other", gpus=2)
    model = {name: with_type(each, "other") for name, each in base.models.items()}
    save_instance(
        replace(base, cluster=replace(base.cluster, servers=(*base.cluster.servers, other)), models=model), mixed
    )
    arguments = ["pipeline", *COSTS, "--into", str(mixed), "-o", str(tmp_path / "never.json")]
    for given, message in (
        ([], "say which one the costs are of"),
        (["--gpu-type", "none"], "no GPU of type 'none'"),
        (["--gpu-type", "other"], "takes 3 GPUs of type 'other', and there are 2"),
    ):
        assert main([*arguments, *given]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_page_goes_from_a_profile_to_a_picture(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    (block,) = [each for each in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) if "--into" in each]
    (tmp_path / "small.graph.txt").write_text(PROFILE)
    (tmp_path / "jigsaw").write_text(f'#!/bin/sh\nexec {sys.executable} -m jigsaw_opt "$@"\n')
    (tmp_path / "jigsaw").chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    done = subprocess.run(block, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "<html" in (tmp_path / "together.html").read_text()


def test_cuts_and_schedule_of_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, instance, plan = tmp_path / "small.graph.txt", tmp_path / "instance.json", tmp_path / "plan.json"
    profile.write_text(PROFILE)
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
        (["--stages", "2", "--schedule", "1f1b"], "2: not-together --schedule"),
        (["--stages", "2", "--horizon", "cyclic"], "2: not-together --horizon"),
        (["--bandwidth", "5"], "2: not-together --bandwidth"),
        (["--stages", "2", "--placement", "v"], "2: missing-option --placement"),
        (["--stages", "0"], "2: out-of-range devices; out-of-range micro_batches"),
        (["--stages", "2", "--baseline", "zb-h1"], "2: missing-field --baseline"),
        (["--stages", "2", "--backward", "split"], "2: missing-field --backward"),
        (["--stages", "2", "--backward", "combined", "--first-stage", "whole"], "2: not-together --backward"),
        (["--stages", "2", "--latency-us", "-1"], "2: out-of-range latency_us"),
        (["--latency-us", "5"], "2: not-together --latency-us"),
        (["--stages", "2", "--micro-batches", "2..3"], "2: missing-option batch"),
    ],
)
def test_what_makes_no_sense_with_cuts_is_refused(given: list[str], told: str, tmp_path: Path) -> None:
    profile = tmp_path / "small.graph.txt"
    profile.write_text(PROFILE)
    ends(told, "pipeline", profile, *given)


@pytest.mark.parametrize(("option", "word"), [("--memory", "3 pounds"), ("--micro-batches", "3..2")])
def test_words_of_options_with_cuts_that_are_none(
    option: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "small.graph.txt"
    profile.write_text(PROFILE)
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", str(profile), "--stages", "2", option, word])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and option in told and repr(word) in told


def test_backward_passes_of_a_profile_that_splits_them_may_be_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"forward_us": 5, "parameter_bytes": 0, "activation_bytes": 1, "output_bytes": 10}
    profile = {
        "format": "jigsaw-layers/1",
        "layers": [{"name": name, **sizes, "backward_us": 10, "weight_us": 4} for name in "ab"],
    }
    (tmp_path / "layers.json").write_text(json.dumps(profile))
    given = ["pipeline", str(tmp_path / "layers.json"), "--stages", "2", "--micro-batches", "1", "--work-limit", "1"]
    steps = {}
    for backward in ("split", "combined"):
        assert main([*given, "--backward", backward, "--latency-us", "100", "--json"]) == 0
        document = printed(capsys)
        assert document["backward"] == backward
        steps[backward] = document["makespan_us"]
    # Where it is split, the first stage has a B of a microsecond and the whole pass in W.
    assert steps == {"split": 5 + 100 + 5 + 6 + 100 + 1 + 10, "combined": 5 + 100 + 5 + 10 + 100 + 10}


def test_a_baseline_that_was_not_allowed_may_be_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    sizes = {"forward_us": 1, "backward_us": 1, "parameter_bytes": 0, "activation_bytes": 1, "output_bytes": 10**6}
    profile = {"format": "jigsaw-layers/1", "layers": [{"name": name, **sizes} for name in "abcd"]}
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(profile))
    given = ["pipeline", str(path), "--stages", "2", "--micro-batches", "1", "--virtual", "2", "--work-limit", "1"]
    assert main([*given, "--bandwidth", "1000000", "--baseline", "1f1b"]) == 0
    told = capsys.readouterr().out
    assert "100.0 % longer" in told and "1 micro-batch;" in told


def test_no_file_is_written_where_one_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = tmp_path / "small.graph.txt"
    profile.write_text(PROFILE)

    def refuse(_: object) -> bytes:
        raise UsageError("no")

    monkeypatch.setattr("jigsaw_opt.documents.encode_plan", refuse)
    outputs = [word for name in ("--cuts", "-o", "--plan") for word in (name, str(tmp_path / f"{name}.json"))]
    given = ["pipeline", str(profile), "--stages", "2", "--micro-batches", "1", "--work-limit", "1", "--threads", "1"]
    assert main([*given, *outputs]) == 2
    assert list(tmp_path.iterdir()) == [profile]


def test_the_samples_that_a_profile_states_are_not_overridden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = {"forward_us": 3, "backward_us": 7, "parameter_bytes": 1, "activation_bytes": 5}
    tree = {"format": "jigsaw-layers/1", "batch": 4, "layers": [layer | {"name": name} for name in "ab"]}
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(tree))
    cut = ["pipeline", str(path), "--stages", "2", "--micro-batches", "2", "-q", "--profile-batch"]
    ends("2: not-together --profile-batch", *cut, "8")
    assert "4 samples" in capsys.readouterr().err
    assert main([*cut, "4"]) == 0
