"""``jigsaw partition``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main

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
    assert [(stage["nodes"], stage["replicas"]) for stage in printed["stages"]] == [(["node2"], 3), (["node3"], 1)]
    assert printed["time_s"] == pytest.approx((0.003 + 4 * 2 * 100 / (1e6 * 3)) / 3)
    assert printed["single_worker_s"] == pytest.approx(0.004)
    assert printed["data_parallel_s"] == pytest.approx((0.004 + 4 * 3 * 90100 / (1e6 * 4)) / 4)


def test_a_partition_is_validated(profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "partition.json"
    assert main(["partition", str(profile), *MACHINES, "-o", str(written)]) == 0
    assert main(["validate", str(written)]) == 0
    tree = json.loads(written.read_text())
    del tree["stages"][0]["replicas"]
    written.write_text(json.dumps(tree))
    assert main(["validate", str(written)]) == 3
    assert '$.stages[0]: missing key "replicas"' in capsys.readouterr().err


def test_the_table_says_what_bounds_the_pace(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", str(profile), *MACHINES]) == 0
    printed = capsys.readouterr().out
    assert "stage 1 bounds the pace" in printed
    assert "2 minibatches in flight" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--machines", "4,2", "--bandwidth", "1"], "--machines has 2 levels and --bandwidth 1"),
        (["--machines", "0", "--bandwidth", "1"], "whole numbers above 0"),
        (["--machines", "4", "--bandwidth", "1e9"], "whole numbers above 0"),
        ([*MACHINES, "--memory", "0"], "--memory is at least 1"),
        (["--machines", "1000000", "--bandwidth", "1"], "1000000 machines on one level are too many for 2 sets"),
        (["--machines", "2,900000", "--bandwidth", "1,1"], "900000 machines on one level are too many"),
    ],
)
def test_wrong_arguments_are_named(
    profile: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["partition", str(profile), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_what_cannot_be_has_its_own_exit_code(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", str(profile), *MACHINES, "--no-replication"]) == 4
    assert "no partition uses all machines" in capsys.readouterr().err


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
    assert [(it["weight_us"], it["state_bytes"], it["output_bytes"]) for it in stages] == [(21, 600, 7), (25, 600, 0)]
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


def test_a_layer_profile_in_place_of_a_partition_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(LAYERS))
    assert main(["pipeline", str(path)]) == 3
    told = capsys.readouterr().err
    assert "looks like a layer profile, not a partition" in told
    assert f"jigsaw pipeline {path} --stages N" in told


def test_a_model_of_an_instance_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.json"
    times = {"v100": 10, "a100": 5}
    sizes = {"parameter_bytes": 1, "activation_bytes": 2}
    segments = [{"name": name, "forward_us": times, "backward_us": times, **sizes} for name in "ab"]
    path.write_text(json.dumps({"segments": segments}))
    assert main(["partition", str(path), *MACHINES]) == 2
    assert 'choose one of "v100", "a100" with --gpu-type' in capsys.readouterr().err
    assert main(["partition", str(path), *MACHINES, "--gpu-type", "a100", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["single_worker_s"] == 20 / 1e6
    assert "bytes sent behind 1 layer are not known: those of activations count" in printed.err


WORKLOAD = {
    "maxSizePerFPGA": 100,
    "maxFPGAs": 2,
    "maxCPUs": 0,
    "nodes": [
        {"id": at, "supportedOnFpga": 1, "cpuLatency": 9.0, "fpgaLatency": time, "isBackwardNode": 0, "size": 1}
        for at, time in enumerate((3.0, 1.0, 1.0, 3.0))
    ],
    "edges": [{"sourceId": at, "destId": at + 1, "cost": 0.5} for at in range(3)],
}


@pytest.mark.parametrize(("options", "load"), [([], 4.5), (["--non-contiguous"], 4.5)])
def test_operators_are_placed_on_the_devices_of_a_workload(
    options: list[str], load: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(WORKLOAD))
    assert main(["partition", str(path), *options, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["max_load_ms"] == printed["bound_ms"] == load
    assert sorted(node for it in printed["devices"] for node in it["nodes"]) == [0, 1, 2, 3]


def test_a_workload_states_its_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(WORKLOAD))
    assert main(["partition", str(path), *MACHINES]) == 2
    assert "leave out --machines" in capsys.readouterr().err


@pytest.fixture
def piper(tmp_path: Path) -> Path:
    path = tmp_path / "piper.json"
    way = {"id": "vanilla", "timePerSample": 6, "parameterSize": 0, "memoryUsageA": 4, "memoryUsageB": 6}
    node = {"id": 7, "TMPCs": {"1": [way | {"syncTimeFw": {}, "syncTimeBw": {}}]}}
    devices = {"maxDevices": 2, "maxMemoryPerDevice": 100, "bandwidth": 10, "mbsInBatch": 6}
    path.write_text(json.dumps(devices | {"nodes": [node], "edges": []}))
    return path


def test_a_workload_of_piper_is_told_by_its_keys(
    piper: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "plan.json"
    assert main(["partition", str(piper), "--json", "-o", str(written)]) == 0
    stage = {"nodes": [7], "options": ["vanilla"], "data_parallel": 2, "tensor_parallel": 1, "time": 3.0}
    assert json.loads(capsys.readouterr().out) == {"time_per_sample": 3.0, "stages": [stage]}
    assert json.loads(written.read_text())["stages"] == [stage]
    # Three copies divide six micro-batches, four do not.
    assert main(["partition", str(piper), "--devices", "4"]) == 0
    assert "2 a micro-batch" in capsys.readouterr().out
    assert main(["partition", str(piper), "--devices", "4", "--micro-batches", "8"]) == 0
    assert "1.5 a micro-batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--memory", "9"], 4, "no stages on 2 devices fit into 9 bytes"),
        (["--machines", "2"], 2, "leave out --machines"),
        (["--bandwidth", "1,2"], 2, "one --bandwidth"),
        (["--devices", "0"], 2, "--devices is at least 1"),
        (["--non-contiguous"], 2, "leave out --non-contiguous"),
    ],
)
def test_wrong_options_of_a_workload_of_piper(
    arguments: list[str], code: int, message: str, piper: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["partition", str(piper), *arguments]) == code
    assert message in capsys.readouterr().err


def test_options_of_piper_are_for_its_workloads(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", str(profile), *MACHINES, "--devices", "2"]) == 2
    assert "leave out --devices" in capsys.readouterr().err
