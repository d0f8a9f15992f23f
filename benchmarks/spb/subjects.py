"""What is learnt: networks of the zoo and of `pitches.py`, on data that are split anew for every seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from jigsaw_opt.executor.models.building import Replica, build_network
from jigsaw_opt.executor.models.building import replica as replica_of
from jigsaw_opt.executor.models.zoo.network import Batch, Network
from spb.data import ALPHABETS, Samples, digit_split, letter_split, source_split
from spb.pitches import PITCHES, tone_split

Optimiser = Literal["sgd", "adam"]

PRETRAINING = 1200
"""Iterations of pre-training, with batches of 64 at a rate that falls from 0.03 to 0."""
PITCH_NETWORK = "spb.pitches:pitch_network"
MAIN = (
    *("smaller batch", "rotation", "half of the workers full", "two levels", "full every other time"),
    *("frozen from a quarter", "frozen from the middle", "all at one level", "rates by contributors"),
)


@dataclass(frozen=True)
class Subject:
    """A network of the zoo, its data, and how it is trained.

    `batch` is samples an iteration, of all workers together; `rates` are those that are tried for full depth and for
    every way alike; without `comparisons` there are all of `design.COMPARISONS`. With `pretrained`, all layers but the
    last begin as `pretrained_states` says.
    """

    name: str
    zoo: str
    arguments: Mapping[str, Any]
    data: Literal["digits", "capitals", "small letters", "sources", "tones"]
    batch: int
    iterations: int
    optimiser: Optimiser
    rates: Sequence[float]
    seeds: int = 10
    comparisons: Sequence[str] = MAIN
    pretrained: bool = False

    @property
    def definition(self) -> str:
        """What a run depends on besides what `Run` says."""
        return f"{self.zoo}{dict(self.arguments)} {self.data} pretrained={self.pretrained}"

    def network(self, seed: int) -> Network:
        """The network with the initial parameters of `seed`; convolutions begin as in He et al. 2015, or they stall."""
        network = build_network(self.zoo, self.arguments, [PITCH_NETWORK], seed)
        if self.zoo == "vgg":
            draw = torch.Generator().manual_seed(seed)
            for weights in (p for unit in network.units.values() for p in unit.parameters() if p.dim() > 1):
                torch.nn.init.kaiming_normal_(weights, nonlinearity="relu", generator=draw)
        if self.pretrained:
            for name, state in pretrained_states().items():
                network.units[name].load_state_dict(state)
        return network


CONVOLUTIONS = {"image": 16, "channels": 1, "stages": (1, 2, 2), "widths": (16, 32, 64), "dense": (64,)}
SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject(
            "digits-mlp",
            "mlp",
            {"hidden": (64,) * 3},
            "digits",
            batch=64,
            iterations=1000,
            optimiser="sgd",
            rates=(0.05, 0.1, 0.2),
            comparisons=(),
        ),
        Subject(
            "letters-cnn",
            "vgg",
            {**CONVOLUTIONS, "classes": len(ALPHABETS["capitals"])},
            "capitals",
            batch=64,
            iterations=400,
            optimiser="sgd",
            rates=(0.02, 0.04, 0.08),
        ),
        Subject(
            "letters-tuned",
            "vgg",
            {**CONVOLUTIONS, "classes": len(ALPHABETS["small letters"])},
            "small letters",
            batch=64,
            iterations=200,
            optimiser="sgd",
            rates=(0.01, 0.02, 0.05),
            pretrained=True,
        ),
        Subject(
            "pitches-tuned",
            PITCH_NETWORK,
            {"classes": PITCHES},
            "tones",
            batch=16,
            iterations=40,
            optimiser="adam",
            rates=(0.006, 0.012, 0.024),
        ),
        Subject(
            "sources-gpt",
            "gpt",
            {"layers": 4, "width": 144, "heads": 4, "rows": 48, "positions": 48, "data": "text"},
            "sources",
            batch=16,
            iterations=300,
            optimiser="adam",
            rates=(0.001, 0.002, 0.004),
            comparisons=("smaller batch", "rotation", "two levels", "frozen from the middle", "all at one level"),
        ),
    )
}


def samples(subject: Subject, seed: int) -> Samples:
    """The data of a subject as `seed` splits them."""
    if subject.data == "digits":
        return digit_split(seed)
    if subject.data == "tones":
        return tone_split(seed)
    if subject.data == "sources":
        return source_split(int(subject.arguments["rows"]), seed)
    return letter_split(subject.data, seed)


@cache
def pretrained_states() -> Mapping[str, Mapping[str, Tensor]]:
    """State of every unit but the last after pre-training on capitals of all fonts but five."""
    subject = SUBJECTS["letters-cnn"]
    data, network = samples(subject, 0), subject.network(0)
    model = torch.nn.Sequential(*network.units.values())
    optimiser = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9)
    rates = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0, PRETRAINING)
    draw = _source(data, data.training)
    generator = torch.Generator().manual_seed(0)
    for _ in range(PRETRAINING):
        inputs, targets = draw(64, generator)
        optimiser.zero_grad()
        network.loss(model(inputs), targets).backward()
        optimiser.step()
        rates.step()
    *names, _ = network.units
    return {name: network.units[name].state_dict() for name in names}


def replicas(subject: Subject, data: Samples, workers: int, sharded: bool, seed: int) -> list[Replica]:
    """One replica a worker, all of one model, each with its own source of batches, or its own piece of the data."""
    network = subject.network(seed)
    first = replica_of(network, range(len(network.units) + 1), subject.batch // workers)
    shards = torch.tensor_split(data.training, workers) if sharded else [data.training] * workers
    return [replace(first, network=replace(network, batch=_source(data, shard))) for shard in shards]


def _source(data: Samples, shard: Tensor) -> Callable[[int, torch.Generator], Batch]:
    def draw(count: int, generator: torch.Generator) -> Batch:
        return data.take(shard[torch.randint(len(shard), (count,), generator=generator)])

    return draw
