"""A network of a user's own that goes wrong when a file says so."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import torch
from torch import Generator, Tensor, nn


class Fault(nn.Module):
    """Passes its input on; in the call that the file `trigger` names, does what stands there."""

    def __init__(self, trigger: Path) -> None:
        super().__init__()
        self._trigger, self._calls = trigger, 0
        trigger.with_name(f"process{os.getpid()}").touch()

    def forward(self, inputs: Tensor) -> Tensor:
        self._calls += 1
        what, call = self._trigger.read_text().split() if self._trigger.exists() else ("nothing", "0")
        if self._calls != int(call):
            return inputs
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "raise":
            raise ValueError("a fault on purpose")
        if what == "exit":
            sys.exit(0)
        if what == "full":  # no file may grow beyond this any more, as on a disk with no room left
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        return inputs * float("nan") if what == "nan" else inputs


def net(trigger: str) -> tuple[nn.Sequential, nn.Module, object]:
    """Three units: a dense layer, the fault, a dense layer."""

    def batch(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        return torch.randn(count, 8, generator=generator), torch.randint(3, (count,), generator=generator)

    return nn.Sequential(nn.Linear(8, 16), Fault(Path(trigger)), nn.Linear(16, 3)), nn.CrossEntropyLoss(), batch
