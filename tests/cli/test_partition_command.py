"""``jigsaw partition``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from tests.refusals import ends

PROFILE = """\
node1 -- Input0 -- forward_compute_time=9.000, backward_compute_time=0.000, activation_size=4.0, parameter_size=0.000
node2 -- Conv2d(3, 8) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=800.0, \
parameter_size=100.000
node3 -- Linear(8, 2) -- forward_compute_time=0.500, backward_compute_time=0.500, activation_size=8.0, \
parameter_size=90000.000
\tnode1 -- node2
\tnode2 -- node3
"""
MACHINES = ["--machines", "4", "--bandwidth", "1000000"]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "small.graph.txt"
    path.write_text(PROFILE)
    return path


def test_stages_are_printed_as_json_and_written(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "partition.json"
    assert main(["partition", str(profile), *MACHINES, "--json", "-o", str(written)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(written.read_text()) == printed
    assert main(["validate", str(written)]) == 0
    assert [(stage["nodes"], stage["replicas"]) for stage in printed["stages"]] == [(["node2"], 3), (["node3"], 1)]
    assert printed["time_s"] == pytest.approx((0.003 + 4 * 2 * 100 / (1e6 * 3)) / 3)
    assert printed["single_worker_s"] == pytest.approx(0.004)
    assert printed["data_parallel_s"] == pytest.approx((0.004 + 4 * 3 * 90100 / (1e6 * 4)) / 4)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--machines", "4,2", *MACHINES[2:], "--memory", "0"], "2: wrong-count machines; out-of-range memory"),
        (["--machines", "0", "--bandwidth", "1"], "2: malformed --machines"),
        (["--machines", "4", "--bandwidth", "1e9"], "2: malformed --bandwidth"),
        ([*MACHINES, "--memory", "0GB"], "2: out-of-range memory"),
        (["--machines", "1000000", "--bandwidth", "1"], "2: too-large machines"),
        (["--machines", "2,900000", "--bandwidth", "1,1"], "2: too-large machines"),
        ([*MACHINES, "--no-replication"], "4: InfeasibleError"),
    ],
)
def test_wrong_arguments_are_named(profile: Path, arguments: list[str], told: str) -> None:
    ends(told, "partition", profile, *arguments)


LAYERS = {
    "format": "jigsaw-layers/1",
    "state_factor": 4,
    "layers": [
        {"name": f"layers.{at}", "forward_us": 10, "backward_us": 30, "weight_us": 10 + at}
        | {"parameter_bytes": 100, "activation_bytes": 50, "output_bytes": 7}
        for at in range(4)
    ],
}


def test_a_layer_profile_becomes_a_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, cut = tmp_path / "layers.json", tmp_path / "cut.json"
    path.write_text(json.dumps(LAYERS))
    assert main(["partition", str(path), "--machines", "2", *MACHINES[2:], "--no-replication", "-o", str(cut)]) == 0
    stages = json.loads(cut.read_text())["stages"]
    assert [stage["nodes"] for stage in stages] == [["layers.0", "layers.1"], ["layers.2", "layers.3"]]
    assert [(stage["weight_us"], stage["state_bytes"], stage["output_bytes"]) for stage in stages] == [
        (21, 600, 7),
        (25, 600, 0),
    ]
    given = ["pipeline", str(cut), "--schedule", "zb-h1", "--micro-batches", "1", "--json"]
    took = {}
    for first in ([], ["--first-stage", "whole"], ["--first-stage", "split"]):
        assert main([*given, *first]) == 0
        took[tuple(first)] = json.loads(capsys.readouterr().out)["makespan_us"]
    assert took[()] == took["--first-stage", "whole"] == took["--first-stage", "split"] + 1
    for schedule, held in (("zb-h1", [800 + 2 * 100] * 2), ("async", [2 * 300 + 600, 300 + 600])):
        batches = ["--micro-batches", "4"] * (schedule != "async")
        options = ["--backward", "combined"] * (schedule == "async")
        assert main(["pipeline", str(cut), "--schedule", schedule, *batches, *options, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["backward"] == ("split" if schedule == "zb-h1" else "combined")
        assert printed["peak_bytes"] == held


def test_a_model_of_an_instance_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.json"
    times = {"v100": 10, "a100": 5}
    sizes = {"parameter_bytes": 1, "activation_bytes": 2}
    segments = [{"name": name, "forward_us": times, "backward_us": times, **sizes} for name in "ab"]
    path.write_text(json.dumps({"segments": segments}))
    ends("2: ambiguous gpu_type", "partition", path, *MACHINES)
    assert '"v100", "a100"' in capsys.readouterr().err
    assert main(["partition", str(path), *MACHINES, "--gpu-type", "a100", "--memory", "16GB"]) == 0
    printed = capsys.readouterr()
    assert "no partition takes less than 0.000005 s" in printed.out
    assert "1 layer" in printed.err
