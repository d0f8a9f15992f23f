"""Networks of the zoo and of a user's own: whatever is in the row, training is that of plain PyTorch, at any level."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from own_networks import NETWORKS, made, plain_training

from jigsaw_opt.errors import PluginError, RunFailedError
from jigsaw_opt.executor.models.building import Replica, build_network, even_segments, replica
from jigsaw_opt.executor.models.leveled_model import saved_bytes
from jigsaw_opt.executor.profiling.measuring import measure_model
from jigsaw_opt.executor.worker import TrainingRecipe, ZooWorker
from jigsaw_opt.problem.model import Model, Segment
from tests.refusals import misuse

ZOO: dict[str, tuple[str, dict[str, Any], int]] = {
    "mlp": ("mlp", {"hidden": [32, 24, 16]}, 4),
    "vgg": ("vgg", {"image": 16}, 3),
    "resnet": ("resnet", {"image": 32}, 4),
    "bert": ("bert", {}, 4),
    "gpt": ("gpt", {}, 4),
}


def of_the_zoo(name: str) -> Replica:
    zoo, arguments, parts = ZOO[name]
    network = build_network(zoo, arguments, seed=1)
    return replica(network, even_segments(network, parts), batch_size=4)


@pytest.fixture(params=ZOO)
def tiny(request: pytest.FixtureRequest) -> Replica:
    return of_the_zoo(request.param)


def gradients(tiny: Replica, level: int) -> list[list[torch.Tensor | None]]:
    tiny.model.zero_grad()
    tiny.model.backpropagate(tiny.batch(0, 0, 0), level)
    return [[p.grad for p in own] for own in tiny.model.own_parameters()]


def test_loss_and_running_statistics_do_not_depend_on_the_level(tiny: Replica) -> None:
    batch = tiny.batch(0, 0, 0)
    before = {name: t.clone() for name, t in tiny.model.state_dict().items()}
    outcomes = []
    for level in (1, tiny.model.depth):
        tiny.model.load_state_dict(before)
        loss = tiny.model.backpropagate(batch, level)
        outcomes.append((loss, {name: buffer.clone() for name, buffer in tiny.model.named_buffers()}))
    (shallow, shallow_buffers), (full, full_buffers) = outcomes
    assert torch.equal(shallow, full)
    assert all(torch.equal(shallow_buffers[name], full_buffers[name]) for name in full_buffers)


def test_a_level_saves_what_its_segments_save_and_nothing_of_the_prefix(tiny: Replica) -> None:
    batch, depth = tiny.batch(0, 0, 0), tiny.model.depth
    full, nearly = saved_bytes(tiny.model, batch, depth), saved_bytes(tiny.model, batch, depth - 1)
    assert all(full)
    totals = []
    for level in range(1, depth + 1):
        saved, cut = saved_bytes(tiny.model, batch, level), tiny.model.cut(level)
        assert not any(saved[:cut])
        # The first operation of the suffix has no gradient to hand on, so it may save less, never more.
        assert sum(full[cut + 1 :]) < sum(saved) <= sum(full[cut:])
        # What the output keeps for the gradient of a shared table, it keeps only if the table gets one.
        assert saved[cut + 1 :] == (full if level == depth else nearly)[cut + 1 :]
        totals.append(sum(saved))
    assert totals == sorted(set(totals))


def test_a_shared_table_gets_its_gradient_only_from_a_pass_that_reaches_its_owner() -> None:
    network = build_network("gpt", {})
    tiny = replica(network, even_segments(network, 4), batch_size=2)
    table = network.units["embeddings"].tokens.weight
    assert [any(p is table for p in own) for own in tiny.model.own_parameters()] == [True, False, False, False]
    assert any(p is table for p in tiny.model.segments[3].parameters())
    tiny.model.backpropagate(tiny.batch(0, 0, 0), tiny.model.depth - 1)
    assert table.grad is None and table.requires_grad
    tiny.model.backpropagate(tiny.batch(0, 0, 0), tiny.model.depth)
    assert table.grad.abs().sum() > 0


@pytest.mark.parametrize("levels", [(1, 2, 3, 4), (1, 4), (4,), (2, 3, 4)])
def test_buckets_are_those_of_the_instance(levels: tuple[int, ...]) -> None:
    network = build_network("gpt", {"layers": 2})
    tiny = replica(network, range(5), 2, levels)
    sizes = [sum(p.nbytes for p in own) for own in tiny.model.own_parameters()]
    stated = Model(tuple(Segment(str(i), {}, {}, size, 0) for i, size in enumerate(sizes)), levels)
    assert tuple(sum(p.nbytes for p in own) for own in tiny.model.buckets) == stated.bucket_bytes()
    assert sum(sizes) == sum(p.nbytes for p in tiny.model.parameters())
    for level, kept in enumerate(levels, 1):
        found = gradients(tiny, level)
        assert [all(g is not None for g in own) for own in found] == [False] * (4 - kept) + [True] * kept


RECIPE = TrainingRecipe("adamw", {"lr": 0.01, "weight_decay": 0.1})
STEPS = 4


def built(name: str, parts: int = 100) -> Replica:
    zoo = f"own_networks:{name}"
    network = build_network(zoo, {}, trusted=[zoo], seed=3)
    return replica(network, even_segments(network, parts), 6)


def trained(name: str, parts: int, level: int | None = None) -> list[Any]:
    worker = ZooWorker(0, built(name, parts), RECIPE, torch.device("cpu"))
    for _ in range(STEPS):
        worker.block(level or worker.model.depth, lambda _: None)
    worker.step()
    return [p.detach().clone() for p in worker.model.parameters()]


@pytest.mark.parametrize("parts", [1, 2, 100])
@pytest.mark.parametrize("name", NETWORKS)
def test_training_at_full_depth_is_that_of_plain_pytorch_to_the_bit(name: str, parts: int) -> None:
    found, expected = trained(name, parts), plain_training(name, STEPS)
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", [*NETWORKS, *ZOO])
def test_a_shallower_level_gives_its_segments_the_gradients_of_the_full_pass(name: str) -> None:
    own = built(name) if name in NETWORKS else of_the_zoo(name)
    state = {key: value.clone() for key, value in own.model.state_dict().items()}
    full = gradients(own, own.model.depth)
    for level in range(1, own.model.depth + 1):
        own.model.load_state_dict(state)
        found, cut = gradients(own, level), own.model.cut(level)
        assert all(gradient is None for parameters in found[:cut] for gradient in parameters)
        for a, b in zip(full[cut:], found[cut:], strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_state_holds_shared_tensors_once() -> None:
    worker = ZooWorker(0, built("tied"), RECIPE, torch.device("cpu"))
    state = worker.state()["model"]
    parameters = sum(p.nbytes for p in worker.model.parameters())
    assert sum(t.nbytes for t in {t.data_ptr(): t for t in state.values()}.values()) == parameters
    assert len(state) > len(list(worker.model.parameters()))


def test_dropout_depends_on_seed_worker_and_iteration_alone() -> None:
    first = ZooWorker(0, built("dropout"), RECIPE, torch.device("cpu"))
    losses = [float(first.block(first.model.depth, lambda _: None)) for _ in range(STEPS)]
    later = ZooWorker(0, built("dropout"), RECIPE, torch.device("cpu"))
    again = []
    for iteration in range(STEPS):
        torch.rand(iteration + 1)
        random.random()
        if iteration == 2:  # goes on in another worker, as after a run that has ended
            state, later = later.state(), ZooWorker(0, built("dropout"), RECIPE, torch.device("cpu"))
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
        (lambda: made("blocks", batch=lambda count, _: {"inputs": 1, "labels": 2}), "wrong-type batch"),
        (lambda: made("blocks", batch=lambda count, _: torch.zeros(2, 3)), "wrong-type batch"),
        (lambda: made("blocks", loss=lambda output, _: output), "wrong-type loss"),
        (lambda: made("blocks", loss=lambda output, _: 3.0), "wrong-type loss"),
    ],
)
def test_what_is_no_batch_or_no_loss_is_refused_in_words(make: Callable[[], Any], told: str) -> None:
    network = make()
    own = replica(network, (0, len(network.units)), 4)
    with misuse(told):
        ZooWorker(0, own, RECIPE, torch.device("cpu")).block(1, lambda _: None)


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
    rounds = {"batch_size": 4, "segments": 9, "warm_up": 1, "repeats": 1}
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


@pytest.mark.parametrize("place", ["module", "network", "batch", "loss", "forward"])
def test_what_code_of_the_users_own_raises_is_told_with_its_line(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"raising_{place}"
    source = RAISING.replace(f"#{place}", f"raise ValueError('{place}')")
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    line = 1 + RAISING.splitlines().index(next(one for one in RAISING.splitlines() if one.strip() == f"#{place}"))
    entry = {"zoo": f"{name}:net", "arguments": {}}
    rounds = {"batch_size": 4, "segments": 6, "warm_up": 1, "repeats": 1}
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
