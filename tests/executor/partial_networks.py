"""Networks of many kinds for the tests of `PartialBackprop`: each with its cuts, a loss, and batches by worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Case:
    """A network to train; `draw` gives inputs from a generator, by name in a dictionary; `loss` is of the outputs."""

    build: Callable[[], nn.Module]
    cuts: tuple[str, ...]
    draw: Callable[[torch.Generator], Any]
    loss: Callable[[Any], Tensor]
    autocast: bool = False
    unused: bool = False


class SkipCnn(nn.Module):
    """Convolutions whose first output is added before the last."""

    def __init__(self, normed: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8) if normed else nn.ReLU())
        self.late = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        first = self.stem(images).relu()
        return self.head((self.late(self.middle(first)) + first).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.dense = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.dropout(self.attention(y, y, y, need_weights=False)[0])
        return x + self.dropout(self.dense(self.norm2(x)))


class TiedGpt(nn.Module):
    """A loop over blocks; the table of the embedding is that of the output, read as a function or by a module."""

    def __init__(self, dropout: float = 0.0, checkpointed: bool = False, functional: bool = False) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(32, 16), nn.Parameter(torch.randn(6, 16) / 4)
        self.blocks = nn.ModuleList(Block(16, dropout) for _ in range(4))
        self.norm = nn.LayerNorm(16)
        self.checkpointed, self.functional = checkpointed, functional
        if not functional:
            self.head = nn.Linear(16, 32, bias=False)
            self.head.weight = self.table.weight

    def ending(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return f.linear(x, self.table.weight) if self.functional else self.head(x)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.table(tokens) + self.positions
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits = checkpoint(self.ending, x, use_reentrant=False) if self.checkpointed else self.ending(x)
        return logits, tokens


class Shared(nn.Module):
    """One module called twice, on both sides of a cut, and a part that is frozen."""

    def __init__(self, frozen: bool = False) -> None:
        super().__init__()
        self.first, self.shared, self.between = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)
        if frozen:
            self.between.requires_grad_(False)
            self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.shared(self.first(x).tanh()).tanh()
        return self.last(self.shared(self.between(x).tanh()).tanh())


class Sometimes(nn.Module):
    """A part that no pass of an even sum of tokens uses, and one that none uses."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.dense, self.rare = nn.Embedding(32, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.never, self.head = nn.Linear(8, 8), nn.Linear(8, 32)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.dense(self.table(tokens)).tanh()
        x = self.rare(x) if int(tokens.sum()) % 2 else x
        return self.head(x), tokens


def images(draw: torch.Generator) -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=draw)


def tokens(draw: torch.Generator) -> Tensor:
    return torch.randint(32, (3, 6), generator=draw)


def rows(draw: torch.Generator) -> Tensor:
    return torch.randn(5, 6, generator=draw)


def power(output: Tensor) -> Tensor:
    return (output - 1).square().mean()


def next_token(outputs: tuple[Tensor, Tensor]) -> Tensor:
    logits, targets = outputs
    return f.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets[:, 1:].flatten())


GPT_CUTS = ("blocks.1", "blocks.3")
CASES = {
    "skips": Case(SkipCnn, ("middle", "late"), images, power),
    "tied": Case(TiedGpt, GPT_CUTS, tokens, next_token),
    "batch norm": Case(lambda: SkipCnn(normed=True), ("late", "head"), images, power),
    "frozen": Case(lambda: Shared(frozen=True), ("between", "last"), rows, power),
    "autocast": Case(TiedGpt, GPT_CUTS, tokens, next_token, autocast=True),
    "checkpointing": Case(lambda: TiedGpt(checkpointed=True), GPT_CUTS, tokens, next_token),
    "checkpointed by function": Case(
        lambda: TiedGpt(dropout=0.1, checkpointed=True, functional=True), GPT_CUTS, tokens, next_token
    ),
    "sometimes": Case(Sometimes, ("dense", "head"), tokens, next_token, unused=True),
}


def built(case: Case) -> nn.Module:
    torch.manual_seed(1)
    return case.build()


def loss_of(case: Case, model: nn.Module, worker: int, iteration: int) -> Tensor:
    """The loss of a worker's batch; all that is drawn depends on worker and iteration alone."""
    draw = torch.Generator().manual_seed(1000 * iteration + worker)
    torch.manual_seed(7000 * iteration + worker)
    with torch.autocast("cpu", torch.bfloat16, enabled=case.autocast):
        inputs = case.draw(draw)
        return case.loss(model(**inputs) if isinstance(inputs, dict) else model(inputs))
