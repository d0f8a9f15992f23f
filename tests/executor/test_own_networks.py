"""Networks of a user's own: whatever is in the row, training is that of plain PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

import torch.distributed as dist  # noqa: E402
from own_networks import NETWORKS, made, plain_training  # noqa: E402

from jigsaw_opt.errors import PluginError, RunFailedError  # noqa: E402
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange  # noqa: E402
from jigsaw_opt.executor.models.building import Replica, build_network, even_segments, replica  # noqa: E402
from jigsaw_opt.executor.models.leveled_model import saved_bytes  # noqa: E402
from jigsaw_opt.executor.processes import run_group  # noqa: E402
from jigsaw_opt.executor.profiling import profile_replica  # noqa: E402
from jigsaw_opt.executor.profiling.measuring import measure_model  # noqa: E402
from jigsaw_opt.executor.worker import TrainingRecipe, Worker, train_iteration  # noqa: E402
from tests.refusals import misuse  # noqa: E402

RECIPE = TrainingRecipe("adamw", {"lr": 0.01, "weight_decay": 0.1})
STEPS = 4


def built(name: str, parts: int = 100) -> Replica:
    zoo = f"own_networks:{name}"
    network = build_network(zoo, {}, trusted=[zoo], seed=3)
    return replica(network, even_segments(network, parts), 6)


def trained(name: str, parts: int, level: int | None = None) -> list[Any]:
    worker = Worker(0, built(name, parts), RECIPE, torch.device("cpu"))
    for _ in range(STEPS):
        worker.block(level or worker.model.depth, lambda _: None)
    worker.step()
    return [p.detach().clone() for p in worker.model.parameters()]


@pytest.mark.parametrize("parts", [1, 2, 100])
@pytest.mark.parametrize("name", NETWORKS)
def test_training_at_full_depth_is_that_of_plain_pytorch_to_the_bit(name: str, parts: int) -> None:
    found, expected = trained(name, parts), plain_training(name, [0], STEPS)
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def of_two(name: str) -> list[Any]:
    own = built(name)
    worker = Worker(dist.get_rank(), own, RECIPE, torch.device("cpu"))
    exchange = GradientExchange([0, 1])
    levels = [(own.model.depth,) * 2] * STEPS
    with ThreadPoolExecutor(1) as transfers:
        for turn in levels:
            train_iteration(worker, turn, exchange, transfers)
    worker.step()
    return [p.detach().clone() for p in own.model.parameters()]


@pytest.mark.parametrize("name", ["repeated", "tied"])
def test_two_processes_train_as_plain_pytorch_on_both_batches(name: str) -> None:
    expected = plain_training(name, [0, 1], STEPS)
    for found in run_group(of_two, 2, name):
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_shallower_level_gives_its_segments_the_gradients_of_the_full_pass(name: str) -> None:
    own = built(name)
    for level in range(1, own.model.depth + 1):
        gradients = []
        for depth in (own.model.depth, level):
            own.model.zero_grad()
            before = {key: value.clone() for key, value in own.model.state_dict().items()}
            own.model.backpropagate(own.batch(0, 0, 0), depth)
            own.model.load_state_dict(before)
            gradients.append([[p.grad for p in parameters] for parameters in own.model.own_parameters()])
        full, found = gradients
        cut = own.model.cut(level)
        assert all(gradient is None for parameters in found[:cut] for gradient in parameters)
        for a, b in zip(full[cut:], found[cut:], strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", NETWORKS)
def test_sizes_count_what_is_shared_once(name: str) -> None:
    own = built(name)
    trained_bytes = sum(p.nbytes for p in own.model.parameters() if p.requires_grad)
    found = profile_replica(own, TrainingRecipe(), torch.device("cpu"), 1, 1)
    assert sum(segment.parameter_bytes for segment in found.segments) == trained_bytes
    assert [segment.name for segment in found.segments] == list(own.network.units)
    everything = sum(t.nbytes for t in (*own.model.parameters(), *own.model.buffers()))
    assert found.state_bytes == everything + 2 * trained_bytes  # gradients and momentum


def test_a_module_that_is_several_segments_saves_for_each_of_them() -> None:
    own = built("blocks")
    units = own.network.units
    assert units["0"] is units["2"] is units["4"]
    assert all(saved_bytes(own.model, own.batch(0, 0, 0), own.model.depth))


def test_a_state_holds_shared_tensors_once() -> None:
    worker = Worker(0, built("tied"), RECIPE, torch.device("cpu"))
    state = worker.state()["model"]
    parameters = sum(p.nbytes for p in worker.model.parameters())
    assert sum(t.nbytes for t in {t.data_ptr(): t for t in state.values()}.values()) == parameters
    assert len(state) > len(list(worker.model.parameters()))


def test_dropout_depends_on_seed_worker_and_iteration_alone() -> None:
    first = Worker(0, built("dropout"), RECIPE, torch.device("cpu"))
    losses = [float(first.block(first.model.depth, lambda _: None)) for _ in range(STEPS)]
    later = Worker(0, built("dropout"), RECIPE, torch.device("cpu"))
    again = []
    for iteration in range(STEPS):
        torch.rand(iteration + 1)
        random.random()
        if iteration == 2:  # goes on in another worker, as after a run that has ended
            state, later = later.state(), Worker(0, built("dropout"), RECIPE, torch.device("cpu"))
            later.load(state)
        again.append(float(later.block(later.model.depth, lambda _: None)))
    assert losses == again


def test_building_leaves_the_generators_of_the_caller_alone() -> None:
    states = torch.get_rng_state(), random.getstate()
    first, second = built("numbers"), built("numbers")
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: made("repeated", batch=lambda count, _: {"inputs": 1, "labels": 2}), "wrong-type batch"),
        (lambda: made("repeated", batch=lambda count, _: torch.zeros(2, 3)), "wrong-type batch"),
        (lambda: made("repeated", loss=lambda output, _: output), "wrong-type loss"),
        (lambda: made("repeated", loss=lambda output, _: 3.0), "wrong-type loss"),
    ],
)
def test_what_is_no_batch_or_no_loss_is_refused_in_words(make: Callable[[], Any], told: str) -> None:
    network = make()
    own = replica(network, (0, len(network.units)), 4)
    with misuse(told):
        Worker(0, own, RECIPE, torch.device("cpu")).block(1, lambda _: None)


def test_a_network_without_trained_parameters_is_refused() -> None:
    with misuse("empty network"):
        built("untrained")


@pytest.mark.parametrize("names", [("a", "b", "a-b"), ("a-b", "c", "a", "b-c"), ("a", "b-c", "a-b", "c")])
def test_units_of_which_two_runs_have_one_name_are_refused(names: tuple[str, ...]) -> None:
    with misuse("duplicate-name"):
        build_network("own_networks:named", {"names": names}, trusted=["own_networks:named"])


def test_names_with_hyphens_that_tell_runs_apart_are_taken() -> None:
    network = build_network("own_networks:named", {"names": ("a-1", "a-2", "b")}, trusted=["own_networks:named"])
    assert list(network.units) == ["a-1", "a-2", "b"]


@pytest.mark.parametrize(
    ("kind", "what"),
    [("forward", "forward"), ("own", "forward"), ("hooks", "hooks"), ("lazy", "lazy")],
)
def test_what_is_more_than_modules_in_a_row_is_refused(kind: str, what: str) -> None:
    zoo = "own_networks:more_than_a_row"
    with misuse(f"unsupported {what}"):
        build_network(zoo, {"kind": kind}, trusted=[zoo])
    assert len(build_network(zoo, {"kind": "none"}, trusted=[zoo]).units) == 2


def test_what_torch_says_of_a_network_is_one_message() -> None:
    entry = {"zoo": "own_networks:misfit", "arguments": {}}
    rounds = {"batch_size": 4, "segments": 9, "processes": 1, "seed": 0, "warm_up": 1, "repeats": 1}
    with pytest.raises(RunFailedError, match=r"^own_networks:misfit: mat1"):
        measure_model(entry, torch.device("cpu"), "sgd", **rounds, trusted=["own_networks:misfit"])


RAISING = """import torch
from torch import nn
#module
class Unit(nn.Linear):
    def forward(self, inputs):
        #forward
        return super().forward(inputs)
