"""A network of one's own, with skips, a loop over blocks and dropout, and the batches that it learns from."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROWS = torch.randn(1024, 16, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(ROWS, ROWS[:, :4].argmax(1))


class Block(nn.Module):
    """Two layers beside a skip."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width))

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows of the same width."""
        return rows + self.inner(rows)


class Net(nn.Module):
    """Blocks in a loop, and a skip from the stem to the head, across every cut."""

    def __init__(self, width: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Linear(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(2 * width, 4)

    def forward(self, rows: Tensor) -> Tensor:
        """Return a score of each class."""
        first = rows = self.stem(rows)
        for block in self.blocks:
            rows = block(rows)
        return self.head(torch.cat([rows, first], 1))


def batches(rank: int, world: int) -> DataLoader[tuple[Tensor, ...]]:
    """Return the loader of a worker, which has a share of the data."""
    return DataLoader(DATA, batch_size=16, sampler=DistributedSampler(DATA, world, rank))
