"""Trainings as users return them, which runs of plans carry out."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

WIDTH, CLASSES = 12, 5


class Noisy(nn.Module):
    """A network with a skip, dropout, batch normalisation, and draws by Python and numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(0.3)) for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, rows: Tensor) -> Tensor:
        first = values = self.stem(rows) * (1 + 0.1 * random.random()) + 0.1 * float(np.random.rand())
        for layer in self.layers:
            values = values + layer(values)
        return self.head(values + first)


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Rows with noise that is drawn anew each time."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        own = torch.Generator().manual_seed(index)
        return torch.randn(WIDTH, generator=own) + 0.1 * torch.randn(WIDTH), torch.tensor(index % CLASSES)


def noisy(rank: int, world: int, device: torch.device, processes: int = 0) -> dict[str, Any]:
    model = Noisy().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return {
        "model": model,
        "optimiser": optimiser,
        "schedule": torch.optim.lr_scheduler.MultiStepLR(optimiser, [3, 5]),
        "loader": DataLoader(Rows(), batch_size=4, shuffle=True, num_workers=processes),
        "loss": nn.CrossEntropyLoss(),
        "clip_grad_norm": 0.5,
    }


def seeded(rank: int, world: int, device: torch.device) -> SimpleNamespace:
    """The same with a sampler for each worker, its own generator, and the other spelling."""
    torch.manual_seed(7)
    random.seed(7 + rank)
    np.random.seed(7 + rank)
    model = Noisy().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = Rows()
    sampler = DistributedSampler(data, world, rank, seed=3)
    return SimpleNamespace(
        model=model,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
        loader=DataLoader(data, batch_size=3, sampler=sampler, generator=torch.Generator().manual_seed(rank)),
        loss=nn.functional.cross_entropy,
    )


class Wholesome(nn.Module):
    """A model that knows its loss, as those of `transformers`."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 16)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(torch.tanh(self.middle(self.table(tokens))))
        return {"logits": logits, "loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


def wholesome(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    model, generator = Wholesome(), torch.Generator().manual_seed(rank)

    def batches() -> Iterator[dict[str, Tensor]]:
        while True:
            tokens = torch.randint(16, (4, 6), generator=generator)
            yield {"tokens": tokens, "labels": tokens.roll(-1, 1)}

    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), 1e-2),
        "loader": batches,
        "loss": None,
    }


def raising(rank: int, world: int, device: torch.device) -> Any:
    raise ZeroDivisionError("on purpose")


def late(rank: int, world: int, device: torch.device) -> Any:
    made = noisy(rank, world, device)

    def batches() -> Iterator[Any]:
        yield from list(made["loader"])[:1]
        raise ZeroDivisionError("in the middle")

    return made | {"loader": batches}


def wrong(rank: int, world: int, device: torch.device, field: str) -> Any:
    made = noisy(rank, world, device)
    if field == "nothing":
        return None
    if field == "misspelt":
        return made | {"optimzer": made.pop("optimiser")}
    strange = {
        "model": nn.parallel.DataParallel,
        "optimiser": torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1),
        "loader": iter(made["loader"]),
        "loss": 3,
        "schedule": torch.optim.lr_scheduler.ReduceLROnPlateau(made["optimiser"]),
        "clip_grad_norm": -1,
        "empty": [],
    }
    return made | {"loader" if field == "empty" else field: strange[field]}


def headless(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """The last part is frozen, so that a backward pass to level 1 reaches nothing."""
    made = noisy(rank, world, device)
    made["model"].head.requires_grad_(False)
    return made


def killed(rank: int, world: int, device: torch.device, folder: str, processes: int) -> dict[str, Any]:
    """The second worker is killed in its fourth pass; each process leaves its number in a folder.

    Beside those of the loader there is one that would not end by itself, and holds all that its worker has open.
    """
    made, here, passes = noisy(rank, world, device), Path(folder), count(1)

    def note(_: int = 0) -> None:
        (here / f"process{os.getpid()}").touch()

    def kill(*_: Any) -> None:
        if next(passes) == 4 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def serve() -> None:
        note()
        sleep(3600)

    note()
    get_context("fork").Process(target=serve, daemon=True).start()
    made["model"].register_forward_pre_hook(kill)
    return made | {"loader": DataLoader(Rows(), batch_size=4, num_workers=processes, worker_init_fn=note)}
