"""Stages of pipelines for the tests: a small network, and ones that go wrong."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 8


class Fault(nn.Module):
    """Ends the process in its forward pass after so many, or raises."""

    def __init__(self, after: int, kills: bool) -> None:
        super().__init__()
        self.left, self.kills = after, kills

    def forward(self, inputs: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("a fault on purpose")
        return inputs


def net(
    rank: int, world: int, device: torch.device, fault: str = "", after: int = 0, samples: int = 12
) -> dict[str, Any]:
    """Four layers with dropout, as a `Sequential` that the entry cuts, an optimiser with a state, and shuffled data."""
    layers = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH)]
    if fault:
        layers.append(Fault(after, fault == "kill"))
    model = nn.Sequential(*layers)
    data = [(torch.randn(WIDTH), torch.randn(WIDTH)) for _ in range(3 * samples)]
    loader = torch.utils.data.DataLoader(data, batch_size=samples, shuffle=True)  # type: ignore[arg-type]
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    return {"model": model, "loader": loader, "loss": nn.functional.mse_loss, "optimizer": optimiser}
