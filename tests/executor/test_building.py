"""Models come from the zoo by their documents' entries, with every problem listed, and from nowhere else."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.executor.catalogue import FAMILIES, resolve
from jigsaw_opt.executor.models.building import build, build_network, even_segments, replica, run_name
from jigsaw_opt.executor.models.zoo import BUILDERS
from jigsaw_opt.instances import load
from jigsaw_opt.instances.architectures import ARCHITECTURES
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.rules.report import Report
from tests.refusals import misuse, refuses

OWN = """
from torch import nn, randn, randint

def net(width):
    def batch(count, generator):
        return randn(count, width, generator=generator), randint(3, (count,), generator=generator)
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 3)), nn.CrossEntropyLoss(), batch

def single(width):
    return nn.Linear(width, 3), nn.CrossEntropyLoss(), print

def pair(width):
    return nn.Sequential(nn.Linear(width, 3)), nn.CrossEntropyLoss()

def empty(width):
    return nn.Sequential(), nn.CrossEntropyLoss(), print
"""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_known_networks_have_the_units_and_parameters_of_their_estimated_profiles(name: str) -> None:
    family, arguments = resolve(name, {}, "$", Report())
    with torch.device("meta"):
        network = BUILDERS[family](**arguments)
    units = ARCHITECTURES[name]()
    assert list(network.units) == [unit.name for unit in units]
    model = replica(network, range(len(units) + 1), 1).model
    assert [sum(p.numel() for p in own) for own in model.own_parameters()] == [unit.parameters for unit in units]


def test_segments_of_a_bundled_instance_are_runs_of_units() -> None:
    models = load("server/demo").models
    assert models
    for name, model in models.items():
        assert model.executor is not None
        family, arguments = resolve(model.executor["zoo"], model.executor["arguments"], "$", Report())
        with torch.device("meta"):
            network = BUILDERS[family](**arguments)
        bounds = even_segments(network, len(model.segments))
        units = list(network.units)
        cut = [run_name(units[low:high]) for low, high in pairwise(bounds)]
        assert cut == [segment.name for segment in model.segments], name


def model_of(names: list[str], zoo: str = "mlp", **arguments: object) -> Model:
    segments = tuple(Segment(name, {"cpu": 1}, {"cpu": 1}, 1, 1) for name in names)
    return Model(segments, executor={"zoo": zoo, "arguments": arguments, "batch_size": 4})


def test_build_is_deterministic_by_seed() -> None:
    model = model_of(["dense0", "dense1-dense2"])
    first, again, other = build("net", model, seed=1), build("net", model, seed=1), build("net", model, seed=2)
    weights = [[p for own in r.model.own_parameters() for p in own] for r in (first, again, other)]
    assert all(torch.equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert not torch.equal(weights[0][0], weights[2][0])
    assert torch.equal(first.batch(0, 1, 2)[0], again.batch(0, 1, 2)[0])
    draws = [first.batch(*key)[0] for key in ((0, 1, 2), (1, 1, 2), (0, 2, 2), (0, 1, 3))]
    assert not any(torch.equal(draws[0], draw) for draw in draws[1:])
    assert first.model.names == ("dense0", "dense1-dense2")


def problems(model: Model) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        build("net", model)
    return [problem.path for problem in caught.value.problems]


def test_every_problem_of_the_arguments_is_listed() -> None:
    assert problems(model_of(["a"], "gpt", width="x", layers=0, hieght=3)) == [
        f"$.models.net.executor.arguments.{name}" for name in ("width", "layers", "hieght")
    ]


@pytest.mark.parametrize(
    ("zoo", "arguments", "where"),
    [
        ("gtp", {}, "zoo"),
        ("gpt", {"heads": 5}, "arguments.heads"),
        ("gpt", {"rows": 65}, "arguments.rows"),
        ("gpt", {"data": "text", "vocabulary": 100}, "arguments.vocabulary"),
        ("gpt", {"data": "digits"}, "arguments.data"),
        ("bert", {"rows": 1}, "arguments.rows"),
        ("mlp", {"hidden": []}, "arguments.hidden"),
        ("mlp", {"hidden": [0]}, "arguments.hidden"),
        ("mlp", {"data": 3}, "arguments.data"),
        ("mlp", {"data": "digits", "inputs": 3}, "arguments.data"),
        ("vgg", {"widths": [8]}, "arguments.widths"),
        ("vgg", {"image": 3}, "arguments.image"),
        ("os:system", {}, "zoo"),
    ],
)
def test_wrong_entries_are_refused(zoo: str, arguments: dict[str, object], where: str) -> None:
    assert problems(model_of(["a"], zoo, **arguments)) == [f"$.models.net.executor.{where}"]


@pytest.mark.parametrize(
    ("names", "where"),
    [
        (["dense0"], "segments"),
        (["dense0", "dense2"], "segments[1]"),
        (["dense0", "dense1-dense3"], "segments[1]"),
        (["dense0-dense2", "dense1"], "segments[1]"),
    ],
)
def test_segments_must_be_all_units_in_order(names: list[str], where: str) -> None:
    assert problems(model_of(names)) == [f"$.models.net.{where}"]


def test_a_model_without_the_entry_cannot_be_built() -> None:
    assert problems(Model((Segment("a", {}, {}, 1, 1),))) == ["$.models.net"]


def test_own_networks_are_imported_only_if_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_network.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with refuses("not-allowed $.zoo"):
        build_network("own_network:net", {"width": 5}, trusted=["own_network:single"])
    assert "own_network" not in sys.modules
    network = build_network("own_network:net", {"width": 5}, trusted=["own_network:net"])
    tiny = replica(network, even_segments(network, 2), 4)
    assert tiny.model.names == ("0", "1-2")
    assert tiny.model.backpropagate(tiny.batch(0, 0, 0), 1) > 0
    with refuses("failed $.arguments"):
        build_network("own_network:net", {"height": 5}, trusted=["own_network:net"])
    for wrong in ("single", "pair", "empty"):
        with misuse("wrong-type"):
            build_network(f"own_network:{wrong}", {"width": 5}, trusted=[f"own_network:{wrong}"])
    for wrong in ("own_network:none", "no_such_module:net"):
        with misuse(f"failed {wrong}"):
            build_network(wrong, {"width": 5}, trusted=[wrong])


@pytest.mark.parametrize(("zoo", "data"), [("gpt", "text"), ("mlp", "digits")])
def test_real_data(zoo: str, data: str) -> None:
    if data == "digits":
        pytest.importorskip("sklearn", reason="the digits come from scikit-learn: pip install scikit-learn")
    network = build_network(zoo, {"data": data})
    inputs, targets = network.batch(8, torch.Generator().manual_seed(0))
    assert len(inputs) == len(targets) == 8
    if data == "text":
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
        assert bytes(inputs.flatten().tolist()).isascii()
    else:
        assert inputs.min() >= 0 and inputs.max() == 1 and len(set(targets.tolist())) > 3


def test_defaults_of_every_family_are_its_builders_arguments() -> None:
    for family, defaults in FAMILIES.items():
        assert build_network(family, defaults).units.keys() == build_network(family, {}).units.keys()
