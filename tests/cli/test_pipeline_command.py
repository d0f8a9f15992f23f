"""``jigsaw pipeline``, alone and behind ``jigsaw partition``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from tests.cli.test_partition_command import MACHINES, PROFILE

COSTS = ["--forward-us", "2,2,2", "--backward-us", "2", "--weight-us", "2", "--activation-bytes", "10"]


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    profile, path = tmp_path / "small.graph.txt", tmp_path / "small.partition.json"
    profile.write_text(PROFILE)
    assert main(["partition", str(profile), *MACHINES, "-o", str(path)]) == 0
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


def test_the_table_names_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", *COSTS, "--micro-batches", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1f1b: makespan 44 us, period 44 us, bubble 18.2 %"
    assert [line.split()[0] for line in lines[-3:]] == ["0", "1", "2"]


def test_copies_of_a_stage_take_turns(partition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    written = ["-o", str(instance), "--plan", str(plan)]
    assert main(["pipeline", str(partition), "--schedule", "async", "--json", *written]) == 0
    found = printed(capsys)
    assert found["minibatches"] == 3
    assert found["pace_us"] == pytest.approx(1e6 * json.loads(partition.read_text())["time_s"], abs=1)
    assert main(["check", str(instance), str(plan)]) == 0


def test_copies_of_a_stage_are_for_the_steady_state_alone(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", str(partition), "--schedule", "gpipe"]) == 2
    assert "only --schedule async takes such ones" in capsys.readouterr().err


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
        "--workers",
        "1",
    ]
    assert main(["pipeline", *COSTS, *arguments, "--json"]) == 0
    found = printed(capsys)
    assert found["status"] == "optimal"
    assert found["makespan_us"] == found["bound_us"]
    assert max(found["peak_bytes"]) <= 20


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give a partition, or --forward-us and --backward-us"),
        (["--forward-us", "1,x", "--backward-us", "1"], 2, "list of whole numbers"),
        (["--forward-us", "1,2", "--backward-us", "1,2,3"], 2, "backward_us has 3 values"),
        ([*COSTS, "--gpus", "2"], 2, "each GPU has as many stages"),
        ([*COSTS, "--schedule", "v-half"], 2, "two stages a GPU"),
        ([*COSTS, "--schedule", "interleaved"], 2, "several stages a GPU"),
        ([*COSTS, "--schedule", "async", "--micro-batches", "3"], 2, "async has no end"),
        ([*COSTS, "--in-flight", "3"], 2, "--in-flight is for"),
        ([*COSTS, "--schedule", "gpipe", "--memory", "20"], 4, "gpipe holds"),
        (["--forward-us", "1", "--backward-us", "1", "none.json"], 2, "leave out --forward-us, --backward-us"),
        (["none.json"], 3, "none.json"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", *arguments]) == code
    assert message in capsys.readouterr().err


def test_a_broken_partition_lists_every_problem(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = json.loads(partition.read_text())
    tree["noam"], tree["stages"][0]["replicas"] = 0, "2"
    partition.write_text(json.dumps(tree))
    assert main(["pipeline", str(partition)]) == 3
    told = capsys.readouterr().err
    assert "$.noam" in told
    assert "$.stages[0].replicas" in told
