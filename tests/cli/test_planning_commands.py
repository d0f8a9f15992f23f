"""`jigsaw burst`, `fill`, `partition` and `shifts`: what they print and write, and wrong arguments by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance, save_instance
from jigsaw_opt.problem.job import Job
from tests.planning.test_fill import CASES
from tests.planning.test_shifts import small_instance
from tests.refusals import ends

CONFIGS = [[(1, 1000, 400, 600, 0), (2, 550, 220, 330, 40)], [(1, 500, 200, 300, 0), (2, 400, 160, 240, 140)]]
"""Of a convolution and a linear layer: GPUs, and microseconds in all, forward, backward and of synchronisation."""
KEYS = ("gpus", "gpu_us", "fwd_us", "bwd_us", "sync_us")
BURST_LAYERS = [
    {"name": name, "single_gpu_us": float(configs[0][1]), "configs": [dict(zip(KEYS, each)) for each in configs]}
    for name, configs in zip(("conv2d", "linear"), CONFIGS, strict=True)
]
COSTS = {
    "gpus": 2,
    "layers": [{"id": 0, **BURST_LAYERS[0]}, {"id": 1, "xfer_us": [[0.0, 100.0], [100.0, 0.0]], **BURST_LAYERS[1]}],
}


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(COSTS))
    return path


def test_the_plan_is_printed_as_json_and_its_instance_solved(
    costs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "burst.json"
    assert main(["burst", str(costs), "--json", "-o", str(written), "--horizon", "cyclic"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["gpus_per_layer"] == [2, 1] and printed["amplification"] == pytest.approx([1.18, 1.2])
    assert (printed["limit"], printed["variant"], printed["over_limit"]) == (2.0, "exact", [])
    sizes = [printed[key] for key in ("iteration_ms", "gpu_ms", "idle_share", "single_gpu_ms", "data_parallel_ms")]
    assert sizes == pytest.approx([1.19, 1.78, 1 - 1.78 / 2.38, 1.5, 1.13])
    instance = load_instance(written)
    assert (instance.name, instance.horizon, instance.objective) == ("burst", "cyclic", "period")
    assert main(["solve", str(written), "-q", "--json", "--time-limit", "20"]) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == 1190


def test_a_budget_for_the_whole_job(costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["burst", str(costs), "--variant", "budget", "--limit", "1.6", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["gpus_per_layer"] == [2, 2]
    assert printed["job_amplification"] == pytest.approx(2.26 / 1.5)
    assert main(["burst", str(costs), "--variant", "budget", "--limit", "0.9"]) == 4


PROFILE = """\
conv2d{"in_channels":2,"kernel_size":1,"out_channels":4,"padding":0,"stride":1}[4][2,5,5] 0.400 100 300
linear{"bias":false,"in_features":100,"out_features":10}[4]100 0.100 50 50
SUM 0.5
conv2d{"in_channels":2,"kernel_size":1,"out_channels":4,"padding":0,"stride":1}[2][2,5,5] 0.250 60 190
linear{"bias":false,"in_features":100,"out_features":10}[2]100 0.090 45 45
"""
SETTING = ["--gpus", "4", "--global-batch", "4", "--bandwidth", "100"]


def test_layer_profiles_of_several_batches_are_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Path(__file__).parents[1] / "data" / "llama.config.json"
    paths = [str(tmp_path / f"{batch}.json") for batch in (4, 2, 1)]
    for path in paths:
        convert = ["convert", "huggingface", str(config), "--batch", Path(path).stem, "--gpu-type", "a100"]
        assert main([*convert, "--to", "layers", "-o", path]) == 0
    capsys.readouterr()
    assert main(["burst", *paths, *SETTING[:-1], "25000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["gpus_per_layer"]) <= {1, 2, 4} and found["iteration_ms"] <= found["single_gpu_ms"]
    ends("2: missing-option gpus", "burst", *paths)
    for path in paths[1:]:
        Path(path).write_text(Path(path).read_text().replace("layer0", "layer1"))
    wrong = (f"duplicate-name {path} $.layers[2].name" for path in paths[1:])
    ends(f"3: {'; '.join(wrong)}", "burst", *paths, *SETTING)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("a.prof", [str(Path(__file__))], "unsupported profile"),
        ("a.prof", [], "missing-option gpus"),
        ("a.prof", ["--gpus", "0", *SETTING[2:]], "out-of-range gpus"),
        ("a.prof", [*SETTING[:2], "--global-batch", "3", *SETTING[4:]], "unknown-value batch"),
        ("costs.json", SETTING, "not-together gpus"),
    ],
)
def test_options_are_for_profiles(name: str, options: list[str], told: str, costs: Path, tmp_path: Path) -> None:
    (tmp_path / "a.prof").write_text(PROFILE)
    ends(f"2: {told}", "burst", tmp_path / name, *options)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "holes.json"
    save_instance(CASES[0], path)
    return path


def test_instance_and_plan_are_written_and_right(
    document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled, plan = tmp_path / "filled.json", tmp_path / "plan.json"
    options = ["--slowdown", "1.2", "--work-limit", "20", "--time-limit", "300", "--threads", "1"]
    written = ["-o", str(filled), "--plan", str(plan), "--json"]
    assert main(["fill", str(document), "--foreground", "front", *options, *written]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "optimal"
    assert told["period_us"] <= told["allowed_us"] == 18
    assert sum(told["iterations"].values()) == pytest.approx(told["rate_per_s"] * told["period_us"] / 1e6)
    assert main(["check", str(filled), str(plan)]) == 0
    page = tmp_path / "filled.html"
    assert main(["plot", str(filled), str(plan), "--foreground", "front", "-o", str(page)]) == 0
    assert f'"{100 * told["holes_filled"]:.1f} %"' in page.read_text()
    assert main(["plot", str(filled), str(plan), "--foreground", "nobody"]) == 2


def test_a_least_rate_is_kept_and_stated_in_the_instance(document: Path, tmp_path: Path) -> None:
    filled, plan = tmp_path / "filled.json", tmp_path / "plan.json"
    options = ["--work-limit", "20", "--threads", "1", "--least", "b=60000", "-o", str(filled), "--plan", str(plan)]
    assert main(["fill", str(document), "--foreground", "front", *options]) == 0
    (job,) = (job for job in json.loads(filled.read_text())["jobs"] if job["name"] == "b")
    assert job["pace_us"] == 16
    assert main(["check", str(filled), str(plan)]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--foreground", "nobody"], "2: unknown-name --foreground"),
        (["--foreground", "front,a,b"], "2: empty foreground"),
        (["--foreground", "front", "--least", "a"], "2: malformed --least"),
        (["--foreground", "front", "--least", "b=often"], "2: malformed --least"),
        (["--foreground", "front", "--least", "c=2"], "2: unknown-name least"),
        (["--foreground", "front", "--least", "a=200000"], "4: InfeasibleError"),
        (["--foreground", "front", "--slowdown", "0.5"], "2: out-of-range slowdown"),
    ],
)
def test_bad_input_is_named(document: Path, arguments: list[str], told: str) -> None:
    ends(told, "fill", document, *arguments)


def test_jobs_alone_on_a_server_leave_policies_of_the_cluster_valid(capsys: pytest.CaptureFixture[str]) -> None:
    """Each of two foreground jobs is solved on one server; a policy of the cluster names the other one."""
    case = Path(__file__).parents[1] / "data" / "cases" / "robust" / "fill-route-policy.json"
    arguments = ["--foreground", "f,g", "--threads", "1", "--work-limit", "1", "--json"]
    assert main(["fill", str(case), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["foreground_us"] == 20 and found["iterations"]["h"] >= 1


PARTITIONED = """\
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
    path.write_text(PARTITIONED)
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


