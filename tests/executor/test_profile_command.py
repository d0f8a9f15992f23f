"""Profiles of what a function of the user's own returns, by the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import schema
from tests.refusals import ends

OWN = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def parts(rows=8):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3))
    return model, torch.randn(rows, 6), torch.randint(3, (rows,))

def pair(rows=8):
    model, inputs, targets = parts(rows)
    return model, (inputs, targets), nn.CrossEntropyLoss()

def mapping():
    model, inputs, targets = parts()
    return {"model": model, "batch": (inputs, targets), "loss": nn.CrossEntropyLoss()}

def training(rank, world, device, rows=8, rate=1e-3):
    model, inputs, targets = parts(rows)
    loader = DataLoader(TensorDataset(inputs, targets), 4)
    optimiser = torch.optim.AdamW(model.parameters(), rate)
    return {"model": model, "optimizer": optimiser, "loader": loader, "loss": nn.CrossEntropyLoss(), "schedule": None}

def stages(rank, world, device):
    model, inputs, targets = parts()
    data = [(inputs, targets), (inputs, targets)]
    return {"model": list(model), "optimiser": torch.optim.AdamW, "loader": data, "loss": nn.CrossEntropyLoss()}

def plateau(rank, world, device):
    made = training(rank, world, device)
    return made | {"schedule": torch.optim.lr_scheduler.ReduceLROnPlateau(made["optimizer"])}

def closed(rank, world, device):
    made = training(rank, world, device)
    return made | {"optimizer": torch.optim.LBFGS(made["model"].parameters())}

def misspelt(rank, world, device):
    made = training(rank, world, device)
    return made | {"dataloader": made.pop("loader")}

def units():
    model, *_ = parts()
    return model, nn.CrossEntropyLoss(), lambda count, _: (torch.randn(count, 6), torch.randint(3, (count,)))

def rigid(rank, world, device):
    made = training(rank, world, device)
    made["model"].insert(1, nn.Unflatten(0, (2, 2))).insert(2, nn.Flatten(0, 1))
    return made

def wrong():
    return 3

def broken():
    model, inputs, _ = parts()
    def loss(outputs, targets):
        raise ValueError("on purpose")
    return model, (inputs, None), loss
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"measured_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def command(own: str, function: str, *options: str) -> int:
    name = f"{own}:{function}"
    return main(["profile", name, "--trust", name, "--warm-up", "1", "--repeats", "1", *options])


@pytest.mark.parametrize(
    ("function", "options", "entry", "factor"),
    [
        ("pair", ["--cuts", "1,2", "--argument", "rows=4"], None, 3),
        ("pair", ["--cuts", "2", "--optimiser", "adam"], None, 4),
        ("mapping", ["--cuts", "1,2"], None, 3),
        ("training", ["--cuts", "2", "--argument", "rows=12"], {"arguments": {"rows": 12}, "cuts": ["1", "2"]}, 4),
        ("stages", ["--cuts", "1,2"], None, 4),
        ("units", ["--batch", "4"], {"arguments": {}, "batch_size": 4}, 3),
    ],
)
def test_the_command_measures_what_a_function_returns(
    own: str,
    function: str,
    options: list[str],
    entry: dict[str, Any] | None,
    factor: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "model.json"
    assert command(own, function, *options, "--json", "-o", str(file)) == 0
    printed = capsys.readouterr()
    document = json.loads(file.read_text())
    assert json.loads(printed.out)["model"] == document
    assert [s["parameter_bytes"] for s in document["segments"]] == [4 * 56, 4 * 72, 4 * 27]
    assert document["state_factor"] == factor
    found = document.get("executor")
    assert ('"executor"' in printed.err) == (entry is None)
    if entry is None:
        assert found is None
    else:
        assert found.pop("train" if function == "training" else "zoo") == f"{own}:{function}"
        assert found == entry
    measured = json.loads(printed.out)["profile"]
    assert set(measured["segments"][0]) >= {"input_gradients_us", "weight_gradients_us"}
    assert measured["wide_levels"] == []


@pytest.mark.parametrize("function", ["training", "units"])
def test_the_command_measures_what_partial_iterations_are_worth(
    own: str, function: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.json"
    options = ["--cuts", "1,2"] if function == "training" else []
    assert command(own, function, *options, "--efficiency", "20", "--workers", "2", "--json", "-o", str(file)) == 0
    printed = json.loads(capsys.readouterr().out)
    document = json.loads(file.read_text())
    assert printed["model"] == document
    jsonschema.validate(document, {"$ref": "#/$defs/model", "$defs": schema("instance")["$defs"]})
    noise, efficiency = printed["profile"]["noise"], document["efficiency"]
    assert [row["estimates"] for row in noise] == [20] * 3
    assert 0 <= printed["profile"]["fixed_share"] <= 1
    assert len(efficiency["weight"]) == 3 and 998 <= sum(efficiency["weight"]) <= 1002
    known = [row for row in noise if row["noise_scale"] is not None]
    assert known and all(
        efficiency["noise_scale"][row["bucket"] - 1] == round(1000 * row["noise_scale"]) for row in known
    )


def test_what_is_measured_is_printed_with_its_error(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(own, "training", "--cuts", "1", "--efficiency", "9", "--workers", "2") == 0
    printed = capsys.readouterr().out
    assert re.search(r"bucket +noise scale +error +weight", printed)
    assert re.search(r"2x2 +100.0% +100.0% +100.0% +1.00 +full depth", printed)
    assert re.search(r"1x2 1x1 +\d", printed)
    assert re.search(r"by a smaller batch: [\d.]+% of the time of a block", printed)


def test_a_model_that_takes_no_smaller_batch_has_no_fixed_share(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--cuts", "1", "--efficiency", "9", "--workers", "2"]
    assert command(own, "rigid", *options, "--json") == 0
    profile = json.loads(capsys.readouterr().out)["profile"]
    assert profile["fixed_share"] is None and [row["estimates"] for row in profile["noise"]] == [9, 9]
    assert command(own, "rigid", *options) == 0
    assert "assumes that time is in proportion to samples" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        ("wrong", [], "2: wrong-type"),
        ("broken", ["--cuts", "1"], "1: PluginError"),
        ("pair", ["--cuts", "7"], "2: out-of-range cuts"),
        ("pair", ["--cuts", "3,4"], "2: unknown-name cuts; unknown-name cuts"),
        ("units", ["--cuts", "1"], "2: not-together cuts"),
        ("pair", ["--batch", "4"], "2: unsupported --batch"),
        ("pair", ["--cuts", "1", "--efficiency", "4"], "2: mismatch efficiency"),
        ("units", ["--efficiency", "4", "--workers", "1"], "2: out-of-range --workers"),
        ("units", ["--efficiency", "0"], "2: out-of-range --efficiency"),
        ("training", ["--segments", "3", "--optimiser", "adam"], "2: unsupported --segments, --optimiser"),
        ("pair", ["--argument", "row=4"], "3: failed $.arguments"),
        ("closed", [], "2: unsupported optimiser"),
        ("plateau", [], "2: wrong-type schedule"),
        ("misspelt", [], "2: wrong-type; unknown-field dataloader"),
        ("training", ["--argument", "rate=0.01"], "2: unsupported argument"),
    ],
)
def test_the_command_says_what_is_wrong(
    own: str, function: str, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{own}:{function}"
    ends(told, "profile", name, "--trust", name, "--warm-up", 1, "--repeats", 1, *options)
    assert capsys.readouterr().out == ""


def test_nothing_is_trusted_of_a_model_of_the_zoo(own: str) -> None:
    ends("2: not-together --trust", "profile", "mlp", "--trust", f"{own}:pair")


def test_progress_is_said_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", "mlp", "--warm-up", "1", "--repeats", "1"]
    assert main([*words, "-v"]) == 0
    rounds = [line for line in capsys.readouterr().err.splitlines() if line.startswith("round ")]
    assert rounds[:2] == ["round 1 of 2", "round 2 of 2"]
    assert main([*words, "-q"]) == 0
    assert "round" not in capsys.readouterr().err
