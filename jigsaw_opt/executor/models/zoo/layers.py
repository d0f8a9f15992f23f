"""The modules that torch does not have ready: residual blocks, transformer layers, embeddings, heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """Residual block of three convolutions, the stride in the middle one (He et al. 2016).

    `channels`: channels of the input, ``(batch, channels, size, size)``. `width`: channels inside; the output has four
    times as many.
    """

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = self.expansion * width
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images to images ``(batch, 4 * width, size / stride, size / stride)``."""
        return functional.relu(self.body(inputs) + self.shortcut(inputs))


class TransformerLayer(nn.Module):
    """Self-attention and a dense pair, each in a residual branch (Vaswani et al. 2017).

    `width, heads`: width of a row, and number of attention heads, which divides it. `causal`: true for a decoder: rows
    see only what is before them, and layers are normalised first (GPT-2). False for an encoder, normalised last (BERT).
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.attention_norm, self.dense_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows ``(batch, rows, width)`` to rows of the same shape."""
        if self.causal:
            rows = rows + self._attention(self.attention_norm(rows))
            return rows + self.dense(self.dense_norm(rows))  # type: ignore[no-any-return]
        rows = self.attention_norm(rows + self._attention(rows))
        return self.dense_norm(rows + self.dense(rows))  # type: ignore[no-any-return]

    def _attention(self, rows: Tensor) -> Tensor:
        batch, count, width = rows.shape
        split = self.queries_keys_values(rows).view(batch, count, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        return self.mix(seen.transpose(1, 2).reshape(batch, count, width))  # type: ignore[no-any-return]


class Embeddings(nn.Module):
    """Sum of the embeddings of tokens, their positions and, where there are sentence pairs, their sentences.

    `vocabulary, positions, width`: tokens in the vocabulary, greatest number of rows, width of a row. `sentences`: 0,
    or the number of sentences that a row of tokens holds, one behind the other; then the sum is normalised.
    """

    def __init__(self, vocabulary: int, positions: int, width: int, sentences: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.sentences = nn.Embedding(sentences, width) if sentences else None
        self.norm: nn.Module = nn.LayerNorm(width) if sentences else nn.Identity()
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)  # torch's 1 makes the scores of a tied output far too large

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens ``(batch, rows)`` to rows ``(batch, rows, width)``."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        total = self.tokens(tokens) + self.positions(places)
        if self.sentences is not None:
            total = total + self.sentences(places * self.sentences.num_embeddings // tokens.shape[1])
        return self.norm(total)  # type: ignore[no-any-return]


class VocabularyOutput(nn.Module):
    """Normalised rows to scores of the tokens, with the table of the input embedding as weights (GPT-2)."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.norm, self.table = nn.LayerNorm(table.embedding_dim), table

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows ``(batch, rows, width)`` to scores ``(batch, rows, vocabulary)``."""
        return functional.linear(self.norm(rows), self.table.weight)


class PretrainingHeads(nn.Module):
    """The two heads of BERT's pre-training: masked tokens, and whether the second sentence follows the first.

    The output carries both: scores of tokens ``(batch, rows, vocabulary)``, and in an additional last row the two
    scores of the sentence pair at its head.
    """

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        width = table.embedding_dim
        self.pool, self.pair = nn.Linear(width, width), nn.Linear(width, 2)
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.table, self.bias = table, nn.Parameter(torch.zeros(table.num_embeddings))

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows ``(batch, rows, width)`` to scores ``(batch, rows + 1, vocabulary)``."""
        tokens = functional.linear(self.transform(rows), self.table.weight, self.bias)
        pair = self.pair(torch.tanh(self.pool(rows[:, 0])))
        return torch.cat([tokens, functional.pad(pair, (0, tokens.shape[2] - 2)).unsqueeze(1)], dim=1)
