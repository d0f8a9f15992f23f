"""``jigsaw burst``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from tests.refusals import ends

CONFIGS = [[(1, 1000, 400, 600, 0), (2, 550, 220, 330, 40)], [(1, 500, 200, 300, 0), (2, 400, 160, 240, 140)]]
"""Of a convolution and a linear layer: GPUs, and microseconds in all, forward, backward and of synchronisation."""
KEYS = ("gpus", "gpu_us", "fwd_us", "bwd_us", "sync_us")
LAYERS = [
    {"name": name, "single_gpu_us": float(configs[0][1]), "configs": [dict(zip(KEYS, each)) for each in configs]}
    for name, configs in zip(("conv2d", "linear"), CONFIGS, strict=True)
]
COSTS = {"gpus": 2, "layers": [{"id": 0, **LAYERS[0]}, {"id": 1, "xfer_us": [[0.0, 100.0], [100.0, 0.0]], **LAYERS[1]}]}


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