LIMITS = ["--work-limit", "20", "--time-limit", "300", "--threads", "1", "--most", "2"]


@pytest.fixture
def shifted(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    one_a_server = small_instance()
    jobs = tuple(Job(name, "net", 3 if name == "a" else 1, 1) for name in "ab")
    save_instance(replace(one_a_server, jobs=jobs), path)
    return path


def test_plans_in_turn_are_written_and_right(shifted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best, plan = tmp_path / "best.json", tmp_path / "plan.json"
    written = ["-o", str(best), "--best-plan", str(plan), "--json"]
    assert main(["shifts", str(shifted), *LIMITS, *written]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [job["job"] for job in told["jobs"]] == ["a", "b"]
    assert told["links"] == [] and told["mean_compatibility"] == {"unshifted": 1.0, "shifted": 1.0, "bound": 1.0}
    # Nothing is shared, so sharing slows nobody; the period is that of the longer job.
    assert all(job["shifted_us"] == job["fair_us"] == job["alone_us"] for job in told["jobs"])
    assert told["ratios"]["slowdown"] <= told["common_period"]["slowdown"]
    assert [job.iterations for job in load_instance(best).jobs] == [job["ratio"] for job in told["jobs"]]
    assert main(["check", str(best), str(plan)]) == 0
    assert main(["shifts", str(shifted), "--plan", str(plan), *LIMITS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["placements"] == 1


def test_shared_links_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan = tmp_path / "small.json", tmp_path / "plan.json"
    save_instance(replace(small_instance(), jobs=tuple(Job(name, "net", 2, 1) for name in "ab")), path)
    assert main(["solve", str(path), *LIMITS[:-2], "-o", str(plan), "-q"]) == 0
    capsys.readouterr()
    assert main(["shifts", str(path), *LIMITS, "--placements", "2"]) == 0
    told = capsys.readouterr().out
    assert "mean compatibility" in told and "common period" in told


def test_what_makes_no_sense_is_named(shifted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--most", 0), ("--placements", -1)):
        ends(f"2: out-of-range {option[2:]}", "shifts", shifted, option, value)
    path = tmp_path / "finite.json"
    save_instance(replace(small_instance(), horizon="finite", objective="makespan"), path)
    assert main(["shifts", str(path)]) == 3
    assert "finite horizon" in capsys.readouterr().err
