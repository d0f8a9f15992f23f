"""Networks as users write them, each with something that is easily trained wrongly, and plain training of them."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from jigsaw_opt.executor.models.building import Replica, build_network
from jigsaw_opt.executor.models.zoo.network import Network

Made = tuple[nn.Sequential, Any, Any]


def batch(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 8, generator=generator), torch.randint(8, (count,), generator=generator)


def blocks() -> Made:
    """One block, used three times, with others between."""
    shared = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    return nn.Sequential(shared, nn.LayerNorm(8), shared, nn.Linear(8, 8), shared), nn.CrossEntropyLoss(), batch


def tied() -> Made:
    """Two modules with one matrix."""
    first, last = nn.Linear(8, 8), nn.Linear(8, 8)
    last.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), nn.Linear(8, 8), last), nn.CrossEntropyLoss(), batch


def in_place() -> Made:
    """Activations that overwrite their input, each a unit."""
    units = (nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(inplace=True))
    return nn.Sequential(*units, nn.Linear(8, 8)), nn.CrossEntropyLoss(), batch


class Rows(NamedTuple):
    rows: Tensor
    mask: Tensor


class Open(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 8)

    def forward(self, given: dict[str, Any]) -> Rows:
        return Rows(self.dense(given["rows"]), given["more"][0])


class Middle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 8)

    def forward(self, given: Rows) -> dict[str, Any]:
        return {"rows": [self.dense(given.rows * given.mask)], "count": 3}


class Close(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 8)

    def forward(self, given: dict[str, Any]) -> Tensor:
        return self.dense(given["rows"][0]) * given["count"]


def nested() -> Made:
    """Dictionaries and tuples as batches and between units."""

    def draw(count: int, generator: Generator) -> tuple[dict[str, Any], tuple[Tensor, str]]:
        inputs, targets = batch(count, generator)
        return {"rows": inputs, "more": (torch.ones(8), None)}, (targets, "names")

    def loss(output: Tensor, targets: tuple[Tensor, str]) -> Tensor:
        return functional.cross_entropy(output, targets[0])

    return nn.Sequential(Open(), Middle(), Close()), loss, draw


def frozen() -> Made:
    """A layer that is not trained between others that are."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[1].requires_grad_(False)
    return model, nn.CrossEntropyLoss(), batch


def normalised() -> Made:
    """One normalisation, used twice, with statistics that run on."""
    norm = nn.BatchNorm1d(8)
    return nn.Sequential(nn.Linear(8, 8), norm, nn.Linear(8, 8), norm), nn.CrossEntropyLoss(), batch


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, output: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(output * self.scale, targets)


def weighted() -> Made:
    """A loss that is trained too."""
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), Scaled(), batch


def dropout() -> Made:
    """Dropout, and batches that draw by whatever there is."""

    def draw(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        inputs, targets = batch(count, generator)
        return inputs + random.random() + float(np.random.rand()) + torch.rand(()), targets

    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8)), nn.CrossEntropyLoss(), draw


def numbers() -> Made:
    """Initial parameters that Python and numpy draw."""
    model = nn.Sequential(nn.Linear(8, 8))
    with torch.no_grad():
        model[0].weight.add_(random.random()).add_(torch.tensor(np.random.rand(8, 8), dtype=torch.float32))
    return model, nn.CrossEntropyLoss(), batch


def untrained() -> Made:
    """Nothing is trained."""
    return nn.Sequential(nn.Linear(8, 8)).requires_grad_(False), nn.CrossEntropyLoss(), batch


def named(names: Sequence[str]) -> Made:
    """Units of these names."""
    return nn.Sequential(OrderedDict((name, nn.Linear(8, 8)) for name in names)), nn.CrossEntropyLoss(), batch


class Residual(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + super().forward(inputs)


def more_than_a_row(kind: str) -> Made:
    """A `Sequential` whose modules one after the other are not all of it."""
    made = (Residual if kind == "forward" else nn.Sequential)(nn.Linear(8, 8), nn.Linear(8, 8))
    if kind == "own":
        made.forward = lambda inputs: inputs  # type: ignore[method-assign]
    if kind == "hooks":
        made.register_forward_hook(lambda module, inputs, output: 2 * output)
    if kind == "lazy":
        made.append(nn.LazyLinear(8))
    return made, nn.CrossEntropyLoss(), batch


def misfit() -> Made:
    """A layer that does not take what the one before it returns."""
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(9, 8)), nn.CrossEntropyLoss(), batch


def made(name: str, **changes: Any) -> Network:
    """A network with another loss or batch source."""
    zoo = f"own_networks:{name}"
    return replace(build_network(zoo, {}, trusted=[zoo]), **changes)


def plain_training(name: str, steps: int) -> list[Tensor]:
    """Train the `nn.Sequential` itself."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model, loss, draw = NETWORKS[name]()
    held = nn.ModuleList([model, loss]) if isinstance(loss, nn.Module) else model
    optimiser = torch.optim.AdamW(held.parameters(), lr=0.01, weight_decay=0.1)
    source = Replica(None, Network({}, loss, draw), 6)  # type: ignore[arg-type]
    for step in range(steps):
        held.zero_grad()
        inputs, targets = source.batch(0, 0, step)
        loss(model(inputs), targets).backward()
        optimiser.step()
    return [p.detach().clone() for p in held.parameters()]


NETWORKS: dict[str, Callable[[], Made]] = {
    function.__name__: function for function in (blocks, tied, in_place, nested, frozen, normalised, weighted)
}
