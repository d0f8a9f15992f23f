"""What is learnt: networks of the zoo on data that ships with Python or scikit-learn, split anew for every seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from jigsaw_opt.executor.models.building import Replica, build_network
from jigsaw_opt.executor.models.building import replica as replica_of
from jigsaw_opt.executor.models.zoo.batches import digit_samples, topics_text
from jigsaw_opt.executor.models.zoo.network import Batch, Network

Optimiser = Literal["sgd", "adam"]

STRETCHES = 10
"""The text is cut into so many; a seed holds out one of them."""


@dataclass(frozen=True)
class Subject:
    """A network of the zoo, its data, and how it is trained.

    `batch` is samples an iteration, of all workers together; of the optimisers of `rates` the first is the main one;
    without `comparisons` there are all of `design.COMPARISONS`.
    """

    name: str
    zoo: str
    arguments: Mapping[str, Any]
    data: Literal["digits", "text"]
    batch: int
    iterations: int
    rates: Mapping[Optimiser, Sequence[float]]
    seeds: int
    comparisons: Sequence[str] = ()

    @property
    def definition(self) -> str:
        """What a run depends on besides what `Run` says."""
        return f"{self.zoo}{dict(self.arguments)} {self.data} batch={self.batch}"

    def network(self, seed: int) -> Network:
        """The network with the initial parameters of `seed`."""
        return build_network(self.zoo, self.arguments, seed=seed)


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
            rates={"sgd": (0.02, 0.05, 0.1, 0.2), "adam": (0.001, 0.003, 0.01)},
            seeds=10,
        ),
        Subject(
            "text-gpt",
            "gpt",
            {"layers": 2, "width": 32, "heads": 2, "rows": 16, "positions": 16, "data": "text"},
            "text",
            batch=32,
            iterations=800,
            rates={"adam": (0.003, 0.006, 0.012)},
            seeds=5,
            comparisons=("rotation", "free", "half of the workers full", "warm-up, own rate, equal time"),
        ),
    )
}


@dataclass(frozen=True)
class Samples:
    """Data of one seed; pieces of `training` are a fair or natural split, and no sample of it overlaps `held_out`."""

    training: Tensor
    take: Callable[[Tensor], Batch]
    held_out: Batch


def samples(subject: Subject, seed: int) -> Samples:
    """Split of `seed`: a random third of the digits, or a tenth of the text in one piece, is held out."""
    if subject.data == "text":
        return _text_samples(int(subject.arguments["rows"]), seed)
    inputs, targets = digit_samples()
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    held, training = order[: len(order) // 3], order[len(order) // 3 :]
    return Samples(training, lambda chosen: (inputs[chosen], targets[chosen]), (inputs[held], targets[held]))


def _text_samples(rows: int, seed: int) -> Samples:
    whole = topics_text()
    size = len(whole) // STRETCHES
    low = seed % STRETCHES * size
    high = low + size
    starts = torch.arange(len(whole) - rows)

    def take(chosen: Tensor) -> Batch:
        tokens = whole[chosen[:, None] + torch.arange(rows + 1)]
        return tokens[:, :-1], tokens[:, 1:]

    # Every fourth row of the stretch is measure enough; all would take as long as the training.
    held = torch.arange(low, high - rows, 4 * rows)
    return Samples(starts[(starts + rows < low) | (starts >= high)], take, take(held))


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
