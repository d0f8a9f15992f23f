"""A network that tells how much memory its process has had resident, for tests."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn


def net(width: int, told: str) -> tuple[nn.Sequential, object, object]:
    """Two hidden layers; every batch writes the peak so far, in bytes."""

    def batch(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        Path(told).write_text(str(peak * (1 if sys.platform == "darwin" else 1024)))
        return torch.randn(size, 64, generator=generator), torch.randint(10, (size,), generator=generator)

    layers = nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    return nn.Sequential(*layers), nn.functional.cross_entropy, batch