def net():
    #network
    def batch(count, generator):
        #batch
        return torch.randn(count, 8), torch.randint(3, (count,))
    def loss(output, targets):
        #loss
        return nn.functional.cross_entropy(output, targets)
    return nn.Sequential(Unit(8, 3)), loss, batch
"""


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", ["module", "network", "batch", "loss", "forward"])
def test_what_code_of_the_users_own_raises_is_told_with_its_line(
    place: str, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"own_{place}_{processes}"
    source = RAISING.replace(f"#{place}", f"raise ValueError('{place}')")
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    line = 1 + RAISING.splitlines().index(next(one for one in RAISING.splitlines() if one.strip() == f"#{place}"))
    entry = {"zoo": f"{name}:net", "arguments": {}}
    rounds = {"batch_size": 4, "segments": 6, "processes": processes, "seed": 0, "warm_up": 1, "repeats": 1}
    with pytest.raises(PluginError, match=rf"^{name}:net: ValueError: {place} .*{name}\.py:{line}"):
        measure_model(entry, torch.device("cpu"), "sgd", **rounds, trusted=[entry["zoo"]])


@pytest.mark.parametrize(
    ("old", "new", "what", "line"),
    [
        ("batch(count, generator)", "batch(count)", "batch source", 10),
        ("loss(output, targets)", "loss(output)", "loss", 13),
    ],
)
def test_a_loss_or_batch_source_of_other_parameters_is_refused(
    old: str, new: str, what: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{new[:4]}_own"
    (tmp_path / f"{name}.py").write_text(RAISING.replace(old, new))
    monkeypatch.syspath_prepend(str(tmp_path))
    with misuse(f"wrong-type {what}") as caught:
        build_network(f"{name}:net", {}, trusted=[f"{name}:net"])
    assert f"own.py:{line})" in str(caught.value)
